"""`mcp-probe run` as a process among processes: real commands, real pipes, real signals."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import random
import re
import shutil
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from mcp_probe.errors import LaunchError
from mcp_probe.launch.parent import find_program
from mcp_probe.launch.signals import FORWARDED
from mcp_probe.model import Frame
from mcp_probe.record.file import encode, preamble, read_recording
from tests.frames import MS, make_header, make_request
from tests.launch.running import (
    LIMIT_S,
    ROOT,
    SEND_ALL,
    THREE_REQUESTS,
    environment,
    player,
    probe_run,
    program,
    run,
    start,
)

SEND = SEND_ALL
STAYS = f"{SEND}say('ready')\nsys.stdin.read()\n"


# --- what the command must not notice -------------------------------------------------------------


def test_stdin_and_stdout_pass_through_byte_for_byte(tmp_path: Path) -> None:
    sent = random.Random(7).randbytes(1_000_003)
    done = run(
        program(tmp_path, "import shutil, sys\nshutil.copyfileobj(sys.stdin.buffer, sys.stdout.buffer)"), stdin=sent
    )
    assert done.stdout == sent


def test_stderr_of_the_command_is_its_own(tmp_path: Path) -> None:
    done = run(program(tmp_path, "import sys\nsys.stderr.write('from the command\\n')"))
    assert done.stderr.startswith(b"from the command\n")


def test_the_command_sees_the_path_and_the_modules_it_would_see_without_us(tmp_path: Path) -> None:
    command = program(
        tmp_path, "import sys\nprint(sys.path, sorted(set(sys.modules) & {'rich', 'asyncio', 'socket', 'json'}))"
    )
    bare = subprocess.run(command, capture_output=True, env=environment(), cwd=ROOT, check=True)
    assert run(command).stdout == bare.stdout


def test_the_command_inherits_other_open_files(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.set_inheritable(writer, True)
    done = subprocess.run(
        probe_run(program(tmp_path, f"import os\nos.write({writer}, b'seen')")),
        pass_fds=[writer],
        env=environment(),
        cwd=ROOT,
        capture_output=True,
        timeout=LIMIT_S,
    )
    os.close(writer)
    with os.fdopen(reader, "rb") as stream:
        assert (done.returncode, stream.read()) == (0, b"seen")


def test_signal_dispositions_and_mask_reach_the_command_as_they_were(tmp_path: Path) -> None:
    if not os.path.exists("/proc/self/status"):
        pytest.skip("needs /proc")
    command = ["grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status"]  # no Python, which sets some of its own
    bare = subprocess.run(command, capture_output=True, env=environment(), check=True)

    def masks(status: bytes) -> list[int]:
        return [int(value, 16) & 0x7FFFFFFF for value in status.split()[1::2]]  # above 31 are the C library's own

    assert masks(run(command).stdout) == masks(bare.stdout)


@pytest.mark.parametrize("code", [0, 1, 2, 3, 77, 255])
def test_exit_code_is_the_commands(tmp_path: Path, code: int) -> None:
    assert run(program(tmp_path, f"raise SystemExit({code})")).returncode == code


# --- the report -----------------------------------------------------------------------------------


def test_report_comes_on_stderr_and_nothing_on_stdout(tmp_path: Path) -> None:
    done = run(player(tmp_path, SEND))
    assert b"played" in done.stderr
    assert b"mcp-probe:" not in done.stderr
    assert (done.returncode, done.stdout) == (0, b"")


def test_output_and_json_go_to_files_and_leave_stderr_alone(tmp_path: Path) -> None:
    report, summary = tmp_path / "report.txt", tmp_path / "summary.json"
    done = run(player(tmp_path, SEND), "--output", str(report), "--json", str(summary))
    assert "played" in report.read_text("utf-8")
    assert json.loads(summary.read_text())["requests"]["count"] == 3
    assert done.stderr == b""


def test_recording_holds_the_very_lines_of_the_channel(tmp_path: Path) -> None:
    recording = tmp_path / "recording"
    run(player(tmp_path, SEND), "--record", str(recording))
    assert recording.read_bytes() == preamble() + b"".join(encode(frame) for frame in THREE_REQUESTS)
    assert tuple(read_recording(recording)) == THREE_REQUESTS


def test_recording_is_on_disk_while_the_server_runs(tmp_path: Path) -> None:
    recording = tmp_path / "recording"
    with start(player(tmp_path, STAYS, THREE_REQUESTS[:-1]), "--record", str(recording)) as probed:
        assert probed.stdout is not None
        assert probed.stdout.readline() == b"ready\n"
        wait_until(lambda: recording.read_bytes().endswith(encode(THREE_REQUESTS[-2])))
        os.killpg(probed.pid, signal.SIGKILL)
    assert tuple(read_recording(recording)) == THREE_REQUESTS[:-1]


def test_a_server_in_another_environment_needs_no_mcp_probe_there(tmp_path: Path) -> None:
    home = tmp_path / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True, timeout=LIMIT_S)
    body = "import importlib.util\nsay(str([importlib.util.find_spec(name) for name in ('rich', 'pytest')]))\n" + SEND
    done = run(player(tmp_path, body, python=str(home / "bin" / "python")))
    assert done.stdout == b"[None, None]\n"
    assert b"played" in done.stderr


def test_a_wrapper_script_may_start_the_server(tmp_path: Path) -> None:
    done = run(["/bin/sh", "-c", '"$@"; exit 5', "sh", *player(tmp_path, SEND)])
    assert done.returncode == 5
    assert b"played" in done.stderr


def test_each_serving_process_has_a_report_and_files_of_its_own(tmp_path: Path) -> None:
    body = """
import subprocess
if not sys.argv[1:]:
    sink.write(lines)
    subprocess.run([*sys.orig_argv, "again"], check=True)
"""
    recording, summary = tmp_path / "recording", tmp_path / "summary.json"
    done = run(player(tmp_path, body + SEND), "--record", str(recording), "--json", str(summary))
    assert done.stderr.count(b"played") == 2
    assert len(list(read_recording(recording))) > len(list(read_recording(tmp_path / "recording.2")))
    assert [json.loads(path.read_text())["requests"]["count"] for path in (summary, tmp_path / "summary.json.2")] == [
        6,
        3,
    ]


def test_a_forked_server_does_not_write_into_its_parents_stream(tmp_path: Path) -> None:
    body = """
sink.write(lines[:2])
if os.fork() == 0:
    sink.write(lines[2:3])
    sink.close()
    os._exit(0)
os.wait()
sink.write(lines[3:])
"""
    recording = tmp_path / "recording"
    run(player(tmp_path, body + SEND), "--record", str(recording))
    header, *requests, end = THREE_REQUESTS
    parents, childs = list(read_recording(recording)), list(read_recording(tmp_path / "recording.2"))
    assert parents == [header, requests[0], requests[2], end, *THREE_REQUESTS]
    assert childs[1:] == [requests[1]]
    assert childs[0] == make_header(server="played", pid=childs[0].pid)  # type: ignore[union-attr]


# --- ends -----------------------------------------------------------------------------------------


def test_a_killed_server_leaves_its_report_and_its_wait_status(tmp_path: Path) -> None:
    done = run(player(tmp_path, "sink.write(lines[:-1])\nos.kill(os.getpid(), 9)\n"))
    assert done.returncode == -signal.SIGKILL
    assert b"played" in done.stderr
    assert b"was ended by SIGKILL" in done.stderr
    assert b"ended without closing its recording" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGSEGV])
def test_death_by_a_signal_is_death_by_that_signal(tmp_path: Path, number: int) -> None:
    done = run(
        program(tmp_path, f"import os, signal\nsignal.signal({number}, signal.SIG_DFL)\nos.kill(os.getpid(), {number})")
    )
    assert done.returncode == -number


@pytest.mark.parametrize("number", FORWARDED)
def test_a_signal_sent_to_us_reaches_the_command(tmp_path: Path, number: signal.Signals) -> None:
    source = f"""
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, [{number}])
print("ready", flush=True)
print(signal.sigwait([{number}]), flush=True)
"""
    with start(program(tmp_path, source)) as probed:
        assert probed.stdout is not None
        assert probed.stdout.readline() == b"ready\n"
        os.kill(probed.pid, number)
        assert probed.stdout.readline() == f"{number}\n".encode()
        assert probed.wait(LIMIT_S) == 0


@pytest.mark.skipif(not hasattr(signal, "sigtimedwait"), reason="there, what was ignored is not passed on")
def test_a_server_that_heeds_what_it_inherited_as_ignored_is_sent_it(tmp_path: Path) -> None:
    """As a script's background job is: its shell ignores SIGINT for it, and uvicorn handles SIGINT all the same."""
    source = """
import signal
print(signal.getsignal(signal.SIGINT) == signal.SIG_IGN, flush=True)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
print("ready", flush=True)
print(signal.sigwait([signal.SIGINT]) == signal.SIGINT, flush=True)
"""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        probed = start(program(tmp_path, source))
    finally:
        signal.signal(signal.SIGINT, before)
    with probed:
        assert probed.stdout is not None
        assert [probed.stdout.readline() for _ in range(2)] == [b"True\n", b"ready\n"]
        os.kill(probed.pid, signal.SIGINT)
        assert probed.stdout.readline() == b"True\n"
        assert probed.wait(LIMIT_S) == 0


def test_a_terminated_parent_still_reports(tmp_path: Path) -> None:
    with start(player(tmp_path, STAYS)) as probed:
        assert probed.stdout is not None
        assert probed.stdout.readline() == b"ready\n"
        assert probed.stderr is not None
        os.kill(probed.pid, signal.SIGTERM)
        probed.wait(LIMIT_S)  # not communicate(): the end of its stdin would race with the signal
        assert probed.returncode == -signal.SIGTERM
        assert b"played" in probed.stderr.read()


def test_a_command_that_ignores_sigterm_is_reported_before_sigkill_takes_us_too(tmp_path: Path) -> None:
    body = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + STAYS
    with start(player(tmp_path, body, THREE_REQUESTS[:-1])) as probed:
        assert probed.stdout is not None
        assert probed.stderr is not None
        assert probed.stdout.readline() == b"ready\n"
        os.killpg(probed.pid, signal.SIGTERM)
        said = read_until(probed.stderr.fileno(), b"still runs")
        assert probed.poll() is None
        os.killpg(probed.pid, signal.SIGKILL)
    assert b"played" in said


def test_files_are_written_again_when_a_late_command_ends_after_all(tmp_path: Path) -> None:
    summary = tmp_path / "summary.json"
    body = """
import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
sink.write(lines[:2])
say("ready")
sys.stdin.read()
sink.write(lines[2:])
sink.close()
"""
    with start(player(tmp_path, body), "--json", str(summary)) as probed:
        assert probed.stdout is not None
        assert probed.stderr is not None
        assert probed.stdout.readline() == b"ready\n"
        os.kill(probed.pid, signal.SIGTERM)
        said = read_until(probed.stderr.fileno(), b"still runs")
        _, rest = probed.communicate(timeout=LIMIT_S)
    assert probed.returncode == 0
    assert json.loads(summary.read_text())["requests"]["count"] == 3
    assert (said + rest).count(b"played") == 1


def test_control_c_at_a_terminal_reaches_the_command_once(tmp_path: Path) -> None:
    source = """
import signal
numbers = [signal.SIGINT, signal.SIGUSR1]
signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
print("ready", flush=True)
seen = [signal.sigwait(numbers)]
print("first", flush=True)
while seen[-1] != signal.SIGUSR1:
    seen.append(signal.sigwait(numbers))
print([signal.Signals(number).name for number in seen], flush=True)
"""
    terminal, inside = pty.openpty()
    with start(
        program(tmp_path, source),
        stdin=inside,
        stderr=subprocess.DEVNULL,
        preexec_fn=lambda: fcntl.ioctl(inside, termios.TIOCSCTTY, 0),
    ) as probed:
        assert probed.stdout is not None
        assert probed.stdout.readline() == b"ready\n"
        os.write(terminal, b"\x03")
        assert probed.stdout.readline() == b"first\n"
        os.kill(probed.pid, signal.SIGUSR1)  # passed on after whatever was passed on for ^C
        assert probed.stdout.readline() == b"['SIGINT', 'SIGUSR1']\n"
        assert probed.wait(LIMIT_S) == 0
    os.close(terminal)
    os.close(inside)


def test_a_stderr_that_nobody_reads_does_not_hold_us(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with pytest.raises(BlockingIOError):
        while True:
            os.write(writer, b"x" * 65536)
    os.set_blocking(writer, True)
    with start(player(tmp_path, SEND + "raise SystemExit(4)"), stderr=writer) as probed:
        assert probed.wait(LIMIT_S) == 4
    os.close(reader)
    os.close(writer)


def test_a_server_that_outlives_the_command_is_said_to_run(tmp_path: Path) -> None:
    body = """
import subprocess
if sys.argv[1:]:
    sink.write(lines)
    say("ready")
    sys.stdin.read()
else:
    orphan = subprocess.Popen([*sys.orig_argv, "orphan"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    orphan.stdout.readline()
    os._exit(0)
"""
    with start(player(tmp_path, body, THREE_REQUESTS[:-1])) as probed:
        assert probed.stderr is not None
        stderr = read_until(probed.stderr.fileno(), b"until then")
        assert probed.wait(LIMIT_S) == 0
    assert b"still ran when the command had ended" in stderr


# --- nothing served -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command", [["/bin/sh", "-c", "exit 0"], *([sys.executable, flag, "-c", "pass"] for flag in ("-I", "-E", "-S"))]
)
def test_a_command_that_cannot_load_the_probe_is_told_why(command: list[str]) -> None:
    stderr = run(command).stderr.decode()
    assert "never loaded the probe" in stderr
    assert "-I, -E or -S" in stderr


def test_a_program_without_mcp_is_told_so(tmp_path: Path) -> None:
    assert "never imported the mcp package" in run(program(tmp_path, "print(1)")).stderr.decode()


def test_a_program_that_makes_no_server_is_told_so(tmp_path: Path) -> None:
    (tmp_path / "mcp.py").write_text("")
    assert "created no MCP server" in run(program(tmp_path, "import mcp")).stderr.decode()


@pytest.mark.parametrize("name", ["python2.7", "python3.8", "python3.9"])
def test_an_old_python_is_named(name: str) -> None:
    python = shutil.which(name)
    if python is None or subprocess.run([python, "-c", ""], capture_output=True).returncode:
        pytest.skip(f"{name} is not here")
    done = run([python, "-c", "print(1)"])
    assert done.stdout == b"1\n"
    assert re.search(rb"runs on Python (2\.7|3\.[89])\.\d+ .*needs Python 3\.10", done.stderr)


def test_json_of_a_run_that_served_nothing_has_the_same_keys_and_says_why(tmp_path: Path) -> None:
    served, empty = tmp_path / "served.json", tmp_path / "empty.json"
    run(player(tmp_path, SEND), "--json", str(served))
    run(["/bin/sh", "-c", "exit 0"], "--json", str(empty))
    nothing = json.loads(empty.read_text())
    assert nothing.keys() == json.loads(served.read_text()).keys()
    assert "never loaded the probe" in nothing["notes"][-1]


def test_frames_that_cannot_be_read_end_the_report_and_not_the_run(tmp_path: Path) -> None:
    recording = tmp_path / "recording"
    done = run(player(tmp_path, "sink.write([*lines[:2], b'nonsense\\n', *lines[2:]])\n"), "--record", str(recording))
    assert done.returncode == 0
    assert b"its report ends early" in done.stderr
    assert recording.read_bytes().endswith(encode(THREE_REQUESTS[-1]))


# --- bad use --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("no-such-program-anywhere", "no program of that name is on PATH"),
        ("server.py", "python server.py"),
        ("/no/such/file", "there is no such file"),
        ("/", "it is a folder"),
    ],
)
def test_a_command_that_cannot_run_is_refused_with_the_reason(name: str, sentence: str) -> None:
    with pytest.raises(LaunchError, match=re.escape(sentence)):
        find_program([name])


def test_a_file_that_is_not_executable_is_refused(tmp_path: Path) -> None:
    script = tmp_path / "server.py"
    script.touch(mode=0o600)
    with pytest.raises(LaunchError, match="not executable"):
        find_program([str(script)])


def test_a_script_that_names_no_interpreter_is_refused_before_it_runs(tmp_path: Path) -> None:
    script = tmp_path / "server"
    script.write_text("print(1)\n")
    script.chmod(0o700)
    done = run([str(script)])
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"Expected a program" in done.stderr


def test_an_unwritable_recording_starts_nothing(tmp_path: Path) -> None:
    done = run(program(tmp_path, "print('started')"), "--record", str(tmp_path / "missing" / "file"))
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"Cannot write the recording" in done.stderr


def test_no_folder_of_the_run_is_left_behind(tmp_path: Path) -> None:
    before = environment(TMPDIR=str(tmp_path / "t"))
    (tmp_path / "t").mkdir()
    run(player(tmp_path, SEND), env=before)
    assert list((tmp_path / "t").iterdir()) == []


def test_a_burst_at_the_end_is_recorded_whole_and_what_the_report_lacks_is_said(tmp_path: Path) -> None:
    recording, summary = tmp_path / "recording", tmp_path / "summary.json"
    frames: list[Frame] = [make_header()]
    frames += (make_request(id=number, arrival_ns=number * MS, busy=MS // 2) for number in range(1, 10_001))
    body = """
import socket
from mcp_probe.record.file import preamble
channel = socket.socket(socket.AF_UNIX)
channel.connect(os.path.join(os.environ["MCP_PROBE_RUN"], "channel"))
channel.sendall(preamble() + b"".join(lines))
import fcntl, struct, termios, time
while struct.unpack("i", fcntl.ioctl(channel, termios.TIOCOUTQ, bytes(4)))[0]:
    time.sleep(0.001)  # until all of it has been read; to fold it takes longer
"""
    options = ["--record", str(recording), "--json", str(summary)]
    command = [sys.executable, "-m", "mcp_probe", "run", *options, "--", *player(tmp_path, body, frames)]
    done = subprocess.run(command, capture_output=True, env=environment(), cwd=ROOT, timeout=LIMIT_S)
    said = re.search(rb"the last (\d+) frames came too late", done.stderr)
    assert json.loads(summary.read_text())["requests"]["count"] == 10_000 - (int(said[1]) if said else 0)
    assert recording.read_bytes().count(b"\n") == 1 + len(frames)


def wait_until(ready: Callable[[], bool]) -> None:
    """Polls ``ready``; the test's time-out is the deadline."""
    while not ready():
        time.sleep(0.01)


def read_until(fd: int, ending: bytes) -> bytes:
    """Reads from ``fd`` until ``ending`` has come."""
    said = b""
    while ending not in said:
        chunk = os.read(fd, 65536)
        if not chunk:
            raise AssertionError(f"ended without {ending!r}: {said!r}")
        said += chunk
    return said
