"""Calls of backends that keep the event loop until they return: each too short to be a slow step, many of them not."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from mcp_probe.aggregate import advice, phrasing
from mcp_probe.aggregate.checks.evidence import is_enough, loop_cost_ms, total_ms, window_ms
from mcp_probe.aggregate.quality import worst
from mcp_probe.aggregate.thresholds import FindingOptions
from mcp_probe.model import AwaitSummary, Finding, GuiltyPlace, OperationSummary, Summary


@dataclass(frozen=True, slots=True)
class LoopCalls:
    """What one operation asked one backend, or program, while nothing else of the server could run."""

    operation: OperationSummary
    rows: tuple[AwaitSummary, ...]

    @property
    def total_ms(self) -> float:
        """Time of the loop in them, over the window."""
        return sum(row.total_ms for row in self.rows)

    @property
    def count(self) -> int:
        """How many calls; stretches where the library does not say."""
        return sum(row.calls for row in self.rows) or sum(row.count for row in self.rows)

    @property
    def longest(self) -> AwaitSummary:
        """The line that took most of it."""
        return max(self.rows, key=lambda row: (row.where is not None, row.total_ms))

    @property
    def share(self) -> float:
        """Of the operation's time."""
        whole = total_ms(self.operation)
        return min(1.0, self.total_ms / whole) if whole > 0 else 0.0


def loop_calls(summary: Summary, options: FindingOptions) -> list[LoopCalls]:
    """Those that are much of their tool's time, or with all others of the window."""
    if not is_enough(summary, options):
        return []
    found = [
        calls
        for operation in summary.operations
        for calls in _of(operation)
        if calls.total_ms >= options.blocking_ms * operation.count
    ]
    is_much = sum(calls.total_ms for calls in found) > options.blocking_share * window_ms(summary)
    return [calls for calls in found if is_much or calls.share > options.blocking_share]


def _of(operation: OperationSummary) -> Iterator[LoopCalls]:
    rows: dict[str, list[AwaitSummary]] = {}
    for row in operation.awaits:
        if row.stage == "busy":
            rows.setdefault(row.object, []).append(row)
    for of_backend in rows.values():
        yield LoopCalls(operation, tuple(of_backend))


def many_blocking_calls(
    summary: Summary, options: FindingOptions, found: list[LoopCalls], told: Collection[str]
) -> Iterator[Finding]:
    """One finding per backend, on the operation that asked it longest; not of operations in ``told``."""
    by_backend: dict[str, list[LoopCalls]] = {}
    for calls in found:
        if calls.operation.name not in told:
            by_backend.setdefault(calls.rows[0].object, []).append(calls)
    for of_backend in by_backend.values():
        yield _finding(summary, options, sorted(of_backend, key=lambda calls: (-calls.total_ms, calls.operation.name)))


def _places(found: list[LoopCalls]) -> tuple[GuiltyPlace, ...]:
    rows = [(calls.operation, row) for calls in found for row in calls.rows]
    rows.sort(key=lambda one: -one[1].total_ms)
    places = (
        GuiltyPlace(row.where, row.quality, f"in `{operation.name}`", row.total_ms, row.calls or row.count)
        for operation, row in rows
    )
    return tuple(places) if len(rows) > 1 else ()


def _finding(summary: Summary, options: FindingOptions, found: list[LoopCalls]) -> Finding:
    first, row = found[0], found[0].longest
    name, ms = first.operation.name, first.total_ms
    where = phrasing.place_at(row.where)
    all_ms = sum(calls.total_ms for calls in found)
    loop_share = min(1.0, all_ms / window_ms(summary))
    return Finding(
        code="blocking-call",
        severity="warn",
        confidence=worst(row.quality for calls in found for row in calls.rows),
        subject=name,
        sentence=(
            f"`{name}` blocked the event loop with {phrasing.plural(first.count, 'call')} of `{row.library}` to "
            f"`{row.object}`{f' at {where}' if where else ''}: {phrasing.duration(ms / first.count)} each, "
            f"{phrasing.duration(ms)} in all, {phrasing.percent(first.share)} of its time"
            f"{phrasing.so_did([calls.operation.name for calls in found])}. "
            f"Together they kept the loop for {phrasing.percent(loop_share)} of the window."
        ),
        advice=advice.START_PROGRAM
        if row.kind == "subprocess"
        else f"{advice.off_the_loop(summary, options, name)} Or use a client that awaits, if `{row.library}` has one.",
        evidence={
            "backend": row.object,
            "kind": row.kind,
            "library": row.library,
            "where": where,
            "count": first.count,
            "total_ms": ms,
            "share": first.share,
            "loop_ms": all_ms,
            "loop_share": loop_share,
            "operations": len({calls.operation.name for calls in found}),
        },
        cost_ms=sum(loop_cost_ms(summary, calls.operation, calls.total_ms) for calls in found),
        places=_places(found),
    )
