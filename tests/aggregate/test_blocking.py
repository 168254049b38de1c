from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

from hypothesis import given
from hypothesis import strategies as st

from mcp_probe.aggregate import blocking
from mcp_probe.aggregate.blocking import (
    MAX_CELLS,
    Blame,
    Matrix,
    PollIndex,
    RecentSteps,
    StepIndex,
    Victim,
    blame,
    union,
    victim_of,
)
from mcp_probe.model import ALL_SEEN, CROWDING_OPERATION, LOOP_OPERATION, QUEUE, LoopSample, StepRecord, Wait
from tests.frames import MS, make_loop_sample, make_request, make_step, make_wait

VICTIM = 7


def victim(*waits: Wait, **overrides: object) -> Victim:
    found = victim_of(make_request(VICTIM, "victim", waits=waits, loop=0))
    assert found is not None
    return replace(found, **overrides)  # type: ignore[arg-type]


def rows(found: Blame) -> dict[str, tuple[int, int]]:
    return {name: bounds for name, bounds in found.rows.items() if name != CROWDING_OPERATION}


# --- the truth table of measurement.md: two blockers of 120 and 80 ms in one loop iteration ---

FIRST = make_step(0, 120 * MS, request=1, operation="first")
SECOND = make_step(120 * MS, 200 * MS, request=2, operation="second")
TWO = StepIndex([FIRST, SECOND])


def ms(found: Blame) -> dict[str, tuple[float, float]]:
    return {name: (lo / MS, hi / MS) for name, (lo, hi) in found.rows.items()}


def test_an_in_loop_event_set_at_the_start_waited_for_both_blockers() -> None:
    assert ms(blame(victim(make_wait(0, 200 * MS)), TWO)) == {"first": (120, 120), "second": (80, 80)}


def test_a_thread_result_stamped_in_the_worker_waited_from_that_stamp_on() -> None:
    assert ms(blame(victim(make_wait(50 * MS, 200 * MS, "return")), TWO)) == {"first": (70, 70), "second": (80, 80)}


def test_a_timer_waited_from_its_deadline_on() -> None:
    assert ms(blame(victim(make_wait(100 * MS, 200 * MS)), TWO)) == {"first": (20, 20), "second": (80, 80)}


def test_a_socket_is_bounded_for_the_first_blocker_and_exact_for_the_second() -> None:
    found = ms(blame(victim(make_wait(120 * MS, 200 * MS, earliest_ns=0)), TWO))

    assert found == {"first": (0, 120), "second": (80, 80)}
    assert found["first"][0] <= 40 <= found["first"][1]  # the socket became readable at 80 ms


def test_a_long_sleep_past_both_blockers_waited_for_nobody() -> None:
    asleep = make_request(VICTIM, "sleeper", awaiting=500 * MS, waits=())

    assert victim_of(asleep) is None


def test_a_victim_that_was_never_runnable_during_the_block_blames_nobody() -> None:
    late = victim(make_wait(200 * MS, 203 * MS))  # 250 ms of block before, 3 ms of true waiting after

    assert rows(blame(late, TWO)) == {}


def test_a_request_still_in_the_queue_is_a_victim_like_any_other() -> None:
    assert rows(blame(victim(make_wait(150 * MS, 200 * MS, "queue")), TWO)) == {"second": (50 * MS, 50 * MS)}


# --- whose step it was ---


def test_the_victims_own_steps_are_never_blamed() -> None:
    own = make_step(0, 120 * MS, request=VICTIM, operation="victim")

    assert rows(blame(victim(make_wait(0, 200 * MS)), StepIndex([own, SECOND]))) == {"second": (80 * MS, 80 * MS)}


def test_another_request_of_the_same_tool_is_blamed() -> None:
    twin = make_step(0, 120 * MS, request=1, operation="victim")

    assert rows(blame(victim(make_wait(0, 120 * MS)), StepIndex([twin]))) == {"victim": (120 * MS, 120 * MS)}


def test_a_profiled_call_inside_the_victim_is_its_own_step() -> None:
    inner = make_step(0, 120 * MS, request=50, operation="inner", within=(VICTIM,))

    assert rows(blame(victim(make_wait(0, 120 * MS)), StepIndex([inner]))) == {}


def test_work_of_no_request_is_blamed_on_the_loop() -> None:
    transport = make_step(0, 20 * MS, request=0, operation="whatever")

    assert rows(blame(victim(make_wait(0, 20 * MS)), StepIndex([transport]))) == {LOOP_OPERATION: (20 * MS, 20 * MS)}


def test_two_units_waiting_at_once_count_each_instant_once() -> None:
    both = victim(make_wait(0, 200 * MS), make_wait(100 * MS, 200 * MS, "return"))

    assert rows(blame(both, TWO)) == {"first": (120 * MS, 120 * MS), "second": (80 * MS, 80 * MS)}


# --- several loops ---

ELSEWHERE = make_step(0, 100 * MS, request=3, operation="elsewhere", loop=1)


def test_a_step_on_another_loop_holds_up_nobody_here() -> None:
    assert rows(blame(victim(make_wait(0, 200 * MS)), StepIndex([FIRST, ELSEWHERE]))) == {"first": (120 * MS, 120 * MS)}


def test_a_victim_of_an_unknown_loop_may_have_waited_on_either() -> None:
    found = blame(victim(make_wait(0, 120 * MS), loop=None), StepIndex([FIRST, ELSEWHERE]))

    assert rows(found) == {"first": (0, 120 * MS), "elsewhere": (0, 100 * MS)}


def test_a_victim_of_an_unknown_loop_is_certain_where_only_one_loop_was_busy() -> None:
    assert rows(blame(victim(make_wait(0, 120 * MS), loop=None), StepIndex([FIRST]))) == {"first": (120 * MS, 120 * MS)}


# --- many small steps ---


def test_what_no_slow_step_covers_of_a_ready_wait_is_crowding() -> None:
    found = blame(victim(make_wait(0, 230 * MS)), TWO)

    assert found.crowding_ns == (30 * MS, 30 * MS)


def test_the_victims_own_small_steps_are_taken_off_crowding() -> None:
    found = blame(victim(make_wait(0, 230 * MS), on_loop_ns=10 * MS), TWO)

    assert found.crowding_ns == (20 * MS, 30 * MS)


def test_a_queue_wait_beside_an_idle_loop_is_not_crowding() -> None:
    idle = PollIndex([make_loop_sample([], span_ns=1000 * MS)])

    assert blame(victim(make_wait(100 * MS, 150 * MS, "queue")), StepIndex([]), idle).crowding_ns == (0, 0)


def test_a_queue_wait_beside_a_saturated_loop_is_crowding() -> None:
    saturated = PollIndex([make_loop_sample([1 * MS] * 1000, span_ns=1000 * MS)])

    found = blame(victim(make_wait(100 * MS, 150 * MS, "queue")), StepIndex([]), saturated)

    assert found.crowding_ns == (50 * MS, 50 * MS)


def test_a_queue_wait_that_no_sample_covers_is_perhaps_crowding() -> None:
    assert blame(victim(make_wait(100 * MS, 150 * MS, "queue")), StepIndex([])).crowding_ns == (0, 50 * MS)


@given(
    turns=st.lists(st.lists(st.booleans(), min_size=1, max_size=5), max_size=6),
    ends=st.tuples(st.integers(-2, 32), st.integers(-2, 32)),
)
def test_the_time_in_the_poll_lies_between_its_bounds(turns: list[list[bool]], ends: tuple[int, int]) -> None:
    """A sample is a list of milliseconds, true where the loop was in its poll. What none covers may be either."""
    a, b = sorted(ends)
    samples, in_poll = [], list[bool]()
    for sample in turns:
        in_poll += sample
        samples.append(make_loop_sample(at_ns=len(in_poll) * MS, span_ns=len(sample) * MS, poll_ns=sum(sample) * MS))

    at_least, at_most = PollIndex(samples).idle(0)((a * MS, b * MS))

    seen = sum(in_poll[max(0, a) : max(0, b)])
    unseen = b - a - len(in_poll[max(0, a) : max(0, b)])
    assert 0 <= at_least <= seen * MS
    assert (seen + unseen) * MS <= at_most <= (b - a) * MS
    if (a, b) == (0, len(in_poll)):
        assert at_least == at_most == seen * MS


# --- what is remembered ---


def test_blame_of_a_request_whose_queue_was_not_seen_is_a_lower_bound() -> None:
    """A client in process that speaks over streams: what its request waited before it left the stream is missing."""
    wait = make_wait(0, 200 * MS)

    def clipped(**given: object) -> bool:
        found = victim_of(make_request(VICTIM, "victim", waits=(wait,), loop=0, **given))
        assert found is not None
        return blame(found, TWO).clipped

    unseen = ALL_SEEN & ~QUEUE
    assert clipped(seen=unseen)
    assert not clipped(seen=ALL_SEEN)
    assert not clipped(seen=unseen, kind="function"), "it has no queue"


def test_blame_that_reaches_back_beyond_what_is_remembered_is_clipped() -> None:
    recent = RecentSteps(keep=4)
    for number in range(8):
        recent.add(make_step(number * 2 * MS, number * 2 * MS + MS, request=number + 1, operation="small"))

    assert blame(victim(make_wait(0, 16 * MS)), recent.index(0)).clipped
    assert not blame(victim(make_wait(14 * MS, 16 * MS)), recent.index(0)).clipped


def test_long_steps_are_remembered_after_short_ones_of_their_time_are_forgotten() -> None:
    recent = RecentSteps(keep=4)
    recent.add(FIRST)
    for number in range(20):
        start = (200 + number) * MS
        recent.add(make_step(start, start + MS // 2, request=number + 2, operation="small"))

    found = blame(victim(make_wait(0, 120 * MS)), recent.index(0))

    assert rows(found) == {"first": (120 * MS, 120 * MS)}


def test_a_step_that_was_running_is_replaced_by_its_end_in_either_order() -> None:
    running = replace(FIRST, end_ns=60 * MS, running=True)
    for order in ([running, FIRST], [FIRST, running]):
        recent = RecentSteps()
        for step in order:
            recent.add(step)
        found = blame(victim(make_wait(0, 120 * MS)), recent.index(0))
        assert rows(found) == {"first": (120 * MS, 120 * MS)}


# --- the matrix ---


def test_the_matrix_is_exact_where_both_bounds_meet_and_bounded_elsewhere() -> None:
    matrix = Matrix()
    matrix.add("v", blame(victim(make_wait(120 * MS, 200 * MS, earliest_ns=0)), TWO))

    assert {row.blocker: row.quality for row in matrix.rows()} == {"first": "bounded", "second": "exact"}


def test_the_matrix_is_bounded_and_keeps_the_sum() -> None:
    matrix = Matrix()
    for number in range(MAX_CELLS + 100):
        matrix.add(f"victim {number}", Blame({"b": (1, 1)}))

    assert len(matrix.cells) == MAX_CELLS + 1
    assert sum(cell.lo_ns for cell in matrix.cells.values()) == MAX_CELLS + 100


# --- generated schedules, with the truth counted tick by tick ---

TICK = 100_000
SLOW_TICKS = 5
IDLE = -1


@dataclass
class Unit:
    """One resumption: really ready at ``ready``, seen as ready somewhere in [earliest, start]."""

    request: int
    earliest: int
    ready: int
    start: int
    end: int
    stage: str


@dataclass
class Schedule:
    """One loop: ``owner[t]`` is the request on it in tick t (0 the loop's own work, IDLE the poll)."""

    owner: list[int] = field(default_factory=list)
    slow: list[bool] = field(default_factory=list)
    steps: list[StepRecord] = field(default_factory=list)
    units: list[Unit] = field(default_factory=list)
    samples: list[LoopSample] = field(default_factory=list)

    def requests(self) -> list[int]:
        return sorted({unit.request for unit in self.units})

    def victim(self, request: int) -> Victim:
        waits = tuple(
            Wait(u.earliest * TICK, u.start * TICK, u.end * TICK, u.stage)  # type: ignore[arg-type]
            for u in self.units
            if u.request == request
        )
        busy = self.owner.count(request) * TICK
        return victim(*waits, request=request, operation=f"tool {request}", on_loop_ns=busy)

    def truth(self, request: int) -> Counter[str]:
        """Ticks in which some unit of ``request`` could run while somebody else did."""
        runnable = {t for u in self.units if u.request == request for t in range(u.ready, u.end)}
        found: Counter[str] = Counter()
        for t in runnable:
            if self.owner[t] not in (request, IDLE):
                found[name_of(self.owner[t]) if self.slow[t] else CROWDING_OPERATION] += TICK
        return found


def name_of(owner: int) -> str:
    return LOOP_OPERATION if owner == 0 else f"tool {owner}"


@st.composite
def schedules(draw: st.DrawFn) -> Schedule:
    """A loop's life of up to 40 steps and polls of five requests, each resumption late by a drawn amount."""
    plan = Schedule()
    pieces = draw(
        st.lists(st.tuples(st.integers(IDLE, 5), st.integers(1, 3) | st.integers(4, 60)), min_size=1, max_size=40)
    )
    busy_since = 0
    for owner, ticks in pieces:
        start = len(plan.owner)
        if owner == IDLE:
            busy_since = start + ticks
        elif ticks >= SLOW_TICKS:
            plan.steps.append(make_step(start * TICK, (start + ticks) * TICK, owner, name_of(owner)))
        if owner > 0:
            add_unit(draw, plan, owner, busy_since, start)
        plan.owner += [owner] * ticks
        plan.slow += [ticks >= SLOW_TICKS] * ticks
    every = draw(st.integers(20, 400))
    for since in range(0, len(plan.owner), every):
        span = plan.owner[since : since + every]
        plan.samples.append(
            make_loop_sample(
                at_ns=(since + len(span)) * TICK, span_ns=len(span) * TICK, poll_ns=span.count(IDLE) * TICK
            )
        )
    return plan


def add_unit(draw: st.DrawFn, plan: Schedule, owner: int, busy_since: int, start: int) -> None:
    first = all(unit.request != owner for unit in plan.units) and owner not in plan.owner
    if first and draw(st.booleans()):
        ready = draw(st.integers(0, start))  # queued: the loop may well have slept meanwhile
        earliest = draw(st.integers(0, ready))
        unit = Unit(owner, earliest, ready, ready, start, draw(st.sampled_from(["queue", "write"])))
    else:
        ready = draw(st.integers(busy_since, start))  # a loop with something ready does not sleep
        earliest = draw(st.just(ready) | st.integers(0, ready))
        seen = draw(st.just(ready) | st.integers(ready, start)) if earliest < ready else ready
        unit = Unit(owner, earliest, ready, seen, start, draw(st.sampled_from(["ready", "return"])))
    if unit.end > unit.earliest:
        plan.units.append(unit)


@given(schedules(), st.booleans())
def test_the_truth_lies_between_lo_and_hi(plan: Schedule, sampled: bool) -> None:
    index = StepIndex(plan.steps)
    polls = PollIndex(plan.samples if sampled else ())
    for request in plan.requests():
        found = blame(plan.victim(request), index, polls)
        truth = plan.truth(request)
        for blocker in {*found.rows, *truth}:
            lo, hi = found.rows.get(blocker, (0, 0))
            assert 0 <= lo <= truth[blocker] <= hi


@given(schedules())
def test_waits_known_exactly_give_exact_blame(plan: Schedule) -> None:
    for unit in plan.units:
        unit.earliest = unit.start = unit.ready
    index = StepIndex(plan.steps)
    for request in plan.requests():
        truth = {name: (ns, ns) for name, ns in plan.truth(request).items() if name != CROWDING_OPERATION}
        assert rows(blame(plan.victim(request), index)) == truth


@given(schedules())
def test_nobody_waited_longer_for_a_blocker_than_it_was_busy(plan: Schedule) -> None:
    index = StepIndex(plan.steps)
    waited: Counter[str] = Counter()
    for request in plan.requests():
        for blocker, (lo, _) in rows(blame(plan.victim(request), index)).items():
            waited[blocker] += lo
    for blocker, ns in waited.items():
        busy = sum(step.end_ns - step.start_ns for step in plan.steps if step.operation == blocker)
        assert ns <= busy * len(plan.requests())


@given(schedules(), st.sampled_from([0, 3, 1000]))
def test_running_sums_and_walking_step_by_step_agree(plan: Schedule, few: int) -> None:
    index = StepIndex(plan.steps)
    spans = union((unit.earliest * TICK, unit.end * TICK) for unit in plan.units)
    loop = index.loops.get(0)
    before, blocking._FEW = blocking._FEW, few
    try:
        got = loop.blockers(spans, 1) if loop is not None else {}
    finally:
        blocking._FEW = before
    want: Counter[str] = Counter()
    for step in plan.steps:
        if step.request != 1:
            want[name_of(step.request)] += sum(max(0, min(b, step.end_ns) - max(a, step.start_ns)) for a, b in spans)
    assert got == {name: ns for name, ns in want.items() if ns}


@given(schedules(), st.sampled_from([0, 3, 1000]))
def test_requests_that_share_their_waits_are_blamed_as_if_each_were_alone(plan: Schedule, few: int) -> None:
    """Answers that are behind each other share the waits of their writer: each is looked at once."""
    index, polls = StepIndex(plan.steps), PollIndex(plan.samples)
    shared = tuple(wait for request in plan.requests() for wait in plan.victim(request).waits)
    before, blocking._FEW = blocking._FEW, few
    try:
        for request in plan.requests():
            one = replace(plan.victim(request), waits=shared)
            assert blame(one, index, polls) == blame(one, StepIndex(plan.steps), PollIndex(plan.samples))
    finally:
        blocking._FEW = before


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50))))
def test_a_union_covers_the_same_instants_once(spans: list[tuple[int, int]]) -> None:
    merged = union(spans)

    assert all(a < b for a, b in merged)
    assert [t for a, b in merged for t in range(a, b)] == sorted({t for a, b in spans for t in range(a, b)})


@given(schedules(), st.integers(4, 12))
def test_forgotten_steps_make_blame_smaller_and_say_so(plan: Schedule, keep: int) -> None:
    recent = RecentSteps(keep=keep, keep_long=2)
    for step in plan.steps:
        recent.add(step)
    index = recent.index(0)
    for request in plan.requests():
        found = blame(plan.victim(request), index)
        for blocker, (lo, hi) in found.rows.items():
            assert lo <= plan.truth(request)[blocker]
            assert found.clipped or plan.truth(request)[blocker] <= hi
