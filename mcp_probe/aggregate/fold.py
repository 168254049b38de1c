"""Frames in, a summary out, at any time and in bounded memory.

A victim's blame is worked out :data:`HOLD_NS` of stream time after its record came, because the steps that
held it up may be drained a batch later. Until then the victim is held here, and :meth:`Fold.summary` works
the blame out without changing anything. So the order of frames within that time does not matter.

Requests known only from an :class:`~mcp_probe.model.OpenRequest` (the server was killed, or still
runs) are *unfinished* in the summary: their age at the last instant of the stream counts as a lower bound
of ``total_ms.max``, and never enters a percentile.

``on_blame`` is told what each victim waited for as soon as that is worked out: for rows of single requests.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from dataclasses import replace

from mcp_probe.aggregate.at_once import RecentAwaits
from mcp_probe.aggregate.awaiting import Traces, Waiter, earliest_of, waiter_of
from mcp_probe.aggregate.blocking import (
    KEEP_SAMPLES,
    KEEP_STEPS,
    Blame,
    PollIndex,
    RecentSteps,
    StepIndex,
    Victim,
    blame,
    blocker_of,
    victim_of,
)
from mcp_probe.aggregate.checks.evidence import clients_waited_ms, clients_waited_quality
from mcp_probe.aggregate.findings import FindingOptions, findings_of, verdict_of
from mcp_probe.aggregate.flight import Flight
from mcp_probe.aggregate.summary import Stream, Totals, summary_of
from mcp_probe.model import (
    End,
    Frame,
    GrowthSample,
    GrowthSites,
    Header,
    LoopSample,
    OpenRequest,
    Part,
    PoolSample,
    ProcessSample,
    RequestGroup,
    RequestRecord,
    StepRecord,
    Summary,
)
from mcp_probe.record.sampling import NEVER_NS

HOLD_NS = 2_000_000_000
SETTLE_NS = 3_000_000_000
"""When the oldest held victim is this old, all older than :data:`HOLD_NS` are settled: about once a second."""

MAX_HELD_WAITS = 16_384
MAX_OPEN = 16_384
_MS = 1_000_000


class Fold:
    """One process's stream of frames, folded. Not thread-safe.

    Frames are expected about in the order in which they were drained; an ``OpenRequest`` comes before the
    record or the group that closes it. Percentiles are off by less than 6.3 % (see ``buckets``), maxima are exact.
    """

    def __init__(
        self,
        slow_step_ms: float = 10.0,
        critical_step_ms: float = 50.0,
        *,
        findings: FindingOptions | None = None,
        keep_steps: int = KEEP_STEPS,
        on_blame: Callable[[Victim, Blame], None] | None = None,
    ) -> None:
        self._findings = findings or FindingOptions(slow_step_ms=slow_step_ms, critical_step_ms=critical_step_ms)
        self._slow_ns = round(slow_step_ms * _MS)
        self._totals = Totals(self._slow_ns, round(critical_step_ms * _MS))
        self._header: Header | None = None
        self._first_ns: int | None = None
        self._last_ns: int | None = None
        self._ended = False
        self._told = 0  # requests that have a record, or are counted in a group
        self._cut: int | None = None  # requests that are missing from a recording of limited size
        self._limit_bytes = 0
        self._missing = 0  # frames that the recording had and the file has not
        self._steps = RecentSteps(keep_steps)
        self._polls: deque[LoopSample] = deque(maxlen=KEEP_SAMPLES)
        self._running: dict[int, StepRecord] = {}
        self._held: deque[tuple[int, Victim]] = deque()
        self._held_waits = 0
        self._traces = Traces()
        self._awaits = RecentAwaits()
        self._waiters: deque[tuple[int, Waiter]] = deque(maxlen=MAX_HELD_WAITS)  # those held up by holders
        self._open: OrderedDict[int, OpenRequest] = OrderedDict()
        self._flight = Flight()
        self._input_ended_ns: int | None = None  # by the only client of a stdio transport
        self._on_blame = on_blame

    # --- in ---

    def add_all(self, frames: Iterable[Frame]) -> None:
        """Take frames in, in their order."""
        for frame in frames:
            if type(frame) is RequestRecord:
                self._add_request(frame)
            else:
                self.add(frame)

    def add(self, frame: Frame) -> None:
        """Take one frame in."""
        if isinstance(frame, RequestRecord):
            self._add_request(frame)
        elif isinstance(frame, RequestGroup):
            self._add_group(frame)
        elif isinstance(frame, StepRecord):
            self._add_step(frame)
        elif isinstance(frame, OpenRequest):
            self._add_open(frame)
        elif isinstance(frame, LoopSample):
            self._saw(frame.at_ns - frame.span_ns, frame.at_ns)
            self._polls.append(replace(frame, iterations=(), small_steps=()))
            self._totals.loops.tally(frame.loop).add(frame)
        elif isinstance(frame, PoolSample):
            self._saw(frame.at_ns - frame.span_ns, frame.at_ns)
            self._totals.pools.add(frame)
        elif isinstance(frame, ProcessSample):
            self._saw(frame.at_ns - frame.span_ns, frame.at_ns)
            self._totals.process.add(frame)
            self._totals.backlog.add_sample(frame)
            self._input_ended_ns = frame.input_ended_ns or self._input_ended_ns
        elif isinstance(frame, (GrowthSample, GrowthSites)):
            self._saw(frame.at_ns, frame.at_ns)
            self._totals.leaks.add(frame)
        elif isinstance(frame, Header):
            self._header = frame
            if self._cut is None:
                self._saw(frame.start_ns, frame.start_ns)
        elif isinstance(frame, Part):
            self._add_part(frame)
        elif isinstance(frame, End):
            self._saw(frame.at_ns, frame.at_ns)
            self._ended = True
            self._missing = frame.missing

    def _saw(self, since_ns: int, until_ns: int) -> None:
        if self._first_ns is None or since_ns < self._first_ns:
            self._first_ns = since_ns
        if self._last_ns is None or until_ns > self._last_ns:
            self._last_ns = until_ns

    def _add_part(self, part: Part) -> None:
        if part.ends:
            self._ended = True
            self._missing = part.missing
            self._totals.notes.add(
                f"The recording goes on in another file: part {part.number} is not among what was read."
            )
            return
        if not self._told:  # its time begins with what is left
            self._first_ns = self._last_ns = None
        self._cut = part.requests_before - self._told + (self._cut or 0)
        self._told = part.requests_before
        self._limit_bytes = part.limit_bytes

    def _add_request(self, record: RequestRecord) -> None:
        self._told += 1
        self._saw(record.arrival_ns, record.end_ns)
        self._totals.operations.of(record).add(record)
        self._totals.firsts.add(record)
        self._totals.backlog.add(record)
        self._flight.add(record, self._open_without(record.id))
        gc_ns = record.budget.gc
        if gc_ns and gc_ns >= self._slow_ns and record.end_ns > record.arrival_ns:
            self._totals.note_gc_share(gc_ns / (record.end_ns - record.arrival_ns))
        if record.waits and (victim := victim_of(record)) is not None:
            self._hold(victim)
        if record.waits or record.awaits:
            self._settle_waiters()  # before this record makes the traces forget those they wait for
            self._traces.add(record)
        if record.awaits:
            self._awaits.add(record)
        if record.awaits and (waiter := waiter_of(record)) is not None:
            self._await(waiter)

    def _add_group(self, group: RequestGroup) -> None:
        self._told += group.count
        self._saw(group.first_ns, group.last_ns)
        self._totals.operations.of(group).add_group(group)
        self._totals.firsts.add_group(group)
        self._totals.backlog.add_group(group)
        self._flight.add_group(group)
        for ended in group.closes:
            self._open.pop(ended, None)

    def _add_step(self, step: StepRecord) -> None:
        self._saw(step.start_ns, step.end_ns)
        if self._steps.full:
            self._settle(len(self._held))
        if not self._steps.add(step):
            return
        before = self._running.get(step.loop)
        if before is not None and before.start_ns < step.start_ns < before.end_ns:
            # A loop runs one step at a time. Between two steps a reader in another thread takes the end of one for the
            # start of the next: both frames are of this step.
            self._steps.forget(before)
            before = None
        elif before is not None and before.start_ns < step.start_ns:
            before = replace(before, running=False)  # its end was lost: the loop is on another step by now
            self._steps.add(before)
            self._count_step(before)
        elif before is not None and before.start_ns > step.start_ns:
            self._count_step(replace(step, running=False))
            return
        self._running.pop(step.loop, None)
        if step.running:
            self._running[step.loop] = step
        else:
            self._count_step(step)

    def _count_step(self, step: StepRecord) -> None:
        self._totals.slow_steps.add(step)
        self._totals.firsts.add_step(step)
        self._totals.loops.tally(step.loop).add_step(step)

    def _add_open(self, request: OpenRequest) -> None:
        self._saw(request.arrival_ns, request.seen_ns)
        if request.id in self._open or len(self._open) < MAX_OPEN:
            self._open[request.id] = request
        else:
            self._totals.notes.add(
                f"More than {MAX_OPEN} requests were open at once: those beyond are missing from the unfinished ones."
            )

    def _open_without(self, ended: int) -> int:
        """Remove ``ended``; returns the arrival of the oldest request that is still open."""
        if not self._open:
            return NEVER_NS
        self._open.pop(ended, None)
        return next((request.arrival_ns for request in self._open.values() if request.kind == "request"), NEVER_NS)

    # --- blame, once the steps of its time are known ---

    def _hold(self, victim: Victim) -> None:
        now = self._last_ns or 0
        self._held.append((now, victim))
        self._held_waits += len(victim.waits)
        if self._held_waits > MAX_HELD_WAITS:
            self._settle(max(1, len(self._held) // 2))
        elif self._held[0][0] + SETTLE_NS <= now:
            self._settle(sum(1 for seen, _ in self._held if seen + HOLD_NS <= now))

    def _settle(self, count: int) -> None:
        """Work out the blame of the ``count`` victims held longest."""
        due = [self._held.popleft()[1] for _ in range(count)]
        self._held_waits -= sum(len(victim.waits) for victim in due)
        for victim, found in self._blames(due):
            self._totals.operations.add_blame(victim, found)
            if self._on_blame is not None:
                self._on_blame(victim, found)

    def settle(self) -> None:
        """Work out the blame of all victims that came so far; steps that come later are not held against them."""
        self._settle(len(self._held))

    def _await(self, waiter: Waiter) -> None:
        if len(self._waiters) == MAX_HELD_WAITS:
            self._pop_waiters(len(self._waiters) // 2)
        self._waiters.append((self._last_ns or 0, waiter))

    def _settle_waiters(self) -> None:
        now = self._last_ns or 0
        if self._waiters and self._waiters[0][0] + SETTLE_NS <= now:
            self._pop_waiters(sum(1 for seen, _ in self._waiters if seen + HOLD_NS <= now))

    def _pop_waiters(self, count: int) -> None:
        self._add_roots(self._totals, [self._waiters.popleft()[1] for _ in range(count)])

    def _add_roots(self, totals: Totals, waiters: list[Waiter]) -> None:
        if not waiters:
            return
        steps, polls = self._indexes(earliest_of(waiters))
        for waiter in waiters:
            totals.operations.add_roots(waiter, self._traces, steps, polls)

    def _indexes(self, earliest: int) -> tuple[StepIndex, PollIndex]:
        return self._steps.index(earliest), PollIndex(sample for sample in self._polls if sample.at_ns > earliest)

    def _blames(self, victims: list[Victim]) -> Iterable[tuple[Victim, Blame]]:
        if not victims:
            return
        steps, polls = self._indexes(min(wait.earliest_ns for victim in victims for wait in victim.waits))
        for victim in victims:
            yield victim, blame(victim, steps, polls)

    # --- out ---

    def merge(self, other: Fold) -> None:
        """Add another process's stream, as it stands; ``other`` stays as it is.

        Requests, steps and clocks of two processes have nothing to do with each other, so a request of one is never
        blamed on the other. Feed two halves of *one* stream into one Fold instead.
        """
        self._totals.merge(other._settled())

    def summary(self, *, live: bool = False) -> Summary:
        """What the frames so far say; changes nothing, so more may follow.

        Args:
            live: The stream is still being written: a missing ``End`` is no sign of a killed server.
        """
        found = summary_of(self._settled(), live)
        waited = clients_waited_ms(found)
        found = replace(found, clients_waited_ms=waited, clients_waited_quality=clients_waited_quality(found))
        findings = findings_of(found, self._findings)
        found = replace(found, findings=findings)
        return replace(found, verdict=verdict_of(found, findings))

    def _settled(self) -> Totals:
        """Totals as if no more frames would come."""
        totals = Totals(self._totals.slow_ns, self._totals.critical_ns)
        totals.merge(self._totals)
        if self._first_ns is not None and self._last_ns is not None:
            cut = None if self._cut is None else (self._cut, self._limit_bytes)
            totals.streams.append(Stream(self._header, self._first_ns, self._last_ns, self._ended, cut, self._missing))
        for victim, found in self._blames([victim for _, victim in self._held]):
            totals.operations.add_blame(victim, found)
        self._add_roots(totals, [waiter for _, waiter in self._waiters])
        self._awaits.tally_into(totals.loads)
        for request in self._open.values():
            tally = totals.operations.of(request)
            last = self._last_ns or 0
            tally.add_unfinished(max(0, last - request.arrival_ns))
            left = last if self._input_ended_ns is None or request.transport != "stdio" else self._input_ended_ns
            waited = max(0, min(left, last) - request.arrival_ns)
            tally.waited.add(waited, waited, is_open=left >= last)
        for step in self._running.values():
            totals.slow_steps.add(step)
            self._blame_running(totals, step)
        totals.flight.merge(self._flight.totals(self._open.values()))
        return totals

    def _blame_running(self, totals: Totals, step: StepRecord) -> None:
        """Open requests that came after ``step`` began cannot have run yet: they have waited for it at least this long.

        A request that came earlier may be waiting for something outside instead, so it is not counted. With several
        loops the request's loop is not known, so nothing is blamed.
        """
        if len({sample.loop for sample in self._polls} | {step.loop}) > 1:
            return
        for request in self._open.values():
            waited = step.end_ns - request.arrival_ns
            if request.arrival_ns >= step.start_ns and waited > 0 and request.id != step.request:
                found = Blame({blocker_of(step): (waited, waited)}, clipped=True)
                totals.operations.matrix.add(totals.operations.of(request).name, found)
