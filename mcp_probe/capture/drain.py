"""From live counters to frames: what has happened since the previous drain.

Runs on the collector's thread. Counters on monitors only grow and are read as differences, so the loop's
thread never waits for a reader and no increment is lost.
"""

from __future__ import annotations

import os
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from contextvars import copy_context
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from mcp_probe.capture.current import CURRENT
from mcp_probe.capture.hub import Hub
from mcp_probe.capture.live_requests import LiveRequests
from mcp_probe.capture.loop_monitor import EVERYTHING, LoopMonitor, StepSink
from mcp_probe.capture.messages import Channel, gone_ns
from mcp_probe.capture.proc_files import read, rss_bytes
from mcp_probe.capture.watchdog import Evidence
from mcp_probe.clock import now_ns
from mcp_probe.histogram import bucket_of
from mcp_probe.model import (
    LOOP_OPERATION,
    STEPS,
    LoopSample,
    OpenRequest,
    PoolSample,
    ProcessSample,
    RequestRecord,
    StepRecord,
)
from mcp_probe.record.assemble import assemble
from mcp_probe.record.raw import RawRequest, StepMark


class LoopDrain:
    """What one monitor has done since the last sample."""

    def __init__(self, monitor: LoopMonitor, probe_cpu_ns: Callable[[], int]) -> None:
        self.monitor = monitor
        self._probe_cpu_ns = probe_cpu_ns
        self._at = monitor.started_ns
        self._poll_ns = 0
        self._credit_ns = 0  # poll time counted ahead, of a poll that is not noted yet
        self._iterations: dict[int, list[int]] = {}
        self._sum_sq = 0
        self._max = 0
        watch = monitor.watch  # the loop may end meanwhile
        first = None if watch is None else watch.first  # polls count from there, too
        self._cpu: int | None = None if first is None else first.cpu_ns
        self._queue: int | None = None if first is None else first.run_queue_ns
        self._process_cpu = time.process_time_ns() if first is None else first.process_ns
        self._probe_cpu = probe_cpu_ns()

    def take_polls(self, until: int | None = None) -> int:
        """Count the polls noted since the last call; returns how many ended."""
        counts = self.monitor.take_polls(until)
        if counts.polls:
            self._poll_ns -= self._credit_ns
            self._credit_ns = 0
        self._poll_ns += counts.poll_ns
        for bucket, count, total in counts.iterations:
            self._count_iterations(bucket, count, total)
        self._sum_sq += counts.sum_sq
        self._max = max(self._max, counts.longest_ns)
        return counts.polls

    def _count_iterations(self, bucket: int, count: int, total: int) -> None:
        entry = self._iterations.setdefault(bucket, [0, 0])
        entry[0] += count
        entry[1] += total

    def sample(self, now: int, small: dict[str, list[int]], *, final: bool) -> LoopSample:
        """Health of the loop since the previous sample; ``small`` is consumed.

        A poll under way counts up to ``now``; an iteration under way only if this is the last sample.
        """
        monitor = self.monitor
        self.take_polls(now)
        if monitor.polling:
            pass
        elif monitor.sees.polls == "estimate" and monitor.idle:
            # Its polls are noted once they are over; until then the time since the last stamp counts as one.
            credit = max(0, now - monitor.now)
            self._poll_ns += credit - self._credit_ns
            self._credit_ns = credit
        elif monitor.sees.polls == "unavailable":
            pass
        elif final and monitor.is_running() and (length := now - monitor.poll_end) > 0:
            self._count_iterations(bucket_of(length), 1, length)
            self._sum_sq += length * length
            self._max = max(self._max, length)
        cpu, queue, others = self._thread_times()
        sample = LoopSample(
            at_ns=now,
            span_ns=max(0, now - self._at),
            loop=monitor.ordinal,
            name=monitor.name,
            poll_ns=self._poll_ns,
            iterations=tuple((bucket, count, total) for bucket, (count, total) in self._iterations.items()),
            sum_sq_ns2=self._sum_sq,
            max_ns=self._max,
            small_steps=tuple((name, count, total) for name, (count, total) in small.items()),
            cpu_ns=cpu,
            run_queue_ns=queue,
            other_threads_cpu_ns=others,
            quality=monitor.sees.polls,
        )
        self._at = now
        self._iterations = {}
        self._poll_ns = self._sum_sq = self._max = 0
        small.clear()
        return sample

    def _thread_times(self) -> tuple[int | None, int | None, int | None]:
        watch = self.monitor.watch
        if watch is None:
            return None, None, None
        cpu, queue = watch.cpu_now(), watch.run_queue_now()
        process, probe = time.process_time_ns(), self._probe_cpu_ns()
        own = None if cpu is None or self._cpu is None else cpu - self._cpu
        waited = None if queue is None or self._queue is None else queue - self._queue
        # Our own threads are no threads of the server: what they take must not accuse it.
        others = None if own is None else max(0, process - self._process_cpu - own - (probe - self._probe_cpu))
        self._cpu, self._queue, self._process_cpu, self._probe_cpu = cpu, queue, process, probe
        return own, waited, others


class Drain:
    """Turns the hub's state into frames, in the order a reader needs them: steps before their victims."""

    def __init__(self, hub: Hub, collector_cpu_ns: Callable[[], int]) -> None:
        self._hub = hub
        self._collector_cpu_ns = collector_cpu_ns
        self._loops: dict[int, LoopDrain] = {}
        self._small: dict[str, list[int]] = {}
        self._at = now_ns()
        self._cpu = time.process_time_ns()
        self._gc_ns = 0
        self._gc_count = 0
        self._steps: dict[int, int] = {}
        self._polls = 0
        self._requests = 0
        self._own_cpu = 0
        self._throttled = _throttled_ns()
        self._cost = HookCost(0.0, 0.0, 0.0)
        self._detached: dict[tuple[int, str], int] = {}

    def calibrate(self) -> None:
        """Measure what our hooks cost on this machine."""
        try:
            self._cost = hook_cost(self._hub)
        except Exception as exc:  # noqa: BLE001 - only a figure about the probe is lost
            self._hub.fail("overhead of hooks", exc)

    def steps(self) -> Iterator[StepRecord]:
        """Steps of at least 0.5 ms that have ended, and slow ones that still run."""
        hub = self._hub
        self.take_polls()
        while hub.slow:
            yield step_record(*self._take_slow())
        for monitor, watch in hub.watchdog.watches():
            running = watch.running(hub.slow_step_ns)
            owner = monitor.owner
            if running is None or monitor.since != running[0]:
                continue  # it is over by now, and the next one may be another request's
            since, now, cpu, queued, place = running
            yield StepRecord(
                start_ns=since,
                end_ns=now,
                request=0 if owner is None else owner.id,
                operation=LOOP_OPERATION if owner is None else owner.operation,
                loop=monitor.ordinal,
                within=_ancestors(owner),
                running=True,
                cause="unknown",
                cpu_ns=cpu,
                run_queue_ns=queued,
                file=None if place is None else place.file,
                line=None if place is None else place.line,
                function=None if place is None else place.function,
                library=None if place is None else place.library,
                where="unavailable" if place is None else "exact",
            )

    def _take_slow(self) -> Any:
        """Take the oldest slow step. It enters ``recent``, where spans look for it, before it leaves ``slow``."""
        slow, recent = self._hub.slow, self._hub.recent
        if recent is not None:
            recent.append(slow[0])
        taken = slow.popleft()
        if recent is not None and recent[-1] is not taken:
            recent.append(taken)
        return taken

    def take_polls(self) -> None:
        """Count the polls noted so far; their buffer is bounded."""
        for monitor in self._hub.monitors.values():
            if monitor.ordinal not in self._loops:
                self._loops[monitor.ordinal] = LoopDrain(monitor, self._probe_cpu_ns)
            self._polls += self._loops[monitor.ordinal].take_polls()

    def note_small_steps(self, picked: Iterable[tuple[RawRequest, int]]) -> None:
        """Count these requests' steps below 0.5 ms for the next loop sample, each as often as its weight."""
        for raw, weight in picked:
            count, total = raw.small_steps() if raw.seen & STEPS else (0, 0)
            if count:
                entry = self._small.setdefault(raw.operation, [0, 0])
                entry[0] += count * weight
                entry[1] += total * weight

    def note_ended(self, count: int) -> None:
        """``count`` requests have ended; our hooks cost something for each."""
        self._requests += count

    def loops(self, now: int, *, final: bool) -> Iterator[LoopSample]:
        """One sample per loop; for a loop that is over, its last one."""
        hub = self._hub
        small = self._small
        over = list(hub.retired)  # first: a loop that ends meanwhile is told at the next drain
        for monitor in [*hub.monitors.values(), *over]:
            drain = self._loops.setdefault(monitor.ordinal, LoopDrain(monitor, self._probe_cpu_ns))
            yield drain.sample(now, small, final=final)
        for monitor in over:
            self._loops.pop(monitor.ordinal, None)
        del hub.retired[: len(over)]

    def pools(self, now: int) -> Iterable[PoolSample]:
        """One sample per executor."""
        return self._hub.pools.samples(now)

    def _probe_cpu_ns(self) -> int:
        """CPU time of our own threads so far."""
        return self._collector_cpu_ns() + self._hub.watchdog.cpu_ns

    def process(self, now: int) -> ProcessSample:
        """The process since the previous sample."""
        hub = self._hub
        cpu = time.process_time_ns()
        throttled = _throttled_ns()
        steps = 0
        for monitor in hub.monitors.values():
            steps += monitor.steps - self._steps.get(monitor.ordinal, 0)
            self._steps[monitor.ordinal] = monitor.steps
        hook_ns = round(
            steps * self._cost.step_ns + self._polls * self._cost.poll_ns + self._requests * self._cost.request_ns
        )
        self._polls = self._requests = 0
        own = self._probe_cpu_ns()
        pauses = []
        while hub.pauses:
            pauses.append(hub.pauses.popleft())
        requests = hub.requests
        lines, backlog = _unread(hub.channels)
        outstanding = len(requests.live) + lines
        sample = ProcessSample(
            at_ns=now,
            span_ns=now - self._at,
            cpu_ns=cpu - self._cpu,
            rss_bytes=rss_bytes(),
            gc_pauses=tuple((began, end, generation) for began, end, generation, _ in pauses),
            gc_ns=hub.gc_ns - self._gc_ns,
            gc_count=hub.gc_count - self._gc_count,
            throttled_ns=None if throttled is None or self._throttled is None else throttled - self._throttled,
            cpu_pressure=_cpu_pressure(),
            probe_cpu_ns=max(0, own - self._own_cpu) + hook_ns,
            hook_ns=hook_ns,
            dropped=(),
            outstanding=outstanding,
            outstanding_peak=max(requests.peak, outstanding),
            finished_unwritten_peak=requests.unwritten_peak,
            backlog_bytes_peak=backlog,
            stdout_foreign_bytes=hub.stdout.take(),
            stdout_foreign_at=hub.stdout.where,
            stdout_is_wire=hub.stdout.is_wire,
            detached=self._newly_detached(),
            active=_active(requests.live.copy().values()),
            gc_pauses_cpu=tuple(cpu for *_, cpu in pauses),
            input_ended_ns=max(_inputs_ended(hub.channels), default=None),
        )
        requests.peak, requests.unwritten_peak = outstanding, max(0, requests.unwritten)
        self._at, self._cpu, self._own_cpu = now, cpu, own
        self._gc_ns, self._gc_count, self._throttled = hub.gc_ns, hub.gc_count, throttled
        return sample

    def _newly_detached(self) -> tuple[tuple[str, int], ...]:
        new: dict[str, int] = {}
        for monitor in self._hub.monitors.values():
            for name, ns in monitor.detached.copy().items():
                key = (monitor.ordinal, name)
                new[name] = new.get(name, 0) + ns - self._detached.get(key, 0)
                self._detached[key] = ns
        return tuple((name, ns) for name, ns in new.items() if ns)


def _active(live: Iterable[RawRequest]) -> tuple[tuple[str, int], ...]:
    """How many requests of each method are open; profiled calls are part of another request."""
    return tuple(Counter(raw.method for raw in live if raw.kind != "function").items())


def open_request(raw: RawRequest, now: int) -> OpenRequest:
    """``raw`` as a request that is still alive."""
    arrival = raw.arrival_ns if raw.arrival_ns is not None else raw.first_step_ns
    return OpenRequest(
        id=raw.id,
        kind=raw.kind,
        method=raw.method,
        name=raw.name,
        transport=raw.transport,
        arrival_ns=now if arrival is None else arrival,
        seen_ns=now,
    )


def record_of(hub: Hub, raw: RawRequest, now: int, running: StepMark | None = None, weight: int = 1) -> RequestRecord:
    """``raw`` as it stands at ``now``, with what the hub knows besides. The other arguments are ``assemble``'s.

    On a loop's thread, what it awaited has the name that is known by now.
    """
    if raw.awaits and not hub.runs_loop():
        hub.awaits.search(raw.awaits)
    return assemble(
        raw,
        now,
        running,
        hub.memory.use_of(raw),
        weight,
        hub.measuring.of(raw),
        named=hub.awaits.active,
        short_await_ns=hub.awaits.short_ns,
        gone_ns=gone_ns(raw),
    )


def running_mark(hub: Hub, raw: RawRequest, now: int) -> StepMark | None:
    """The step of ``raw`` that runs on a loop at this moment."""
    for monitor in hub.monitors.values():
        since = monitor.since
        if monitor.owner is raw and since:
            return (monitor.unit, monitor.suspended, monitor.earliest, monitor.ready, since, now, monitor.wake)
    return None


def step_record(
    loop: int, start: int, end: int, owner: RawRequest | None, gc_ns: int, evidence: Evidence | None
) -> StepRecord:
    """One entry of ``Hub.slow`` as a frame."""
    return StepRecord(
        start_ns=start,
        end_ns=end,
        request=0 if owner is None else owner.id,
        operation=LOOP_OPERATION if owner is None else owner.operation,
        loop=loop,
        within=_ancestors(owner),
        trace_id=None if owner is None or owner.trace_id is None else f"{owner.trace_id:032x}",
        span_id=None if owner is None or owner.span_id is None else f"{owner.span_id:016x}",
        gc_ns=gc_ns,
        cpu_ns=None if evidence is None else evidence.cpu_ns,
        run_queue_ns=None if evidence is None else evidence.run_queue_ns,
        cause=None if evidence is None else evidence.cause,
        file=None if evidence is None else evidence.file,
        line=None if evidence is None else evidence.line,
        function=None if evidence is None else evidence.function,
        library=None if evidence is None else evidence.library_called(),
        where="unavailable" if evidence is None else evidence.where,
        sleeps=None if evidence is None else evidence.sleeps,
    )


def _ancestors(raw: RawRequest | None) -> tuple[int, ...]:
    """Ids of the requests that ``raw`` is part of."""
    found = []
    while raw is not None and raw.parent is not None:
        raw = raw.parent
        found.append(raw.id)
    return tuple(found)


def _inputs_ended(channels: list[Any]) -> list[int]:
    """When the client of each stdio transport closed its end, of those that did."""
    stamps = [channel.stamps for channel in channels if channel.stamps is not None]
    return [one.ended_ns for one in stamps if one.ended_ns is not None]


def unread_lines(channels: list[Any]) -> int:
    """Messages read off stdin that nobody has parsed yet. Any thread; it changes nothing."""
    return sum(len(channel.stamps.waiting) for channel in channels if channel.stamps is not None)


def _unread(channels: list[Any]) -> tuple[int, int | None]:
    """(lines, bytes) read off stdin or waiting in it, not yet consumed."""
    lines = unread_lines(channels)
    backlog: int | None = None
    for channel in channels:
        stamps = channel.stamps
        if stamps is None:
            continue
        peak = max(stamps.waiting_bytes_peak, stamps.waiting_bytes)
        stamps.waiting_bytes_peak = 0
        backlog = (backlog or 0) + peak + stamps.in_pipe()
    return lines, backlog


def _throttled_ns() -> int | None:
    """Time this cgroup was refused the CPU by its quota, so far (cgroup v2)."""
    try:
        for row in read("/sys/fs/cgroup/cpu.stat").splitlines():
            if row.startswith(b"throttled_usec"):
                return int(row.split()[1]) * 1000
    except (OSError, ValueError):
        pass
    return None


def memory_limit_bytes() -> int | None:
    """What this cgroup may use; ``None`` where there is no limit, or none can be read (cgroup v2)."""
    try:
        return int(read("/sys/fs/cgroup/memory.max"))  # "max" if there is none
    except (OSError, ValueError):
        return None


def cpus() -> float | None:
    """How many CPUs this process may use: its affinity, or what the limit of its cgroup allows if that is less (v2).

    Its main thread's affinity, whoever asks: a program that limits itself does so there, and no thread that runs by
    then, such as ours, is limited with it.
    """
    allowed = len(os.sched_getaffinity(os.getpid())) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    try:
        quota, period = read("/sys/fs/cgroup/cpu.max").split()
        limit = int(quota) / int(period)  # "max" if there is none
    except (OSError, ValueError, ZeroDivisionError):
        return None if allowed is None else float(allowed)
    return limit if allowed is None else min(limit, float(allowed))


def _cpu_pressure() -> float | None:
    """Share of the last 10 s in which some task waited for a CPU, percent (PSI)."""
    try:
        return float(read("/proc/pressure/cpu").split(b"avg10=")[1].split()[0])
    except (OSError, ValueError, IndexError):
        return None


@dataclass(frozen=True, slots=True)
class HookCost:
    """What our hooks add on the profiled threads, nanoseconds each."""

    step_ns: float
    poll_ns: float
    request_ns: float


class _Answer:
    id = 1
    result = None


def hook_cost(hub: Hub, rounds: int = 300) -> HookCost:
    """Time our own parts of a step, a poll and a request in this process, with warm caches and separate objects.

    In the server the caches are colder, so this estimate is low; docs/performance.md has it measured from outside.
    """
    sink = StepSink(0, deque(maxlen=1), hub.slow_step_ns, hub.requests.settle)
    monitor = LoopMonitor(sink, "calibration", EVERYTHING)
    raw = RawRequest(0, "request", "calibration", None, "none")
    began = now_ns()
    for _ in range(rounds):
        now_ns()
        CURRENT.get()
        monitor.begin(raw, 1, 0, 0, 0, began)
        monitor.close(began, False)
        now_ns()
        raw.clear_marks()
    stepped = now_ns()
    for _ in range(rounds):
        monitor.begin_poll(now_ns())
        monitor.end_poll(now_ns())
    polled = now_ns()
    channel = Channel(LiveRequests(), "none", lambda: (began, began, began))
    asked = SimpleNamespace(message=SimpleNamespace(method="calibration", id=1, params=None))
    answer = SimpleNamespace(message=_Answer())
    for _ in range(rounds):
        channel.received(asked, copy_context())
        request = channel.sending(answer)
        if request is not None:
            channel.handed_over(request)
    ended = now_ns()
    return HookCost((stepped - began) / rounds, (polled - stepped) / rounds, (ended - polled) / rounds)
