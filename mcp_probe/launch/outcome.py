"""What a run has to say: a summary per serving process, and sentences for what the figures cannot tell."""

from __future__ import annotations

import shlex
import signal
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mcp_probe.launch.inject import Seen
    from mcp_probe.launch.receive import Served
    from mcp_probe.model import Ending, Summary
    from mcp_probe.report.page.window import Window


@dataclass(frozen=True, slots=True)
class Report:
    """One serving process. ``pid`` is ``None`` where its first frame, which names it, was lost."""

    pid: int | None
    summary: Summary
    requests: int
    window: Window | None = None  # what its page is drawn from; None: no page is asked for


@dataclass(frozen=True, slots=True)
class Outcome:
    """``exit_code`` is negative for the signal that ended the command, ``None`` while it still runs.

    ``failures`` are those of ``sentences`` on what of the probe failed: findings may be missing then.
    """

    exit_code: int | None
    reports: tuple[Report, ...]
    sentences: tuple[str, ...]
    failures: tuple[str, ...] = ()
    ending: Ending | None = None


def outcome(command: Sequence[str], exit_code: int | None, served: Sequence[Served], seen: Sequence[Seen]) -> Outcome:
    """Judges a run by what came over the channel and which Pythons loaded the probe."""
    ending = _ending_of(exit_code, seen)
    sentences = [_ending(command, exit_code, bool(served))]
    if served:
        sentences += [_incomplete(process, exit_code) for process in served]
    else:
        sentences.append(nothing_served(command, seen))
    failures = [
        f"The probe could not start in {process.executable} (process {process.pid}): {process.detail}."
        for process in seen
        if process.kind == "failed"
    ]
    sentences += failures
    failures += [_incomplete(process, exit_code) for process in served if process.ends_early]
    reports = tuple(
        Report(process.pid, _one_of(len(served), process.summary, ending), process.requests, process.window)
        for process in served
    )
    return Outcome(exit_code, reports, tuple(sentence for sentence in sentences if sentence), tuple(failures), ending)


def _one_of(processes: int, summary: Summary, ending: Ending | None) -> Summary:
    """``summary``, which says that it is not the only one of the run, and how that ended."""
    from mcp_probe.aggregate.findings import with_ending

    summary = replace(summary, server=replace(summary.server, processes=processes))
    return summary if ending is None else with_ending(summary, ending)


def _ending_of(exit_code: int | None, seen: Sequence[Seen]) -> Ending | None:
    """What is known of the end; ``None`` while the command runs."""
    if exit_code is None:
        return None
    from mcp_probe.model import Ending

    name = signal_name(-exit_code) if exit_code < 0 else None
    exceptions = [process.detail for process in seen if process.kind == "exception"]
    what, _, where = exceptions[-1].partition(" ") if exit_code and exceptions else ("", "", "")
    exception, _, error = what.partition(":")
    return Ending(exit_code, name, exception or None, where or None, error == "EADDRINUSE")


def signal_name(number: int) -> str:
    """``SIGKILL`` for 9; ``signal 99`` for one without a name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _ending(command: Sequence[str], exit_code: int | None, served: bool) -> str:
    if exit_code is None:
        return "The command has been told to end and still runs; the report holds what was recorded so far."
    if exit_code < 0:
        return f"`{_shown(command)}` was ended by {signal_name(-exit_code)}."
    if exit_code > 0 and not served:
        return f"`{_shown(command)}` ended with exit code {exit_code}."
    return ""


def _incomplete(process: Served, exit_code: int | None) -> str:
    who = "The server" if process.pid is None else f"The server (process {process.pid})"
    if process.problem:
        return f"{who}: {process.problem}."
    if process.ended or exit_code is None:
        return ""
    if process.connected:
        return f"{who} still ran when the command had ended; the report holds what it recorded until then."
    return (
        f"{who} ended without closing its recording (killed, crashed, or left through os._exit); "
        "the report holds all but at most its last second."
    )


def nothing_served(command: Sequence[str], seen: Sequence[Seen]) -> str:
    """Why no process below ``command`` served MCP under the probe, as far as the Pythons that loaded it tell."""
    shown = _shown(command)
    loaded = [process for process in seen if process.kind == "python"]
    failed = {process.pid for process in seen if process.kind == "failed"}
    imported = {process.pid for process in seen if process.kind == "mcp"} - failed
    old = [process for process in seen if process.kind == "old"]
    if failed and not imported:
        return f"`{shown}` ran without the probe, so nothing was recorded."
    if imported:
        who = ", ".join(f"{p.executable}, process {p.pid}" for p in loaded if p.pid in imported)
        return f"`{shown}` imported mcp ({who}) but created no MCP server, so nothing was recorded."
    if loaded:
        who = f"{loaded[-1].executable}, Python {loaded[-1].python}"
        return (
            f"`{shown}` loaded the probe ({who}) but never imported the mcp package, so nothing was recorded. "
            "Expected a server built on mcp or fastmcp."
        )
    if old:
        return (
            f"`{shown}` runs on Python {old[-1].python} ({old[-1].executable}); the probe needs Python 3.10 or "
            "newer in the server, so nothing was recorded."
        )
    return (
        f"`{shown}` never loaded the probe, so nothing was recorded. Possible reasons: it is not a Python program; "
        "its interpreter was started with -I, -E or -S, which ignore PYTHONPATH; or a wrapper (sudo, env -i, a "
        "container) cleared or replaced PYTHONPATH. Name the server's own interpreter after `--`, without these."
    )


def _shown(command: Sequence[str], limit: int = 120) -> str:
    line = shlex.join(command)
    return line if len(line) <= limit else line[: limit - 1] + "…"
