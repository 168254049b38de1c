"""Which callbacks of asyncio are steps of a task, found by trying.

Source: asyncio/tasks.py and Modules/_asynciomodule.c, CPython 3.10-3.15.
"""

from __future__ import annotations

import asyncio
from asyncio import events, tasks
from typing import Any


class StepKinds:
    """Tells task steps from other callbacks, by the types this interpreter uses for them.

    Found by running a task on a loop that only records, so no private name is guessed. Since CPython 3.14 a task may
    only step on the running loop, and not inside another task: for the moment of the check that loop stands for the
    running one, and the caller's task is left.
    """

    class Recorder:
        """As much of a loop as a future and a task ask for."""

        def __init__(self) -> None:
            self.calls: list[tuple[Any, tuple[Any, ...], Any]] = []

        def call_soon(self, callback: Any, *args: Any, context: Any = None) -> None:
            self.calls.append((callback, args, context))

        def get_debug(self) -> bool:
            return False

    def __init__(self) -> None:
        loop: Any = self.Recorder()
        future: asyncio.Future[None] = asyncio.Future(loop=loop)

        async def wait() -> None:
            await future

        coroutine = wait()
        task = asyncio.Task(coroutine, loop=loop, name="a task of mcp_probe")  # a name, or it takes the server's next
        running = events._get_running_loop()
        caller = None if running is None else asyncio.current_task(running)
        if running is not None and caller is not None:
            tasks._leave_task(running, caller)
        try:
            events._set_running_loop(loop)
            step, _, context = loop.calls.pop()
            context.run(step)
            future.set_result(None)
            wakeup, args, context = loop.calls.pop()
            context.run(wakeup, *args)
        finally:
            events._set_running_loop(running)
            if running is not None and caller is not None:
                tasks._enter_task(running, caller)
            coroutine.close()  # one that could not be stepped is dropped without a word on the server's stderr
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        if step.__self__ is not task or wakeup.__self__ is not task or not task.done():
            raise RuntimeError("task steps of this interpreter do not carry their task")
        self.step_type = type(step)
        self.wakeup_type = type(wakeup)

    def task_of(self, callback: Any, args: Any) -> Any:
        """The task whose step ``callback(*args)`` is, or ``None``."""
        kind = type(callback)
        if kind is self.step_type and kind is not self.wakeup_type:
            return callback.__self__
        if kind is self.wakeup_type and args:  # a wake-up is called with the future that is done
            task = callback.__self__
            return task if isinstance(task, asyncio.Task) else None
        return None
