"""Requests that waited for what others held: `serial-handler` and `pool-exhausted`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

from mcp_probe.aggregate import phrasing
from mcp_probe.aggregate.checks.evidence import in_hand_ms, is_enough, total_ms, waited_by_clients
from mcp_probe.aggregate.quality import worst
from mcp_probe.aggregate.thresholds import FindingOptions
from mcp_probe.model import (
    BACKGROUND_OPERATION,
    UNKNOWN_HOLDER,
    AwaitHolder,
    AwaitKind,
    AwaitRoot,
    AwaitSummary,
    Finding,
    GuiltyPlace,
    OperationSummary,
    Summary,
)

_POOL: AwaitKind = "connection-pool"

_OUTSIDE = frozenset({"http", "db", "connect", "subprocess", "client", "sleep", "other", "thread"})
"""What a holder may await without needing the lock for it; another lock is not among it, nor a blocked loop."""


@dataclass(frozen=True, slots=True)
class Held:
    """All awaits of one operation for one object that somebody holds, at whatever line."""

    operation: OperationSummary
    rows: tuple[AwaitSummary, ...]  # the longest in sum first

    @property
    def first(self) -> AwaitSummary:
        """The row with most of the time."""
        return self.rows[0]

    @property
    def waited_ms(self) -> float:
        """Over the window."""
        return sum(row.total_ms for row in self.rows)

    @property
    def was_full(self) -> bool:
        """Whether all that it can give was held. Where nobody knows who held it, the wait itself says so."""
        limit = _limit([self])
        most = max(row.held_peak for row in self.rows)
        return limit is None or not most or most >= limit

    @property
    def share(self) -> float:
        """Of the operation's time."""
        return self._part_of(total_ms(self.operation))

    @property
    def share_in_hand(self) -> float:
        """Of the time from taking a call up to its result: a transport that is slow, too, absolves no lock."""
        return self._part_of(in_hand_ms(self.operation))

    def _part_of(self, whole: float) -> float:
        return min(1.0, self.waited_ms / whole) if whole > 0 else 0.0


def held_up(summary: Summary, options: FindingOptions) -> dict[str, list[Held]]:
    """Objects that operations waited long for, as `serial-handler` has it; who waited most comes first."""
    return _by_object(summary, options, pools=False)


def short_pools(summary: Summary, options: FindingOptions) -> dict[str, list[Held]]:
    """Connection pools that operations waited long for, as `pool-exhausted` has it; who waited most comes first."""
    return _by_object(summary, options, pools=True)


def _by_object(summary: Summary, options: FindingOptions, *, pools: bool) -> dict[str, list[Held]]:
    found: dict[str, list[Held]] = {}
    if not is_enough(summary, options):
        return found
    least_ms, least_share = (
        (options.pool_wait_ms, options.pool_share) if pools else (options.held_ms, options.held_share)
    )
    for operation in summary.operations:
        rows: dict[str, list[AwaitSummary]] = {}
        for row in operation.awaits:
            if (row.kind == _POOL) if pools else _is_held(row):
                rows.setdefault(row.object, []).append(row)
        for name, of_object in rows.items():
            held = Held(operation, tuple(sorted(of_object, key=lambda row: -row.total_ms)))
            p95 = held.first.p95_ms
            if pools and not held.was_full:
                continue
            if p95 is not None and p95 > least_ms and held.share_in_hand > least_share:
                found.setdefault(name, []).append(held)
    return {name: sorted(held, key=lambda one: -one.waited_ms) for name, held in found.items()}


def _is_held(row: AwaitSummary) -> bool:
    """Somebody is known to hold it; or jobs wait for it on threads, of which nobody sees who holds what."""
    in_thread = row.stage == "executor_run" and row.kind in ("lock", "semaphore")
    return row.kind != _POOL and (bool(row.holders) or in_thread)


def serial_handler(summary: Summary, options: FindingOptions) -> Iterator[Finding]:
    """One finding per lock, semaphore or limiter, on the operation that waited most for it."""
    for held in held_up(summary, options).values():
        yield _serial(summary, held)


def _serial(summary: Summary, held: list[Held]) -> Finding:
    first, row = held[0], held[0].first
    holder = next(iter(row.holders), None)
    waited, limit = sum(one.waited_ms for one in held), _limit(held)
    slots = "" if limit is None or row.kind == "lock" else f" (limit of {limit})"
    confidence = worst(row.quality for one in held for row in one.rows)
    sentence = (
        f"`{first.operation.name}` spent {'about ' if confidence == 'estimate' else ''}"
        f"{phrasing.percent(first.share)} of its time, "
        f"{phrasing.duration(first.waited_ms)} in all, waiting for the {row.kind} `{row.object}`{slots}"
        f"{_held_by(first.operation, holder) or _waited_at(row)}"
        f"{phrasing.waited_too([one.operation.name for one in held])}."
    )
    in_thread = row.kind == "lock" and row.stage == "executor_run"
    root = row.root[0] if row.root else None
    narrow_ms = _narrow_ms(summary, held)
    needed = None if limit is None or row.kind == "lock" else _needed(summary, row, limit)
    return Finding(
        code="serial-handler",
        severity="warn",
        confidence=confidence,
        subject=first.operation.name,
        sentence=sentence,
        advice=_thread_advice(summary) if in_thread else _advice(row, root, waited, narrow_ms, limit, needed),
        evidence={
            "object": row.object,
            "kind": row.kind,
            "limit": limit,
            "waited_ms": waited,
            "share": first.share,
            "p95_ms": row.p95_ms,
            "holder": None if holder is None else holder.operation,
            "holder_where": None if holder is None else phrasing.place_at(holder.where),
            "holder_ms": None if holder is None else holder.ms,
            "root": None if root is None else root.name,
            "root_kind": None if root is None else root.kind,
            "root_ms": None if root is None else root.ms,
            "narrow_ms": narrow_ms,
            "needed": needed,
            "operations": len({one.operation.name for one in held}),
        },
        cost_ms=sum(waited_by_clients(one.operation, one.waited_ms) for one in held),
        places=_holders(held),
    )


def _holders(held: list[Held]) -> tuple[GuiltyPlace, ...]:
    """The lines at which it was taken while others waited, and how long they waited for whom took it there."""
    seen: dict[tuple[str, str | None], list[AwaitHolder]] = {}
    for holder in (holder for one in held for row in one.rows for holder in row.holders):
        if holder.operation != UNKNOWN_HOLDER:
            seen.setdefault((holder.operation, holder.where), []).append(holder)
    places = [
        GuiltyPlace(
            where=where,
            quality=worst(one.quality for one in of_line) if where else "unavailable",
            what="taken by " + ("a background task" if name == BACKGROUND_OPERATION else f"`{name}`"),
            ms=sum(one.ms for one in of_line),
            count=sum(one.calls for one in of_line),
        )
        for (name, where), of_line in seen.items()
    ]
    return tuple(sorted(places, key=lambda place: -place.ms)) if len(places) > 1 else ()


def _narrow_ms(summary: Summary, held: list[Held]) -> float:
    """How much of the waits their holders themselves spent awaiting something for which nobody needs the object.

    What looks name is seen of some calls only: it counts as often as the operations' own rows say that it was there.
    """
    seen: dict[tuple[str, str, str | None], list[float]] = {}
    for row in (row for operation in summary.operations for row in operation.awaits):
        sums = seen.setdefault((row.kind, row.object, row.where), [0.0, 0.0])
        sums[0] += row.total_ms
        sums[1] += row.total_ms - row.estimated_ms
    narrow_ms = 0.0
    for root in (root for one in held for row in one.rows for root in row.root if root.kind in _OUTSIDE):
        whole, looked = seen.get((root.kind, root.name, root.where), (1.0, 1.0))
        narrow_ms += root.ms * (whole / looked if looked > 0 else 1.0)
    return min(sum(one.waited_ms for one in held), narrow_ms)


def _limit(held: list[Held]) -> int | None:
    return max((row.limit for one in held for row in one.rows if row.limit is not None), default=None)


def _needed(summary: Summary, row: AwaitSummary, limit: int) -> int | None:
    """The limit, and those that waited on average while any waited: by Little's law what was asked for in that time."""
    means = [load.mean_at_once for load in summary.await_loads if (load.kind, load.object) == (row.kind, row.object)]
    return limit + ceil(max(means)) if means else None


def _held_by(operation: OperationSummary, holder: AwaitHolder | None) -> str:
    """`` that `append` held (taken at notes.py:19)``; empty where nobody knows who."""
    if holder is None or holder.operation == UNKNOWN_HOLDER:
        return ""
    where = phrasing.place_at(holder.where)
    taken = f" (taken at {where})" if where else ""
    if holder.operation == BACKGROUND_OPERATION:
        return f" that a background task held{taken}"
    return f" that {phrasing.calls_of(holder.operation, holder.operation == operation.name)} held{taken}"


def _waited_at(row: AwaitSummary) -> str:
    where = phrasing.place_at(row.where)
    return f" at {where}" if where else ""


def _thread_advice(summary: Summary) -> str:
    """Nobody sees who holds a lock of threads; what jobs compute is the best that can be said."""
    advice = "Hold the lock only around what it protects: do what takes long before or after it, not inside."
    computing = [row for row in summary.operations if row.job_lines and row.jobs_cpu_ms]
    if not computing:
        return advice
    row = max(computing, key=lambda one: (one.jobs_cpu_ms or 0.0, one.name))
    line = row.job_lines[0]
    return (
        f"{advice} Who held it is not seen; what computed most in threads is `{row.name}` "
        f"({phrasing.duration(row.jobs_cpu_ms or 0.0)}): about {phrasing.percent(line.share)} of it"
        f"{f' at {place}' if (place := phrasing.place_at(line.where)) else ''} in `{line.called}`."
    )


_NARROW = "Hold the lock only around what it protects: await backends before or after it, not inside."


def _advice(
    row: AwaitSummary, root: AwaitRoot | None, waited: float, narrow_ms: float, limit: int | None, needed: int | None
) -> str:
    if row.kind == "lock" and root is not None and narrow_ms >= 0.5 * waited and root.kind != "blocked":
        return (
            f"{_NARROW} That would save up to {phrasing.percent(narrow_ms / waited)} of these waits.{_meanwhile(root)}"
        )
    meanwhile = _meanwhile(root) if root is not None and root.ms >= 0.5 * row.total_ms else ""
    if row.kind == "lock":
        return f"{_NARROW}{meanwhile}"
    if needed is not None:
        return (
            f"If what it protects bears more at once, raise its limit of {limit} to {needed}: on average "
            f"{needed - (limit or 0):,} waited while any did. Or hold it only around that.{meanwhile}"
        )
    return f"Raise its limit if what it protects bears more at once, or hold it only around that.{meanwhile}"


def _meanwhile(root: AwaitRoot) -> str:
    where = phrasing.place_at(root.where)
    at = f" at {where}" if where else ""
    if root.kind == "sleep":
        return f" Most of that time its holder slept{at}."
    what = f"`{root.name}` to leave the event loop" if root.kind == "blocked" else root.name
    return f" Most of that time its holder itself waited for {what}{at}."


# --- connection pools -------------------------------------------------------------------------------


def pool_exhausted(summary: Summary, options: FindingOptions) -> Iterator[Finding]:
    """One finding per pool of connections, on the operation that waited most for one."""
    for held in short_pools(summary, options).values():
        yield _exhausted(summary, held)


def _pool_advice(limit: int | None, needed: int | None, pending: int) -> str:
    rest = "or bound the callers. Give a connection back before you await anything else."
    if limit is None or needed is None:
        return f"Raise its maximum of connections, {rest}"
    none = f"; with {limit + pending:,} none would have" if limit + pending > needed else ""
    return (
        f"Raise its maximum of connections from {limit} to {needed:,} (on average {needed - limit:,} waited while any "
        f"did{none}), {rest}"
    )


def _exhausted(summary: Summary, held: list[Held]) -> Finding:
    first, row = held[0], held[0].first
    holder = next(iter(row.holders), None)
    waited, limit = sum(one.waited_ms for one in held), _limit(held)
    pending = max(row.pending_peak for one in held for row in one.rows)
    needed = None if limit is None else _needed(summary, row, limit)
    size = "" if limit is None else f"limit of {limit}"
    aside = ", ".join(filter(None, (size, f"up to {pending} waited at once" if pending else "")))
    sentence = (
        f"`{first.operation.name}` waited {phrasing.duration(row.p95_ms or 0.0)} at p95, "
        f"{phrasing.duration(first.waited_ms)} in all, for a connection of the pool `{row.object}`"
        f"{f' ({aside})' if aside else ''}{_held_by(first.operation, holder)}"
        f"{phrasing.waited_too([one.operation.name for one in held])}."
    )
    return Finding(
        code="pool-exhausted",
        severity="warn",
        confidence=worst(row.quality for one in held for row in one.rows),
        subject=first.operation.name,
        sentence=sentence,
        advice=_pool_advice(limit, needed, pending),
        evidence={
            "pool": row.object,
            "limit": limit,
            "wait_p50_ms": row.p50_ms,
            "wait_p95_ms": row.p95_ms,
            "wait_p99_ms": row.p99_ms,
            "waited_ms": waited,
            "share": first.share,
            "pending_peak": pending,
            "holder": None if holder is None else holder.operation,
            "holder_where": None if holder is None else phrasing.place_at(holder.where),
            "needed": needed,
            "operations": len({one.operation.name for one in held}),
        },
        cost_ms=sum(waited_by_clients(one.operation, one.waited_ms) for one in held),
        places=_holders(held),
    )
