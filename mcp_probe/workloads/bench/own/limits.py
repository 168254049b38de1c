"""What limits a server, by name and line: what its calls waited longer for with more of them in flight.

A pure function of the probe's readings of two stretches of time.
"""

from __future__ import annotations

from collections.abc import Iterable

from mcp_probe.aggregate.checks.awaits import INSIDE
from mcp_probe.aggregate.first_calls import OUTSIDE
from mcp_probe.aggregate.grown import Arm, Leaf
from mcp_probe.aggregate.phrasing import duration, place_at, place_of, plural
from mcp_probe.aggregate.seen import MS, Seen
from mcp_probe.model import RequestRecord

WORTH = 0.3
"""Of what calls took longer: a limit is named from this share on."""

LEAST_MS = 0.2
"""Calls that took no more than this longer waited for nothing."""

_LOOP_PARTS = frozenset({"loop", "queue", "ready", "busy", "queue_transport", "queue_dispatch", "ready_wait"})
_TRANSPORT_PARTS = frozenset({"queue", "queue_transport", "write", "pipe"})
_PIPE: Leaf = ("pipe", None, None)


def limit_of(quick: Seen, slow: Seen, operation: str) -> str:
    """One sentence; empty where the slow calls took no longer, or where nothing took most of it."""
    few, many = quick.only(operation), slow.only(operation)
    if not few.requests or not many.requests:
        return ""
    growth, starved = _growth(few, many), _starved(many)
    named = {leaf: "pool" if starved and leaf[0] in _TRANSPORT_PARTS else _group(leaf) for leaf in growth}
    groups: dict[str, float] = {}
    for leaf, ms in growth.items():
        groups[named[leaf]] = groups.get(named[leaf], 0.0) + ms
    whole = sum(ms for ms in groups.values() if ms > 0)  # a wait that got its name in one arm only is no growth
    group, most_ms = max(groups.items(), key=lambda row: row[1], default=("", 0.0))
    if most_ms < LEAST_MS or most_ms < WORTH * whole:
        return ""
    leaf = max((leaf for leaf in growth if named[leaf] == group), key=lambda leaf: growth[leaf])
    more = f"a call waited {duration(most_ms)} longer for it than alone"
    if group == "loop":
        if machine := _no_cpu(many):
            return machine
        return f"The event loop limits the server: {more}{_held_by(many)}."
    if group == "pool":
        shared = " The transport reads and writes on its threads, too." if starved else ""
        return f"{_pool(many, starved)} limits the server: {more}.{shared}"
    if group == "threads":
        more = f"a call took {duration(most_ms)} longer in them"
        return f"The threads that run its calls limit the server: {more}{_at(many)}."
    if group == "writer":
        return f"The way out limits the server: {more}, until its answer was written and taken."
    if group == "pipe":
        more = f"a request lay unread for {duration(most_ms)} longer than alone"
        return f"The way in limits the server: {more}{_held_by(many)}."
    if group in ("inside", "backend"):
        _, kind, name = leaf
        return _awaited(many, group, str(kind), str(name), more)
    return ""


def _growth(few: Seen, many: Seen) -> dict[Leaf, float]:
    """What a mean call took longer for, ms."""
    arms = [Arm.of(seen.requests, seen.summary.blocked_by).leaves() for seen in (few, many)]
    changed = {leaf: arms[1].get(leaf, 0.0) - arms[0].get(leaf, 0.0) for leaf in {**arms[0], **arms[1]}}
    changed[_PIPE] = _unread_ms(many.requests) - _unread_ms(few.requests)
    return changed


def _unread_ms(requests: Iterable[RequestRecord]) -> float:
    """How long a request lay in the pipe on average, where clients say when they sent."""
    known = [each for each in requests if each.sent_ns is not None]
    waits = sum(max(0, each.arrival_ns - (each.sent_ns or 0)) * each.weight for each in known)
    return waits / max(1, sum(each.weight for each in known)) / MS


def _group(leaf: Leaf) -> str:
    part, kind, _ = leaf
    if part in ("awaiting", "executor_run") and kind in INSIDE:
        return "inside"
    if part in ("awaiting", "executor_run", "busy") and kind in OUTSIDE:
        return "backend"
    if part in _LOOP_PARTS or part == "gc":
        return "loop"
    return {"executor_wait": "pool", "executor_run": "threads", "write": "writer", "pipe": "pipe"}.get(part, "unknown")


def _no_cpu(seen: Seen) -> str:
    """Where the loop's thread waited longer for a CPU than it ran: then others limit it, and not the loop."""
    queued_ms, ran_ms = seen.summary.signals.run_queue_ms, seen.summary.signals.loop_cpu_ms
    if queued_ms is None or ran_ms is None or queued_ms <= ran_ms:
        return ""
    return (
        f"The machine is the limit, not the server: the event loop's thread ran {duration(ran_ms)} and waited "
        f"{duration(queued_ms)} for a CPU."
    )


def _held_by(seen: Seen) -> str:
    """The slowest step on the loop and its line; that there are many short ones where none was slow."""
    slow = max(seen.summary.slow_steps, key=lambda step: step.ms, default=None)
    busy = seen.summary.loop.utilization
    used = "" if busy is None else f"; the loop was busy {min(1.0, busy):.0%} of the time"
    if slow is None or slow.cause == "run-queue":
        return used
    place = place_of(slow.file, slow.line)
    where = f" at {place}" if place else ""
    return f"; `{slow.tool}` holds the loop for up to {duration(slow.ms)} at a time{where}"


def _starved(seen: Seen) -> str:
    """The full pool whose threads the transport waited for, for much of the time; empty if there is none."""
    spans: dict[str, int] = {}
    waits: dict[str, int] = {}
    for pool in seen.pools:
        if pool.max is not None and pool.borrowed_peak >= pool.max:
            spans[pool.name] = spans.get(pool.name, 0) + pool.span_ns
            waits[pool.name] = waits.get(pool.name, 0) + pool.transport_wait_ns
    return next((name for name, waited in waits.items() if waited > WORTH * spans[name]), "")


def _pool(seen: Seen, starved: str = "") -> str:
    waits: dict[str, int] = {starved: 0} if starved else {}
    for request in seen.requests:
        for job in request.jobs:
            if job.start_ns is not None:
                waits[job.executor] = waits.get(job.executor, 0) + max(0, job.start_ns - job.submit_ns)
    name = max(waits, key=lambda each: waits[each], default="")
    pools = [pool for pool in seen.pools if pool.name == name]
    limit = max((pool.max for pool in pools if pool.max is not None), default=None)
    made = next((place for pool in pools if (place := place_at(pool.made_at))), None)
    has = "" if limit is None else f" of {plural(round(limit), 'thread')}"
    return f"Pool `{name or 'of threads'}`{has}{f', made at {made},' if made else ''}"


def _at(seen: Seen) -> str:
    cpu: dict[str, int] = {}
    for request in seen.requests:
        for where, _, cpu_ns, _ in request.job_work:
            if where:
                cpu[where] = cpu.get(where, 0) + cpu_ns
    place = place_at(max(cpu, key=lambda each: cpu[each])) if cpu else None
    return f", most of it at {place}" if place else ""


def _awaited(seen: Seen, group: str, kind: str, name: str, more: str) -> str:
    waits: dict[str, int] = {}
    limit: int | None = None
    for request in seen.requests:
        for one in request.awaits or ():
            if one.kind == kind and one.object == name:
                waits[one.where or ""] = waits.get(one.where or "", 0) + one.ns
                limit = max(filter(None, (limit, one.limit)), default=None)
    place = place_at(max(waits, key=lambda each: waits[each]) or None) if waits else None
    about = [f"which lets in {limit} at a time"] if limit else []
    about += [f"awaited at {place}"] if place else []
    thing = name if name == kind else f"{kind} `{name}`"
    subject = f"Backend {thing}" if group == "backend" else f"{thing[:1].upper()}{thing[1:]}"
    return f"{', '.join((subject, *about))}{',' if about else ''} limits the server: {more}."
