"""trio: a public instrument sees every step, every wake-up and every poll.

What the instrument cannot see is *why* a task was scheduled from outside a step: a deadline tells
itself through the cancelled scope (a private name, tested once), a thread result through the job the
task waits for, and everything else found in the poll lies between two polls.

Source: trio/_core/_run.py and _instrumentation.py, 0.30-0.35.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from mcp_probe.adapters.hook import guarded
from mcp_probe.capture.current import CURRENT
from mcp_probe.capture.guard import Guard
from mcp_probe.capture.hub import Hub
from mcp_probe.capture.loop_monitor import LoopMonitor
from mcp_probe.clock import now_ns
from mcp_probe.record.raw import WAKE_LOOP, WAKE_SOCKET, WAKE_THREAD

HOOK = "steps (trio)"
Stamp = tuple[int, int, int]


class TrioHooks:
    """Follows trio runs through one instrument each."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._instruments: dict[Any, ProbeInstrument] = {}

    def follow(self, token: Any) -> LoopMonitor | None:
        """Follow the run of ``token``, on the calling thread. Idempotent."""
        known = self._instruments.get(token)
        if known is not None:
            return known.monitor if known.monitor.alive else None
        import trio

        for ended in [token for token, other in self._instruments.items() if not other.monitor.is_running()]:
            self._hub.drop_monitor(self._instruments.pop(ended).monitor)
        monitor = self._hub.add_monitor("trio")
        monitor.current_unit = lambda: id(trio.lowlevel.current_task())
        monitor.quality = "exact"
        instrument = ProbeInstrument(self._hub, monitor, trio)
        trio.lowlevel.add_instrument(instrument)  # type: ignore[arg-type]
        self._instruments[token] = instrument
        self._hub.working(HOOK)
        self._hub.working("loop polls")
        now = now_ns()
        monitor.begin(CURRENT.get(), id(trio.lowlevel.current_task()), now, now, WAKE_LOOP, now)
        return monitor

    def restore(self) -> list[str]:
        """Turn the instruments into pass-throughs; each leaves its run at that run's next step."""
        for instrument in list(self._instruments.values()):
            instrument.leave = True
            self._hub.drop_monitor(instrument.monitor)
        self._instruments.clear()
        return []


class ProbeInstrument:
    """A ``trio.abc.Instrument`` by duck typing, so that trio is not imported before the server does."""

    def __init__(self, hub: Hub, monitor: LoopMonitor, trio: Any) -> None:
        self.monitor = monitor
        self.leave = False
        self._trio = trio
        self._scheduled: dict[int, Stamp] = {}
        self._in_poll = False
        self._done: int | None = None
        self.guard = Guard(HOOK, hub.fail, self._broken)

    def _broken(self) -> None:
        self.leave = True
        self.monitor.alive = False
        self.monitor.since = 0

    def _gone(self) -> bool:
        if self.leave:
            with suppress(KeyError, RuntimeError):
                self._trio.lowlevel.remove_instrument(self)
        return self.leave

    def after_run(self) -> None:
        """The run is over."""
        self.monitor.is_running = lambda: False
        self.monitor.since = 0

    @guarded
    def task_scheduled(self, task: Any) -> None:
        """``task`` may run: since when?"""
        if not self.leave:
            self._scheduled[id(task)] = self._stamp(task)

    def _stamp(self, task: Any) -> Stamp:
        now = now_ns()
        monitor = self.monitor
        job = monitor.jobs.get(id(task))
        if job is not None and job.finish_ns is not None:
            return job.finish_ns, job.finish_ns, WAKE_THREAD
        if monitor.since:
            return now, now, WAKE_LOOP
        if self._in_poll:
            return monitor.poll_end, now, WAKE_SOCKET  # after the previous poll; this one has not ended yet
        due = self._deadline(task, now)
        return (now, now, WAKE_LOOP) if due is None else (due, due, WAKE_LOOP)

    def _deadline(self, task: Any, now: int) -> int | None:
        """The earliest expired deadline of the scopes around ``task``, on our clock."""
        status = getattr(task, "_cancel_status", None)
        clock = self._trio.current_time()
        best = None
        while status is not None:
            deadline = getattr(getattr(status, "_scope", None), "deadline", None)
            if deadline is not None and deadline <= clock and (best is None or deadline < best):
                best = deadline
            status = getattr(status, "_parent", None)
        return None if best is None else now - max(0, round((clock - best) * 1e9))

    @guarded
    def before_task_step(self, task: Any) -> None:
        """A step begins."""
        if self.leave and self._gone():
            return
        now = now_ns()
        earliest, ready, wake = self._scheduled.pop(id(task), (now, now, WAKE_LOOP))
        self.monitor.begin(task.context.get(CURRENT), id(task), earliest, ready, wake, now)

    def task_exited(self, task: Any) -> None:
        """Its last step is about to end."""
        self._done = id(task)

    @guarded
    def after_task_step(self, task: Any) -> None:
        """A step has ended."""
        if self.leave:
            return
        if self.monitor.since:
            self.monitor.close(now_ns(), self._done == id(task))
        self._done = None

    @guarded
    def before_io_wait(self, timeout: float) -> None:
        """The loop polls."""
        if not self.leave:
            self._in_poll = True
            self.monitor.begin_poll(now_ns())

    @guarded
    def after_io_wait(self, timeout: float) -> None:
        """The poll returned."""
        if self._in_poll and not self.leave:
            self._in_poll = False
            self.monitor.end_poll(now_ns())
