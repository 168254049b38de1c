"""What requests await: objects that somebody holds, who held them meanwhile, and at which line.

A hook around the call that waits (adapters/waits) says when it began and whether it got the object, and a hook around
the call that gives it back says so. From that follow the holders of each wait. What it costs an object that nobody
waits for: a look into a table at each end.

Invariants: only the outermost call that waits counts; what it calls inside (the lock in a condition, the lock of an
adapter) is no wait of its own. A holder is whoever took the object last and has not given it back; where somebody else
gives it back, or nobody saw it taken, the holder is unknown, never another one. Nothing here keeps an object alive.
"""

from __future__ import annotations

import os
import sys
import threading
from bisect import bisect_right
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from operator import attrgetter, itemgetter
from types import CodeType
from typing import Any
from weakref import ref

from mcp_probe.capture.current import CURRENT
from mcp_probe.capture.places import is_own, is_plumbing, may_run_steps, runs_steps, users_frame
from mcp_probe.clock import now_ns
from mcp_probe.model import BACKGROUND_OPERATION, UNKNOWN_HOLDER, AwaitKind, HolderPart, LockHold, Tag
from mcp_probe.record.awaits import SHORT_AWAIT_NS
from mcp_probe.record.raw import MAX_AWAITS, AwaitMark, RawRequest

LEAST_NS = 200_000
"""Calls that return within this time did not wait for a holder: asyncio takes some 20 us for one turn."""

MAX_OBJECTS = 16_384
"""Objects that are remembered at once; further ones are not looked at until some of these are gone."""

MAX_PAST = 256
"""Holders remembered of one object while somebody waits for it."""

LEFT_OF_PAST = MAX_PAST - MAX_PAST // 4
"""Of which so many are left if there would be more."""

MAX_HOLDS = 4_096
"""Holders of one object at once. A semaphore that is only ever acquired has more: who holds it is not known then."""

MAX_KEPT = 256
"""Holds kept of one request, the earliest ones."""

MAX_SEARCHES = 64
"""Objects without a name that wait for somebody to search for their variables."""

MOST_MISSES = 4
_misses: dict[tuple[str, str | None], int] = {}

_DEEPEST = 64
_CALLER = 2
"""Frames between a method below and who called what is wrapped: the method, and the wrapper."""

Taken = tuple["CodeType | None", int]
"""(code, its instruction): where somebody takes an object."""

Hold = tuple["RawRequest | None", "CodeType | None", int, int, object]
"""(request, code that took it, its instruction, since_ns, which one of a pool's: ``None`` for what has no parts)"""


Told = tuple["_Who | None", "CodeType | None", int, int]
"""A hold as a wait remembers it: without the request, whose own waits remember others, and so on without an end."""

_Who = tuple[int, str, "int | None", "str | None", "str | None"]
"""(number of the request, its operation, when it had ended, trace id, span id)"""


class Awaited:
    """One object, or one function of a library, that requests await. ``name`` is for reports; any thread may ask."""

    __slots__ = ("_name", "first", "kind", "label", "made", "searched", "tag", "thing")

    def __init__(self, kind: AwaitKind, label: str, made: str | None = None, thing: Any = None) -> None:
        self.kind = kind
        self.label = label  # its class as users know it: asyncio.Lock
        self.made = made  # file:line
        self.first: str | None = None  # the first line that was seen to await it
        self.thing: Callable[[], Any] | None = None if thing is None else ref(thing)
        self.tag: Tag = "exact"
        self.searched = made is not None or thing is None  # there is no variable to look for, any more
        self._name: str | None = None

    @property
    def name(self) -> str:
        """By where it was made, else by its variable, if that was searched, else by the line that first awaited it."""
        if self._name is not None:
            return self._name
        if self.made is not None:
            self._name = f"{self.label} made at {os.path.basename(self.made)}"
            return self._name
        if self.first is None:
            return self.label
        self.tag = "estimate"
        return f"{self.label} first awaited at {os.path.basename(self.first)}"

    def search(self) -> None:
        """Look for its variable, once. It takes milliseconds: never on the thread of a loop."""
        if self.searched:
            return
        thing = None if self.thing is None else self.thing()
        try:
            variable = None if thing is None else self._variable(thing)
        except Exception:  # noqa: BLE001 - what stands in sys.modules need be no module: then it has no name
            variable = None
        if variable is not None:
            self._name = f"{self.label} {variable}"
            self.tag = "exact"
        self.searched = True

    def _variable(self, thing: Any) -> str | None:
        """A line may lock a new object in each call: after some without a variable, none is searched for any more."""
        misses = _misses.get((self.label, self.first), 0)
        if misses >= MOST_MISSES:
            return None
        variable = variable_of(thing)
        if variable is None and len(_misses) < MAX_OBJECTS:
            _misses[self.label, self.first] = misses + 1
        return variable


class Held(Awaited):
    """An object that is held: by whom now, and by whom while somebody waited for it."""

    __slots__ = ("freed", "holds", "limit", "opens", "past", "unasked", "unseen", "veiled", "wanted")

    def __init__(self, kind: AwaitKind, label: str, made: str | None, thing: Any) -> None:
        super().__init__(kind, label, made, thing)
        self.holds: list[Hold] = []
        self.past: list[tuple[Told, int]] = []  # (holder, until)
        self.opens: set[Open] = set()  # calls that have begun to wait and have not returned; of any thread
        self.unasked: int | None = None  # since when one asks that found it free, and is not remembered
        self.freed: deque[int] = deque(maxlen=MAX_PAST)  # when places became free that waiters have not yet taken
        self.limit: int | None = None  # how many can hold it at once; None: not known
        self.unseen = False  # somebody else than its holder has given it back: who holds it is not known
        self.veiled = False  # some take it at whom nobody looks: who else holds it is never known
        self.wanted = False  # somebody has to wait for it: its name will be asked for


class Open:
    """A call that waits, or has waited: in the context of the task that makes it and of those it starts."""

    __slots__ = ("__weakref__", "began_ns", "held", "over", "raw")

    def __init__(self, held: Held | None, began_ns: int, raw: RawRequest | None) -> None:
        self.held = held  # None: a call of a backend (capture/outbound.py)
        self.began_ns = began_ns
        self.raw = raw  # whose wait it is
        self.over = False


OPEN: ContextVar[Open | None] = ContextVar("mcp_probe_awaiting", default=None)
"""Only the outermost call that waits counts."""

State = Held | tuple[Open, Open | None] | None
"""Between :meth:`Awaits.begin` and :meth:`Awaits.end`."""


class _Reference(ref):  # type: ignore[type-arg]
    """To an object that is remembered by its id."""

    __slots__ = ("key",)
    key: int


class Awaits:
    """All objects of the process that are held. Its methods are called by who waits, on any thread, and may raise.

    ``monitors`` has the monitor of each loop's thread, by thread.
    """

    def __init__(self, monitors: Callable[[], Mapping[int, Any]] = dict) -> None:
        self._monitors = monitors
        self._objects: dict[int, Held] = {}
        self._references: dict[int, _Reference] = {}
        self._gone = self._forget  # one for all: an object of a library may live for long, and there are many
        self.passed: dict[int, Any] = {}  # borrowers that are passed by, by ``id``
        self._nameless_held: deque[Held] = deque(maxlen=MAX_SEARCHES)
        self.active = False  # hooks are there
        self.short_ns = SHORT_AWAIT_NS  # shorter waits are summed, without holders
        self._got: dict[tuple[int, int], int] | None = None  # (object, request) -> when it had it; None: nobody asks
        self._kept: OrderedDict[int, list[tuple[Held, Hold, int, int]]] = OrderedDict()  # request -> its holds

    def made(self, thing: Any, kind: AwaitKind, label: str, at: str) -> None:
        """``thing`` is being made, ``at`` a line (``file:line``) of the user's code."""
        self._remember(thing, Held(kind, label, at, thing))

    def pass_over(self, borrower: Any, limiter: Any) -> None:
        """A task of a transport: the tokens of ``limiter`` that it takes for its jobs are not looked at."""
        passed, key = self.passed, id(borrower)
        passed[key] = ref(borrower, lambda _: passed.pop(key, None))
        held = self.of(limiter, "limiter", "anyio.CapacityLimiter")
        if held is not None:
            held.veiled = True

    def keep_holds(self, wanted: bool) -> None:
        """Whether to keep each lock that a request held and gave back, for :meth:`holds_of`."""
        if wanted and self._got is None:
            self._got = {}
        elif not wanted:
            self._got = None
            self._kept.clear()

    def holds_of(self, raw: RawRequest) -> Sequence[LockHold]:
        """The locks that ``raw`` held, in the order in which it gave them back; once. Never on a loop's thread."""
        holds = []
        for held, hold, since, until in self._kept.pop(raw.id, ()):
            held.first = held.first or _line_of(hold[1], hold[2])
            held.search()
            holds.append(LockHold(held.kind, held.name, _line_of(hold[1], hold[2]), since, until))
        return holds

    def of(self, thing: Any, kind: AwaitKind, label: str, made: str | None = None) -> Held | None:
        """What is known of ``thing``, from now on if nothing was; ``None`` if there are too many."""
        return self._objects.get(id(thing)) or self._remember(thing, Held(kind, label, made, thing))

    def known(self, thing: Any) -> Held | None:
        """What is known of it, if anything is."""
        return self._objects.get(id(thing))

    def waiting(self) -> list[Open]:
        """Calls that wait now for what somebody can hold. Any thread."""
        return [opened for held in list(self._objects.values()) if held.opens for opened in list(held.opens)]

    def search(self, marks: Iterable[AwaitMark] = ()) -> None:
        """Look for the variables of what ``marks`` are of, and of what somebody waits for. Never on a loop's thread."""
        while self._nameless_held:
            with suppress(IndexError):  # another thread has taken it
                self._nameless_held.popleft().search()
        for mark in list(marks):
            mark.thing.search()

    def begin(self, thing: Any, kind: AwaitKind, label: str) -> State:
        """Somebody asks for ``thing``, and waits until he gets it. ``None`` if a call around it does already."""
        held = self._objects.get(id(thing))
        outer = OPEN.get()
        is_free = held is None or not (held.holds or held.opens or held.unasked is not None)
        if held is not None and outer is None and is_free and not held.limit:
            # Nobody has it: this takes a third of the time. Who asks a pool has more to do before it has it.
            held.unasked = now_ns()
            return held
        if outer is not None and not outer.over:
            return None
        if held is None:
            held = self._remember(thing, Held(kind, label, None, thing))
            if held is None:
                return None
        elif not (is_free or held.searched or held.wanted):
            held.wanted = True
            held.first = held.first or where_now()
            self._nameless_held.append(held)
        opened = Open(held, now_ns(), CURRENT.get())
        held.opens.add(opened)
        OPEN.set(opened)
        return opened, outer

    def end(self, state: State, got: bool, part: object = None, at: Taken | None = None) -> None:
        """The call that :meth:`begin` told of is over; ``got``: its task holds the object now, or ``part`` of it.

        ``at`` is where, if its caller knows that better than the stack does.
        """
        if state is None:
            return
        if isinstance(state, Held):
            began, state.unasked = state.unasked, None
            if got:  # it was free: it cannot be one hold too many
                code, instruction = at or _instruction_of(sys._getframe(_CALLER))
                past = state.past  # another thread may have been quicker, and have given it back since
                since = now_ns() if began is None or (past and past[-1][1] > began) else began
                raw = CURRENT.get()
                state.holds.append((raw, code, instruction, since, part))
                if self._got is not None:
                    self._note_got(state, raw)
            return
        opened, outer = state
        opened.over = True
        OPEN.set(outer)
        held, began = opened.held, opened.began_ns
        assert held is not None
        now = now_ns()
        raw = CURRENT.get()
        waited = now - began >= LEAST_NS
        if waited and raw is not None:
            self._note(raw, held, began, now)
        held.opens.discard(opened)
        opened.raw = None  # tasks that were started meanwhile have it in their context
        if got:
            freed = held.freed.popleft() if held.freed else began  # each place that was given back is taken once
            since = max(began, freed) if waited else began
            self._note_got(held, raw)
            self._hold(held, raw, since, at or _instruction_of(sys._getframe(_CALLER)), part)
        if not held.opens and held.past:
            held.past.clear()
            held.freed.clear()

    def _note_got(self, held: Held, raw: RawRequest | None) -> None:
        """It has held it for longer, and did not have its turn yet."""
        if self._got is not None and raw is not None and held.kind == "lock":
            self._got[id(held), raw.id] = now_ns()

    def took(self, thing: Any, kind: AwaitKind, label: str) -> None:
        """Somebody has got ``thing`` without waiting. While a call waits for it, that can only be this call's own."""
        outer = OPEN.get()
        if outer is None or outer.over:
            held = self.of(thing, kind, label)
            if held is not None and not held.opens and held.unasked is None:
                self._hold(held, CURRENT.get(), now_ns(), _instruction_of(sys._getframe(_CALLER)), None)

    def gave_back(self, thing: Any, part: object = None) -> None:
        """Somebody gives ``thing`` back, or ``part`` of it.

        If it is not who took it, and has no parts, its holders are not known until it is free.
        """
        held = self._objects.get(id(thing))
        if held is not None and not held.opens and held.unasked is None and len(held.holds) == 1 and part is None:
            if self._got is not None:
                self._keep(held, held.holds[0], now_ns())
            held.holds.clear()
            held.unseen = False
            return
        opened = OPEN.get()
        if held is None or (opened is not None and opened.held is held and not opened.over):
            return  # a call that waits for it was cancelled, and gives back what it never had
        now = now_ns()
        holds = held.holds
        if not holds:
            return
        raw = CURRENT.get()
        if part is None:
            mine = next((one for one in holds if one[0] is raw), None)
        else:
            mine = next((one for one in holds if one[4] is part), None)
            if mine is None:
                return
        if mine is None:
            mine = holds[0]
            held.unseen = len(holds) > 1
        holds.remove(mine)
        if self._got is not None:
            self._keep(held, mine, now)
        if not holds:
            held.unseen = False
        if held.opens:
            held.freed.append(now)
            if len(held.past) >= MAX_PAST:
                self._forget_past(held)
            held.past.append((_told(mine), now))

    def _keep(self, held: Held, hold: Hold, now: int) -> None:
        raw, got = hold[0], self._got
        if raw is None or held.kind != "lock" or got is None:
            return
        since = got.pop((id(held), raw.id), hold[3])
        if raw.ended:
            return
        kept = self._kept.setdefault(raw.id, [])
        if len(kept) < MAX_KEPT:
            kept.append((held, hold, since, now))
        while len(self._kept) > MAX_OBJECTS:
            self._kept.popitem(last=False)

    @staticmethod
    def _forget_past(held: Held) -> None:
        """Of holders that no call has waited for that still waits; if there are none, of the earliest quarter."""
        since = min([opened.began_ns for opened in list(held.opens)], default=0)
        still = [one for one in held.past if one[1] > since]
        held.past[:] = still if len(still) < MAX_PAST else still[-LEFT_OF_PAST:]

    @staticmethod
    def _hold(held: Held, raw: RawRequest | None, since: int, at: Taken, part: object) -> None:
        if part is not None:
            for one in [one for one in held.holds if one[4] is part]:
                held.holds.remove(one)  # nobody saw it given back
        if len(held.holds) < MAX_HOLDS:
            held.holds.append((raw, *at, since, part))
        else:
            held.unseen = True

    def clear(self) -> None:
        """Forget everything."""
        self.active = False
        self._objects.clear()
        self._references.clear()
        self._nameless_held.clear()
        self.keep_holds(False)

    def _remember(self, thing: Any, held: Held) -> Held | None:
        if len(self._objects) >= MAX_OBJECTS:
            return None
        key = id(thing)
        self._references[key] = reference = _Reference(thing, self._gone)
        reference.key = key
        self._objects[key] = held
        return held

    def _forget(self, reference: _Reference) -> None:
        self._objects.pop(reference.key, None)
        self._references.pop(reference.key, None)

    def is_job(self, raw: RawRequest) -> bool:
        """Whether the calling thread runs a job of ``raw``, not its loop."""
        monitor = self._monitors().get(threading.get_ident())
        return monitor is None or monitor.ordinal != raw.loop

    def _note(self, raw: RawRequest, held: Held, began: int, now: int) -> None:
        where = where_now()
        if held.made is None and held.first is None:
            held.first = where
        holders = holders_of(held, began, now)
        pending = len(held.opens)
        note(raw, AwaitMark(began, now, held, where, holders, self.is_job(raw), limit=held.limit, pending=pending))


def note(raw: RawRequest | None, mark: AwaitMark) -> None:
    """``raw``, and the requests it is part of, have waited. Any thread."""
    while raw is not None:
        note_of(raw, mark)
        raw = raw.parent


def note_of(raw: RawRequest, mark: AwaitMark) -> None:
    """``raw`` itself has waited. Any thread."""
    if not raw.ended:
        marks = raw.awaits
        if not isinstance(marks, list):
            raw.awaits = [mark]
        elif len(marks) < MAX_AWAITS:
            marks.append(mark)


def holders_of(held: Held, began: int, now: int) -> Sequence[HolderPart]:
    """Who held it in [began, now), which is worked out where somebody asks.

    That takes 5 us for each holder, and a limit of 40 has 40 holders at once and hundreds in a long wait. What is
    noted here is on the event loop, for each wait.
    """
    if held.unseen or held.veiled:
        return (HolderPart(0, UNKNOWN_HOLDER, None, began, now, 1),)
    past = held.past
    first = bisect_right(past, began, key=_until)
    if held.limit is not None and len(past) - first + len(held.holds) < min(held.limit, LEFT_OF_PAST):
        return ()  # it had a place all the time: nobody kept who asks waiting
    return _HeldBy(began, now, past[first:], [_told(hold) for hold in held.holds])


class _HeldBy(Sequence[HolderPart]):
    """Who held something in one wait. Any thread may ask."""

    __slots__ = ("_began", "_holds", "_now", "_parts", "_past")

    def __init__(self, began: int, now: int, past: Sequence[tuple[Told, int]], holds: Sequence[Told]) -> None:
        self._began = began
        self._now = now
        self._past = past
        self._holds = holds
        self._parts: Sequence[HolderPart] | None = None

    def _known(self) -> Sequence[HolderPart]:
        parts = self._parts
        if parts is None:
            parts = self._parts = _parts_of(self._began, self._now, self._past, self._holds)
            self._past = self._holds = ()
        return parts

    def __len__(self) -> int:
        return len(self._known())

    def __getitem__(self, index: Any) -> Any:
        return self._known()[index]

    def __iter__(self) -> Iterator[HolderPart]:
        return iter(self._known())


def _told(hold: Hold) -> Told:
    raw, code, instruction, since, _ = hold
    if raw is None:
        return None, code, instruction, since
    return (raw.id, raw.operation, raw.end_ns if raw.ended else None, *_span_of(raw)), code, instruction, since


def _until(one: tuple[Told, int]) -> int:
    return one[1]


def _parts_of(began: int, now: int, past: Sequence[tuple[Told, int]], holds: Sequence[Told]) -> Sequence[HolderPart]:
    """Each instant is divided equally among those who held it then.

    A part lasts as long as its holder has it and their number is the same. A place that changes hands ends nobody
    else's part.
    """
    spans: list[tuple[int, int, Told]] = []
    for hold, until in (*past, *[(hold, now) for hold in holds]):
        who, since = hold[0], hold[3]
        if since < began:
            since = began
        if until > now:
            until = now
        if since < until:
            end = None if who is None else who[2]
            if end is None or end >= until:
                spans.append((since, until, hold))
            else:
                spans += _beyond_its_life(since, until, hold, end)
    spans.sort(key=itemgetter(0))
    lines: dict[tuple[int, int], str | None] = {}
    begun = [a for a, _, _ in spans if a > began]
    if spans and begun == sorted([b for _, b, _ in spans if b < now]):  # each place went from hand to hand
        among = len(spans) - len(begun)
        return tuple([_part(hold, a, b, among, lines) for a, b, hold in spans])
    return tuple(sorted(_divided(spans, began, now, lines), key=attrgetter("from_ns")))


def _divided(
    spans: Sequence[tuple[int, int, Told]], began: int, now: int, lines: dict[tuple[int, int], str | None]
) -> list[HolderPart]:
    """The same where the number of those who hold it changes."""
    come: dict[int, list[int]] = {}
    gone: dict[int, list[int]] = {}
    for number, (a, b, _) in enumerate(spans):
        come.setdefault(a, []).append(number)
        gone.setdefault(b, []).append(number)
    parts: list[HolderPart] = []
    since: dict[int, int] = {}  # of those who have it
    free = began
    for at in sorted({began, now, *come, *gone}):
        among, ended, begun = len(since), gone.get(at, ()), come.get(at, ())
        if not among and free < at:
            parts.append(HolderPart(0, UNKNOWN_HOLDER, None, free, at, 1))
        for number in ended if len(ended) == len(begun) else tuple(since):
            parts.append(_part(spans[number][2], since[number], at, among, lines))
            since[number] = at
        for number in ended:
            del since[number]
        for number in begun:
            since[number] = at
        free = at
    return parts


def _part(hold: Told, a: int, b: int, among: int, lines: dict[tuple[int, int], str | None]) -> HolderPart:
    """``lines``: those that are known already, since many take it at the same one."""
    who, code, instruction, _ = hold
    taken = id(code), instruction
    where = lines.get(taken)
    if where is None:
        where = lines[taken] = _line_of(code, instruction)
    if who is None:
        return HolderPart(0, BACKGROUND_OPERATION, where, a, b, among)
    return _new_part(HolderPart, (who[0], who[1], where, a, b, among, who[3], who[4]))


_new_part = tuple.__new__  # a third of the time of the class's own


def has_place(held: Held) -> bool:
    """Whether it is seen to have one now: then nobody keeps who asks waiting. Any thread."""
    return held.limit is not None and not (held.unseen or held.veiled) and len(held.holds) < held.limit


def holders_now(held: Held) -> list[tuple[RawRequest | None, str | None, int]]:
    """(request, file:line at which it was taken, since_ns) of each who holds it now; ``None``: no request's task.

    Empty: nobody does, or it is not known who. Any thread.
    """
    found = []
    for raw, code, instruction, since, _ in () if held.unseen or held.veiled else list(held.holds):
        found.append((None if raw is None or raw.ended else raw, _line_of(code, instruction), since))
    return found


def _span_of(raw: RawRequest) -> tuple[str | None, str | None]:
    """(trace id, span id) of the SERVER span of ``raw``, as records have them."""
    if raw.trace_id is None or raw.span_id is None:
        return None, None
    return f"{raw.trace_id:032x}", f"{raw.span_id:016x}"


def _beyond_its_life(a: int, b: int, hold: Told, end: int) -> Iterable[tuple[int, int, Told]]:
    """What a request holds on to after its end, a task holds that it has left behind, and no request."""
    left: Told = (None, *hold[1:])
    return ((a, b, left),) if end <= a else ((a, end, hold), (end, b, left))


def _line_of(code: CodeType | None, instruction: int) -> str | None:
    """``file:line`` of an instruction; to ask a frame for its line takes longer than all the rest of a hold."""
    if code is None:
        return None
    line = next((line for a, b, line in code.co_lines() if a <= instruction < b and line is not None), 0)
    return f"{code.co_filename}:{line}"


def _instruction_of(frame: Any) -> Taken:
    """(code, instruction) of the innermost frame that is not plumbing; ``(None, 0)`` without one."""
    for _ in range(_DEEPEST):
        if frame is None:
            break
        code = frame.f_code
        part = _parts.get(code.co_filename)
        if part is None:
            part = _part_of(code.co_filename)
        if part == _THEIRS:
            return code, frame.f_lasti
        if part == _MAY_RUN_STEPS and runs_steps(code):
            break
        frame = frame.f_back
    return None, 0


_OTHERS, _THEIRS, _MAY_RUN_STEPS = range(3)
_parts: dict[str, int] = {}  # a free lock may cost 1 us more, and this is asked twice for each


def _part_of(file: str) -> int:
    found = _OTHERS if is_plumbing(file) or is_own(file) else _THEIRS
    if may_run_steps(file):
        found = _MAY_RUN_STEPS
    if len(_parts) < MAX_OBJECTS:
        _parts[file] = found
    return found


def where_now() -> str | None:
    """``file:line`` of the user's code that waits, of the calling thread; ``None`` if only libraries' code is there."""
    frame = users_frame()
    if frame is None:
        return None
    code = frame.f_code
    key = (id(code), frame.f_lasti)
    known = _lines.get(key)
    if known is None:
        if len(_lines) >= MAX_OBJECTS:
            _lines.clear()
        known = _lines[key] = f"{code.co_filename}:{frame.f_lineno}", code
    return known[0]


_lines: dict[tuple[int, int], tuple[str, CodeType]] = {}
"""(``id`` of a code object, instruction) -> (line, that object): to ask a frame for its line takes longer than to find
it."""


def taken_here() -> Taken:
    """The same, for who takes a part of what somebody can hold."""
    frame = users_frame()
    return (None, 0) if frame is None else (frame.f_code, frame.f_lasti)


_INNER = {
    "anyio": ("_internal_lock", "_internal_semaphore", "_internal_limiter"),
    "sqlalchemy": ("pool",),
    "redis": ("connection_pool",),
}
"""Where objects keep the ones they stand for: anyio's that were made outside a loop, engines, clients."""


def variable_of(thing: Any, modules: Iterable[Any] | None = None) -> str | None:
    """``module.NAME`` of a global variable that holds ``thing``; of the user's own modules first. Slow; any thread."""
    for module in list(sys.modules.values()) if modules is None else modules:
        file = _file_of(module)
        if file is None or is_plumbing(file):
            continue
        for name, value in vars(module).copy().items():  # a copy cannot be interrupted by another thread
            inner = _inner(value)
            if value is thing or (inner and any(getattr(value, one, None) is thing for one in inner)):
                return f"{_module_name(module)}.{name}"
    return None


def _file_of(module: Any) -> str | None:
    """CPython takes ``__file__`` from a script when it has run, before the handlers of its exit."""
    for file in (getattr(module, "__file__", None), getattr(getattr(module, "__loader__", None), "path", None)):
        if isinstance(file, str):
            return file
    return None


def _inner(value: Any) -> tuple[str, ...]:
    return _INNER.get(type(value).__module__.partition(".")[0], ())


def _module_name(module: Any) -> str:
    name = str(getattr(module, "__name__", "?"))
    if name == "__main__":
        return os.path.splitext(os.path.basename(_file_of(module) or name))[0]
    return name.rpartition(".")[2]
