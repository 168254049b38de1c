from __future__ import annotations

import tracemalloc
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_probe.aggregate.fold import HOLD_NS, MAX_HELD_WAITS, MAX_OPEN, SETTLE_NS, Fold
from mcp_probe.histogram import bucket_of
from mcp_probe.model import BlockedBy, Frame, RequestRecord, Summary
from tests.frames import (
    MS,
    SECOND,
    make_end,
    make_group,
    make_header,
    make_histogram,
    make_loop_sample,
    make_open,
    make_pool,
    make_process,
    make_request,
    make_step,
    make_wait,
)


def fold_of(*frames: Frame) -> Fold:
    fold = Fold()
    for frame in frames:
        fold.add(frame)
    return fold


def summary_of(*frames: Frame) -> Summary:
    return fold_of(*frames).summary()


def blocked(number: int, start_ns: int, end_ns: int, **overrides: object) -> RequestRecord:
    """A quick call that became ready at ``start_ns`` and ran at ``end_ns``."""
    return make_request(
        number, "quick", arrival_ns=start_ns, end_ns=end_ns, waits=(make_wait(start_ns, end_ns),), **overrides
    )


def cells(summary: Summary) -> dict[tuple[str, str], tuple[int, float, float]]:
    return {(row.victim, row.blocker): (row.victims, row.lo_ms, row.hi_ms) for row in summary.blocked_by}


BLOCK = make_step(0, 500 * MS, request=1, operation="block", cause="blocking-call", cpu_ns=0, file="s.py", line=3)
BLOCKER = make_request(1, "block", busy=500 * MS)
VICTIM = blocked(2, 50 * MS, 500 * MS)


# --- the whole path ---


def test_a_blocking_call_its_line_and_its_victim_are_in_the_summary() -> None:
    summary = summary_of(make_header(), BLOCK, BLOCKER, VICTIM, make_end(at_ns=SECOND))

    assert cells(summary) == {("quick", "block"): (1, 450, 450)}
    (slow,) = summary.slow_steps
    assert (slow.tool, slow.file, slow.line, slow.ms, slow.victims, slow.victim_ms) == (
        "block",
        "s.py",
        3,
        500,
        1,
        450,
    )
    quick = next(row for row in summary.operations if row.name == "quick")
    assert quick.waited_for_others_ms == 450
    block = next(row for row in summary.operations if row.name == "block")
    assert (block.slow_steps, block.critical_steps, block.slow_step_p50_ms) == (1, 1, 500)


def test_a_step_that_arrives_after_its_victim_is_found_and_counted_once() -> None:
    late = fold_of(BLOCKER, VICTIM)
    before = late.summary()
    late.add(BLOCK)

    assert cells(before) == {("quick", "(many small steps)"): (1, 450, 450)}
    assert cells(late.summary()) == {("quick", "block"): (1, 450, 450)}


def test_a_victim_is_settled_once_the_stream_has_moved_on() -> None:
    fold = fold_of(BLOCK, VICTIM)
    for number in range(10):
        at = SECOND + number * SETTLE_NS
        fold.add(blocked(10 + number, at, at + 2 * MS))

    assert len(fold._held) <= 2
    assert cells(fold.summary())[("quick", "block")] == (1, 450, 450)


def test_victims_are_settled_before_the_steps_of_their_time_are_forgotten() -> None:
    fold = Fold(keep_steps=8)
    fold.add(make_step(0, 5 * MS, request=1, operation="block"))
    fold.add(blocked(2, 0, 5 * MS))
    for number in range(20):
        fold.add(make_step((10 + number) * MS, (11 + number) * MS, request=3))

    assert cells(fold.summary()) == {("quick", "block"): (1, 5, 5)}


def test_many_victims_at_one_instant_are_settled_early() -> None:
    fold = fold_of(BLOCK)
    waits = tuple(make_wait(n * MS, (n + 1) * MS) for n in range(100))
    for number in range(3 * MAX_HELD_WAITS // 100):
        fold.add(make_request(number + 2, "quick", end_ns=100 * MS, waits=waits))

    assert fold._held_waits == sum(len(victim.waits) for _, victim in fold._held) <= MAX_HELD_WAITS
    assert fold._held
    assert cells(fold.summary())[("quick", "block")][0] == 3 * MAX_HELD_WAITS // 100


def test_asking_for_a_summary_changes_nothing() -> None:
    fold = fold_of(make_header(), BLOCK, BLOCKER, VICTIM, make_open(3, "hangs", seen_ns=500 * MS))

    assert fold.summary() == fold.summary()
    fold.add(make_request(3, "hangs", busy=MS))
    assert fold.summary() == summary_of(make_header(), BLOCK, BLOCKER, VICTIM, make_request(3, "hangs", busy=MS))


# --- order ---


@st.composite
def streams(draw: st.DrawFn) -> list[Frame]:
    """Steps one after the other, and victims of some stretch of them, all within what is held."""
    frames: list[Frame] = [make_loop_sample([100 * MS] * 5)]
    at = 0
    for number in range(draw(st.integers(1, 12))):
        start = at + draw(st.integers(0, 20)) * MS
        at = start + draw(st.integers(1, 60)) * MS
        frames.append(make_step(start, at, number, f"tool {number % 3}"))
    for number in range(draw(st.integers(1, 6))):
        end = draw(st.integers(2, at // MS + 5)) * MS
        start = draw(st.integers(0, end // MS - 2)) * MS
        earliest = draw(st.integers(0, start // MS)) * MS
        stage = draw(st.sampled_from(["ready", "return", "queue", "write"]))
        waits = (make_wait(start, end, stage, earliest),)
        frames.append(make_request(number + 1, f"tool {number % 3}", arrival_ns=earliest, end_ns=end, waits=waits))
    return frames


def plain(rows: tuple[BlockedBy, ...]) -> list[BlockedBy]:
    return sorted(rows, key=lambda row: (row.victim, row.blocker))


@given(streams(), st.randoms(use_true_random=False))
def test_the_matrix_does_not_depend_on_the_order_in_which_frames_arrive(frames: list[Frame], random: object) -> None:
    shuffled = list(frames)
    random.shuffle(shuffled)  # type: ignore[attr-defined]

    assert plain(summary_of(*shuffled).blocked_by) == plain(summary_of(*frames).blocked_by)


@given(streams(), streams(), streams())
@settings(max_examples=50)
def test_merging_commutes_and_is_associative(a: list[Frame], b: list[Frame], c: list[Frame]) -> None:
    def stream(number: int, frames: list[Frame]) -> list[Frame]:
        header = make_header(start_unix=1000.0 + number, pid=number)
        gauge = [make_process(at_ns=n * SECOND, outstanding=n * number, cpu_ns=7, probe_cpu_ns=1) for n in range(3)]
        return [header, *frames, *gauge, make_pool([number * MS], pool=number), make_open(900, "hangs")]

    def merged(*order: list[Frame]) -> Summary:
        total = fold_of(*order[0])
        for frames in order[1:]:
            total.merge(fold_of(*frames))
        return total.summary()

    x, y, z = stream(1, a), stream(2, b), stream(3, c)
    yz = fold_of(*y)
    yz.merge(fold_of(*z))
    right = fold_of(*x)
    right.merge(yz)

    assert_alike(merged(x, y, z), merged(z, x, y))
    assert_alike(merged(x, y, z), right.summary())


def assert_alike(one: Summary, other: Summary) -> None:
    """Equal but for the last bits of floats."""
    assert_alike_values(one.to_json(), other.to_json())


def assert_alike_values(one: object, other: object) -> None:
    if isinstance(one, dict) and isinstance(other, dict):
        assert one.keys() == other.keys()
        for key in one:
            assert_alike_values(one[key], other[key])
    elif isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        assert len(one) == len(other)
        for mine, theirs in zip(one, other, strict=True):
            assert_alike_values(mine, theirs)
    elif isinstance(one, float):
        assert one == pytest.approx(other)
    else:
        assert one == other


def test_nobody_of_one_process_is_blamed_on_another() -> None:
    fold = fold_of(make_header(pid=1), BLOCK)
    fold.merge(fold_of(make_header(pid=2), VICTIM))

    assert ("quick", "block") not in cells(fold.summary())
    assert fold.summary().server.pid is None, "it is of both"
    assert fold_of(make_header(pid=1), BLOCK).summary().server.pid == 1


# --- requests that never ended ---


def test_a_killed_server_names_what_hung_and_since_when() -> None:
    summary = summary_of(
        make_header(),
        make_open(1, "hangs", arrival_ns=200 * MS, seen_ns=SECOND),
        make_process(at_ns=5 * SECOND),
    )

    (row,) = summary.operations
    assert (row.name, row.count, row.unfinished, row.total_ms.max) == ("hangs", 1, 1, 4800)
    assert row.quality["total_ms"].tag == "lower"
    assert summary.requests.unfinished == 1
    assert not summary.complete
    assert any("killed" in note for note in summary.notes)


def test_a_record_closes_its_open_request() -> None:
    summary = summary_of(make_open(1, "slow"), make_request(1, "slow", awaiting=2 * SECOND))

    (row,) = summary.operations
    assert (row.count, row.unfinished) == (1, 0)


def test_a_group_closes_the_open_requests_that_it_counts() -> None:
    group = make_group([(bucket_of(2 * SECOND), 3, 6 * SECOND)], name="slow", closes=(1, 3))
    summary = summary_of(*(make_open(number, "slow") for number in (1, 2, 3)), group)

    (row,) = summary.operations
    assert (row.count, row.unfinished) == (4, 1)


def test_an_open_request_seen_again_is_one_request() -> None:
    summary = summary_of(make_open(1), make_open(1, seen_ns=2 * SECOND))

    assert summary.requests.unfinished == 1


def test_a_stream_with_its_end_is_complete_and_a_live_one_is_not_called_killed() -> None:
    assert summary_of(make_header(), make_end()).complete
    assert summary_of(make_header(), make_end()).notes == ()
    live = fold_of(make_header()).summary(live=True)
    assert live.complete
    assert live.notes == ()


# --- steps that are still running ---

RUNNING = replace(BLOCK, end_ns=300 * MS, running=True, cause=None, cpu_ns=None)


def test_a_running_step_is_replaced_by_its_end() -> None:
    (row,) = summary_of(RUNNING, replace(RUNNING, end_ns=400 * MS), BLOCK).slow_steps

    assert (row.count, row.ms, row.cause, row.running) == (1, 500, "blocking-call", False)


def test_a_step_that_never_ended_is_shown_as_running() -> None:
    (row,) = summary_of(RUNNING, replace(RUNNING, end_ns=400 * MS)).slow_steps

    assert (row.count, row.ms, row.running) == (1, 400, True)


def test_a_running_step_whose_end_was_lost_is_counted_once_the_loop_has_moved_on() -> None:
    later = make_step(600 * MS, 601 * MS, request=5)
    (row,) = summary_of(RUNNING, later).slow_steps

    assert (row.count, row.ms, row.running) == (1, 300, False)
    assert len(summary_of(RUNNING, later, BLOCK).slow_steps) == 1


def test_a_step_that_was_seen_to_run_before_it_began_is_that_step() -> None:
    """The collector took the end of the step before for its start, while the loop waited for the GIL between them."""
    seen = replace(RUNNING, start_ns=BLOCK.start_ns - MS, operation="the one before")
    summary = summary_of(seen, BLOCK)

    (row,) = summary.slow_steps
    assert (row.tool, row.count, row.ms, row.cause) == (BLOCK.operation, 1, 500, "blocking-call")


def test_requests_that_came_during_a_running_step_wait_for_it_at_least_so_far() -> None:
    summary = summary_of(
        make_open(1, "block", arrival_ns=0),
        make_open(2, "quick", arrival_ns=100 * MS),
        make_open(3, "long before", arrival_ns=-SECOND),
        RUNNING,
    )

    assert cells(summary) == {("quick", "block"): (1, 200, 200)}
    assert summary.blocked_by[0].quality == "lower"


# --- the header, the counts, the probe itself ---


def test_server_window_and_probe_come_from_the_header() -> None:
    header = make_header(hooks=(("steps", "active"), ("gc", "no callbacks here")), notes=("rich is importable",))
    summary = summary_of(header, make_process(at_ns=3 * SECOND, cpu_ns=100, probe_cpu_ns=2, dropped=(("steps", 4),)))

    assert (summary.server.name, summary.server.sdk_version, summary.window.seconds) == ("test-server", "2.3.0", 3)
    assert summary.window.start_unix == header.start_unix
    assert summary.probe.disabled_hooks == ("gc: no callbacks here",)
    assert summary.probe.overhead_share == 0.02
    assert summary.probe.dropped_marks == 4
    assert summary.probe.notes == ("rich is importable", "4 dropped: steps")


def test_notifications_and_profiled_calls_are_rows_but_not_requests() -> None:
    summary = summary_of(
        make_request(1, "add"),
        make_request(2, None, method="notifications/initialized", kind="notification"),
        make_request(3, "fetch", method="function", kind="function"),
    )

    assert summary.requests.count == 1
    assert len(summary.operations) == 3


def test_a_server_of_profiled_calls_only_counts_those() -> None:
    assert summary_of(make_request(3, "fetch", method="function", kind="function")).requests.count == 1


def test_a_recording_without_a_header_says_so() -> None:
    assert any("no header" in note for note in summary_of(make_request()).notes)


def test_nothing_at_all_still_gives_a_summary() -> None:
    summary = Fold().summary()

    assert summary.requests.count == 0
    assert summary.loop.utilization is None
    assert summary.signals.gc_worst_request_share is None


def test_a_request_that_lost_its_time_to_the_collector_is_a_signal_and_a_short_pause_is_not() -> None:
    assert summary_of(make_request(gc=30 * MS, busy=70 * MS)).signals.gc_worst_request_share == pytest.approx(0.3)
    assert summary_of(make_request(gc=2 * MS, busy=MS)).signals.gc_worst_request_share is None


def test_a_client_that_sends_one_by_one_shows_one_in_flight_although_the_gauge_saw_an_answer_being_written() -> None:
    records = [make_request(n + 1, arrival_ns=n * 10 * MS, awaiting=10 * MS) for n in range(40)]
    summary = summary_of(*records, make_process(outstanding_peak=2))

    assert summary.signals.max_in_flight == 1
    assert summary.signals.serial_gaps == 39
    assert summary.outstanding.peak == 2


def test_a_client_is_not_serial_beside_a_request_that_hangs() -> None:
    fold = fold_of(make_open(9999, "hangs"))
    for number in range(2000):
        fold.add(make_request(number + 1, arrival_ns=number * 10 * MS, awaiting=10 * MS))

    assert fold.summary().signals.serial_gaps == 0


def test_the_summary_turns_into_json_values() -> None:
    frames: list[Frame] = [
        make_header(),
        BLOCK,
        BLOCKER,
        VICTIM,
        make_loop_sample([MS]),
        make_pool([MS]),
        make_process(),
    ]
    value = summary_of(*frames).to_json()

    assert value["format"] == "mcp_probe.summary/1"
    assert value["operations"][0]["budget_ms"]["busy"] == 500


# --- memory ---


def test_memory_is_flat_however_many_requests_come() -> None:
    fold = Fold(keep_steps=256)

    def feed(first: int, count: int) -> None:
        for number in range(first, first + count):
            at = number * 3 * MS
            fold.add(make_step(at, at + 2 * MS, -number, f"tool {number % 700}", file=f"{number % 900}.py"))
            fold.add(make_step(at + 2 * MS, at + 3 * MS, -number, f"tool {number % 500}"))
            victim = blocked(number, at, at + 3 * MS, method=f"m{number % 300}")
            fold.add(replace(victim, name=f"tool {number % 700}"))
            if number % 10 == 0:
                sample = make_loop_sample([2 * MS] * 10, at_ns=at, span_ns=30 * MS, loop=number % 50)
                fold.add(sample)
                fold.add(make_process(at_ns=at, gc_pauses=((at, at + 2 * MS, 2),)))
                fold.add(make_pool(pool=number, wait=make_histogram([number * MS])))
                fold.add(make_open(10**9 + number, seen_ns=at))

    tracemalloc.start()
    try:
        feed(1, 4_000)
        before = tracemalloc.get_traced_memory()[0]
        feed(4_001, 3_000)
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()

    assert grown < 500_000
    assert len(fold._held) * 3 * MS <= SETTLE_NS + HOLD_NS


def test_the_number_of_open_requests_remembered_is_bounded_and_that_is_said() -> None:
    fold = fold_of(make_header(), *(make_open(number + 1) for number in range(MAX_OPEN + 5)))

    summary = fold.summary(live=True)

    assert summary.requests.unfinished == MAX_OPEN
    assert any(str(MAX_OPEN) in note for note in summary.notes)
