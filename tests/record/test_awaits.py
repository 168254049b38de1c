"""What a request's awaiting was for, against states that are known instant by instant."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from mcp_probe.model import Await, HolderPart, RequestRecord
from mcp_probe.record.assemble import assemble, spill
from mcp_probe.record.awaits import MAX_AWAITS_KEPT, SHORT_AWAIT_NS, name_awaits
from mcp_probe.record.file import LineDecoder, encode, preamble
from mcp_probe.record.raw import WAKE_LOOP, AwaitLook, AwaitMark, RawRequest
from tests.record.lives import TICK_NS, Life, alive_after, lives, states_of

EXAMPLES = 300


@dataclass(frozen=True)
class Thing:
    """Something that can be awaited."""

    name: str
    kind: str = "lock"
    tag: str = "exact"


@dataclass
class Named:
    """A life, and what hooks and looks say of it, in ticks."""

    life: Life
    hooks: list[tuple[int, int | None, Thing]]
    looks: list[tuple[int, int, Thing, bool]]  # (unit, suspended, what, tasks of its own)

    def raw(self, **options: Any) -> RawRequest:
        raw = self.life.raw(**options)
        return self.equip(raw)

    def equip(self, raw: RawRequest) -> RawRequest:
        marks: list[AwaitMark] = [
            AwaitMark(a * TICK_NS, None if b is None else b * TICK_NS, thing, None) for a, b, thing in self.hooks
        ]
        looks = [AwaitLook(unit, since * TICK_NS, thing, None, own) for unit, since, thing, own in self.looks]
        raw.awaits, raw.looks = marks, looks
        return raw

    def claims(self) -> list[tuple[int, int, Thing]]:
        """Who names which ticks, in the order in which they are asked."""
        until = self.life.until
        named = [(a, until if b is None else b, thing) for a, b, thing in self.hooks]
        seen = [
            (at[0], at[1], thing, own) for unit, since, thing, own in self.looks for at in self._stretches(unit, since)
        ]
        named += [(a, b, thing) for a, b, thing, own in seen if not own]
        tasks = [(a, b, thing) for a, b, thing, own in seen if own]
        return [*sorted(named, key=self._last_first), *sorted(tasks, key=self._last_first)]

    def _last_first(self, claim: tuple[int, int, Thing]) -> tuple[bool, int, int, str]:
        """The result did not wait for what lasts longer."""
        is_left = self.life.result is not None and claim[1] >= self.life.until
        return is_left, -claim[1], claim[0], claim[2].name

    def _stretches(self, unit: int, since: int) -> list[tuple[int, int]]:
        found = [
            (step.suspended, min(max(step.ready, step.suspended), step.start))
            for step in self.life.steps
            if (step.unit, step.suspended) == (unit, since)
        ]
        return found + ([(since, self.life.until)] if alive_after(self.life.steps).get(unit) == since else [])

    def truth(self) -> Counter[str]:
        """Ticks of awaiting by name: the first claim that covers the tick has it."""
        found: Counter[str] = Counter()
        order = ("gc", "busy", "executor_run", "executor_return", "ready_wait", "executor_wait", "unaccounted")
        claims = self.claims()
        for tick, states in enumerate(states_of(self.life), self.life.first):
            if "awaiting" not in states or any(part in states for part in order):
                continue
            thing = next((thing for a, b, thing in claims if a <= tick < b), None)
            if thing is not None:
                found[thing.name] += 1
        return found


@st.composite
def named_lives(draw: st.DrawFn) -> Named:
    life = draw(lives())
    instants = st.integers(life.first, max(life.first, life.until))
    hooks: list[tuple[int, int | None, Thing]] = []
    for number in range(draw(st.integers(0, 3))):
        a, b = sorted((draw(instants), draw(instants)))
        hooks.append((a, draw(st.none() | st.just(b)), Thing(f"hook {number}")))
    # A task that has taken no step is not known yet, so nobody can look at it.
    suspensions = sorted({(step.unit, step.suspended) for step in life.steps if step.unit and not step.born})
    suspensions += [(unit, end) for unit, end in alive_after(life.steps).items() if (unit, end) not in suspensions]
    looks = []
    for number, (unit, since) in enumerate(suspensions):
        if draw(st.booleans()):
            looks.append((unit, since, Thing(f"look {number}"), draw(st.booleans())))
    return Named(life, hooks, looks)


def record_of(named: Named, raw: RawRequest) -> RequestRecord:
    return assemble(raw, named.life.end * TICK_NS, named=True)


def by_name(record: RequestRecord) -> Counter[str]:
    found: Counter[str] = Counter()
    for one in record.awaits or ():
        assert one.ns % TICK_NS == 0
        found[one.object] += one.ns // TICK_NS
    return found


@given(named_lives())
@settings(max_examples=EXAMPLES)
def test_every_instant_of_awaiting_has_the_name_of_what_ends_last(named: Named) -> None:
    if named.life.running is None:
        assert by_name(record_of(named, named.raw())) == +named.truth()


@given(named_lives())
@settings(max_examples=EXAMPLES)
def test_awaits_never_add_up_to_more_than_awaiting(named: Named) -> None:
    record = record_of(named, named.raw())
    assert record.awaits is not None and record.budget.awaiting is not None
    assert sum(one.ns for one in record.awaits) <= record.budget.awaiting
    assert all(one.ns > 0 and one.from_ns < one.to_ns for one in record.awaits)


@given(named_lives(), st.data())
@settings(max_examples=EXAMPLES)
def test_folding_marks_away_at_any_point_keeps_all_names(named: Named, data: st.DataObject) -> None:
    if named.life.running is not None or not named.life.steps:
        return
    after = data.draw(st.sets(st.integers(0, len(named.life.steps) - 1)))
    whole = record_of(named, named.raw())

    given_looks: list[AwaitLook] = []

    def bring(raw: RawRequest, until: int | None) -> None:
        """What hooks and looks have said by then."""
        all_of = named.equip(RawRequest(1, "request", "tools/call", "tool", "stdio"))
        raw.awaits = all_of.awaits
        new = [look for look in all_of.looks if look not in given_looks and (until is None or look[1] <= until)]
        given_looks.extend(new)
        raw.looks = [*raw.looks, *new]

    def fold(raw: RawRequest, until: int) -> None:
        bring(raw, until)
        spill(raw, until)

    raw = named.life.raw(spill=fold, spill_after=after)
    bring(raw, None)
    folded = record_of(named, raw)
    # A child that waits for its first step is not known when marks are folded: its wait is missing, awaiting is longer.
    assume(folded.budget.awaiting == whole.budget.awaiting)
    assert by_name(folded) == by_name(whole)


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 40), st.integers(1, 4)), max_size=6), st.data())
@settings(max_examples=EXAMPLES)
def test_holders_never_add_up_to_more_than_the_wait(parts: list[tuple[int, int, int]], data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, 80), min_size=2, max_size=8, unique=True)))
    awaiting = [(a * TICK_NS, b * TICK_NS, 7) for a, b in zip(cuts[::2], cuts[1::2], strict=False)]
    holders: list[HolderPart] = []
    at = 0
    for gap, length, among in parts:  # one after the other, each among so many that hold it at the same time
        a, b = (at + gap) * TICK_NS, (at + gap + length) * TICK_NS
        holders += [HolderPart(number + 1, "tool", "x.py:1", a, b, among) for number in range(among)]
        at += gap + length
    for one in name_awaits(awaiting, [], [AwaitMark(0, None, Thing("lock"), None, holders)], [], 80 * TICK_NS):
        held = sum((part.to_ns - part.from_ns) / part.among for part in one.holders)
        assert held <= one.ns + 1
        assert all(one.from_ns <= part.from_ns < part.to_ns <= one.to_ns for part in one.holders)


def test_short_waits_are_summed_by_what_they_were_for() -> None:
    ms = 1_000_000
    marks: list[AwaitMark] = [AwaitMark(at * ms, (at + 2) * ms, Thing("gate"), "n.py:3") for at in range(0, 40, 4)]
    marks.append(AwaitMark(50 * ms, 60 * ms, Thing("gate"), "n.py:3"))
    found = name_awaits([(0, 100 * ms, 7)], [], marks, [], 100 * ms)
    assert [(one.ns, one.count) for one in found] == [(10 * ms, 1), (20 * ms, 10)]


def test_a_record_keeps_the_longest_and_sums_the_others() -> None:
    step = 2 * SHORT_AWAIT_NS
    count = MAX_AWAITS_KEPT + 10
    marks: list[AwaitMark] = [
        AwaitMark(at * step, at * step + SHORT_AWAIT_NS + at, Thing("gate"), None) for at in range(count)
    ]
    found = name_awaits([(0, count * step, 7)], [], marks, [], count * step)
    assert [one.count for one in found] == [1] * MAX_AWAITS_KEPT + [10]
    assert sum(one.ns for one in found) == sum(SHORT_AWAIT_NS + at for at in range(count))


def test_what_a_job_waits_for_names_the_job_only_and_calls_are_counted_even_if_they_took_no_time() -> None:
    ms = 1_000_000
    backend = Thing("https://a:1", "http")
    marks = [
        AwaitMark(0, 100 * ms, backend, "n.py:3", (), True, "first-byte", 1, 1),
        AwaitMark(10 * ms, 90 * ms, Thing("gate"), "n.py:9"),
        AwaitMark(200 * ms, 300 * ms, backend, "n.py:3", (), True, "first-byte", 1),
    ]
    found = name_awaits([(0, 20 * ms, 7), (80 * ms, 100 * ms, 7)], [(20 * ms, 80 * ms, 2)], marks, [], 100 * ms)
    assert [(one.object, one.stage, one.ns, one.calls, one.opened) for one in found] == [
        ("gate", "awaiting", 20 * ms, 0, 0),
        ("https://a:1", "executor_run", 60 * ms, 1, 1),
        ("https://a:1", "executor_run", 0, 1, 0),
    ]


def test_where_a_hook_saw_parts_of_what_a_line_waited_for_a_look_there_names_only_the_rest() -> None:
    """A look at a suspended task sees one wait, which ends last; the hook saw its phases."""
    found = name_awaits(
        [(0, 100, 0)],
        [],
        [AwaitMark(0, 60, Thing("looking up"), "tool.py:7"), AwaitMark(60, 70, Thing("elsewhere"), "tool.py:9")],
        [
            (0, 99, AwaitLook(1, 0, Thing("the library"), "tool.py:7", False)),
            (0, 98, AwaitLook(2, 0, Thing("another task"), "tool.py:8", False)),
        ],
        end=100,
        short_ns=0,
    )
    assert {one.object: one.ns for one in found} == {"another task": 98, "the library": 1}
    found = name_awaits(
        [(0, 100, 0)],
        [],
        [AwaitMark(0, 60, Thing("looking up"), "tool.py:7"), AwaitMark(60, 70, Thing("elsewhere"), "tool.py:9")],
        [(0, 99, AwaitLook(1, 0, Thing("the library"), "tool.py:7", False))],
        end=100,
        short_ns=0,
    )
    assert {one.object: one.ns for one in found} == {"looking up": 60, "elsewhere": 10, "the library": 29}


def test_the_queue_through_which_a_client_answers_is_a_wait_for_the_client() -> None:
    def named(since: int, until: int) -> dict[str, int]:
        client = AwaitMark(1, 90, Thing("the client", "client"), None)
        look = (since, until, AwaitLook(1, since, Thing("inbox", "queue"), "sdk.py:1", False))
        return {one.object: one.ns for one in name_awaits([(0, 100, 0)], [], [client], [look], end=100, short_ns=0)}

    assert named(2, 92) == {"the client": 89, "inbox": 2}
    # A queue that is waited for meanwhile, but neither since then nor as long, is another wait: it ends last.
    assert named(40, 99) == {"the client": 39, "inbox": 59}


def test_what_lasts_longer_than_the_result_is_not_what_it_waited_for() -> None:
    """mcp 2.x waits in a task of the request's for its client to leave."""
    looked = [
        (0, 100, AwaitLook(1, 0, Thing("disconnect"), None, False)),
        (10, 90, AwaitLook(2, 10, Thing("gate"), "tool.py:7", False)),
    ]
    found = name_awaits([(0, 100, 0)], [], [], looked, end=100, short_ns=0, answered=True)
    assert {one.object: one.ns for one in found} == {"gate": 80, "disconnect": 20}
    found = name_awaits([(0, 100, 0)], [], [], looked, end=100, short_ns=0)
    assert {one.object: one.ns for one in found} == {"disconnect": 100}


def test_a_wait_that_the_running_step_has_ended_is_not_taken_for_one_that_goes_on() -> None:
    """A span ends in the step after its last wait: there a hook's name must win as it does in the record."""
    ms = 1_000_000
    raw = RawRequest(1, "request", "tools/call", "tool", "stdio")
    raw.arrival_ns = raw.taken_ns = raw.first_step_ns = 0
    raw.add_mark((1, 0, 0, 0, 0, 10 * ms, WAKE_LOOP))
    raw.units = {1: 10 * ms}
    raw.looks = [AwaitLook(1, 10 * ms, Thing("LockAdapter.acquire", "event"), None, False)]
    raw.awaits = [AwaitMark(10 * ms, 60 * ms, Thing("gate"), None)]
    running = (1, 10 * ms, 10 * ms, 59 * ms, 60 * ms, 61 * ms, WAKE_LOOP)
    assert [one.object for one in assemble(raw, 61 * ms, running, named=True).awaits or ()] == ["gate"]


def test_a_request_that_nobody_looked_at_says_so(  # None is not "awaited nothing"
) -> None:
    raw = RawRequest(1, "request", "tools/call", "tool", "stdio")
    raw.arrival_ns = raw.taken_ns = raw.first_step_ns = 0
    assert assemble(raw, 10).awaits is None
    assert assemble(raw, 10, named=True).awaits == ()


def test_awaits_survive_a_recording() -> None:
    part = HolderPart(7, "append", "notes.py:9", 5, 9, 2)
    one = Await("lock", "asyncio.Lock notes.GATE", "notes.py:3", 1, 9, 8, "exact", 1, (part,))
    raw = RawRequest(1, "request", "tools/call", "tool", "stdio")
    raw.arrival_ns = raw.taken_ns = raw.first_step_ns = 0
    record = replace(assemble(raw, 10, named=True), awaits=(one, replace(one, holders=(), count=3)))
    decoder = LineDecoder("test")
    decoder.feed(preamble())
    assert decoder.feed(encode(record)) == record
    older = replace(record, awaits=None)
    assert decoder.feed(encode(older)) == older


def on_loop(*marks: AwaitMark, suspended: bool = False) -> Counter[str]:
    """Names of the instants on the loop of a request of one step of 100, or of two with a suspension from 40 to 60."""
    raw = RawRequest(1, "request", "tools/call", "tool", "stdio")
    raw.arrival_ns = raw.taken_ns = raw.first_step_ns = 0
    raw.add_mark((1, 0, 0, 0, 0, 40 if suspended else 100, WAKE_LOOP))
    if suspended:
        raw.add_mark((1, 40, 60, 60, 60, 100, WAKE_LOOP))
    raw.pauses = [(25, 30)]
    raw.awaits = list(marks)
    raw.result_ns = 100
    found: Counter[str] = Counter()
    for one in assemble(raw, 100, named=True).awaits or ():
        assert one.library == ("lib" if one.stage == "busy" else None)
        found[one.stage] += one.ns
    return found


def test_a_call_that_keeps_the_loop_names_busy_time_but_not_the_collectors() -> None:
    assert on_loop(AwaitMark(20, 50, Thing("backend", "db"), None, library="lib")) == {"busy": 25}


def test_a_coroutine_that_never_was_suspended_names_nothing() -> None:
    assert not on_loop(AwaitMark(20, 50, Thing("backend", "db"), None))


def test_a_blocking_call_that_was_suspended_in_a_greenlet_names_what_it_awaited() -> None:
    mark = AwaitMark(20, 80, Thing("backend", "db"), None, library="lib")
    assert on_loop(mark, suspended=True) == {"awaiting": 20}


def test_a_blocking_call_in_a_job_names_nothing_on_the_loop() -> None:
    assert not on_loop(AwaitMark(20, 50, Thing("backend", "db"), None, (), True, library="lib"))


def test_blocking_calls_of_a_request_that_lives_long_keep_their_names() -> None:
    raw = RawRequest(1, "request", "tools/call", "tool", "stdio")
    raw.arrival_ns = raw.taken_ns = raw.first_step_ns = 0
    raw.add_mark((1, 0, 0, 0, 0, 100, WAKE_LOOP))
    raw.units = {1: 100}
    raw.awaits = [AwaitMark(20, 50, Thing("backend", "db"), None, library="lib")]
    spill(raw, 100)
    raw.add_mark((1, 100, 200, 200, 200, 300, WAKE_LOOP))
    raw.units = {1: 300}
    [one] = [one for one in assemble(raw, 300, named=True).awaits or () if one.stage == "busy"]
    assert (one.ns, one.library) == (30, "lib")
