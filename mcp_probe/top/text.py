"""A snapshot as lines of text: pure functions, for a screen of any size and for `top --once`."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from mcp_probe.now import Detail, Holder, Line, LoopNow, PoolNow, RequestNow, Snapshot, WaitNow
from mcp_probe.report.blocks import Block, Column, Flow, Grid, Heading, Paragraph, Role, Span, Spans, Words
from mcp_probe.report.figures import UNKNOWN, decimal, duration, plural, share, size
from mcp_probe.report.layout import cut, lay_out, width_of
from mcp_probe.report.places import short_path
from mcp_probe.report.theme import Glyphs
from mcp_probe.top.why import HeldUp, by_id, circles, held_up, links

Sort = Literal["age", "state", "operation"]
SORTS: tuple[Sort, ...] = ("age", "state", "operation")
ROLES: dict[str, Role] = {
    "queue": "part-queue",
    "busy": "part-busy",
    "executor_run": "part-run",
    "executor_return": "part-return",
    "ready_wait": "part-ready",
    "executor_wait": "part-wait",
    "awaiting": "part-await",
    "write": "part-write",
    "unknown": "dim",
}
PHRASES = {
    "queue": "has been queued for {}",
    "busy": "has run on the event loop for {}",
    "executor_run": "has run on a thread for {}",
    "executor_return": "has its thread's result since {}",
    "ready_wait": "could run",
    "executor_wait": "has waited {}",
    "awaiting": "has waited {}",
    "write": "has had its answer ready for {}",
    "unknown": "does what its loop does not show",
}
"""What a request is doing, after its name."""
FULL = 0.95
"""A loop or a pool that is used more is marked."""
SHOWN_HOLDERS = 3
_LEAST_ROWS = 4
"""Of requests, before anything else is left out."""


@dataclass(frozen=True, slots=True)
class Look:
    """How somebody looks at a server."""

    width: int
    height: int | None = None  # lines; None: as many as it takes
    sort: Sort = "age"
    filter: str = ""
    selected: int | None = None  # RequestNow.id
    cwd: str = "/"
    place: tuple[int, int] = (1, 1)  # (which of the servers, of how many)
    paused: bool = False
    silent_s: float | None = None  # no snapshot has come for so long
    silent_why: str = ""
    ended: str | None = None  # why there will be no more
    message: str = ""


@dataclass(frozen=True, slots=True)
class Drawn:
    """Lines of a screen, and which of them are of requests."""

    lines: tuple[Spans, ...]
    rows: tuple[tuple[int, int], ...] = ()  # (line, RequestNow.id)


def chosen(snapshot: Snapshot, look: Look) -> list[RequestNow]:
    """Requests that pass the filter, in the order that is asked for."""
    words = look.filter.lower().split()
    found = [request for request in snapshot.requests if all(word in _haystack(request) for word in words)]
    if look.sort == "operation":
        return sorted(found, key=lambda one: (one.operation, -(one.age_ms or 0.0)))
    if look.sort == "state":
        order = list(ROLES)
        return sorted(found, key=lambda one: (order.index(one.state), -(one.age_ms or 0.0)))
    return sorted(found, key=lambda one: (one.state != "busy", -(one.age_ms or 0.0)))  # who holds the loop comes first


def _haystack(request: RequestNow) -> str:
    parts = [request.operation, request.method, request.state, request.where or "", f"#{request.id}"]
    for wait in request.waits:
        parts += [wait.kind, wait.object, wait.where or "", *(holder.operation for holder in wait.holders)]
    return " ".join(parts).lower()


def screen(snapshot: Snapshot, look: Look, glyphs: Glyphs) -> Drawn:
    """All of a server, within ``look.height`` lines if that is given."""
    text = _Text(snapshot, look, glyphs)
    return text.whole() if look.height is None else text.fitted(look.height)


def detail_lines(detail: Detail, snapshot: Snapshot, look: Look, glyphs: Glyphs) -> tuple[Spans, ...]:
    """One request, opened: what it waits for, who holds that, and the stacks of its tasks."""
    return _Text(snapshot, look, glyphs).opened(detail)


class _Text:
    def __init__(self, snapshot: Snapshot, look: Look, glyphs: Glyphs) -> None:
        self._snapshot = snapshot
        self._look = look
        self._glyphs = glyphs
        self._known = by_id(snapshot)

    # --- whole screens ---

    def whole(self) -> Drawn:
        """Everything, for paper."""
        requests = chosen(self._snapshot, self._look)
        head = self._lines(self._head())
        table = self._lines([*self._requests(requests)])
        rows = self._row_numbers(len(head), table, requests)
        rest = self._lines([*self._holders(99), *self._pools(), *self._operations(99), *self._notes()])
        return Drawn((*head, (), *table, (), *rest), tuple((line + 1, number) for line, number in rows))

    def fitted(self, height: int) -> Drawn:
        """What matters most, in so many lines: head, requests, who holds them up, operations."""
        requests = chosen(self._snapshot, self._look)
        head = (*self._lines(self._head()), *self._lines(self._pool_line())[:1])
        why = self._lines(self._why(requests))[:4]
        room = height - len(head) - len(why) - min(len(requests), _LEAST_ROWS) - 3
        held = self._lines([*self._holders(SHOWN_HOLDERS), *self._notes()]) if room >= 6 else ()
        room -= len(held)
        operations = self._lines(self._operations(max(1, min(6, room - 3)))) if room >= 4 else ()
        left = height - len(head) - len(why) - len(held) - len(operations) - 3
        shown, above = self._window(requests, max(1, left))
        table = self._lines([*self._requests(shown, above, len(requests))])
        parts = [head, table, why, held, operations]
        spare = height - sum(map(len, parts))
        lines: list[Spans] = []
        for part in parts:
            if lines and part and spare > 0 and part is not why:
                lines.append(())
                spare -= 1
            if part is table:
                rows = self._row_numbers(len(lines), table, shown)
            lines += part
        return Drawn(tuple(lines[:height]), rows)

    def _window(self, requests: list[RequestNow], count: int) -> tuple[list[RequestNow], int]:
        """So many of them, the selected one among them; and how many stand above."""
        ids = [request.id for request in requests]
        at = ids.index(self._look.selected) if self._look.selected in ids else 0
        first = max(0, min(at - count + 1 if at >= count else 0, len(requests) - count))
        return requests[first : first + count], first

    def _row_numbers(
        self, before: int, table: Sequence[Spans], requests: Sequence[RequestNow]
    ) -> tuple[tuple[int, int], ...]:
        """A table's rows are its last lines."""
        first = before + len(table) - len(requests)
        return tuple((first + at, request.id) for at, request in enumerate(requests))

    def _lines(self, blocks: Iterable[Block]) -> tuple[Spans, ...]:
        return lay_out(blocks, self._look.width, self._glyphs)

    def _place(self, where: str | None) -> str | None:
        if where is None:
            return None
        if self._look.height is not None:
            return os.path.basename(where)  # a screen has no room for more
        file, _, line = where.rpartition(":")
        return f"{short_path(file, self._look.cwd)}:{line}"

    # --- head ---

    def _head(self) -> list[Block]:
        server, look = self._snapshot.server, self._look
        about = [server.transport, server.loop, server.sdk, f"Python {server.python}"]
        place = f" ({look.place[0]} of {look.place[1]})" if look.place[1] > 1 else ""
        items = ((Span(server.name, "title"), Span(place, "info")), (Span(f"process {server.pid}"),))
        blocks: list[Block] = [Flow((*items, *((Span(each, "dim"),) for each in about)))]
        blocks += self._status()
        for loop in self._snapshot.loops:
            blocks += self._loop(loop)
        blocks.append(self._memory())
        return blocks

    def _status(self) -> list[Block]:
        look = self._look
        if look.ended is not None:
            return [Paragraph((Span("ENDED ", "critical"), Span(f"{look.ended}. This is what it did last.")))]
        if look.silent_s is not None:
            told = f"no answer for {duration(1e3 * look.silent_s)}: {look.silent_why}"
            return [Paragraph((Span("SILENT ", "critical"), Span(told)))]
        blocks: list[Block] = []
        if look.paused:
            blocks.append(Paragraph((Span("PAUSED ", "warn"), Span("p goes on"))))
        if look.message:
            blocks.append(Paragraph((Span(look.message, "info"),)))
        return blocks

    def _loop(self, loop: LoopNow) -> list[Block]:
        used: Role = "warn" if (loop.utilization or 0.0) >= FULL else "plain"
        mark = "~" if loop.quality == "estimate" and loop.utilization is not None else ""
        items: list[Spans] = [
            (Span(f"{loop.name} loop "), Span(f"{mark}{share(loop.utilization)}", used), Span(" busy")),
            (Span(f"arrival delay {mark}{duration(loop.arrival_delay_ms)} on average"),),
            (Span(f"longest turn {mark}{duration(loop.longest_ms)}"),),
        ]
        if loop.state == "unknown":
            return [Flow(((Span(f"{loop.name} loop"),), (Span("it does not show what runs on it", "dim"),)))]
        step = loop.step
        is_blocked = loop.state == "blocked" and step is not None
        blocks: list[Block] = [Flow(tuple(items[:1] if is_blocked else items))]  # of other turns than the one that runs
        if is_blocked and step is not None:
            told = [Span("BLOCKED ", "critical"), Span(f"for {duration(step.for_ms)} by ")]
            told += self._who(step.request, step.operation)
            told += [Span(" at "), Span(self._place(step.where) or "a place that cannot be seen", "place")]
            told += [Span(f" in {step.call}", "dim")] if step.call else []
            if step.cpu_ms is not None:
                told.append(Span(f" ({share(min(1.0, step.cpu_ms / step.for_ms))} of it on a CPU)", "dim"))
            if self._snapshot.unread:
                told.append(Span(f"; {plural(self._snapshot.unread, 'message')} wait unread", "warn"))
            blocks.append(Paragraph(tuple(told)))
        return blocks

    def _memory(self) -> Block:
        snapshot = self._snapshot
        limit = "" if snapshot.memory_limit_bytes is None else f" of {size(snapshot.memory_limit_bytes)}"
        items: list[Spans] = [(Span(f"memory {size(snapshot.rss_bytes)}{limit}"),)]
        if snapshot.dropped:
            items.append((Span(f"{plural(snapshot.dropped, 'snapshot')} missed", "dim"),))
        if snapshot.every_s > 1:
            items.append((Span(f"every {duration(1e3 * snapshot.every_s)}", "dim"),))
        return Flow(tuple(items))

    # --- requests ---

    def _requests(self, requests: Sequence[RequestNow], above: int = 0, passing: int | None = None) -> Iterable[Block]:
        snapshot = self._snapshot
        counts = Counter[str](request.state for request in snapshot.requests)
        aside = " · ".join(f"{counts[state]} {state}" for state in ROLES if counts[state])
        title = f"IN FLIGHT {snapshot.in_flight}"
        if snapshot.unread:
            title += f", and {plural(snapshot.unread, 'message')} unread"
        yield Heading(title, aside)
        passing = len(requests) if passing is None else passing
        notes = []
        if self._look.filter:
            notes.append(f"{passing} match “{self._look.filter}”")
        if len(snapshot.requests) < snapshot.in_flight:
            notes.append(f"the {len(snapshot.requests)} oldest are looked at")
        if passing > len(requests):
            notes.append(f"rows {above + 1}–{above + len(requests)} of {passing}")
        if notes:
            yield Flow(tuple((Span(note, "dim"),) for note in notes))
        if not requests:
            yield Paragraph((Span("none", "dim"),))
            return
        columns = (
            Column("ID", right=True, gap=0),
            Column("OPERATION", gap=1, most=28),
            Column("STATE", gap=1),
            Column("AGE", right=True, gap=1),
            Column("WAITS FOR, OR IS AT", gap=2),
            Column("HELD BY", gap=1),
        )
        rows = tuple(self._row(request) for request in requests)
        yield Grid(columns, rows, squeeze=((1, 12), (4, 20), (5, 20), (1, 6), (4, 8), (5, 8)))

    def _row(self, request: RequestNow) -> tuple[Words, ...]:
        wait = request.waits[0] if request.waits else None
        more = f" +{len(request.waits) - 1}" if len(request.waits) > 1 else ""
        return (
            Words((Span(f"{request.id}"),)),
            Words((Span(request.operation, "name"),), "middle"),
            Words((Span(request.state, ROLES[request.state]),)),
            Words((Span(duration(request.age_ms)),)),
            Words((*self._waits_for(request, wait), Span(more, "dim")), "middle"),
            Words(self._held_by(wait), "middle"),
        )

    def _waits_for(self, request: RequestNow, wait: WaitNow | None) -> Spans:
        if wait is None:
            if request.where is not None:
                return (Span(os.path.basename(request.where), "place"),)
            return (Span(UNKNOWN if request.state in ("unknown", "awaiting") else "", "dim"),)
        thing = _thing(wait).replace(" made at ", " ")
        if wait.holders or wait.where is None:
            return (Span(thing),)
        return (Span(f"{thing} at "), Span(os.path.basename(wait.where), "place"))

    def _held_by(self, wait: WaitNow | None) -> Spans:
        if wait is None or not wait.holders:
            return ()
        holder = wait.holders[0]
        if wait.kind == "threads":
            parts = [f"{one.operation} ×{one.count}" for one in wait.holders]
            return (Span(", ".join(parts), "name"),)
        number = f"#{holder.request} " if holder.request is not None else ""
        many = f" ×{holder.count}" if holder.count > 1 else ""
        told = (Span(number), Span(holder.operation, "name"), Span(many))  # the number stays where the rest is cut
        return (*told, Span(f" {os.path.basename(holder.where)}", "place")) if holder.where else told

    def _who(self, request: int | None, operation: str, count: int = 1) -> list[Span]:
        number = f" #{request}" if request is not None else f" ×{count}" if count > 1 else ""
        return [Span(operation, "name"), Span(number)]

    # --- why ---

    def _why(self, requests: Sequence[RequestNow]) -> list[Block]:
        """The selected request in a sentence; circles come first, for nothing else matters then."""
        blocks: list[Block] = [self._circle(circle) for circle in circles(self._snapshot)[:1]]
        selected = self._known.get(self._look.selected or 0)
        if selected is None and requests:
            selected = requests[0]
        if selected is not None:
            blocks.append(Paragraph(self._sentence(selected)))
        return blocks

    def _circle(self, circle: Sequence[RequestNow]) -> Paragraph:
        told = [Span("DEADLOCK ", "critical")]
        for at, request in enumerate(circle):
            told += [Span(" waits for " if at else "")] if at else []
            told += self._who(request.id, request.operation)
        return Paragraph((*told, Span(": none of them can go on.")))

    def _sentence(self, request: RequestNow) -> Spans:
        """Who waits, how long, for what, and who has it, link by link."""
        chain, _ = links(request, self._known)
        told: list[Span] = self._who(request.id, request.operation)
        for at, one in enumerate(chain[:3]):
            told += [Span(", which " if at else " "), *self._doing(one)]
        return (*told, Span("."))

    def _doing(self, request: RequestNow) -> list[Span]:
        wait = request.waits[0] if request.waits else None
        sleeps = wait is not None and wait.kind == "sleep" and request.state == "awaiting"
        phrase = "has slept for {}" if sleeps else PHRASES[request.state]
        told = [Span(phrase.format(duration(request.state_ms)), ROLES[request.state])]
        if wait is None:
            place = self._place(request.where)
            return [*told, Span(" at "), Span(place, "place")] if place else told
        if not sleeps:
            told.append(Span(f"{' for' if request.state == 'awaiting' else ':'} {_thing(wait)}"))
        line = self._place(wait.where or request.where)
        told += [Span(" at "), Span(line, "place")] if line else []
        told += [Span(f" and {len(request.waits) - 1} more", "dim")] if len(request.waits) > 1 else []
        return [*told, Span(", held by "), *self._holder(wait.holders[0], wait.kind)] if wait.holders else told

    def _holder(self, holder: Holder, kind: str) -> list[Span]:
        return [*self._who(holder.request, holder.operation, holder.count), *self._since(holder, kind)]

    def _since(self, holder: Holder, kind: str) -> list[Span]:
        """Where it took it, and when; of a loop: where it is, and for how long."""
        told: list[Span] = []
        place = self._place(holder.where)
        runs = kind in ("loop", "threads")
        if place:
            told += [Span(" at " if runs else ", taken at "), Span(place, "place")]
        if holder.held_ms is not None:
            length = duration(holder.held_ms)
            told.append(Span(f" for {length}" if runs else f" {length} ago" if place else f", taken {length} ago"))
        return told

    def _holders(self, most: int) -> list[Block]:
        rows = held_up(self._snapshot)
        if not rows:
            return []
        blocks: list[Block] = [Heading("WHO HOLDS THEM UP")]
        for row in rows[:most]:
            blocks.append(Paragraph(self._held_up(row)))
        if self._look.height is None:
            blocks += [self._circle(circle) for circle in circles(self._snapshot)]
        return blocks

    def _held_up(self, row: HeldUp) -> Spans:
        holder = row.holder
        told = self._who(holder.request, holder.operation, holder.count)
        told += [Span(f" has {_named(row.kind, row.object)}"), *self._since(holder, row.kind), Span(": ")]
        longest = "" if row.longest_ms is None else f", the longest for {duration(row.longest_ms)}"
        verb = "waits" if row.waiters == 1 else "wait"
        return (*told, Span(f"{plural(row.waiters, 'request')} {verb}", "warn"), Span(longest))

    # --- pools, operations, notes ---

    def _pool_line(self) -> list[Block]:
        pools = [pool for pool in self._snapshot.pools if pool.active or pool.pending]
        return [Flow(tuple(self._pool(pool) for pool in pools), lead=(Span("threads "),))] if pools else []

    def _pool(self, pool: PoolNow) -> Spans:
        full = pool.max is not None and pool.taken is not None and pool.taken >= pool.max
        most = "" if pool.max is None else f" of {decimal(pool.max)}"
        taken = pool.active if pool.taken is None else pool.taken
        told: list[Span] = [Span(f"{pool.name} "), Span(f"{taken}{most}", "warn" if full else "plain")]
        if pool.pending:
            longest = duration(pool.longest_wait_ms)
            told.append(Span(f", {plural(pool.pending, 'call')} waiting, the longest {longest}", "warn"))
        return tuple(told)

    def _pools(self) -> list[Block]:
        if not self._snapshot.pools:
            return []
        blocks: list[Block] = [Heading("THREADS")]
        blocks += [Paragraph(self._pool(pool)) for pool in self._snapshot.pools]
        return blocks

    def _operations(self, most: int) -> list[Block]:
        snapshot = self._snapshot
        title = f"ENDED IN THE LAST {snapshot.window_s:.0f} s"
        if not snapshot.operations:
            return [Heading(title), Paragraph((Span("none", "dim"),))]
        flying = Counter(request.operation for request in snapshot.requests)
        rows = tuple(
            (
                Words((Span(one.name, "name"),), "middle"),
                Words((Span(UNKNOWN if one.rate_per_s is None else f"{decimal(one.rate_per_s)}/s"),)),
                Words((Span(duration(one.p50_ms)),)),
                Words((Span(duration(one.p95_ms)),)),
                Words((Span(duration(one.max_ms)),)),
                Words((Span(f"{one.errors}", "critical" if one.errors else "dim"),)),
                Words((Span(f"{flying[one.name]}"),)),
            )
            for one in snapshot.operations[:most]
        )
        names = ("OPERATION", "RATE", "P50", "P95", "MAX", "ERRORS", "IN FLIGHT")
        columns = tuple(Column(name, right=at > 0, gap=2 if at else 0) for at, name in enumerate(names))
        left = len(snapshot.operations) - most
        return [Heading(title, f"and {left} more" if left > 0 else ""), Grid(columns, rows, squeeze=((0, 12), (4, 0)))]

    def _notes(self) -> list[Block]:
        return [Paragraph((Span(note, "dim"),), lead=(Span("note  ", "dim"),)) for note in self._snapshot.notes]

    # --- one request, opened ---

    def opened(self, detail: Detail) -> tuple[Spans, ...]:
        """What is known of one request."""
        request = detail.request
        about = [request.method, request.transport, f"age {duration(request.age_ms)}", plural(request.tasks, "task")]
        blocks: list[Block] = [
            Flow(((Span(f"{request.operation} #{request.id}", "title"),), *((Span(one, "dim"),) for one in about))),
            Paragraph(self._sentence(request)),
        ]
        blocks += [self._circle(circle) for circle in circles(self._snapshot) if request in circle]
        for wait in request.waits:
            blocks.append(self._wait(wait))
        for task in detail.tasks:
            since = "" if task.for_ms is None else f"{task.state} for {duration(task.for_ms)}"
            blocks.append(Heading(task.what, since or task.state))
            hidden, stack = _without_plumbing(task.stack)
            if hidden:
                blocks.append(Paragraph((Span(f"… {plural(hidden, 'line')} of libraries call this", "dim"),)))
            rows = tuple(
                (
                    Words((Span(f"{short_path(line.file, self._look.cwd)}:{line.line}", "place"),), "start"),
                    Words((Span(line.function, "name" if line.own else "dim"),), "middle"),
                )
                for line in stack
            )
            no_stack = Paragraph((Span("no line of Python can be seen", "dim"),))
            blocks.append(Grid((Column(gap=0), Column()), rows, squeeze=((0, 24), (1, 12))) if rows else no_stack)
        return self._lines(blocks)

    def _wait(self, wait: WaitNow) -> Block:
        told = [Span(f"waits for {_named(wait.kind, wait.object)}")]
        told += [Span(f" for {duration(wait.for_ms)}")] if wait.for_ms is not None else []
        place = self._place(wait.where)
        told += [Span(" at "), Span(place, "place")] if place else []
        for holder in wait.holders:
            told += [Span("; held by "), *self._holder(holder, wait.kind)]
        return Paragraph(tuple(told), lead=(Span("– ", "dim"),))


def _without_plumbing(stack: Sequence[Line]) -> tuple[int, Sequence[Line]]:
    """(how many lines stand before the first of the user's own, the lines from there on)."""
    first = next((at for at, line in enumerate(stack) if line.own), 0)
    return first, stack[first:]


def _thing(wait: WaitNow) -> str:
    name = _named(wait.kind, wait.object)
    return f"{name}, {wait.phase}" if wait.phase else name


def _named(kind: str, thing: str) -> str:
    """``sleep`` for a sleep: names that say the kind, or whose kind says nothing, stand alone."""
    if kind == "loop":
        return "the event loop"
    if kind == "threads":
        return f"a thread of {thing}"
    if kind in ("other", "writer", "reader", "sleep", "task", "lock", "semaphore", "limiter", "queue", "event"):
        return thing
    return thing if kind in thing.lower() else f"{kind} {thing}"


def fit(line: Spans, width: int, glyphs: Glyphs) -> Spans:
    """``line`` cut, or filled with blanks, to exactly ``width`` columns."""
    shorter = cut(line, width, "end", glyphs)
    return (*shorter, Span(" " * (width - width_of(shorter))))
