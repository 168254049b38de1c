"""From a recording to the work that its window asked for."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from statistics import median

from mcp_probe.aggregate.slow_steps import is_without_gil, lets_others_run
from mcp_probe.model import DEFAULT_LIMITER, Await, PoolSample, RequestRecord, StepRecord
from mcp_probe.predict.arrivals import arrivals_of, sent_ns
from mcp_probe.predict.locks import Shared, hold, shared_of
from mcp_probe.predict.recorded import Busy, Recorded, deeper_than
from mcp_probe.predict.tasks import NEAR_NS, Surroundings, Tasks, is_cpu_bound, settle, tasks_of
from mcp_probe.predict.transport import ways_of
from mcp_probe.predict.workload import Call, Resource, Workload

_LIMITERS = (DEFAULT_LIMITER, "CapacityLimiter(")
_SHORT_STEP_NS = 1_000_000


def workload_of(recorded: Recorded, assumed: str | None = None) -> Workload:
    """What the window of ``recorded`` asked for.

    Args:
        recorded: a whole recording.
        assumed: "open" or "closed" arrivals, whatever they look like.

    Raises:
        CannotPredictError: the recording is not whole; the sentence says what is missing.
    """
    recorded.check()
    return _Building(recorded, assumed).workload()


class _Building:
    def __init__(self, recorded: Recorded, assumed: str | None) -> None:
        self._recorded = recorded
        self._assumed = assumed
        self._order = sorted(recorded.records.values(), key=lambda one: (sent_ns(one), one.arrival_ns, one.id))
        self._resources: list[Resource] = []
        self._pools: dict[int, int] = {}
        self._submitted = {
            id: [(job.submit_ns, job.start_ns) for job in t.jobs if job.start_ns is not None]
            for id, t in recorded.timelines.items()
        }

    def workload(self) -> Workload:
        recorded, order = self._recorded, self._order
        is_serial = any(record.transport == "stdio" for record in order)
        arrivals = arrivals_of(order, self._assumed)
        self._number_pools()
        shared = shared_of(recorded.timelines.values(), self._submitted)
        every = self._tasks(shared)
        settle(every, recorded.busy)
        self._resources += hold(shared, len(self._resources), every)
        ways, background = ways_of(recorded, order, is_serial, sum(tasks.turns_ns for tasks in every))
        start = sent_ns(order[0])
        calls = [
            Call(
                record.id,
                operation_of(record),
                way,
                tasks.made(),
                tuple(tasks.jobs),
                sending.after,
                sending.sent_ns,
                record.end_ns - record.arrival_ns if record.kind == "request" else None,
                record.result_ns is not None,
                recorded.timelines[record.id].streams,
            )
            for record, way, tasks, sending in zip(order, ways, every, arrivals.sendings, strict=True)
        ]
        steps = [s.run_ns for t in every for unit in t.units for s in unit if s.run_ns < _SHORT_STEP_NS]
        hops = [2 * work.hop_ns for tasks in every for work in tasks.jobs]
        pool = next((self._pools[one] for one in recorded.transport_pools if one in self._pools), -1)
        return Workload(
            tuple(calls),
            tuple(self._resources),
            tuple((at - start, run) for at, run in background if at >= start),
            "one by one" if is_serial else "side by side",
            pool if is_serial else -1,
            arrivals.sentence,
            arrivals.is_closed,
            int(median(hops)) if hops else 100_000,
            int(median(steps)) if steps else 200_000,
            processors=max(1, int(recorded.header.cpus)) if recorded.header and recorded.header.cpus else 0,
        )

    # --- threads ---

    def _number_pools(self) -> None:
        for id, pool in sorted(self._recorded.pools.items()):
            if pool.max is not None:
                self._pools[id] = len(self._resources)
                self._resources.append(
                    Resource(_pool_name(pool, self._recorded.pools.values()), "threads", int(pool.max))
                )

    def _limiters(self) -> frozenset[int]:
        return frozenset(id for id, pool in self._recorded.pools.items() if pool.name.startswith(_LIMITERS))

    def _hops(self) -> dict[tuple[int, int, int], int]:
        """From the submission of each job, or from when there was a thread for it, to its start."""
        jobs = defaultdict(list)
        for timeline in self._recorded.timelines.values():
            for job in timeline.jobs:
                if job.start_ns is not None:
                    jobs[job.pool].append((job.submit_ns, job.start_ns, job.finish_ns or job.start_ns))
        found = {}
        for pool, some in jobs.items():
            ends = sorted(finish for _, _, finish in some)
            for submit, start, _ in some:
                index = bisect_right(ends, start)
                free = ends[index - 1] if index else 0
                was_free = start - submit < 5 * NEAR_NS or free <= submit
                found[pool, submit, start] = max(0, start - (submit if was_free else free))
        return found

    # --- tasks ---

    def _tasks(self, shared: Sequence[Shared]) -> list[Tasks]:
        recorded = self._recorded
        numbers = {one.object: number for number, one in enumerate(shared, len(self._resources))}

        def resource_of(one: Await) -> int:
            return numbers.get(one.object, -1) if one.count == 1 else -1

        spans = [
            (job.start_ns, job.finish_ns)
            for t in recorded.timelines.values()
            for job in t.jobs
            if job.start_ns and job.finish_ns and is_cpu_bound(job.cpu_ns or 0, job.finish_ns - job.start_ns)
        ]
        computing, crowded = Busy(spans), Busy(deeper_than(spans, 1))
        read = {one.start_ns: one for one in recorded.steps.values() if one.cpu_ns is not None and one.request}
        is_serial = any(record.transport == "stdio" for record in self._order)
        at_work = recorded.busy if is_serial else recorded.busy_or_on_the_way  # on stdio, threads have most of a way
        around = Surroundings(
            recorded.busy,
            recorded.busy_or_on_the_way,
            at_work,
            resource_of,
            self._pools,
            self._limiters(),
            self._hops(),
            computing,
            crowded,
            read,
            _without_gil(recorded.steps.values()),
            {one.start_ns: one.gc_ns for one in recorded.steps.values() if one.gc_ns},
            recorded.header is not None and recorded.header.loop == "trio",
        )
        return [tasks_of(record, recorded.timelines[record.id], around) for record in self._order]


def _without_gil(steps: Iterable[StepRecord]) -> frozenset[int]:
    """Starts of the steps that computed without the GIL: where that was seen at a line, all that were long there."""
    at_line: dict[tuple[str, str, int], list[StepRecord]] = defaultdict(list)
    for one in steps:
        if one.request and one.file is not None and one.line is not None:
            at_line[one.operation, one.file, one.line].append(one)
    found = set()
    for some in at_line.values():
        if lets_others_run(sum(is_without_gil(one.library) for one in some), len(some)):
            found |= {one.start_ns for one in some}
    return frozenset(found)


def operation_of(record: RequestRecord) -> str:
    """Tool or prompt name, else the method."""
    return record.name or record.method


def _pool_name(pool: PoolSample, every: object) -> str:
    place = pool.made_at.rsplit("/", 1)[-1] if pool.made_at else ""
    return f"{pool.name} at {place}" if place else pool.name
