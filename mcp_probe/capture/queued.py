"""Items of queues: whoever takes one works for the request that put it, until it takes the next or says it is done.

A background task, or a thread that a queue feeds, has no request of its own. A hook around the call that puts an item
(adapters/waits/queues.py) says so, and a hook around the call that takes it says so, too. Between the two, entries
stand in the same order as the items in their queue.

What the consumer does is an errand of the request: it is named after the request's operation, and costs the request
itself nothing, which mostly has ended by then. In a leak hunt the errand owns what the consumer allocates.

Invariants: an item is never touched, only its address is noted, to check the order by. Where order and addresses
disagree, or are not known, the item is nobody's, never another request's. A consumer that is itself part of a request
works for that one. Nothing here keeps an item, a queue or a request alive.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import ContextVar
from threading import get_ident
from typing import Any
from weakref import ref

from mcp_probe.capture.current import CURRENT
from mcp_probe.capture.loop_monitor import LoopMonitor
from mcp_probe.capture.places import is_own, is_plumbing
from mcp_probe.record.raw import RawRequest

MAX_QUEUES = 4_096
"""Queues that are followed at once."""

MAX_ITEMS = 65_536
"""Items of one queue: if more wait in it, they are nobody's."""

MAX_ERRANDS = 8_192
"""Errands of one hunt whose requests it has not taken yet: those of requests that it never takes are forgotten."""

NEAR = 64
"""Threads that put, or take, at the same time may overtake each other by so many items."""

_DEEPEST = 12
"""Frames of a queue's own module between the call that puts an item and who calls it, and some more."""


class Errand:
    """What others do for one request because of items that it put. ``raw`` stands for the request meanwhile."""

    __slots__ = ("_open", "_settled", "raw")

    def __init__(self, of: RawRequest, *, owns: bool) -> None:
        self.raw = RawRequest(of.id, of.kind, of.method, of.name, of.transport)
        self.raw.ended = not owns  # work for a request that has ended is detached; only in a hunt it owns memory
        self._open: list[None] = []  # one for each ticket; appending and popping are atomic
        self._settled = not owns

    def opened(self) -> None:
        """One more item is on its way."""
        self._open.append(None)

    def closed(self) -> None:
        """One item less is on its way, or being worked on."""
        self._open.pop()

    @property
    def is_due(self) -> bool:
        """Whether somebody works for it, or may yet."""
        return bool(self._open)

    def owner(self) -> RawRequest:
        """Who owns what was allocated for it. The probe's own notes are released once nobody works for it any more."""
        if not self._settled and not self.is_due:
            self._settled = True
            keep = getattr(self.raw, "keep_memory", None)
            self.raw = self.raw if keep is None else keep()
        return self.raw

    def end(self) -> None:
        """From now on nothing is allocated for it."""
        self.raw.ended = True


class Ticket:
    """One item of an errand: from when it is put until whoever took it, and the tasks that it started, let go of it."""

    __slots__ = ("base", "errand", "owner", "queue")

    def __init__(self, errand: Errand) -> None:
        self.errand = errand
        self.owner = errand.raw
        self.queue = 0  # id of the one that it was taken from
        self.base: RawRequest | None = None  # whose work its consumer did before
        errand.opened()

    def __del__(self) -> None:
        self.errand.closed()


TICKET: ContextVar[Ticket | None] = ContextVar("mcp_probe_ticket", default=None)
"""Of the item that a consumer works on; the tasks that it starts inherit it."""


class Line:
    """What is known of the items in one queue, in their order: (address, ticket); ``None``: no request put it.

    Args:
        older: items that were there before it was followed.
        races: other threads may put and take in another order than they note it.
    """

    __slots__ = ("_entries", "_older", "_races", "queue")

    def __init__(self, queue: Callable[[], Any], older: int, *, races: bool) -> None:
        self.queue = queue
        self._older = older
        self._races = races
        self._entries: deque[tuple[int, Ticket | None]] = deque()

    def __len__(self) -> int:
        return self._older + len(self._entries)

    def add(self, address: int, ticket: Ticket | None) -> None:
        """An item stands at the end of the queue."""
        self._entries.append((address, ticket))

    def agrees(self, length: int) -> bool:
        """Whether the queue can have so many items now."""
        most = length + NEAR if self._races else length
        return len(self) <= min(most, MAX_ITEMS) and (self._races or len(self) == length)

    def take(self, address: int) -> Ticket | None:
        """Of the item there, which was the first one in the queue; ``None`` if it is nobody's.

        Raises: LookupError (IndexError is one): the order is lost.
        """
        is_older = self._older > 0
        self._older -= is_older
        if self._races:
            ticket = self._find(address)
            return None if is_older else ticket
        if is_older:
            return None
        found, ticket = self._entries.popleft()
        if found != address:
            raise LookupError
        return ticket

    def _find(self, address: int) -> Ticket | None:
        """Take out the entry of the item there; ``None`` if it is not among the next ones."""
        entries = self._entries
        with suppress(IndexError, ValueError):  # the end; another thread has just taken the same object
            for index in range(NEAR):  # no iterator: other threads add and remove meanwhile
                entry = entries[index]
                if entry[0] == address:
                    entries.remove(entry)
                    if index > NEAR // 2:  # the first one will not be taken any more
                        entries.popleft()
                    return entry[1]
        return None


class LockedLine(Line):
    """As :class:`Line`, of a queue that holds its lock where items enter and leave, and whose order is exact so.

    There nothing may be made that could begin a collection: what enters is prepared before, what leaves is used after.
    """

    __slots__ = ("_begun", "coming", "gone")

    def __init__(self, queue: Callable[[], Any]) -> None:
        super().__init__(queue, 0, races=False)
        self._begun = False
        self.coming: dict[int, tuple[int, Ticket | None]] = {}  # by thread
        self.gone: dict[int, Ticket | None] = {}  # by thread

    def enter(self, length: int) -> None:
        """What the thread prepared is the last one of the queue, which has ``length`` items with it."""
        entry = self.coming.pop(get_ident(), None)
        if not self._begun or self._older + len(self._entries) != length - 1 or length > MAX_ITEMS:
            self._begin(length - 1)
        if entry is None:
            self._begin(length)  # it came by another way
        else:
            self._entries.append(entry)

    def leave(self, address: int, length: int) -> None:
        """The thread has taken the item there, which was the first of the queue, and left ``length``."""
        self.gone.pop(get_ident(), None)
        if self._older > 0:
            self._older -= 1
        elif self._entries:
            found, ticket = self._entries.popleft()
            if found == address:
                self.gone[get_ident()] = ticket
            else:
                self._begin(length)

    def _begin(self, older: int) -> None:
        self._begun = True
        self._entries.clear()
        self._older = older


class Queued:
    """All queues that requests have put something into. Any thread; its methods may raise.

    Args:
        monitor: that of the calling thread's loop.
    """

    def __init__(self, monitor: Callable[[], LoopMonitor | None] = lambda: None) -> None:
        self.lines: dict[int, Line] = {}
        self._monitor = monitor
        self._errands: dict[int, Errand] = {}  # of a hunt, by the number of their request
        self._charge: Callable[[Any], Any] | None = None
        self._owns = False

    def use(self, charge: Callable[[Any], Any] | None, *, owns: bool) -> None:
        """How memory is charged from now on, and whether errands own what is allocated for them."""
        if self._owns and not owns:
            for errand in list(self._errands.values()):
                errand.end()
            self._errands.clear()
        self._charge = charge
        self._owns = owns and charge is not None

    def clear(self) -> None:
        """Follow no queue any more."""
        self.use(None, owns=False)
        self.lines.clear()

    def errand_of(self, raw: RawRequest) -> Errand | None:
        """What others do for ``raw``, which has ended, and is asked for once."""
        return self._errands.pop(raw.id, None)

    # --- putting ---

    def put(self, queue: Any, item: object, length: int, library: Sequence[str], *, races: bool = False) -> None:
        """``item`` stands at the end of ``queue``, which has ``length`` items with it.

        ``library`` has the files that the queue's own methods are in. The caller is one of these methods' hooks.
        """
        charge = self._charge
        if charge is None:
            return self._put(queue, item, length, library, races)
        before = charge(None)  # what we keep of it is not the request's memory
        try:
            return self._put(queue, item, length, library, races)
        finally:
            charge(before)

    def coming(self, queue: Any, item: object, library: Sequence[str]) -> LockedLine | None:
        """The calling thread is about to put ``item`` into ``queue``, which has a lock. ``library`` as in :meth:`put`.

        Returns the queue's line, where the item is prepared; ``None`` where nobody asks about it.
        """
        charge = self._charge
        before = None if charge is None else charge(None)
        try:
            errand = self._errand_for(library)
            line = self.lines.get(id(queue))
            if line is None and errand is not None and len(self.lines) < MAX_QUEUES:
                line = self.lines.setdefault(id(queue), LockedLine(self._reference(queue)))
            if isinstance(line, LockedLine):
                line.coming[get_ident()] = id(item), None if errand is None else Ticket(errand)
                return line
            return None
        finally:
            if charge is not None:
                charge(before)

    def _put(self, queue: Any, item: object, length: int, library: Sequence[str], races: bool) -> None:
        errand = self._errand_for(library)
        line = self.lines.get(id(queue))
        if line is not None and not line.agrees(length - 1):
            self.forget(queue)
            line = None
        if line is None:
            if errand is None:
                return
            line = self.follow(queue, length - 1, races=races)
        if line is not None:
            line.add(id(item), None if errand is None else Ticket(errand))

    def handed_over(self, queue: Any, older: int, library: Sequence[str]) -> None:
        """An item went to somebody who had begun to wait for it before ``queue`` was followed.

        Those that follow are known, if this one was a request's. Every answer goes through a stream of the SDK's.
        """
        ticket = TICKET.get()
        hands_on = ticket is not None and CURRENT.get() is ticket.owner
        if hands_on or self._request_for(library) is not None:
            self.follow(queue, older, races=True)

    @staticmethod
    def _request_for(library: Sequence[str]) -> RawRequest | None:
        """Whose own code puts an item; ``None``: nobody's, or other means follow it."""
        raw = CURRENT.get()
        return None if raw is None or raw.ended or _is_machinery(library) else raw

    def _errand_for(self, library: Sequence[str]) -> Errand | None:
        ticket = TICKET.get()
        if ticket is not None and CURRENT.get() is ticket.owner:
            return ticket.errand  # it hands the item on
        raw = self._request_for(library)
        if raw is None:
            return None
        while raw.kind == "function" and raw.parent is not None:
            raw = raw.parent
        if not self._owns:
            return Errand(raw, owns=False)
        errand = self._errands.get(raw.id)
        if errand is None:
            errand = self._errands[raw.id] = Errand(raw, owns=True)
            if len(self._errands) > MAX_ERRANDS:
                self._errands.pop(next(iter(self._errands)), None)
        return errand

    def follow(self, queue: Any, older: int, *, races: bool) -> Line | None:
        """Know the items that are put into ``queue`` from now on; ``None`` if there are too many queues."""
        if len(self.lines) >= MAX_QUEUES:
            return None
        return self.lines.setdefault(id(queue), Line(self._reference(queue), older, races=races))

    def _reference(self, queue: Any) -> Callable[[], Any]:
        """A weak one; with the queue its line goes."""
        lines, key = self.lines, id(queue)

        def gone(_: object) -> None:
            lines.pop(key, None)

        return ref(queue, gone)

    def forget(self, queue: Any) -> None:
        """What is in ``queue`` is nobody's."""
        self.lines.pop(id(queue), None)

    # --- taking ---

    def taken(self, queue: Any, item: object) -> None:
        """The caller has taken ``item``, the first one of ``queue``, and works on it from now on."""
        line, now = self.lines.get(id(queue)), TICKET.get()
        ticket = None
        if line is not None:
            try:
                ticket = line.take(id(item))
            except LookupError:
                self.forget(queue)
        self._take_up(ticket, now, id(queue))

    def left(self, queue: Any) -> None:
        """As :meth:`taken`, of a queue that has a lock: the calling thread has taken the item that left it last."""
        line, now = self.lines.get(id(queue)), TICKET.get()
        ticket = line.gone.pop(get_ident(), None) if isinstance(line, LockedLine) else None
        self._take_up(ticket, now, id(queue))

    def done(self, queue: Any) -> None:
        """The caller says that its work on the item that it took from ``queue`` is done."""
        self._take_up(None, TICKET.get(), id(queue))

    def _take_up(self, ticket: Ticket | None, before: Ticket | None, queue: int) -> None:
        """Work on what was taken from the queue; where that is nobody's, at least not on what came from it before."""
        if ticket is not None or (before is not None and before.queue == queue):
            self._work_for(ticket, before, queue)

    def _work_for(self, ticket: Ticket | None, before: Ticket | None, queue: int) -> None:
        current = CURRENT.get()
        base = before.base if before is not None and current is before.owner else current
        if base is not None and not base.ended:
            return  # it takes items as a part of a request
        charge = self._charge
        if charge is not None:
            charge(None)
        owner = base
        if ticket is not None:
            ticket.base, ticket.queue, owner = base, queue, ticket.owner
        TICKET.set(ticket)
        CURRENT.set(owner)
        monitor = self._monitor()
        if monitor is not None:
            monitor.work_for(owner)
        if charge is not None:
            charge(owner if self._owns else None)


def _is_machinery(library: Sequence[str]) -> bool:
    """Whether the item is put by Python, the SDK or what it runs on, which follow their work by other means."""
    frame: Any = sys._getframe(1)
    for _ in range(_DEEPEST + len(library)):
        if frame is None:
            return True
        file = frame.f_code.co_filename
        if file not in library and not is_own(file):
            return is_plumbing(file)
        frame = frame.f_back
    return True
