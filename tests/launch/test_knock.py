"""Who is let in by PEP 768, and the sentence where one is not."""

from __future__ import annotations

import dataclasses
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mcp_probe.errors import AttachError
from mcp_probe.launch.inside import knock
from mcp_probe.launch.outside.target import Target, find
from tests.launch.attach_cells import python_of

HERE = Target(
    pid=2**22 + 1,
    uid=0,
    command=("/venv/bin/python", "my server.py", "--port", "80"),
    executable="/usr/bin/python3.14",
    version=(3, 14),
    folder="/srv/my app",
    stopped=False,
    unaskable="",
)
RESTART = "cd '/srv/my app' && mcp-probe run -- /venv/bin/python 'my server.py' --port 80"


@contextmanager
def running(*command: str, **variables: str) -> Iterator[Target]:
    """A program that says it runs, and goes on running Python."""
    program = "import time; print('up', flush=True)\nwhile True: time.sleep(0.01)"
    with subprocess.Popen([*command, "-c", program], stdout=subprocess.PIPE, env=variables) as process:
        assert process.stdout is not None and process.stdout.readline() == b"up\n"
        try:
            yield find(process.pid)
        finally:
            process.kill()


def test_an_older_python_is_told_how_to_restart_it_exactly() -> None:
    old = dataclasses.replace(HERE, version=(3, 12))
    with pytest.raises(AttachError) as caught:
        knock.check(old)
    assert "runs Python 3.12" in str(caught.value)
    assert str(caught.value).splitlines()[-1].strip() == RESTART


def test_the_command_line_for_a_restart_is_whole_however_long_it_is() -> None:
    long = dataclasses.replace(HERE, command=("/venv/bin/python", *(f"argument {n}" for n in range(200))))
    words = shlex.split(knock.restart(long))
    assert words[words.index("--") + 1 :] == list(long.command)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_an_interpreter_is_looked_up_where_the_server_found_it(tmp_path: Path) -> None:
    (tmp_path / "python-of-server").symlink_to(sys.executable)
    with running(str(tmp_path / "python-of-server"), PATH=str(tmp_path)) as target:
        named = dataclasses.replace(target, command=("python-of-server", *target.command[1:]))
        assert str(tmp_path / "python-of-server") in shlex.split(knock.restart(named))


def test_what_cannot_be_asked_is_not_entered() -> None:
    with pytest.raises(AttachError, match=r"cannot be brought into process .*: it is in another container"):
        knock.check(dataclasses.replace(HERE, unaskable="it is in another container"))


def test_each_refusal_of_cpython_has_its_own_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "exists", lambda path: True)
    said = {
        "replaced": knock.refused(
            HERE, "RuntimeError", "Can't send commands from a Python 3.14 process to a Python 3.15 process"
        ),
        "right": knock.refused(HERE, "PermissionError", "[Errno 1] Operation not permitted"),
        "disabled": knock.refused(HERE, "RuntimeError", "Remote debugging is not enabled in the remote process"),
        "other": knock.refused(HERE, "RuntimeError", "PyRuntime address lookup failed"),
    }
    assert "is no longer what process" in said["replaced"] and RESTART in said["replaced"]
    assert "may not be written" in said["right"]
    assert "built with --without-remote-debug" in said["disabled"] and RESTART in said["disabled"]
    assert "could not be entered (RuntimeError: PyRuntime address lookup failed)" in said["other"]


def test_a_process_that_has_ended_is_told_so() -> None:
    assert knock.refused(HERE, "RuntimeError", "anything") == f"Process {HERE.pid} has ended meanwhile."


@pytest.mark.parametrize("version", ["3.14", "3.15"])
def test_a_server_that_lets_nobody_in_is_told_by_what(version: str) -> None:
    python = str(python_of(version))
    for options, variables, words in (
        ((), {"PYTHON_DISABLE_REMOTE_DEBUG": "1"}, "PYTHON_DISABLE_REMOTE_DEBUG is set in its environment"),
        (("-X", "disable-remote-debug"), {}, "started with -X disable-remote-debug"),
    ):
        with running(python, *options, **variables) as target, pytest.raises(AttachError, match=words):
            knock.knock(target, knock.NOTHING)


@pytest.mark.parametrize("version", ["3.14", "3.15"])
def test_a_script_is_run_and_one_that_was_withdrawn_is_not(version: str, tmp_path: Path) -> None:
    ran, script = tmp_path / "ran", tmp_path / "script.py"
    program = (
        "import select, sys\nprint('up', flush=True)\nselect.select([0], [], [])\nprint('on', flush=True)\ninput()"
    )
    for withdrawn in (True, False):
        script.write_text(f"open({str(ran)!r}, 'w').close()")
        pipe = subprocess.PIPE
        with subprocess.Popen([python_of(version), "-c", program], stdin=pipe, stdout=pipe, stderr=pipe) as process:
            assert process.stdout is not None and process.stdin is not None and process.stderr is not None
            assert process.stdout.readline() == b"up\n"
            target = find(process.pid)
            while "S" not in Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0]:
                pass
            knock.knock(target, script)
            if withdrawn:
                assert knock.withdraw(target)
                script.unlink()
            process.stdin.write(b"\n")
            process.stdin.flush()
            assert process.stdout.readline() == b"on\n"
            process.stdin.close()
            assert process.stderr.read() == b""
        assert ran.exists() is not withdrawn
