"""Whether the time of calls is explained at all: `long-wait` where they mostly wait, each time for something short."""

from __future__ import annotations

from collections.abc import Iterator

from mcp_probe.aggregate import phrasing
from mcp_probe.aggregate.checks.awaits import INSIDE
from mcp_probe.aggregate.checks.evidence import is_short_of_cpu, judged, parts_ms, total_ms, waited_by_clients
from mcp_probe.aggregate.thresholds import FindingOptions
from mcp_probe.model import AwaitStage, Finding, OperationSummary, Summary

_READ, _WRITE, _TURN, _THREAD, _UNNAMED = (
    "to be read and taken up",
    "for its answer to be written",
    "for its turn on the event loop",
    "for a worker thread",
    "for something that nothing named",
)

_PARTS = {
    "queue_transport": _READ,
    "queue_dispatch": _READ,
    "ready_wait": _TURN,
    "executor_return": _TURN,
    "executor_wait": _THREAD,
    "write_wait": _WRITE,
}

_ADVICE = {
    _READ: "Calls come in bursts, or the transport's threads get no CPU. Let the client send fewer at once, or run "
    "more server processes.",
    _WRITE: "Answers go out one after the other. Let the client send fewer calls at once, or make results smaller.",
    _TURN: "Many short steps share one loop: run more server processes, or await less often.",
    _THREAD: "Raise the limit of the pool, or bound how many calls use it at once.",
    _UNNAMED: "Let it run longer, or decorate what it awaits with `@probe.profile`.",
}
_AWAITED = "Somebody in this server keeps it waiting: look at who holds, sets, feeds or ends it."


def mostly_waiting(summary: Summary, options: FindingOptions) -> Iterator[Finding]:
    """At most one finding, on the operation whose calls lost most.

    What a call does itself, in steps or in a thread, what it awaits outside the server, and a client that does not
    read are no loss. All else is, however many causes share it.
    """
    found = [
        (lost, operation, parts)
        for operation in judged(summary, options)
        if operation.kind == "request" and (parts := _losses(operation))
        for lost in [sum(parts.values())]
        if lost > options.lost_share * total_ms(operation) and lost >= options.lost_ms * operation.count
    ]
    if found:
        yield _finding(summary, options, *max(found, key=lambda one: one[0]))


def _losses(operation: OperationSummary) -> dict[str, float]:
    """What its calls waited for, over the window in ms; the longest first."""
    parts: dict[str, float] = {}
    for part, what in _PARTS.items():
        parts[what] = parts.get(what, 0.0) + parts_ms(operation, part)
    stages: tuple[AwaitStage, ...] = ("awaiting", "executor_run")
    for stage in stages:
        for what, ms in _inside(operation, stage).items():
            parts[what] = parts.get(what, 0.0) + ms
    if operation.awaits_unnamed_ms:
        parts[_UNNAMED] = operation.awaits_unnamed_ms
    return {what: ms for what, ms in sorted(parts.items(), key=lambda item: -item[1]) if ms > 0}


def _inside(operation: OperationSummary, stage: AwaitStage) -> dict[str, float]:
    """What its calls waited for inside the server in one stage, on the loop or in threads, no longer than that was."""
    rows = [row for row in operation.awaits if row.stage == stage]
    parts: dict[str, float] = {}
    for row in rows:
        if row.kind in INSIDE:
            what = f"for the {row.kind} `{row.object}`"
            parts[what] = parts.get(what, 0.0) + row.total_ms
    whole, inside = parts_ms(operation, stage), sum(parts.values())
    outside = sum(row.total_ms for row in rows) - inside
    # Of tasks side by side each has its own waits: together they may be longer than the call's.
    scale = min(1.0, max(0.0, whole - outside) / inside) if inside > 0 else 0.0
    return {what: ms * scale for what, ms in parts.items()}


def _finding(
    summary: Summary, options: FindingOptions, lost: float, operation: OperationSummary, parts: dict[str, float]
) -> Finding:
    whole = total_ms(operation)
    told = [f"{phrasing.percent(ms / whole)} {what}" for what, ms in parts.items() if ms >= 0.05 * whole][:3]
    no_cpu = is_short_of_cpu(summary, options)
    queued = phrasing.duration(summary.signals.run_queue_ms or 0.0)
    host = f"; meanwhile the event loop waited {queued} for a CPU of the host" if no_cpu else ""
    most = next(iter(parts))
    return Finding(
        code="long-wait",
        severity="info",
        confidence="estimate",
        subject=operation.name,
        sentence=(
            f"`{operation.name}` spent {phrasing.percent(lost / whole)} of its time waiting, "
            f"{phrasing.duration(lost / operation.count)} a call: {phrasing.joined(told)}{host}."
        ),
        advice=(phrasing.MORE_CPU if no_cpu else "") + _ADVICE.get(most, _AWAITED),
        evidence={
            "share": min(1.0, lost / whole),
            "lost_ms": lost,
            "calls": operation.count,
            "most": most,
            "most_ms": parts[most],
            "p95_ms": operation.total_ms.p95,
            "run_queue_ms": summary.signals.run_queue_ms,
        },
        cost_ms=waited_by_clients(operation, lost),
    )
