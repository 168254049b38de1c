from __future__ import annotations

import copy
from dataclasses import fields, replace

from hypothesis import assume, event, example, given, settings
from hypothesis import strategies as st

from mcp_probe.model import Budget, RequestRecord, Wait
from mcp_probe.record.assemble import LATE_NS, MAX_TAIL, MAX_WAITS, assemble, partition, spill
from mcp_probe.record.raw import (
    MAX_MARKS,
    WAKE_LOOP,
    WAKE_SOCKET,
    WAKE_SPLIT,
    WAKE_THREAD,
    WAKE_UNKNOWN,
    ClientWait,
    Job,
    RawRequest,
    Spilled,
    StepMark,
)
from tests.record.lives import HANDLING, TICK_NS, Life, Step, lives, states_of, truth

schedules = settings(max_examples=150, deadline=None)


def record_of(life: Life, raw: RawRequest | None = None) -> RequestRecord:
    running = None if life.running is None else life.running.mark()
    return assemble(life.raw() if raw is None else raw, life.end * TICK_NS, running)


def handling(record: RequestRecord) -> dict[str, int]:
    """Parts of the handling window in ticks; they must be whole."""
    ticks = {}
    for part in HANDLING:
        whole, rest = divmod(getattr(record.budget, part), TICK_NS)
        assert rest == 0, f"{part} is no whole number of ticks"
        ticks[part] = whole
    return ticks


def quality(record: RequestRecord, part: str) -> tuple[int, int]:
    """(lo, hi) of a part, its value where it is exact."""
    for name, _, lo, hi in record.quality:
        if name == part:
            assert lo is not None
            assert hi is not None
            return lo, hi
    value = getattr(record.budget, part)
    return value, value


# --- the whole against the truth ---------------------------------------------------------------------


@given(lives())
@schedules
def test_every_part_equals_the_partition_found_instant_by_instant(life: Life) -> None:
    record = record_of(life)
    event(f"units: {len({step.unit for step in life.steps if step.unit})}, jobs: {bool(life.jobs)}")
    assert handling(record) == truth(life)


@given(lives())
@schedules
def test_no_part_is_negative_and_together_they_are_the_requests_time(life: Life) -> None:
    record = record_of(life)
    parts = [getattr(record.budget, field.name) for field in fields(Budget)]
    assert all(part is None or part >= 0 for part in parts)
    if life.arrival is not None and life.write_seen:
        assert None not in parts
        assert sum(parts) == record.end_ns - record.arrival_ns == (life.end - life.arrival) * TICK_NS


@given(lives())
@schedules
def test_queue_and_write_are_what_lies_before_and_after_the_handling(life: Life) -> None:
    budget = record_of(life).budget
    if life.arrival is None:
        assert budget.queue_transport is None
    else:
        assert budget.queue_transport == ((life.taken or 0) - life.arrival) * TICK_NS
    assert budget.queue_dispatch == (None if life.taken is None else (life.first - life.taken) * TICK_NS)
    if not life.write_seen:
        assert (budget.write_wait, budget.write_flush) == (None, None)
    elif life.result is not None:
        taken = life.end if life.write_taken is None else life.write_taken
        assert budget.write_wait == (taken - life.result) * TICK_NS
        assert budget.write_flush == (life.end - taken) * TICK_NS


@given(lives())
@schedules
def test_the_true_ready_wait_of_sockets_lies_within_its_bounds(life: Life) -> None:
    record = record_of(life)
    exact = truth(life, exact_sockets=True)
    for part in ("ready_wait", "awaiting", "executor_wait"):
        lo, hi = quality(record, part)
        assert lo <= exact[part] * TICK_NS <= hi, part


@given(lives())
@schedules
def test_thread_seconds_are_summed_over_jobs_and_stop_at_the_result(life: Life) -> None:
    expected = 0
    for job in life.jobs:
        if job.start is not None:
            expected += max(0, min(life.until, life.end if job.finish is None else job.finish) - job.start)
    assert record_of(life).executor_run_sum_ns == expected * TICK_NS


@given(lives())
@schedules
def test_every_wait_is_a_stretch_in_which_a_unit_could_run_and_did_not(life: Life) -> None:
    record = record_of(life)
    steps = [*life.steps, *([life.running] if life.running is not None else [])]
    known = [step for step in steps if step.unit and step.wake not in (WAKE_UNKNOWN, WAKE_SPLIT)]
    for wait in record.waits:
        assert wait.earliest_ns <= wait.start_ns <= wait.end_ns
        if wait.stage == "queue":
            assert (wait.start_ns, wait.end_ns) == (record.arrival_ns, record.first_step_ns)
            continue
        if wait.stage == "write":  # its writer was not seen: it may have waited, or not
            assert (wait.earliest_ns, wait.start_ns) == (record.result_ns, wait.end_ns)
            continue
        assert any(
            step.start * TICK_NS == wait.end_ns
            and max(step.suspended, step.became_ready) * TICK_NS <= wait.start_ns
            and max(step.suspended, step.earliest) * TICK_NS <= wait.earliest_ns
            for step in known
        )
    expected = sum((step.start - max(step.earliest, step.suspended)) * TICK_NS > LATE_NS for step in known)
    assert len([wait for wait in record.waits if wait.stage in ("ready", "return")]) == expected


@given(lives())
@schedules
def test_sequential_awaits_are_those_during_which_no_other_unit_lived(life: Life) -> None:
    steps = [*life.steps, *([life.running] if life.running is not None else [])]
    spans: list[tuple[int, int, int]] = []
    for step in steps:
        if step.unit:
            known = [] if step.born else [span for span in spans if span[0] == step.unit][-1:]
            born = known[0][1] if known else step.suspended
            spans = [span for span in spans if span not in known]
            spans.append((step.unit, born, step.end if step.done else max(life.until, step.end)))
    expected = 0
    for step in steps:
        if step.unit and step.wake != WAKE_UNKNOWN and step.ready > step.suspended:
            beside = [unit for unit, born, died in spans if born < step.ready and step.suspended < died]
            expected += beside == [step.unit]
    assert record_of(life).sequential_awaits == expected


# --- one mark less -----------------------------------------------------------------------------------


def reveals(life: Life, number: int) -> tuple[bool, bool]:
    """(whether something is left that tells of the hole, whether it tells exactly how large the hole is)."""
    step = life.steps[number]
    later = [*life.steps[number + 1 :], *([life.running] if life.running is not None else [])]
    following = next((other for other in later if other.unit == step.unit), None)
    if not step.unit:
        return False, False
    if following is None:
        told = not step.done
    else:
        told = not following.born and not (following.wake == WAKE_SPLIT and step.born)
    return told, told and (not step.born or number == 0)


@given(lives(), st.data())
@schedules
def test_a_lost_mark_surfaces_as_unaccounted_and_feeds_no_other_part(life: Life, data: st.DataObject) -> None:
    number = data.draw(st.integers(0, len(life.steps) - 1)) if life.steps else None
    assume(number is not None)
    assert number is not None
    told, exactly = reveals(life, number)
    complete = handling(record_of(life))
    without = handling(record_of(life, life.raw(lost={number})))
    hole = truth(life, hidden=life.steps[number])
    event(f"told: {told}, exactly: {exactly}")
    assert sum(without.values()) == sum(complete.values())
    assert without["busy"] <= complete["busy"]
    if exactly:
        assert without == hole
    elif told:
        assert without["unaccounted"] >= hole["unaccounted"]
        assert without["awaiting"] <= complete["awaiting"]


@given(lives(max_units=1, threads=False, gc=False), st.data())
@schedules
def test_of_a_request_with_one_unit_every_lost_mark_surfaces_whole(life: Life, data: st.DataObject) -> None:
    numbers = [number for number, step in enumerate(life.steps) if step.unit]
    assume(numbers)
    step = life.steps[data.draw(st.sampled_from(numbers))]
    others = [state for state in states_of(life, hidden=step) if state - {"unaccounted"}]
    complete = handling(record_of(life))
    without = handling(record_of(life, life.raw(lost={life.steps.index(step)})))
    uncovered = life.until - life.first - len(others)
    assert without["unaccounted"] >= uncovered
    assert without["awaiting"] <= complete["awaiting"]
    assert without["busy"] <= complete["busy"]


def test_the_lost_last_step_of_a_task_that_is_over_is_hidden_only_by_other_units_that_waited() -> None:
    """What no mark tells cannot be known: the parent did wait while the child's last step ran."""
    child = Step(2, 5, 5, 5, 5, 6, 16, WAKE_LOOP, done=True, born=True)
    parent = Step(1, 0, 0, 0, 0, 0, 5, WAKE_LOOP, born=True)
    life = Life(end=30, result=30, steps=[parent, child])
    parts = handling(record_of(life, life.raw(lost={1})))
    assert (parts["busy"], parts["awaiting"], parts["unaccounted"]) == (5, 25, 0)
    alone = Life(end=30, result=30, steps=[replace(parent, done=True), child])
    parts = handling(record_of(alone, alone.raw(lost={1})))
    assert (parts["busy"], parts["awaiting"], parts["unaccounted"]) == (5, 0, 25)


# --- spilling, and the short cut -----------------------------------------------------------------------


@given(lives(max_steps=24), st.data())
@schedules
def test_folding_marks_away_at_any_point_changes_nothing(life: Life, data: st.DataObject) -> None:
    points = {
        number
        for number in data.draw(st.sets(st.integers(0, max(0, len(life.steps) - 1))))
        # A child that has not taken its first step is not known to be there.
        if not any(child.born and child.suspended <= life.steps[number].end for child in life.steps[number + 1 :])
    }
    spilled = life.raw(spill=spill, spill_after=points)
    event(f"spilled: {spilled.spilled is not None}")
    # How many tasks lived at once is counted as they come and go; here only those alive at each folding are set.
    assert replace(record_of(life, spilled), tasks_peak=1) == replace(record_of(life), tasks_peak=1)


@given(lives(max_units=1, threads=False, gc=False), st.data())
@schedules
def test_the_short_cut_for_one_unit_equals_the_general_sweep(life: Life, data: st.DataObject) -> None:
    lost = data.draw(st.sets(st.integers(0, max(0, len(life.steps) - 1)), max_size=2))
    raw, general = life.raw(lost), life.raw(lost)
    general.pauses = [(life.first * TICK_NS, life.first * TICK_NS)]  # forbids the short cut and claims nothing
    assert record_of(life, raw) == record_of(life, general)


def test_assembling_does_not_change_the_request() -> None:
    life = Life(end=40, result=40, jobs=[])
    life.steps = [
        Step(1, 0, 0, 0, 0, 0, 5, WAKE_LOOP, born=True),
        Step(2, 3, 3, 3, 3, 6, 9, WAKE_LOOP, born=True),
        Step(1, 5, 8, 8, 8, 9, 12, WAKE_LOOP),
        Step(2, 9, 10, 10, 10, 14, 15, WAKE_LOOP),
    ]
    raw = life.raw(spill=spill, spill_after={2})
    assert raw.spilled is not None

    def seen() -> object:
        return raw.marks, dict(raw.units), {name: getattr(raw.spilled, name) for name in Spilled.__slots__}

    before = copy.deepcopy(seen())
    assert record_of(life, raw) == record_of(life, raw)
    assert before == seen()


def test_a_request_that_takes_ten_thousand_steps_is_kept_in_bounded_memory() -> None:
    raw = RawRequest(1, "request", "tools/call", "poll", "stdio")
    raw.arrival_ns = raw.taken_ns = raw.first_step_ns = 0
    raw.units = {1: 10, 2: 10}  # the handler waits all the while for its busy child
    now = 10
    for _ in range(10_000):
        suspended = raw.units[2]
        raw.add_mark((2, suspended, suspended + 1, suspended + 1, now + 5, now + 20, WAKE_LOOP))
        now += 20
        raw.set_unit(2, now)
        if len(raw.marks) > MAX_MARKS:
            spill(raw, now)
            assert raw.spilled is not None
            assert len(raw.spilled.tail) <= MAX_TAIL
            assert not raw.marks
    record = assemble(raw, now)
    budget = record.budget
    assert (budget.busy, budget.ready_wait, budget.awaiting) == (150_000, 40_000, 10_000)
    assert budget.unaccounted == 10  # before the first of these steps nothing is known
    assert record.steps == 10_000


def test_late_resumptions_beyond_the_limit_make_the_record_partial() -> None:
    raw = RawRequest(1, "request", "tools/call", "late", "stdio")
    raw.arrival_ns = raw.taken_ns = raw.first_step_ns = 0
    at = 0
    for _ in range(MAX_WAITS + 1):
        raw.add_mark((1, at, at + 1, at + 1, at + 3 * LATE_NS, at + 4 * LATE_NS, WAKE_LOOP))
        at += 4 * LATE_NS
    record = assemble(raw, at)
    assert len(record.waits) == MAX_WAITS
    assert record.partial


# --- literal lives ---------------------------------------------------------------------------------------


def request(*marks: StepMark, alive: dict[int, int] | None = None, result: int | None = None) -> RawRequest:
    raw = RawRequest(7, "request", "tools/call", "add", "stdio")
    raw.arrival_ns, raw.taken_ns, raw.first_step_ns = 0, 10, 30
    for mark in marks:
        raw.add_mark(mark)
    raw.units = alive or {}
    raw.result_ns = result
    raw.write_seen = True
    return raw


def test_cancelled_request_keeps_its_queue_time() -> None:
    raw = request()
    raw.first_step_ns = None
    raw.outcome = "cancelled"
    record = assemble(raw, 500)
    assert (record.budget.queue_transport, record.budget.queue_dispatch) == (10, 490)
    assert sum(getattr(record.budget, field.name) or 0 for field in fields(Budget)) == 500


def test_a_job_that_is_done_waits_for_the_loop_until_the_request_is_cut_off() -> None:
    raw = request((1, 30, 30, 30, 30, 40, WAKE_LOOP), alive={1: 40})
    job = Job(None, raw, "add", 40)
    job.awaited, job.start_ns, job.finish_ns = True, 50, 100
    raw.jobs = [job]
    budget = assemble(raw, 400).budget
    assert (budget.executor_wait, budget.executor_run, budget.executor_return, budget.awaiting) == (10, 50, 300, 0)


def test_of_a_job_whose_waiter_cannot_be_seen_no_return_is_claimed_beyond_what_the_waiters_step_says() -> None:
    raw = request((1, 30, 30, 30, 30, 40, WAKE_LOOP), (1, 40, 120, 120, 150, 160, WAKE_THREAD), result=160)
    job = Job(None, raw, "add", 40)
    job.start_ns, job.finish_ns = 50, 100
    raw.jobs = [job]
    budget = assemble(raw, 160).budget
    assert (budget.executor_run, budget.awaiting, budget.executor_return) == (50, 20, 30)


def test_progress_beats_waiting() -> None:
    """While a child is on the loop and a job runs, the handler's own waits do not show."""
    raw = request(
        (1, 30, 30, 30, 30, 40, WAKE_LOOP),
        (2, 40, 40, 40, 60, 100, WAKE_LOOP),
        (1, 40, 50, 50, 200, 210, WAKE_LOOP),
        result=210,
    )
    job = Job(None, raw, "add", 40)
    job.awaited, job.start_ns, job.finish_ns, job.resumed_ns = True, 90, 150, 160
    raw.jobs = [job]
    raw.pauses = [(70, 75)]
    budget = assemble(raw, 210).budget
    assert (budget.gc, budget.busy, budget.executor_run) == (5, 10 + 35 + 10, 50)
    assert (budget.executor_return, budget.ready_wait, budget.executor_wait) == (10, 20 + 40, 0)
    assert budget.awaiting == budget.unaccounted == 0


def test_a_socket_wait_keeps_its_doubt_in_awaiting() -> None:
    raw = request((1, 30, 30, 30, 30, 40, WAKE_LOOP), (1, 40, 100, 300, 350, 360, WAKE_SOCKET), result=360)
    record = assemble(raw, 360)
    assert (record.budget.awaiting, record.budget.ready_wait) == (260, 50)
    assert quality(record, "ready_wait") == (50, 250)
    assert quality(record, "awaiting") == (60, 260)


def test_a_socket_that_was_ready_before_the_task_waited_for_it_leaves_no_doubt() -> None:
    raw = request(
        (1, 30, 30, 30, 30, 40, WAKE_LOOP),
        (1, 40, 20, 30, 90, 100, WAKE_SOCKET),
        (1, 100, 110, 130, 130, 140, WAKE_SOCKET),
        result=140,
    )
    assert quality(assemble(raw, 140), "ready_wait") == (50, 70)


def test_a_finished_tasks_number_may_come_back_as_another_task() -> None:
    raw = request(
        (1, 30, 30, 30, 30, 40, WAKE_LOOP),
        (2, 40, 40, 40, 40, 50, WAKE_LOOP),
        (2, 200, 200, 200, 200, 210, WAKE_LOOP),
        alive={1: 40},
        result=300,
    )
    budget = assemble(raw, 300).budget
    assert (budget.busy, budget.awaiting, budget.unaccounted) == (30, 240, 0)


def test_a_step_that_was_split_counts_once_and_with_its_whole_length() -> None:
    raw = request(
        (1, 30, 30, 30, 30, 40, WAKE_LOOP),
        (1, 40, 40, 40, 40, 70, WAKE_SPLIT),
        (1, 70, 70, 70, 70, 75, WAKE_SPLIT),
        (1, 75, 80, 80, 90, 100, WAKE_LOOP),
        result=100,
    )
    record = assemble(raw, 100)
    assert (record.steps, record.step_max_ns, record.immediate_resumes) == (2, 45, 0)


def test_a_call_that_begins_inside_a_step_has_taken_one_step() -> None:
    raw = request((1, 30, 30, 30, 30, 90, WAKE_SPLIT), result=90)
    assert assemble(raw, 90).steps == 1


def test_only_resumptions_without_any_wait_count_as_immediate() -> None:
    raw = request(
        (1, 30, 30, 30, 30, 40, WAKE_LOOP),  # its first step is no resumption
        (1, 40, 39, 39, 41, 50, WAKE_LOOP),
        (1, 50, 49, 49, 51, 60, WAKE_LOOP),
        (1, 60, 70, 70, 71, 80, WAKE_LOOP),
        result=80,
    )
    record = assemble(raw, 80)
    assert (record.steps, record.immediate_resumes) == (4, 2)


def test_awaits_beside_another_task_are_not_sequential() -> None:
    raw = request(
        (1, 30, 30, 30, 30, 40, WAKE_LOOP),
        (1, 40, 50, 50, 50, 60, WAKE_LOOP),  # alone
        (2, 60, 60, 60, 60, 70, WAKE_LOOP),
        (2, 70, 80, 80, 80, 90, WAKE_LOOP),  # beside 1, and 1 beside it
        (1, 60, 90, 90, 95, 100, WAKE_LOOP),
        (1, 100, 120, 120, 120, 130, WAKE_LOOP),  # alone again
        result=130,
    )
    assert assemble(raw, 130).sequential_awaits == 2


def test_waits_for_the_client_are_merged_and_end_with_the_handling() -> None:
    raw = request((1, 30, 30, 30, 30, 40, WAKE_LOOP), alive={1: 40}, result=400)
    raw.client_waits = [
        ClientWait(50, 100, 100, 100),
        ClientWait(80, 150, 150, 150),
        ClientWait(390, 500, 500, 500),
    ]
    record = assemble(raw, 420)
    assert record.client_wait_ns == 100 + 10
    assert (record.waits, record.budget.ready_wait) == ((), 0)


def test_an_answer_of_the_client_that_nobody_read_waited_for_the_loop() -> None:
    ms = LATE_NS
    raw = request((1, 1, 1, 1, 1, 2 * ms, WAKE_LOOP), alive={1: 2 * ms}, result=500 * ms)
    raw.first_step_ns = 1
    raw.client_waits = [ClientWait(2 * ms, 20 * ms, 22 * ms, 422 * ms)]
    record = assemble(raw, 500 * ms)
    assert record.client_wait_ns == 20 * ms
    assert record.waits == (Wait(20 * ms, 22 * ms, 422 * ms, "ready"),)
    assert (record.budget.ready_wait, record.budget.awaiting) == (400 * ms, 98 * ms)
    assert ("ready_wait", "bounded", 400 * ms, 402 * ms) in record.quality
    assert ("awaiting", "bounded", 96 * ms, 98 * ms) in record.quality


def test_a_queued_request_waited_in_the_queue_from_its_arrival() -> None:
    raw = request()
    raw.arrival_ns, raw.arrival_earliest_ns = 5 * LATE_NS, 2 * LATE_NS
    raw.taken_ns = raw.first_step_ns = raw.result_ns = 9 * LATE_NS
    (wait,) = assemble(raw, 9 * LATE_NS).waits
    assert (wait.earliest_ns, wait.start_ns, wait.end_ns) == (2 * LATE_NS, 5 * LATE_NS, 9 * LATE_NS)
    assert wait.stage == "queue"


@given(
    st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60), st.integers(0, 7)), max_size=30),
    st.integers(0, 40),
    st.integers(0, 60),
)
@example([(0, 10, 1), (5, 8, 0)], 0, 10)
def test_a_partition_is_the_highest_claim_at_each_instant(
    claims: list[tuple[int, int, int]], start: int, end: int
) -> None:
    found = {tick: part for a, b, part in partition(claims, start, end) for tick in range(a, b)}
    expected = {}
    for tick in range(start, end):
        covering = [part for a, b, part in claims if a <= tick < b]
        if covering:
            expected[tick] = min(covering)
    assert found == expected


def test_the_writers_waits_for_the_loop_begin_with_the_result_and_leave_its_own_encoding_out() -> None:
    raw = RawRequest(1, "request", "tools/call", "t", "stdio")
    raw.arrival_ns = raw.taken_ns = raw.first_step_ns = 0
    raw.write_seen = True
    raw.result_ns, raw.write_taken_ns = 10 * LATE_NS, 30 * LATE_NS
    ms = LATE_NS
    raw.write_waits = ((5 * ms, 9 * ms), (8 * ms, 15 * ms), (16 * ms, 17 * ms), (20 * ms, 40 * ms), (50 * ms, 80 * ms))
    waits = assemble(raw, 60 * ms).waits
    assert [(wait.earliest_ns, wait.start_ns, wait.end_ns, wait.stage) for wait in waits] == [
        (10 * ms, 10 * ms, 15 * ms, "write"),
        (20 * ms, 20 * ms, 30 * ms, "write"),
        (50 * ms, 50 * ms, 60 * ms, "write"),
    ]


def test_a_writer_that_was_not_seen_may_have_waited_until_it_took_the_answer() -> None:
    raw = RawRequest(1, "request", "tools/call", "t", "http")
    raw.arrival_ns = raw.taken_ns = raw.first_step_ns = 0
    raw.result_ns, raw.write_taken_ns = LATE_NS, 4 * LATE_NS
    assert assemble(raw, 5 * LATE_NS).waits == (Wait(LATE_NS, 4 * LATE_NS, 4 * LATE_NS, "write"),)
    raw.write_taken_ns = 2 * LATE_NS
    assert assemble(raw, 5 * LATE_NS).waits == ()
    raw.result_ns = None
    assert assemble(raw, 5 * LATE_NS).waits == ()
