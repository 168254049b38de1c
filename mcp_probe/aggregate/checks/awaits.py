"""What a call awaits, and whether anything explains it: `serial-awaits`, `unexplained-wait` and `long-wait`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from mcp_probe.aggregate import phrasing
from mcp_probe.aggregate.checks.backends import growth_of, slow_backends
from mcp_probe.aggregate.checks.evidence import is_enough, judged, own_ms, total_ms, waited_by_clients
from mcp_probe.aggregate.checks.holders import held_up, short_pools
from mcp_probe.aggregate.quality import worst
from mcp_probe.aggregate.thresholds import FindingOptions
from mcp_probe.model import AwaitKind, AwaitSummary, Finding, OperationSummary, SerialAwaits, Summary

INSIDE: frozenset[AwaitKind] = frozenset(
    {"lock", "semaphore", "limiter", "condition", "event", "queue", "connection-pool", "task"}
)
"""Kinds of the server's own: somebody in the same process keeps the call waiting."""

_BACKENDS: frozenset[AwaitKind] = frozenset({"http", "db", "subprocess"})

_MANY: dict[AwaitKind, str] = {
    "http": "requests to",
    "db": "statements to",
    "subprocess": "programs:",
    "task": "tasks:",
}


# --- one after the other ----------------------------------------------------------------------------


def serial_awaits(summary: Summary, options: FindingOptions) -> Iterator[Finding]:
    """One finding per operation, for the awaits that a task group would shorten most."""
    if not is_enough(summary, options):
        return
    for operation in summary.operations:
        whole, own = total_ms(operation), own_ms(operation)
        rows = [
            row
            for row in operation.serial_awaits
            if row.awaits >= options.serial_awaits * row.calls
            and _saved_ms(row) > options.serial_saved_share * own
            and _saved_ms(row) >= options.serial_saved_ms * row.calls
        ]
        if rows and whole > 0:
            yield _serial(operation, max(rows, key=_saved_ms), whole)


def _saved_ms(row: SerialAwaits) -> float:
    return row.waited_ms - row.longest_ms


def _serial(operation: OperationSummary, row: SerialAwaits, whole: float) -> Finding:
    saved, calls = _saved_ms(row), row.calls
    where = phrasing.place_at(row.where)
    each = row.awaits / calls
    in_thread = row.stage == "executor_run"
    what = f"{_MANY[row.kind]} `{row.object}`" if row.kind in _MANY else f"awaits of `{row.object}`"
    return Finding(
        code="serial-awaits",
        severity="warn" if row.kind in _BACKENDS else "info",
        confidence=row.quality,
        subject=operation.name,
        sentence=(
            f"`{operation.name}` makes {each:.3g} {what} one after the other in a call"
            f"{f', at {where}' if where else ''}: {phrasing.duration(row.waited_ms / calls)} a call, with nothing "
            f"beside them; at once they would take as long as the longest, {phrasing.duration(row.longest_ms / calls)}."
        ),
        advice=_serial_advice(row.kind, in_thread),
        evidence={
            "kind": row.kind,
            "object": row.object,
            "where": where,
            "awaits": each,
            "calls": calls,
            "waited_ms": row.waited_ms,
            "longest_ms": row.longest_ms,
            "saved_ms": saved,
            "share": min(1.0, saved / whole),
        },
        cost_ms=waited_by_clients(operation, saved),
    )


def _serial_advice(kind: AwaitKind, in_thread: bool) -> str:
    if kind == "db":
        return (
            "Ask for all of it in one statement. Or, if none needs another's result, run them in a task group with a "
            "connection each."
        )
    if kind == "sleep":
        return "If it polls, await the event itself. If the sleeps stand for work, run that in a task group."
    how = "in threads of a pool, or asynchronously in a task group" if in_thread else "in a task group"
    return f"If none needs another's result, run them {how}; bound how many run at once."


# --- what nothing explains --------------------------------------------------------------------------


def unexplained_wait(summary: Summary, options: FindingOptions) -> Iterator[Finding]:
    """One finding per operation whose slow calls mostly await something that nothing named."""
    for operation in judged(summary, options):
        share, p95 = operation.awaits_unnamed_p95_share, operation.total_ms.p95
        if share is None or p95 is None or share <= options.unexplained_share:
            continue
        if share * p95 >= options.unexplained_ms:
            yield _unexplained(summary, operation, share, p95)


def _unexplained(summary: Summary, operation: OperationSummary, share: float, p95: float) -> Finding:
    placed = [row for row in operation.awaits if row.where and row.stage != "busy"]
    named = max(placed, key=lambda row: row.total_ms, default=None)
    where = None if named is None else phrasing.place_at(named.where)
    looks = sum(row.looks for row in operation.awaits if row.stage == "awaiting")
    unnamed_ms = operation.awaits_unnamed_ms or share * p95 * operation.count
    queued_ms = summary.signals.run_queue_ms or 0.0
    hint = "" if where is None else f"; what was named of its waits is at {where}"
    if looks:
        hint += f", but it was looked at only {phrasing.times(looks)}, which is too seldom to say more"
    elif queued_ms >= unnamed_ms:
        hint += f"; the loop waited {phrasing.duration(queued_ms)} for a CPU of the host, which may be it"
    return Finding(
        code="unexplained-wait",
        severity="info" if looks or queued_ms >= unnamed_ms else "warn",
        confidence="exact",
        subject=operation.name,
        sentence=(
            f"`{operation.name}` spent {phrasing.percent(share)} of its p95 of "
            f"{phrasing.percentile(operation, 'p95')} awaiting something that nothing named{hint}."
        ),
        advice=(
            "Let it run longer: from ten looks at its waits on, those that nobody saw are divided among their lines. "
            "Or decorate what it awaits with `@probe.profile`: that gives it a row of its own."
        ),
        evidence={
            "unnamed_p95_share": share,
            "p95_ms": p95,
            "unnamed_ms": unnamed_ms,
            "looks": looks,
            "where": where,
            "calls": operation.count,
        },
        cost_ms=waited_by_clients(operation, unnamed_ms),
    )


@dataclass(frozen=True, slots=True)
class _Long:
    operation: OperationSummary
    row: AwaitSummary  # the longest of its rows
    share: float  # of its time near p95
    total_ms: float
    grows: bool


def long_wait(summary: Summary, options: FindingOptions) -> Iterator[Finding]:
    """One finding per operation, for what its slow calls mostly await and what no other finding explains."""
    told = {*held_up(summary, options), *short_pools(summary, options), *slow_backends(summary, options)}
    for operation in judged(summary, options):
        p95 = operation.total_ms.p95
        found = [] if p95 is None else [
            one
            for one in _long_waits(summary, operation, options)
            if one.row.object not in told
            and one.share > options.long_wait_share
            and one.share * p95 >= options.long_wait_ms
        ]  # fmt: skip
        if found:
            yield _long(max(found, key=lambda one: one.share))


def _long_waits(summary: Summary, operation: OperationSummary, options: FindingOptions) -> Iterator[_Long]:
    rows: dict[tuple[AwaitKind, str], list[AwaitSummary]] = {}
    for row in operation.awaits:
        rows.setdefault((row.kind, row.object), []).append(row)
    for (kind, name), of_thing in rows.items():
        grows = kind not in INSIDE and growth_of(summary, operation.name, kind, name, options) is not None
        if kind in INSIDE or grows:
            share = min(1.0, sum(row.p95_share or 0.0 for row in of_thing))
            total = sum(row.total_ms for row in of_thing)
            yield _Long(operation, max(of_thing, key=lambda row: row.total_ms), share, total, grows)


def _long(found: _Long) -> Finding:
    row, where = found.row, phrasing.place_at(found.row.where)
    why = ", and longer the more calls await it at once" if found.grows else ""
    return Finding(
        code="long-wait",
        severity="info",
        confidence=worst((row.quality, "estimate" if found.grows else "exact")),
        subject=found.operation.name,
        sentence=(
            f"`{found.operation.name}` spent {phrasing.percent(found.share)} of its p95 of "
            f"{phrasing.percentile(found.operation, 'p95')} waiting for the {row.kind} `{row.object}`"
            f"{f' at {where}' if where else ''}{why}."
        ),
        advice=(
            "Bound how many calls it has at once, or give it more capacity."
            if found.grows
            else "Somebody in this server keeps it waiting: look at who sets, feeds or ends it."
        ),
        evidence={
            "kind": row.kind,
            "object": row.object,
            "where": where,
            "p95_share": found.share,
            "p95_ms": found.operation.total_ms.p95,
            "waited_ms": found.total_ms,
            "grows": int(found.grows),
        },
        cost_ms=waited_by_clients(found.operation, found.total_ms),
    )
