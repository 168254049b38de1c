"""The phases of one request as spans to be made: when each began and ended, and what is known of it. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from mcp_probe.aggregate.blocking import union
from mcp_probe.export import conventions as names
from mcp_probe.export.enrich import Attributes, code_attributes, quality_of, retained_attributes
from mcp_probe.model import JobTimes, RequestRecord, StepRecord

MAX_STEP_SPANS = 32
MAX_VICTIMS = 4096


@dataclass(frozen=True, slots=True)
class Phase:
    """One INTERNAL span of a request."""

    name: str
    start_ns: int
    end_ns: int
    attributes: Attributes


class Victims:
    """The latest requests that waited for something, to be asked what a step cost them. Bounded."""

    def __init__(self) -> None:
        self._waits: deque[tuple[int, int | None, list[tuple[int, int]]]] = deque(maxlen=MAX_VICTIMS)

    def add(self, record: RequestRecord) -> None:
        """Remember when ``record`` certainly waited."""
        spans = union((wait.start_ns, wait.end_ns) for wait in record.waits)
        if spans:
            self._waits.append((record.id, record.loop, spans))

    def waited_for(self, step: StepRecord) -> int:
        """Nanoseconds that other requests certainly waited for ``step``, summed over them."""
        total = 0
        for request, loop, spans in self._waits:
            if spans[0][0] >= step.end_ns or spans[-1][1] <= step.start_ns or request in (step.request, *step.within):
                continue
            if loop is None or loop == step.loop:
                total += sum(max(0, min(end, step.end_ns) - max(start, step.start_ns)) for start, end in spans)
        return total


def phases_of(record: RequestRecord, steps: Iterable[StepRecord], victims: Victims) -> Iterator[Phase]:
    """Phases of ``record`` in the order of its life; ``steps``: its own slow ones."""
    if record.first_step_ns is not None and record.arrival_ns < record.first_step_ns:
        yield Phase(names.SPAN_QUEUE, record.arrival_ns, record.first_step_ns, _queue_attributes(record))
    for job in record.jobs:
        yield _executor_phase(job, record.end_ns)
    cost_ns = 0
    for number, step in enumerate(sorted(steps, key=lambda step: step.start_ns)):
        blocked_ns = victims.waited_for(step)
        cost_ns += blocked_ns
        if number < MAX_STEP_SPANS:
            yield Phase(names.SPAN_STEP, step.start_ns, step.end_ns, _step_attributes(step, blocked_ns))
    if record.result_ns is not None and record.budget.write_wait is not None:
        yield Phase(names.SPAN_WRITE, record.result_ns, record.end_ns, _write_attributes(record, cost_ns))


def _queue_attributes(record: RequestRecord) -> Attributes:
    found: Attributes = {}
    if record.budget.queue_transport is not None:
        found[names.QUEUE_WAIT_TRANSPORT] = record.budget.queue_transport / 1e9
    if record.budget.queue_dispatch is not None:
        found[names.QUEUE_WAIT_DISPATCH] = record.budget.queue_dispatch / 1e9
    return _with_quality(found, record, ("queue_transport", "queue_dispatch"))


def _executor_phase(job: JobTimes, end_ns: int) -> Phase:
    found: Attributes = {names.EXECUTOR_NAME: job.executor}
    last = job.submit_ns
    for since, until, attribute in (
        (job.submit_ns, job.start_ns, names.EXECUTOR_WAIT_TIME),
        (job.start_ns, job.finish_ns, names.EXECUTOR_RUN_TIME),
        (job.finish_ns, job.resumed_ns, names.EXECUTOR_RETURN_TIME),
    ):
        if since is not None and until is not None and until >= since:
            found[attribute] = (until - since) / 1e9
            last = until
    over = job.finish_ns is not None or job.resumed_ns is not None
    return Phase(names.SPAN_EXECUTOR, job.submit_ns, last if over else max(last, end_ns), found)


def _step_attributes(step: StepRecord, blocked_ns: int) -> Attributes:
    found = code_attributes(step)
    if step.cause is not None:
        found[names.STEP_CAUSE] = step.cause
    if step.cpu_ns is not None:
        found[names.CPU] = step.cpu_ns / 1e9
    if step.gc_ns:
        found[names.GC_TIME] = step.gc_ns / 1e9
    if blocked_ns:
        found[names.BLOCKED_OTHERS] = blocked_ns / 1e9
    return found


def _write_attributes(record: RequestRecord, cost_ns: int) -> Attributes:
    found: Attributes = {}
    for ns, attribute in (
        (record.budget.write_wait, names.WRITE_WAIT_TIME),
        (record.budget.write_flush, names.WRITE_FLUSH_TIME),
    ):
        if ns is not None:
            found[attribute] = ns / 1e9
    if record.response_bytes is not None:
        found[names.RESPONSE_BYTES] = record.response_bytes
    if cost_ns:
        found[names.BLOCKED_OTHERS] = cost_ns / 1e9
    found = _with_quality(found, record, ("write_wait", "write_flush"))
    retained = retained_attributes(record.memory)
    if names.QUALITY in found and names.QUALITY in retained:
        retained[names.QUALITY] = f"{found[names.QUALITY]},{retained[names.QUALITY]}"
    return {**found, **retained}


def _with_quality(found: Attributes, record: RequestRecord, parts: tuple[str, ...]) -> Attributes:
    quality = quality_of(record, parts)
    if quality:
        found[names.QUALITY] = quality
    return found
