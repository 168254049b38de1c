"""trio: a public instrument sees every step, every wake-up and every poll.

What the instrument cannot see is *why* a task was scheduled from outside a step: a deadline tells
itself through the cancelled scope (a private name, tested once), a thread result through the job the
task waits for, and everything else found in the poll lies between two polls.

Source: trio/_core/_run.py and _instrumentation.py, 0.30-0.35.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Any
from weakref import ref

from mcp_probe.adapters.hook import guarded
from mcp_probe.adapters.loop_hooks import LoopHooks, weakly
from mcp_probe.capture.current import CURRENT
from mcp_probe.capture.loop_monitor import EVERYTHING, LoopMonitor, StepSink
from mcp_probe.capture.loop_steps import Inherited
from mcp_probe.clock import now_ns
from mcp_probe.record.raw import WAKE_LOOP, WAKE_SOCKET, WAKE_THREAD, Job


class TrioMonitor(LoopMonitor):
    """The ``trio.abc.Instrument`` of one run, by duck typing: trio is not imported before the server does.

    Once it is not alive it leaves its run at that run's next step. ``loop`` is the run's token.
    """

    __slots__ = ("_done", "_in_poll", "_jobs", "_runs", "_scheduled", "_tasks", "_trio")

    def __init__(self, sink: StepSink, token: Any, trio: Any) -> None:
        super().__init__(sink, "trio", EVERYTHING, weakly(token), TrioHooks.hook)
        self._trio = trio
        self._runs = True
        self._jobs: dict[int, Job] = {}  # unit -> the thread job it waits for
        self._scheduled: dict[int, Inherited] = {}
        self._in_poll = False
        self._done: int | None = None
        self._tasks: dict[int, ref[Any]] = {}

    def is_running(self) -> bool:
        """A run is followed while it runs, and begins once."""
        return self._runs

    def is_over(self) -> bool:
        """A run that has ended does not begin again."""
        return not self._runs

    def current_unit(self) -> int:
        """Of the run on this thread."""
        return id(self._trio.lowlevel.current_task())

    def tasks(self) -> dict[int, Any]:
        """Those that have taken a step since it is followed."""
        found = {unit: reference() for unit, reference in self._tasks.copy().items()}
        return {unit: task for unit, task in found.items() if task is not None}

    def know(self, task: Any) -> None:
        """``task`` runs: its stack may be looked at until it has ended."""
        if id(task) not in self._tasks:
            self._tasks[id(task)] = ref(task)

    def is_scheduled(self, unit: int) -> bool:
        """From when trio told so until the task's next step."""
        return unit in self._scheduled

    def waits_for(self, job: Job) -> None:
        """Its result is what the running task will be scheduled for."""
        self._jobs[self.unit] = job

    def waits_no_more(self) -> None:
        """The running task has it, or has given it up."""
        self._jobs.pop(self.unit, None)

    def _gone(self) -> bool:
        if not self.alive:
            with suppress(KeyError, RuntimeError):
                self._trio.lowlevel.remove_instrument(self)
        return not self.alive

    # --- the instrument ---

    def after_run(self) -> None:
        """The run is over."""
        self._runs = False
        self.since = 0

    @guarded
    def task_scheduled(self, task: Any) -> None:
        """``task`` may run: since when?"""
        if self.alive:
            self._scheduled[id(task)] = self._stamp(task)

    def _stamp(self, task: Any) -> Inherited:
        now = now_ns()
        job = self._jobs.get(id(task))
        if job is not None and job.finish_ns is not None:
            return job.finish_ns, job.finish_ns, WAKE_THREAD
        if self.since:
            return now, now, WAKE_LOOP
        if self._in_poll:
            return self.looked, now, WAKE_SOCKET  # since the previous poll looked; this one has not ended yet
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
        if self._gone():
            return
        now = now_ns()
        earliest, ready, wake = self._scheduled.pop(id(task), (now, now, WAKE_LOOP))
        self.know(task)
        self.begin(task.context.get(CURRENT), id(task), earliest, ready, wake, now)

    def task_exited(self, task: Any) -> None:
        """Its last step is about to end."""
        self._done = id(task)
        self._tasks.pop(id(task), None)

    @guarded
    def after_task_step(self, task: Any) -> None:
        """A step has ended."""
        if self.alive and self.since:
            self.close(now_ns(), self._done == id(task))
        self._done = None

    @guarded
    def before_io_wait(self, timeout: float) -> None:
        """The loop polls."""
        if self.alive:
            self._in_poll = True
            self.may_wait = timeout > 0
            self.begin_poll(now_ns())

    @guarded
    def after_io_wait(self, timeout: float) -> None:
        """The poll returned."""
        if self._in_poll and self.alive:
            self._in_poll = False
            self.end_poll(now_ns())


class TrioHooks(LoopHooks[TrioMonitor]):
    """Follows trio runs through one instrument each."""

    hook = "steps (trio)"

    def fits(self, loop: Any) -> bool:
        """Whether it is the token of a run."""
        trio = sys.modules.get("trio")
        return trio is not None and isinstance(loop, trio.lowlevel.TrioToken)

    def begin(self, loop: Any) -> TrioMonitor:
        """What runs now is a step whose beginning was not seen."""
        import trio

        monitor = self._hub.add_monitor(lambda sink: TrioMonitor(sink, loop, trio))
        trio.lowlevel.add_instrument(monitor)  # type: ignore[arg-type]
        self._hub.working(self.hook)
        self._hub.working("loop polls")
        monitor.know(trio.lowlevel.current_task())
        now = now_ns()
        monitor.begin(CURRENT.get(), monitor.current_unit(), now, now, WAKE_LOOP, now)
        return monitor
