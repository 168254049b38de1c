"""Small programs for an event loop, run on a bare loop and on a followed one in the same process, traced by event.

A program is a list of operations. Each callback, task and timer notes what it saw (its context, whether it was the
loop's thread, what was raised), so two traces are equal where the loop behaved the same. Deadlines differ by whole
slots of time, so that no order depends on how fast the machine is; equal deadlines are made equal on purpose.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import signal
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

VALUE: contextvars.ContextVar[int] = contextvars.ContextVar("value", default=0)
RESCUE_SLOTS = 100
ODD = ("nan", "inf", "-inf", "1e300", "-1e300", "-1", "0")
RAISED: tuple[type[BaseException], ...] = (
    ValueError,
    StopIteration,
    asyncio.CancelledError,
    KeyboardInterrupt,
    SystemExit,
    GeneratorExit,
    BaseException,
)
KINDS = (
    "soon", "later", "at", "odd", "task", "cancel", "raise", "stop", "close", "threadsafe", "thread", "executor",
    "socket", "signal", "debug", "context", "future", "gather", "eager", "handler",
)  # fmt: skip
Operation = Sequence[Any]
"""A kind, a number, another; what they mean is the kind's. Or ``inside`` and a list of operations."""


class OwnError(BaseException):
    """Nobody's."""


class Running:
    """One run of one program on one loop."""

    def __init__(self, loop: Any, program: Sequence[Operation], slot_s: float) -> None:
        self.loop = loop
        self.program = program
        self.slot_s = slot_s
        self.trace: list[Any] = []
        self.handles: list[Any] = []
        self.base = loop.time()
        self.closed_in_callback = False
        self.pipes: list[int] = []
        loop.set_exception_handler(self.told)

    def note(self, *what: Any) -> None:
        self.trace.append((*what, VALUE.get()))

    def told(self, loop: Any, context: dict[str, Any]) -> None:
        exc = context.get("exception")
        self.note("told", context["message"].partition(" at 0x")[0].partition("(")[0], type(exc).__name__)

    def callback(self, number: int) -> None:
        self.note("called", number, asyncio.events._get_running_loop() is self.loop)

    def do(self, number: int, operation: Operation) -> None:
        kind, *values = operation
        do = getattr(self, "do_" + kind)
        try:
            answer = do(number, *values)
            if answer is not None:
                self.handles.append(answer)
        except Exception as exc:
            self.note("refused", number, kind, type(exc).__name__, str(exc)[:60])

    def do_soon(self, number: int, one: int, two: int) -> Any:
        return self.loop.call_soon(self.callback, number)

    def do_later(self, number: int, one: int, two: int) -> Any:
        return self.loop.call_at(self.base + self.slot_s * (one % 4), self.callback, number)

    do_at = do_later

    def do_odd(self, number: int, one: int, two: int) -> Any:
        delay = float(ODD[one % len(ODD)])
        make = self.loop.call_later if two % 2 else self.loop.call_at
        return make(delay, self.note, "odd", number)

    def do_task(self, number: int, one: int, two: int) -> Any:
        async def work() -> int:
            for turn in range(one % 4):
                await asyncio.sleep(0)
                self.note("task", number, turn)
            return number

        task = self.loop.create_task(work())
        task.add_done_callback(lambda done: self.note("task done", number, done.cancelled()))
        return task

    def do_cancel(self, number: int, one: int, two: int) -> None:
        if self.handles:
            handle = self.handles[one % len(self.handles)]
            self.note("cancel", number, handle.cancel())
            if two % 2:
                self.note("again", number, handle.cancel(), handle.cancelled())

    def do_raise(self, number: int, one: int, two: int) -> Any:
        kind = (*RAISED, OwnError)[one % (len(RAISED) + 1)]

        def fail() -> None:
            self.note("raises", number)
            raise kind(number)

        async def fail_in_task() -> None:
            fail()

        return self.loop.call_soon(fail) if two % 2 else self.loop.create_task(fail_in_task())

    def do_stop(self, number: int, one: int, two: int) -> Any:
        return self.loop.call_soon(self.loop.stop)

    def do_close(self, number: int, one: int, two: int) -> Any:
        def close() -> None:
            try:
                self.loop.close()
            except RuntimeError as exc:
                self.note("close", number, str(exc))

        return self.loop.call_soon(close)

    def do_threadsafe(self, number: int, one: int, two: int) -> Any:
        return self.loop.call_soon_threadsafe(self.callback, number)

    def do_thread(self, number: int, one: int, two: int) -> None:
        thread = threading.Thread(target=self.loop.call_soon_threadsafe, args=(self.callback, number))
        thread.start()
        thread.join()

    def do_executor(self, number: int, one: int, two: int) -> Any:
        async def work() -> None:
            try:
                answer = await self.loop.run_in_executor(None, [int, self.fail_in_thread][two % 2], str(one))
                self.late.append(("executor", number, answer))
            except Exception as exc:
                self.late.append(("executor", number, type(exc).__name__))

        return self.loop.create_task(work())

    @property
    def late(self) -> list[Any]:
        """Of what comes at a moment of its own: kept apart, compared sorted."""
        return self.__dict__.setdefault("_late", [])  # type: ignore[no-any-return]

    def fail_in_thread(self, text: str) -> None:
        raise LookupError(text)

    def do_socket(self, number: int, one: int, two: int) -> None:
        ours, theirs = os.pipe()
        self.pipes += [ours, theirs]

        def read() -> None:
            self.late.append(("read", number, len(os.read(ours, 10))))
            self.loop.remove_reader(ours)

        self.loop.add_reader(ours, read)
        os.write(theirs, b"x" * (1 + one % 3))

    def do_signal(self, number: int, one: int, two: int) -> None:
        if threading.current_thread() is threading.main_thread():
            self.loop.add_signal_handler(signal.SIGUSR1, lambda: self.late.append(("signal", number)))
            os.kill(os.getpid(), signal.SIGUSR1)

    def do_debug(self, number: int, one: int, two: int) -> None:
        self.loop.set_debug(bool(one % 2))

    def do_context(self, number: int, one: int, two: int) -> Any:
        context = contextvars.copy_context()
        context.run(VALUE.set, one)
        if two % 2:
            return self.loop.call_later(self.slot_s, self.callback, number, context=context)
        return self.loop.call_soon(self.callback, number, context=context)

    def do_future(self, number: int, one: int, two: int) -> Any:
        future = self.loop.create_future()
        future.add_done_callback(lambda done: self.note("future", number, done.cancelled()))
        self.loop.call_soon(lambda: future.done() or future.set_result(number))
        return future

    def do_gather(self, number: int, one: int, two: int) -> Any:
        async def work() -> None:
            answers = await asyncio.gather(*(asyncio.sleep(0, turn) for turn in range(one % 4)), return_exceptions=True)
            self.note("gathered", number, answers)

        return self.loop.create_task(work())

    def do_eager(self, number: int, one: int, two: int) -> None:
        if hasattr(asyncio, "eager_task_factory"):
            self.loop.set_task_factory(asyncio.eager_task_factory if one % 2 else None)

    def do_handler(self, number: int, one: int, two: int) -> None:
        if one % 3:
            self.loop.set_exception_handler(self.told)
        else:

            def broken(loop: Any, context: Any) -> None:
                self.note("broken handler", number)

            self.loop.set_exception_handler(broken)

    def do_inside(self, number: int, operations: Sequence[Operation]) -> Any:
        """These operations happen inside a callback."""

        def nested() -> None:
            self.note("nested", number)
            for offset, operation in enumerate(operations):
                self.do(number * 100 + offset, operation)

        return self.loop.call_soon(nested)

    def run(self) -> list[Any]:
        """The trace, what came at a moment of its own behind it."""
        for number, operation in enumerate(self.program):
            self.do(number, operation)
        for _ in range(4):
            self._turns()
        self.note("closed", self.loop.is_closed())
        return [*self.trace, sorted(map(repr, self.late))]

    def _turns(self) -> None:
        """Run the loop until the last slot is over, whatever is raised out of it."""
        if self.loop.is_closed():
            return
        stop: Any = None
        # A NaN breaks the order of the loop's timers: the one that stops it may then stand behind one for never.
        rescue = threading.Timer(RESCUE_SLOTS * self.slot_s, self._rescue)
        rescue.start()
        try:
            stop = self.loop.call_at(max(self.loop.time(), self.base + 6 * self.slot_s) + self.slot_s, self.loop.stop)
            self.loop.run_forever()
        except BaseException as exc:
            self.note("out of the loop", type(exc).__name__, str(exc)[:40])
        finally:
            rescue.cancel()
            rescue.join()
            if stop is not None:
                stop.cancel()

    def _rescue(self) -> None:
        with suppress(RuntimeError):  # closed meanwhile
            self.loop.call_soon_threadsafe(self.loop.stop)

    def end(self) -> None:
        """Close what is open."""
        loop = self.loop
        loop.set_exception_handler(lambda *_: None)
        for task in asyncio.all_tasks(loop):
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        if not loop.is_closed():
            for descriptor in self.pipes[::2]:
                loop.remove_reader(descriptor)
            loop.remove_signal_handler(signal.SIGUSR1)
            loop._ready.clear()
            loop._scheduled.clear()
            if loop._default_executor is not None:
                loop._default_executor.shutdown(wait=True)
            loop._ready.clear()
            loop.close()
        for descriptor in self.pipes:
            os.close(descriptor)


def trace_of(program: Sequence[Operation], loop: Any, slot_s: float) -> list[Any]:
    """What ``program`` does on ``loop``, which is closed afterwards. Deadlines are ``slot_s`` apart."""
    running = Running(loop, program, slot_s)
    try:
        return contextvars.copy_context().run(running.run)
    finally:
        running.end()
