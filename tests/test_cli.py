"""Arguments, sentences and exit codes; what `run` does to a command is in tests/launch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

import mcp_probe
from mcp_probe import cli
from mcp_probe.aggregate.fold import Fold
from mcp_probe.errors import MissingExtraError
from mcp_probe.launch.sight import Facts
from mcp_probe.model import Frame, Summary
from mcp_probe.record.file import encode, preamble
from tests.frames import MS, SECOND, make_end, make_header, make_request, make_step, make_wait
from tests.launch.running import LIMIT_S, ROOT, environment, player, probe_run

# One tool blocks the loop for 120 ms while another is runnable.
BLOCKED: tuple[Frame, ...] = (
    make_header(server="recorded"),
    make_step(0, 120 * MS, request=1, operation="block", cause="blocking-call", cpu_ns=MS),
    make_request(id=1, name="block", busy=120 * MS, steps=1),
    make_request(id=2, name="add", ready_wait=115 * MS, busy=5 * MS, waits=(make_wait(0, 115 * MS),)),
    make_end(at_ns=2 * SECOND),
)

Cli = Callable[..., tuple[int, str, str]]


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    path = tmp_path / "recording.jsonl"
    path.write_bytes(preamble() + b"".join(encode(frame) for frame in BLOCKED))
    return path


@pytest.fixture
def call(capfd: pytest.CaptureFixture[str]) -> Cli:
    """Runs a command line in this process: (exit code, stdout, stderr)."""

    def run(*arguments: object) -> tuple[int, str, str]:
        try:
            code = cli.main([str(argument) for argument in arguments])
        except SystemExit as exc:
            code = exc.code if isinstance(exc.code, int) else 1
        return code, *capfd.readouterr()

    return run


# --- the command line as a whole ------------------------------------------------------------------


def test_help_shows_every_command_and_examples(call: Cli) -> None:
    code, out, _ = call("--help")
    assert code == 0
    for words in ("run", "report", "demo", "doctor", "mcp-probe run -- python server.py"):
        assert words in out
    assert max(map(len, out.splitlines())) <= 120


@pytest.mark.parametrize("command", ["run", "report", "demo", "doctor"])
def test_each_command_has_help(call: Cli, command: str) -> None:
    code, out, _ = call(command, "--help")
    assert code == 0
    assert out.startswith(f"usage: mcp-probe {command}")


def test_version_is_the_packages(call: Cli) -> None:
    assert call("--version") == (0, f"mcp-probe {mcp_probe.__version__}\n", "")


def test_no_command_is_bad_use_and_shows_help(call: Cli) -> None:
    code, out, err = call()
    assert (code, out) == (2, "")
    assert "mcp-probe demo" in err


def test_the_module_is_the_command() -> None:
    command = [sys.executable, "-m", "mcp_probe", "--version"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S)
    assert (done.returncode, done.stdout) == (0, f"mcp-probe {mcp_probe.__version__}\n")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["fly"], "invalid choice"),
        (["run"], "No command was given"),
        (["run", "--"], "No command was given"),
        (["run", "--", "no-such-program-anywhere"], "no program of that name is on PATH"),
        (["run", "--json", "-", "--", "true"], "stdout, which belongs to the server"),
        (["run", "--output", "-", "--", "true"], "stdout, which belongs to the server"),
        (["run", "--output", "/no/such/folder/x", "--", "true"], "Cannot write /no/such/folder/x"),
        (["run", "--output", "/tmp/x", "--json", "/tmp/../tmp/x", "--", "true"], "name the same file"),
        (["run", "--slow-step-ms", "0", "--", "true"], "from 0.5 to 3600000"),
        (["run", "--slow-step-ms", "soon", "--", "true"], "from 0.5 to 3600000"),
        (["run", "--fail-on", "no-such-code", "--", "true"], "no-such-code"),
        (["run", "--memory", "--", "true"], "--memory"),
        (["run", "--memory", "much", "--", "true"], "invalid choice: 'much'"),
        (["report"], "FILE"),
        (["report", "x", "--width", "20"], "at least 60"),
        (["report", "x", "--width", "wide"], "at least 60"),
        (["report", "x", "--", "y"], "takes no command"),
    ],
)
def test_bad_use_is_one_clear_sentence_and_exit_2(call: Cli, arguments: list[str], words: str) -> None:
    code, out, err = call(*arguments)
    assert (code, out) == (2, "")
    assert words in err.replace("\n", " ")
    assert "Traceback" not in err


def test_a_bad_limit_in_the_environment_is_named(call: Cli, monkeypatch: pytest.MonkeyPatch, recording: Path) -> None:
    monkeypatch.setenv("MCP_PROBE_SLOW_STEP_MS", "soon")
    code, _, err = call("report", recording)
    assert code == 2
    assert "MCP_PROBE_SLOW_STEP_MS is 'soon'" in err


def test_a_bad_tier_in_the_environment_is_named_before_anything_starts(
    call: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MCP_PROBE_MEMORY", "all")
    code, _, err = call("run", "--", "true")
    assert code == 2
    assert "memory is 'all'" in err


def test_bad_use_of_run_starts_nothing_and_empties_no_file(call: Cli, tmp_path: Path) -> None:
    kept = tmp_path / "report.txt"
    kept.write_text("of yesterday")
    call("run", "--output", kept, "--", "no-such-program-anywhere")
    assert kept.read_text() == "of yesterday"


# --- report ---------------------------------------------------------------------------------------


def test_report_of_a_recording_goes_to_stdout(call: Cli, recording: Path) -> None:
    code, out, err = call("report", recording)
    assert (code, err) == (0, "")
    assert "recorded" in out
    assert "block" in out


def test_report_keeps_to_its_width_and_without_colour(
    call: Cli, recording: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    _, colored, _ = call("report", recording)
    _, out, _ = call("report", recording, "--width", 72, "--no-color")
    assert "\x1b[" in colored
    assert "\x1b[" not in out
    assert max(map(len, out.splitlines())) <= 72


def test_json_of_a_recording_is_the_summary(call: Cli, recording: Path, tmp_path: Path) -> None:
    fold = Fold()
    for frame in BLOCKED:
        fold.add(frame)
    expected = json.loads(json.dumps(fold.summary().to_json()))
    code, out, _ = call("report", recording, "--json", "-")
    assert (code, json.loads(out)) == (0, expected)
    _, shown, _ = call("report", recording, "--json", tmp_path / "summary.json")
    assert json.loads((tmp_path / "summary.json").read_text()) == expected
    assert "recorded" in shown


@pytest.mark.parametrize(
    "content", [None, b"", b"not a recording\n", b'{"format":"mcp_probe.recording","version":99}\n']
)
def test_a_recording_that_cannot_be_read_is_exit_3(call: Cli, tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "recording"
    if content is not None:
        path.write_bytes(content)
    code, out, err = call("report", path)
    assert (code, out) == (3, "")
    assert err.startswith("mcp-probe: ")
    assert str(path) in err


@pytest.mark.parametrize(
    ("codes", "expected"), [("blocking-call", 1), ("slow-reader,blocking-call", 1), ("slow-reader", 0)]
)
def test_fail_on_turns_a_finding_into_exit_1(call: Cli, recording: Path, codes: str, expected: int) -> None:
    code, _, err = call("report", recording, "--fail-on", codes)
    assert code == expected
    assert ("failing because of blocking-call" in err) == bool(expected)


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        ("critical", 1),
        ("blocking-call>119ms", 1),
        ("blocking-call>121ms", 0),
        ("gc-pause,blocking-call>0.12s", 0),
        ("blocking-call>1MB", 2),
        ("critical,", 2),
        ("", 2),
        ("memory-peak", 1),
    ],
)
def test_fail_on_takes_severities_and_thresholds(call: Cli, recording: Path, items: str, expected: int) -> None:
    assert call("report", recording, "--fail-on", items)[0] == expected


def test_a_recording_without_requests_does_not_pass(call: Cli, tmp_path: Path) -> None:
    path = tmp_path / "recording.jsonl"
    path.write_bytes(preamble() + b"".join(encode(frame) for frame in (BLOCKED[0], BLOCKED[-1])))
    code, _, err = call("report", path, "--fail-on", "critical")
    assert code == 1
    assert "Nothing was measured" in err


def test_a_baseline_excuses_what_it_has(call: Cli, recording: Path, tmp_path: Path) -> None:
    baseline, suite = tmp_path / "baseline.json", tmp_path / "junit.xml"
    call("report", recording, "--json", baseline)
    code, _, err = call("report", recording, "--fail-on", "critical", "--baseline", baseline, "--junit", suite)
    assert code == 0
    assert "known from the baseline, so it does not fail: blocking-call of `block`" in err
    root = ElementTree.parse(suite).getroot()
    assert (root.attrib["failures"], root.attrib["errors"]) == ("0", "0")
    assert root.find(".//testcase[@name='blocking-call']/system-out") is not None


@pytest.mark.parametrize("content", [None, "{", "{}"])
def test_a_baseline_that_cannot_be_read_is_exit_3_before_anything_starts(
    call: Cli, tmp_path: Path, content: str | None
) -> None:
    baseline, report = tmp_path / "baseline.json", tmp_path / "report.txt"
    if content is not None:
        baseline.write_text(content)
    options = ("--output", report, "--fail-on", "critical", "--baseline", baseline)
    code, _, err = call("run", *options, "--", "touch", tmp_path / "started")
    assert code == 3
    assert f"{baseline}" in err
    assert not (tmp_path / "started").exists()
    assert not report.exists()


def test_options_of_the_gate_need_something_to_fail_on(call: Cli, recording: Path, tmp_path: Path) -> None:
    for option in (["--junit", tmp_path / "x"], ["--baseline", tmp_path / "x"], ["--github"]):
        code, _, err = call("report", recording, *option)
        assert code == 2
        assert "add --fail-on warn" in err


def test_a_run_is_not_its_own_baseline_and_a_recording_is_not_overwritten(
    call: Cli, recording: Path, tmp_path: Path
) -> None:
    base = tmp_path / "base.json"
    call("report", recording, "--json", base)
    before = base.read_bytes(), recording.read_bytes()
    assert call("report", recording, "--fail-on", "warn", "--baseline", base, "--json", base)[0] == 2
    assert call("report", recording, "--fail-on", "warn", "--junit", recording)[0] == 2
    assert (base.read_bytes(), recording.read_bytes()) == before


@pytest.mark.parametrize(
    ("actions", "options", "annotated"),
    [("true", [], True), ("true", ["--no-github"], False), ("", [], False), ("", ["--github"], True)],
)
def test_annotations_are_written_where_github_reads_them(
    call: Cli, recording: Path, monkeypatch: pytest.MonkeyPatch, actions: str, options: list[str], annotated: bool
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", actions)
    code, out, err = call("report", recording, "--json", "-", "--fail-on", "critical", *options)
    assert code == 1
    assert ("\n::error title=mcp-probe%3A blocking-call::" in err) == annotated
    assert json.loads(out)


def test_a_reader_that_leaves_early_does_not_hide_a_finding(recording: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "mcp_probe", "report", str(recording), "--fail-on", "critical"]
    done = subprocess.run(command, cwd=ROOT, stdout=writer, stderr=subprocess.PIPE, timeout=LIMIT_S)
    os.close(writer)
    assert done.returncode == 1
    assert b"failing because of blocking-call" in done.stderr


def test_a_reader_that_leaves_early_is_no_error(recording: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "mcp_probe", "report", str(recording)],
        cwd=ROOT,
        stdout=writer,
        stderr=subprocess.PIPE,
        timeout=LIMIT_S,
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")


# --- run ------------------------------------------------------------------------------------------


def probed(command: list[str], *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        probe_run(command, *options),
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=LIMIT_S,
    )


@pytest.mark.parametrize(
    ("codes", "exit_code", "expected"), [("blocking-call", 0, 1), ("slow-reader", 0, 0), ("blocking-call", 5, 5)]
)
def test_fail_on_turns_only_a_zero_into_a_one(tmp_path: Path, codes: str, exit_code: int, expected: int) -> None:
    server = player(tmp_path, f"sink.write(lines)\nsink.close()\nraise SystemExit({exit_code})", BLOCKED)
    assert probed(server, "--fail-on", codes).returncode == expected


def test_fail_on_does_not_pass_a_run_that_measured_nothing() -> None:
    done = probed(["/bin/sh", "-c", "exit 0"], "--fail-on", "blocking-call")
    assert done.returncode == 1
    assert "Nothing was measured" in done.stderr


def test_a_command_that_serves_nothing_is_an_error_in_the_file(tmp_path: Path) -> None:
    done = probed(
        [sys.executable, "-c", "print('served nothing')"], "--fail-on", "critical", "--junit", f"{tmp_path}/x"
    )
    assert done.returncode == 1
    assert ElementTree.parse(tmp_path / "x").getroot().attrib["errors"] == "1"


def test_a_run_writes_what_it_checked(tmp_path: Path) -> None:
    server = player(tmp_path, "sink.write(lines)\nsink.close()", BLOCKED)
    done = probed(server, "--fail-on", "critical", "--junit", f"{tmp_path}/junit.xml")
    assert done.returncode == 1
    failure = ElementTree.parse(tmp_path / "junit.xml").getroot().find(".//testcase[@name='blocking-call']/failure")
    assert failure is not None
    assert failure.attrib["message"].startswith("`block` blocked the event loop for 120 ms")


def test_options_of_the_command_are_the_commands(tmp_path: Path) -> None:
    script = tmp_path / "show.py"
    script.write_text("import sys; print(sys.argv[1:])")
    arguments = ["--json", "-", "--", "--version"]
    assert probed([sys.executable, str(script), *arguments]).stdout == f"{arguments}\n"


@pytest.mark.parametrize(
    ("given", "inherited", "expected"),
    [(["--memory", "leaks"], "off", "leaks"), ([], "detailed", "detailed"), ([], "", "light")],
    ids=["option", "environment", "neither"],
)
def test_the_tier_of_memory_reaches_the_command(
    given: list[str], inherited: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MCP_PROBE_MEMORY", inherited)
    source = "from mcp_probe.options import Options; print(Options.from_environment({}).memory)"
    assert probed([sys.executable, "-c", source], *given).stdout == f"{expected}\n"


def test_the_two_dashes_may_be_left_out(tmp_path: Path) -> None:
    script = tmp_path / "show.py"
    script.write_text("import sys; print(sys.argv[1:])")
    arguments = ["--json", "-", "--", "--version"]
    command = [sys.executable, "-m", "mcp_probe", "run", sys.executable, str(script), *arguments]
    done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=LIMIT_S)
    assert done.stdout == f"{arguments}\n"


# --- demo and doctor ------------------------------------------------------------------------------


def test_demo_prints_what_the_workload_saw(call: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float | None] = []

    def run(*, seconds: float | None = None) -> Summary:
        asked.append(seconds)
        fold = Fold()
        for frame in BLOCKED:
            fold.add(frame)
        return fold.summary()

    monkeypatch.setattr("mcp_probe.workloads.demo.run", run)
    code, out, _ = call("demo", "--seconds", 2)
    assert (code, asked) == (0, [2.0])
    assert "recorded" in out


def test_demo_without_what_it_needs_says_what_to_install(call: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*, seconds: float | None = None) -> Summary:
        raise MissingExtraError("Install this and that.")

    monkeypatch.setattr("mcp_probe.workloads.demo.run", run)
    assert call("demo") == (2, "", "mcp-probe: Install this and that.\n")


def test_doctor_says_what_is_seen_in_this_python(call: Cli) -> None:
    code, out, _ = call("doctor", "--width", 80, "--no-color")
    assert code == 0
    assert max(map(len, out.splitlines())) <= 80
    row = next(line.split() for line in out.splitlines() if line.strip().startswith("steps "))
    assert row[1] == "exact"


def test_doctor_of_a_python_in_which_no_request_would_be_seen_is_exit_1(
    call: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = Facts(loops={"asyncio": {"steps": "exact"}}, absent={"requests": "this Python has no package mcp"})
    monkeypatch.setattr("mcp_probe.launch.sight.look", lambda: facts)
    code, out, _ = call("doctor")
    assert code == 1
    assert "this Python has no package mcp" in out


def test_doctor_of_a_command_that_is_no_python_program_is_exit_2(call: Cli) -> None:
    code, out, err = call("doctor", "--", "/bin/sh", "-c", "exit 0")
    assert (code, out) == (2, "")
    assert "never loaded the probe" in err
