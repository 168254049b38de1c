"""What servers lose to hosts and databases: `client-per-request` and `slow-backend`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from mcp_probe.aggregate import phrasing
from mcp_probe.aggregate.advice import is_of_client, makes_client
from mcp_probe.aggregate.checks.evidence import (
    OWN_CAUSES,
    is_enough,
    is_little,
    judged,
    parts_ms,
    slow_steps,
    step_total_ms,
    steps_cost_ms,
    total_ms,
    waited_by_clients,
)
from mcp_probe.aggregate.quality import worst
from mcp_probe.aggregate.thresholds import FindingOptions
from mcp_probe.model import (
    AwaitKind,
    AwaitSummary,
    Finding,
    JobLine,
    LoadLevel,
    OperationSummary,
    SlowStep,
    Summary,
    Tag,
)

_CALLS: frozenset[AwaitKind] = frozenset({"http", "db"})

STRETCHED = 1.5
"""If jobs took this many times their CPU time, the sentence has both."""


# --- a connection for each call ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Traffic:
    """What one operation sent to one host or database."""

    operation: OperationSummary
    name: str
    kind: AwaitKind
    calls: int
    opened: int
    connect_ms: float
    rows: tuple[AwaitSummary, ...]
    steps: tuple[SlowStep, ...]  # slow ones of the operation that made clients on the loop

    @property
    def on_loop_ms(self) -> float:
        """How long making clients held the loop, as far as it was seen: in slow steps."""
        return step_total_ms(self.steps)

    @property
    def making(self) -> list[JobLine]:
        """Lines at which jobs on threads computed what a client needs."""
        return [line for line in self.operation.job_lines if makes_client(line.called)]

    @property
    def made_ms(self) -> float:
        """CPU time of threads for making clients."""
        return sum(line.cpu_ms for line in self.making)

    @property
    def making_ms(self) -> float:
        """How long jobs took to make clients, waiting for a CPU or the GIL meanwhile: at least their CPU time.

        A job that is kept from the CPU is kept from what it computes, so each part of that is stretched alike. Without
        it, what clients cost would be the less the busier the machine is.
        """
        ran = parts_ms(self.operation, "executor_run")
        waited = sum(row.total_ms for row in self.operation.awaits if row.stage == "executor_run")
        return max(self.made_ms, sum(line.share for line in self.making) * (ran - waited))

    @property
    def share(self) -> float:
        """Of the operation's time: opening connections, and making clients."""
        whole = total_ms(self.operation)
        return min(1.0, (self.connect_ms + self.making_ms + self.on_loop_ms) / whole) if whole > 0 else 0.0


def client_per_request(summary: Summary, options: FindingOptions) -> Iterator[Finding]:
    """One finding per host, on the operation that opened most connections to it."""
    for found in _by_host(summary, options):
        yield _client_per_request(summary, found, options)


def made_per_request(summary: Summary, options: FindingOptions) -> frozenset[str]:
    """Operations whose steps that make clients belong to a `client-per-request` that is more than `info`."""
    if "client-per-request" in options.disabled:
        return frozenset()
    return frozenset(
        one.operation.name
        for found in _by_host(summary, options)
        if not _is_cheap(summary, found, options)
        for one in found
    )


def _by_host(summary: Summary, options: FindingOptions) -> list[list[_Traffic]]:
    """For each host the operations with a connection for each request; who opened most comes first."""
    by_host: dict[str, list[_Traffic]] = {}
    steps = [step for step in slow_steps(summary, options, OWN_CAUSES) if is_of_client(step)]
    for operation in summary.operations if is_enough(summary, options) else ():
        of_clients = tuple(step for step in steps if step.tool == operation.name)
        for traffic in _traffic_of(operation, of_clients):
            is_many = traffic.calls >= options.client_calls
            if is_many and traffic.opened >= options.client_opened_share * traffic.calls:
                by_host.setdefault(traffic.name, []).append(traffic)
    return [sorted(found, key=lambda one: -one.opened) for found in by_host.values()]


def _traffic_of(operation: OperationSummary, steps: tuple[SlowStep, ...]) -> Iterator[_Traffic]:
    rows: dict[str, list[AwaitSummary]] = {}
    for row in operation.awaits:
        if row.kind in _CALLS or row.kind == "connect":
            rows.setdefault(row.object, []).append(row)
    for name, found in rows.items():
        kind = next((row.kind for row in found if row.kind in _CALLS), None)
        if kind is not None:
            calls, opened = (sum(getattr(row, field) for row in found) for field in ("calls", "opened"))
            connect_ms = sum(row.total_ms for row in found if row.kind == "connect")
            yield _Traffic(operation, name, kind, calls, opened, connect_ms, tuple(found), steps)


def _client_per_request(summary: Summary, found: list[_Traffic], options: FindingOptions) -> Finding:
    first = found[0]
    each_ms = first.connect_ms / first.opened
    where = _place_of(row for row in first.rows if row.opened) or _place_of(first.rows)
    sent = "request" if first.kind == "http" else "statement"
    sentence = (
        f"`{first.operation.name}` opened {phrasing.plural(first.opened, 'connection')} for "
        f"{phrasing.plural(first.calls, sent)} to `{first.name}`{f' at {where}' if where else ''}: "
        f"{phrasing.duration(each_ms)} a connection{_made_on_loop(first)}{_made(first)}, "
        f"{phrasing.percent(first.share)} of the time of its calls"
    )
    otherwise = (
        " If it is shared already, look for a peer that closes each connection, or for a limit of how many are kept."
    )
    tags: list[Tag] = ["estimate"] if first.making else []
    tags += [step.quality for one in found for step in one.steps]
    shared = "one client" if first.kind == "http" else "one pool or engine"
    return Finding(
        code="client-per-request",
        severity="info" if _is_cheap(summary, found, options) else "warn",
        confidence=worst((*tags, *(row.quality for one in found for row in one.rows))),
        subject=first.operation.name,
        sentence=f"{sentence}{phrasing.so_did([one.operation.name for one in found])}.",
        advice=(
            f"Make {shared} when the server starts (in its lifespan) and share it among calls, so that connections "
            f"stay open.{'' if first.making or first.steps else otherwise}"
        ),
        evidence={
            "backend": first.name,
            "connections": first.opened,
            "calls": first.calls,
            "connect_ms": each_ms,
            "connect_total_ms": sum(one.connect_ms for one in found),
            "making_cpu_ms": first.made_ms,
            "making_ms": first.making_ms,
            "making_share": sum(line.share for line in first.making),
            "making_loop_ms": first.on_loop_ms,
            "share": first.share,
            "where": where,
            "operations": len({one.operation.name for one in found}),
        },
        cost_ms=_cost_ms(summary, found),
    )


def _is_cheap(summary: Summary, found: list[_Traffic], options: FindingOptions) -> bool:
    """Whether the connections to one host are little, of the operation's time and of what clients waited."""
    return found[0].share < options.connect_share and is_little(summary, options, _cost_ms(summary, found))


def _made_on_loop(traffic: _Traffic) -> str:
    """What the client costs besides, where it is made on the event loop."""
    if not traffic.steps:
        return ""
    step = max(traffic.steps, key=lambda one: max(one.total_ms, one.ms))
    called = next((name for name in (step.library, step.function) if name and makes_client(name)), None)
    at = phrasing.place_of(step.file, step.line)
    return (
        f", and making clients{f' at {at}' if at else ''}{f' (`{called}`)' if called else ''} held the event loop for "
        f"{phrasing.duration(traffic.on_loop_ms / sum(one.count for one in traffic.steps))} each time, "
        f"{phrasing.duration(traffic.on_loop_ms)} in all"
    )


def _made(traffic: _Traffic) -> str:
    """What the client costs besides, where threads of a pool make it."""
    if not traffic.making or not traffic.operation.count:
        return ""
    line = max(traffic.making, key=lambda one: one.cpu_ms)
    at = phrasing.place_at(line.where)
    each = phrasing.duration(traffic.made_ms / traffic.operation.count)
    told = f" and about {each} of a thread's CPU a call for making clients{f' at {at}' if at else ''} (`{line.called}`)"
    longer = traffic.making_ms / traffic.operation.count
    return told if traffic.making_ms < STRETCHED * traffic.made_ms else f"{told}, {phrasing.duration(longer)} in all"


def _cost_ms(summary: Summary, found: list[_Traffic]) -> float:
    """Making clients counts once for each operation, whatever number of hosts it asks; on the loop, all wait for it."""
    steps = list(dict.fromkeys(step for one in found for step in one.steps))
    spent = {one.operation.name: (one.operation, one.making_ms) for one in found}
    for one in found:
        operation, ms = spent[one.operation.name]
        spent[one.operation.name] = operation, ms + one.connect_ms
    return sum(waited_by_clients(*each) for each in spent.values()) + steps_cost_ms(summary, steps)


# --- one slow host ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Growth:
    """How much longer one thing takes when more calls await it at once."""

    alone: LoadLevel
    crowded: LoadLevel
    excess_ms: float  # of all awaits that were looked at: what they took beyond those of the lowest level


def growth_of(summary: Summary, operation: str, kind: AwaitKind, name: str, options: FindingOptions) -> Growth | None:
    """Whether `operation` waits longer for this under load; ``None`` if not, or if nobody can tell."""
    for load in summary.await_loads:
        if (load.operation, load.kind, load.object) != (operation, kind, name):
            continue
        levels = [level for level in load.levels if level.count >= options.growth_awaits]
        if len(levels) < 2:
            return None
        alone, crowded = levels[0], levels[-1]
        slower = crowded.p50_ms - alone.p50_ms
        if crowded.p50_ms < options.growth_ratio * alone.p50_ms or slower < options.long_wait_ms:
            return None
        excess = sum(level.count * max(0.0, level.p50_ms - alone.p50_ms) for level in load.levels)
        return Growth(alone, crowded, excess)
    return None


@dataclass(frozen=True, slots=True)
class _Slow:
    operation: OperationSummary
    name: str
    kind: AwaitKind
    share: float  # of its time near p95
    total_ms: float
    first_byte: AwaitSummary
    growth: Growth | None

    def lost_ms(self, grows: bool) -> float:
        """All of it; of a backend that ``grows`` slower under load, what it took beyond its time with few calls."""
        if not grows:
            return self.total_ms
        return 0.0 if self.growth is None else self.growth.excess_ms


def slow_backends(summary: Summary, options: FindingOptions) -> dict[str, list[_Slow]]:
    """Hosts and databases as `slow-backend` has them; the operation that waited most for one comes first."""
    found: dict[str, list[_Slow]] = {}
    for operation in judged(summary, options):
        rows: dict[tuple[AwaitKind, str], list[AwaitSummary]] = {}
        for row in operation.awaits:
            if row.kind in _CALLS and row.stage != "busy":  # those are `blocking-call`
                rows.setdefault((row.kind, row.object), []).append(row)
        for (kind, name), of_backend in rows.items():
            share = min(1.0, sum(row.p95_share or 0.0 for row in of_backend))
            first = _first_byte(of_backend)
            p95, slow_ms = operation.total_ms.p95, options.first_byte_ms
            if first is None or first.p95_ms is None or first.p95_ms <= slow_ms or p95 is None or p95 <= slow_ms:
                continue  # calls near p95 reach to p99: one slow call of forty is among them
            if share > options.backend_share:
                total = sum(row.total_ms for row in of_backend)
                growth = growth_of(summary, operation.name, kind, name, options)
                found.setdefault(name, []).append(_Slow(operation, name, kind, share, total, first, growth))
    return {name: sorted(slow, key=lambda one: -one.total_ms) for name, slow in found.items()}


def _first_byte(rows: list[AwaitSummary]) -> AwaitSummary | None:
    """The row of its first byte; of a library that shows no phases, the row of its calls."""
    told = [row for row in rows if row.phase == "first-byte"] or [row for row in rows if row.phase is None]
    return max(told, key=lambda row: row.total_ms, default=None)


def slow_backend(summary: Summary, options: FindingOptions) -> Iterator[Finding]:
    """One finding per host or database, on the operation that waited most for it."""
    for found in slow_backends(summary, options).values():
        yield _slow_backend(found)


def _slow_backend(found: list[_Slow]) -> Finding:
    first, row = found[0], found[0].first_byte
    where = _place_of([row])
    what = "its first byte came after" if row.phase == "first-byte" else "a call took"
    sentence = (
        f"`{first.operation.name}` spent {phrasing.percent(first.share)} of its p95 of "
        f"{phrasing.percentile(first.operation, 'p95')} waiting for `{first.name}`{f' at {where}' if where else ''}: "
        f"{what} {phrasing.duration(row.p50_ms or 0.0)} at the median, {phrasing.duration(row.p95_ms or 0.0)} at p95, "
        f"{phrasing.duration(row.p99_ms or 0.0)} at p99"
    )
    growth = next((one.growth for one in found if one.growth is not None), None)
    advice = "Cache its answers, ask it for less, and give the call a time-out."
    if growth is not None:
        sentence += (
            f"; {phrasing.duration(growth.crowded.p50_ms)} with about {growth.crowded.most:,} calls at once, "
            f"{phrasing.duration(growth.alone.p50_ms)} with {growth.alone.most:,}"
        )
        advice = f"It gets slower the more calls it has at once: bound them, or give it more capacity. {advice}"
    return Finding(
        code="slow-backend",
        severity="info" if growth is None else "warn",
        confidence=worst((row.quality, "exact" if growth is None else "estimate")),
        subject=first.operation.name,
        sentence=f"{sentence}{phrasing.so_did([one.operation.name for one in found])}.",
        advice=advice,
        evidence={
            "backend": first.name,
            "kind": first.kind,
            "p95_share": first.share,
            "p95_ms": first.operation.total_ms.p95,
            "first_byte_p50_ms": row.p50_ms,
            "first_byte_p95_ms": row.p95_ms,
            "first_byte_p99_ms": row.p99_ms,
            "where": where,
            "alone_p50_ms": None if growth is None else growth.alone.p50_ms,
            "crowded_p50_ms": None if growth is None else growth.crowded.p50_ms,
            "crowded_calls": None if growth is None else growth.crowded.most,
            "operations": len({one.operation.name for one in found}),
        },
        cost_ms=sum(waited_by_clients(one.operation, one.lost_ms(growth is not None)) for one in found),
    )


def _place_of(rows: Iterator[AwaitSummary] | list[AwaitSummary] | tuple[AwaitSummary, ...]) -> str | None:
    """The line that awaited longest among ``rows``."""
    longest = max((row for row in rows if row.where), key=lambda row: row.total_ms, default=None)
    return None if longest is None else phrasing.place_at(longest.where)
