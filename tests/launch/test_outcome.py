"""What is said of a run, from literal values."""

from __future__ import annotations

import signal

import pytest

from mcp_probe.aggregate.fold import Fold
from mcp_probe.launch.inject import Seen
from mcp_probe.launch.outcome import outcome, signal_name
from mcp_probe.launch.receive import Served

COMMAND = ["my server", "--stdio"]


def served(
    *, ended: bool = True, connected: bool = False, problem: str | None = None, ends_early: bool = False
) -> Served:
    return Served(7, Fold().summary(), 3, ended, connected, problem, ends_early)


def said(exit_code: int | None, *processes: Served, seen: tuple[Seen, ...] = ()) -> str:
    return "\n".join(outcome(COMMAND, exit_code, processes, seen).sentences)


def seen(kind: str, pid: int = 7, detail: str = "") -> Seen:
    return Seen(kind, pid, "3.9.18" if kind == "old" else "3.13.0", "/env/bin/python", detail)


@pytest.mark.parametrize("exit_code", [0, 3])
def test_a_clean_end_needs_no_words(exit_code: int) -> None:
    assert said(exit_code, served()) == ""


def test_each_process_of_a_run_knows_how_many_there_are() -> None:
    reports = outcome(COMMAND, 0, (served(), served()), ()).reports
    assert [report.summary.server.processes for report in reports] == [2, 2]
    (alone,) = outcome(COMMAND, 0, (served(),), ()).reports
    assert alone.summary.server.processes == 1


@pytest.mark.parametrize(
    ("exit_code", "process", "words"),
    [
        (-signal.SIGKILL, served(ended=False), "`'my server' --stdio` was ended by SIGKILL."),
        (-signal.SIGKILL, served(ended=False), "process 7) ended without closing its recording"),
        (0, served(ended=False), "ended without closing its recording"),
        (0, served(ended=False, connected=True), "still ran when the command had ended"),
        (None, served(ended=False, connected=True), "has been told to end and still runs"),
        (
            0,
            served(problem="its recording stopped early (No space left on device)"),
            "process 7): its recording stopped",
        ),
    ],
)
def test_an_end_that_loses_something_says_what(exit_code: int | None, process: Served, words: str) -> None:
    assert words in said(exit_code, process)


@pytest.mark.parametrize(
    ("processes", "words"),
    [
        ((), "never loaded the probe"),
        ((seen("old"),), "runs on Python 3.9.18 (/env/bin/python)"),
        ((seen("old", 6), seen("python")), "never imported the mcp package"),
        ((seen("python"),), "loaded the probe (/env/bin/python, Python 3.13.0) but never imported the mcp package"),
        ((seen("python"), seen("mcp")), "imported mcp (/env/bin/python, process 7) but created no MCP server"),
    ],
)
def test_a_run_that_served_nothing_says_how_far_it_came(processes: tuple[Seen, ...], words: str) -> None:
    assert words in said(0, seen=processes)


def test_a_probe_that_could_not_start_is_named_even_beside_one_that_did() -> None:
    words = said(0, served(), seen=(seen("python"), seen("failed", 9, "ImportError: no ssl")))
    assert words == "The probe could not start in /env/bin/python (process 9): ImportError: no ssl."


def test_where_the_probe_could_not_start_nothing_is_said_of_the_server() -> None:
    """Whether it created one is not known."""
    words = said(0, seen=(seen("python"), seen("mcp"), seen("failed", detail="OptionError: slow_step_ms is 0")))
    assert "created no MCP server" not in words
    assert "ran without the probe, so nothing was recorded" in words
    assert "The probe could not start in /env/bin/python (process 7): OptionError: slow_step_ms is 0." in words


def test_an_early_failure_is_shown_with_its_exit_code() -> None:
    assert "ended with exit code 1." in said(1)


def test_a_long_command_is_shortened() -> None:
    sentence = outcome(["x" * 5000], 0, (), ()).sentences[0]
    assert len(sentence) < 600


@pytest.mark.parametrize(("number", "name"), [(9, "SIGKILL"), (99, "signal 99")])
def test_signals_have_names(number: int, name: str) -> None:
    assert signal_name(number) == name


def test_what_of_the_probe_failed_is_told_apart_from_what_else_is_said() -> None:
    early = served(problem="its report ends early, at a frame that could not be read (x)", ends_early=True)
    full = served(problem="its recording stopped early (No space left on device)")
    found = outcome(COMMAND, -signal.SIGKILL, (early, full), (seen("failed", detail="it broke"),))
    assert [" ".join(failure.split()[:4]) for failure in found.failures] == [
        "The probe could not",
        "The server (process 7):",
    ]
    assert set(found.failures) < set(found.sentences)
    assert outcome(COMMAND, 3, (full,), ()).failures == ()
