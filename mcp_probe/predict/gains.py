"""What the advice of each finding would give, where the recording is full and the simulation holds."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace

from mcp_probe.aggregate.checks.evidence import full_default_limiter
from mcp_probe.aggregate.slow_steps import is_without_gil
from mcp_probe.aggregate.thresholds import FindingOptions
from mcp_probe.errors import OptionError, RecordingError
from mcp_probe.model import Finding, Frame, Gain, Header, Summary
from mcp_probe.predict.change import Change
from mcp_probe.predict.changes import operations
from mcp_probe.predict.check import LEAST_CALLS_P95
from mcp_probe.predict.outcome import Result
from mcp_probe.predict.recorded import CannotPredictError, Recorded
from mcp_probe.predict.what_if import Answer, Window, answer, window_of

_LEAST_CHANGE = 0.01

MOST_REQUESTS = 100_000
"""A report keeps so many requests in memory for its predictions (some 0.5 GB); of a longer recording it has none."""


class Collected:
    """The frames of a recording while they come by, as far as gains need them: nothing of one that is not full."""

    def __init__(self) -> None:
        self._recorded: Recorded | None = None
        self._is_too_long = False

    def add(self, frame: Frame) -> None:
        """Take one frame in."""
        if self._recorded is None:
            if not (isinstance(frame, Header) and frame.full) or self._is_too_long:
                return
            self._recorded = Recorded()
        self._recorded.add(frame)
        if len(self._recorded.records) > MOST_REQUESTS:
            self._recorded, self._is_too_long = None, True

    def predicted(self, summary: Summary) -> Summary:
        """``summary`` of the same frames, with gains."""
        return summary if self._recorded is None else with_gains(summary, self._recorded)


def with_gains(summary: Summary, frames: Iterable[Frame] | Recorded) -> Summary:
    """``summary`` of the same ``frames``, each finding with its gain as far as that can be predicted.

    Never a guess: without a full recording, or where the self-check fails, it comes back as it is.
    """
    if not any(finding.advice for finding in summary.findings):
        return summary
    try:
        window = window_of(frames)
        findings = tuple(_with_gain(finding, summary, window) for finding in summary.findings)
    except (CannotPredictError, RecordingError):
        return summary
    except Exception as exc:  # noqa: BLE001 - a report is worth more than its predictions
        note = f"Gains could not be predicted ({type(exc).__name__}: {exc}); please report this."
        return replace(summary, notes=(*summary.notes, note))
    return replace(summary, findings=findings)


def _with_gain(finding: Finding, summary: Summary, window: Window) -> Finding:
    changes = changes_for(finding, summary, window)
    if not changes:
        return finding
    with suppress(OptionError, CannotPredictError):
        return replace(finding, gain=_gain(answer(window, changes)))
    return finding


def changes_for(finding: Finding, summary: Summary, window: Window) -> tuple[Change, ...]:
    """The advice of ``finding`` as changes; empty where none of the changes is what it advises."""
    evidence, subject = finding.evidence, finding.subject
    known = operations(window.workload)
    if finding.code == "blocking-call" and subject in known:
        return _off_the_loop(subject, summary)
    if finding.code == "cpu-bound-step" and subject in known and _makes_client(finding):
        return (Change("share-client", subject),)
    if finding.code == "cpu-bound-step" and subject in known and _lets_others_run(finding):
        return _off_the_loop(subject, summary)
    if finding.code == "client-per-request" and subject in known:
        return (Change("share-client", subject),)
    if finding.code == "serial-awaits" and subject in known:
        return (Change("gather", subject),)
    if finding.code == "serial-handler" and evidence.get("narrow_ms"):
        return (Change("narrow", str(evidence.get("object"))),)
    if finding.code == "pool-exhausted" and _number(evidence.get("needed")):
        return (Change("pool", str(evidence.get("pool")), _number(evidence.get("needed"))),)
    if finding.code == "head-of-line":
        return _of_blocker(str(evidence.get("blocker")), summary, window)
    if finding.code == "transport-starvation":
        return _own_threads(finding, known)
    if finding.code == "executor-saturated":
        return _more_threads(finding, summary, window, known)
    return ()


def _off_the_loop(tool: str, summary: Summary) -> tuple[Change, ...]:
    """On threads of its own where the default limiter has none to spare, as the advice says."""
    full = full_default_limiter(summary, FindingOptions())
    own = () if full is None or full.max is None else (Change("private-pool", tool, full.max),)
    return (Change("offload", tool), *own)


def _makes_client(finding: Finding) -> bool:
    return finding.advice.startswith("Making a client")


def _lets_others_run(finding: Finding) -> bool:
    """It computes in C code that gives up the GIL, so it is told to go to a thread."""
    return is_without_gil(str(finding.evidence.get("library")))


def _of_blocker(blocker: str, summary: Summary, window: Window) -> tuple[Change, ...]:
    """It says "see the finding of the blocker", so it gives what that one gives."""
    for other in summary.findings:
        if other.subject == blocker and other.code in ("blocking-call", "cpu-bound-step"):
            return changes_for(other, summary, window)
    return ()


def _own_threads(finding: Finding, known: list[str]) -> tuple[Change, ...]:
    holders = [name for name in str(finding.evidence.get("holders")).split(", ") if name in known]
    limit = _number(finding.evidence.get("limit"))
    return tuple(Change("private-pool", name, limit) for name in holders[:1] if limit)


def _more_threads(finding: Finding, summary: Summary, window: Window, known: list[str]) -> tuple[Change, ...]:
    for other in summary.findings:
        if other.code == "transport-starvation" and other.subject == finding.subject:
            return _own_threads(other, known)
    limit, pending = _number(finding.evidence.get("limit")), _number(finding.evidence.get("pending_peak"))
    pools = [
        one.name
        for one in window.workload.resources
        if one.kind == "threads" and (one.name == finding.subject or one.name.startswith(f"{finding.subject} at "))
    ]
    return (Change("pool", pools[0], limit + pending),) if len(pools) == 1 and limit and pending else ()


def _number(value: object) -> int:
    return int(value) if isinstance(value, (int, float)) else 0


def _gain(found: Answer) -> Gain | None:
    """Of the operation whose calls gain most time together. ``None`` where no call gets faster or slower."""
    before, after = found.before.operations, found.after.operations
    saved = {
        name: figures.calls * abs(_shown(found.before, name) - _shown(found.after, name))
        for name, figures in before.items()
        if name in after
    }
    name = max(saved, key=lambda one: saved[one], default=None)
    if name is None or saved[name] < _LEAST_CHANGE * before[name].calls * _shown(found.before, name):
        return None
    return Gain(
        operation=name,
        percentile=95 if before[name].calls >= LEAST_CALLS_P95 else 50,
        before_ms=_shown(found.before, name),
        after_ms=_shown(found.after, name),
        changes=tuple(map(str, found.changes)),
    )


def _shown(result: Result, name: str) -> float:
    """p95, or p50 where there are too few calls for it."""
    figures = result.operations[name]
    return figures.p95_ms if figures.calls >= LEAST_CALLS_P95 else figures.p50_ms
