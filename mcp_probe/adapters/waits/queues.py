"""Queues between requests and those who work for them: who puts an item, and who takes it.

Only queues that hand out their items in order: ``queue.Queue``, ``queue.SimpleQueue``, ``asyncio.Queue``, and anyio's
memory object streams. What overrides how items are kept (``LifoQueue``, ``PriorityQueue``) does not come by here.
Once the hook is off nothing is noted any more, and whoever takes the next item works for nobody.

``SimpleQueue`` is a type that nothing can be set on: a subclass of it stands under its name, in the module ``queue``,
for queues that are made from then on. A class that was imported by name before stays as it is.

While the lock of a ``queue.Queue`` is held nothing is made that could begin a collection: a destructor that logs, or
puts something there, would wait for the lock of its own thread. Tickets are made before, and used afterwards.

Source: queue.py and asyncio/queues.py (CPython 3.10-3.15), anyio/streams/memory.py (4.5-4.16).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from threading import get_ident
from typing import Any

from mcp_probe.adapters.hook import Hook
from mcp_probe.adapters.imports import ImportWatch
from mcp_probe.capture.current import CURRENT
from mcp_probe.capture.queued import TICKET, LockedLine, Queued

HOOK = "queues"
_JOBS_OF = ("concurrent.futures.", "multiprocessing.", "mcp_probe.")
"""Modules whose own queues hand jobs over, and ours: they get the plain type."""


class QueueHooks:
    """See the module's text."""

    def __init__(self, hub: Any) -> None:
        self._hub = hub
        self._queued: Queued = hub.queued
        self.guard = Hook(hub, HOOK, self._queued.clear)

    def install(self, imports: ImportWatch) -> None:
        """Wrap what is there, and what is imported later."""
        guarded = self.guard.guarded
        imports.when_imported("queue", guarded(self._threads))
        imports.when_imported("asyncio.queues", guarded(self._tasks))
        imports.when_imported("anyio.streams.memory", guarded(self._streams))

    def restore(self) -> list[str]:
        """Undo it."""
        stuck = self.guard.restore()
        self._queued.clear()
        return stuck

    def _threads(self, module: Any) -> None:
        wrap = _Locked(self._queued, self.guard, module)
        for name, around in (
            ("put", wrap.putting),
            ("_put", wrap.entering),
            ("_get", wrap.leaving),
            ("get", wrap.getting),
            ("task_done", wrap.ending),
        ):
            self.guard.replace(module.Queue, name, around)
        make = _simple_queue(self._queued, self.guard, module.__file__)
        self.guard.replace(module, "SimpleQueue", make)
        self._hub.working(HOOK)

    def _tasks(self, module: Any) -> None:
        wrap = _Tasks(self._queued, self.guard, module)
        for name, around in (("_put", wrap.putting), ("_get", wrap.getting), ("task_done", wrap.ending)):
            self.guard.replace(module.Queue, name, around)
        self._hub.working(HOOK)

    def _streams(self, module: Any) -> None:
        wrap = _Streams(self._queued, self.guard, module)
        for owner, name, make in (
            (module.MemoryObjectSendStream, "send_nowait", wrap.sending_nowait),
            (module.MemoryObjectReceiveStream, "receive_nowait", wrap.receiving_nowait),
            (module.MemoryObjectReceiveStream, "receive", wrap.receiving),
        ):
            self.guard.replace(owner, name, make)
        self._hub.working(HOOK)


class _Wraps:
    """What is put around the methods of one module's queues."""

    def __init__(self, queued: Queued, guard: Hook, module: Any) -> None:
        self._queued = queued
        self._guard = guard
        self._library = (module.__file__,)

    def ending(self, original: Any) -> Any:
        queued, guard = self._queued, self._guard

        @wraps(original)
        def task_done(self: Any) -> Any:
            if TICKET.get() is not None:
                guard.call(queued.done, self)
            return original(self)

        return task_done


class _Tasks(_Wraps):
    """Around ``_put`` and ``_get`` of ``asyncio.Queue``, where items enter and leave."""

    def putting(self, original: Any) -> Any:
        queued, guard, library = self._queued, self._guard, self._library
        lines, current = queued.lines, CURRENT.get

        def note(queue: Any, item: Any) -> None:
            queued.put(queue, item, queue.qsize(), library)

        @wraps(original)
        def _put(self: Any, item: Any) -> Any:
            result = original(self, item)
            if (current() is not None or id(self) in lines) and guard.active:
                guard.call(note, self, item)
            return result

        return _put

    def getting(self, original: Any) -> Any:
        queued, guard = self._queued, self._guard
        lines, ticket = queued.lines, TICKET.get

        @wraps(original)
        def _get(self: Any) -> Any:
            item = original(self)
            if id(self) in lines or ticket() is not None:
                guard.call(queued.taken, self, item)
            return item

        return _get


class _Locked(_Wraps):
    """Around ``queue.Queue``: ``_put`` and ``_get``, where items enter and leave, are called with its lock held."""

    def putting(self, original: Any) -> Any:
        queued, guard, library = self._queued, self._guard, self._library
        lines, current = queued.lines, CURRENT.get

        def prepare(queue: Any, item: Any) -> LockedLine | None:
            return queued.coming(queue, item, library)

        @wraps(original)
        def put(self: Any, item: Any, block: Any = True, timeout: Any = None) -> Any:
            if not guard.active or (current() is None and id(self) not in lines):
                return original(self, item, block, timeout)
            line = guard.call(prepare, self, item)
            try:
                return original(self, item, block, timeout)
            finally:
                if line is not None:
                    line.coming.pop(get_ident(), None)  # it stayed full

        return put

    def entering(self, original: Any) -> Any:
        guard = self._guard
        lines: dict[int, Any] = self._queued.lines  # those of such queues are locked ones

        @wraps(original)
        def _put(self: Any, item: Any) -> Any:
            result = original(self, item)
            line = lines.get(id(self))
            if line is not None:
                try:
                    line.enter(self._qsize())
                except Exception as exc:  # noqa: BLE001 - a fault of ours never reaches the server
                    guard.fault(exc)
            return result

        return _put

    def leaving(self, original: Any) -> Any:
        guard = self._guard
        lines: dict[int, Any] = self._queued.lines

        @wraps(original)
        def _get(self: Any) -> Any:
            item = original(self)
            line = lines.get(id(self))
            if line is not None:
                try:
                    line.leave(id(item), self._qsize())
                except Exception as exc:  # noqa: BLE001 - a fault of ours never reaches the server
                    guard.fault(exc)
            return item

        return _get

    def getting(self, original: Any) -> Any:
        queued, guard = self._queued, self._guard
        lines, ticket = queued.lines, TICKET.get

        @wraps(original)
        def get(self: Any, block: Any = True, timeout: Any = None) -> Any:
            item = original(self, block, timeout)
            if id(self) in lines or ticket() is not None:
                guard.call(queued.left, self)
            return item

        return get


class _StandIn(type):
    """Of a class that stands under the name of its base: what is an instance of the base is one of it."""

    def __instancecheck__(cls, instance: Any) -> bool:
        base = vars(cls).get("stands_for")
        return isinstance(instance, base) if base is not None else type.__instancecheck__(cls, instance)

    def __subclasscheck__(cls, other: type) -> bool:
        base = vars(cls).get("stands_for")
        return issubclass(other, base) if base is not None else type.__subclasscheck__(cls, other)


def _simple_queue(queued: Queued, guard: Hook, file: str) -> Callable[[Any], Any]:
    """Makes the class that stands for ``SimpleQueue``."""
    library = (file,)
    lines, current, ticket = queued.lines, CURRENT.get, TICKET.get

    def note(queue: Any, item: Any) -> None:
        # before it is there: another thread may take it at once
        queued.put(queue, item, queue.qsize() + 1, library, races=True)

    def make(base: Any) -> Any:
        base_put, base_put_nowait, base_get, base_get_nowait = base.put, base.put_nowait, base.get, base.get_nowait

        class SimpleQueue(base, metaclass=_StandIn):  # type: ignore[misc]
            __slots__ = ()
            stands_for = base

            def __new__(cls, *args: Any, **kwargs: Any) -> Any:
                maker = sys._getframe(1).f_globals.get("__name__")
                is_plain = isinstance(maker, str) and maker.startswith(_JOBS_OF)
                return base.__new__(base if is_plain else cls, *args, **kwargs)

            @wraps(base.put)
            def put(self, item: Any, block: Any = True, timeout: Any = None) -> Any:
                if (current() is not None or id(self) in lines) and guard.active:
                    guard.call(note, self, item)
                return base_put(self, item, block, timeout)

            @wraps(base.put_nowait)
            def put_nowait(self, item: Any) -> Any:
                if (current() is not None or id(self) in lines) and guard.active:
                    guard.call(note, self, item)
                return base_put_nowait(self, item)

            @wraps(base.get)
            def get(self, block: Any = True, timeout: Any = None) -> Any:
                item = base_get(self, block, timeout)
                if id(self) in lines or ticket() is not None:
                    guard.call(queued.taken, self, item)
                return item

            @wraps(base.get_nowait)
            def get_nowait(self) -> Any:
                item = base_get_nowait(self)
                if id(self) in lines or ticket() is not None:
                    guard.call(queued.taken, self, item)
                return item

        for name in ("__module__", "__name__", "__qualname__", "__doc__"):
            setattr(SimpleQueue, name, getattr(base, name))
        return SimpleQueue

    return make


class _Streams:
    """What is put around the methods of memory object streams, whose items wait in a state that both ends share.

    An item may be handed to a receiver that waits already, past the buffer.
    """

    def __init__(self, queued: Queued, guard: Hook, module: Any) -> None:
        self._queued = queued
        self._guard = guard
        self._library = (module.__file__,)
        self._send = module.MemoryObjectSendStream.send.__code__
        self._receive = module.MemoryObjectReceiveStream.receive.__code__
        self._would_block = module.WouldBlock

    def sending_nowait(self, original: Any) -> Any:
        queued, guard, send, would_block = self._queued, self._guard, self._send, self._would_block
        lines = queued.lines
        sent = self._sent

        @wraps(original)
        def send_nowait(self: Any, item: Any) -> Any:
            state = self._state
            if not guard.active or (CURRENT.get() is None and id(state) not in lines):
                return original(self, item)
            receivers, before = len(state.waiting_receivers), len(state.buffer) + len(state.waiting_senders)
            try:
                result = original(self, item)
            except would_block:
                if sys._getframe(1).f_code is send:  # it waits until there is room, and keeps its place
                    sent(state, item, before, False)
                raise
            sent(state, item, before, len(state.waiting_receivers) < receivers)
            return result

        return send_nowait

    def _sent(self, state: Any, item: Any, before: int, handed_over: bool) -> None:
        try:
            if handed_over and id(state) not in self._queued.lines:  # nobody sees that receiver take it
                self._queued.handed_over(state, before, self._library)
            else:
                self._queued.put(state, item, before + 1, self._library, races=True)
        except Exception as exc:  # noqa: BLE001 - a fault of ours never reaches the server
            self._guard.fault(exc)

    def receiving_nowait(self, original: Any) -> Any:
        queued, guard, receive, followed = self._queued, self._guard, self._receive, self._received.__code__
        lines = queued.lines

        @wraps(original)
        def receive_nowait(self: Any) -> Any:
            item = original(self)
            if id(self._state) in lines or TICKET.get() is not None:
                try:
                    caller = sys._getframe(1)
                    if caller.f_code is not receive or caller.f_back is None or caller.f_back.f_code is not followed:
                        queued.taken(self._state, item)
                except Exception as exc:  # noqa: BLE001 - a fault of ours never reaches the server
                    guard.fault(exc)
            return item

        return receive_nowait

    def receiving(self, original: Any) -> Any:
        lines, received = self._queued.lines, self._received

        @wraps(original)
        def receive(self: Any) -> Any:
            if id(self._state) not in lines and TICKET.get() is None:
                return original(self)  # no frame of ours where no request has put anything
            return received(original, self)

        return receive

    async def _received(self, original: Any, stream: Any) -> Any:
        item = await original(stream)
        self._guard.call(self._queued.taken, stream._state, item)
        return item
