"""What a message's way costs by itself, from literal recordings."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mcp_probe.model import Frame, RequestRecord, StepRun, Timeline
from mcp_probe.predict.build import workload_of
from mcp_probe.predict.check import check
from mcp_probe.predict.recorded import Recorded
from mcp_probe.predict.simulate import simulate
from mcp_probe.record.timeline import WAKES
from tests.frames import make_header, make_loop_sample, make_pool, make_request
from tests.predict.made import durations

MS = 1_000_000
SECOND = 1_000_000_000


def request(id: int, arrival: int, first: int, result: int, end: int, transport: str) -> list[Frame]:
    """One step from ``first`` to ``result``. Times in ms."""
    record: RequestRecord = make_request(
        id=id,
        arrival_ns=SECOND + arrival * MS,
        first_step_ns=SECOND + first * MS,
        result_ns=SECOND + result * MS,
        end_ns=SECOND + end * MS,
        transport=transport,
        loop=1,
    )
    start, over = SECOND + first * MS, SECOND + result * MS
    step = StepRun(1, start, start, start, start, over, 0)
    return [record, Timeline(id, start, over, (step,), (), (), (), ())]


def test_over_http_time_of_no_known_work_is_divided_among_those_on_their_way() -> None:
    """Two came at once: 4 ms for both, then each handler's own, then 2 ms in which both answers left."""
    frames = [
        make_header(full=True, start_ns=SECOND),
        make_loop_sample([4 * MS, 10 * MS, 10 * MS, 2 * MS]),
        *request(1, 0, 4, 14, 26, "http"),
        *request(2, 0, 14, 24, 26, "http"),
    ]
    made = workload_of(Recorded.of(frames))
    assert [(one.way.in_run_ns, one.way.out_run_ns) for one in made.calls] == [(2 * MS, MS), (2 * MS, MS)]
    assert [(one.way.in_ns, one.way.out_ns) for one in made.calls] == [(0, 0), (0, 0)]
    assert simulate(made).loop_ns == pytest.approx(26 * MS, abs=10)  # what the loop did, no more and no less


def test_over_http_what_the_loop_did_not_do_is_no_work_of_a_message() -> None:
    frames = [
        make_header(full=True, start_ns=SECOND),
        make_loop_sample([1 * MS, 10 * MS]),
        *request(1, 0, 3, 13, 14, "http"),
    ]
    way = workload_of(Recorded.of(frames)).calls[0].way
    assert (way.in_ns + way.in_run_ns, way.out_ns + way.out_run_ns) == (3 * MS, MS)
    assert way.in_run_ns + way.out_run_ns == MS


def test_over_http_what_the_loop_did_while_nobody_was_on_the_way_follows_the_answer() -> None:
    """It reads what has not arrived yet, and ends responses: 3 ms of the second in which it worked 17 ms."""
    frames = [
        make_header(full=True, start_ns=SECOND),
        make_loop_sample([3 * MS, 10 * MS, 4 * MS]),
        *request(1, 0, 3, 13, 14, "http"),
    ]
    way = workload_of(Recorded.of(frames)).calls[0].way
    assert (way.in_run_ns, way.out_run_ns, way.rest_run_ns) == (3 * MS, MS, 3 * MS)


def test_requests_that_came_with_one_read_wait_for_each_other_when_the_window_is_run_again() -> None:
    """Eight bursts of three over stdio; the first of each holds the loop for 80 ms, the others came with it."""
    frames: list[Frame] = [make_header(full=True, start_ns=SECOND), make_pool(transport_jobs=1)]
    for burst in range(8):
        at, id = burst * 300, burst * 3
        frames += request(id + 1, at, at, at + 80, at + 80, "stdio")
        frames += request(id + 2, at, at + 80, at + 90, at + 90, "stdio")
        frames += request(id + 3, at, at + 90, at + 100, at + 100, "stdio")
    frames = [
        replace(one, name="slow" if one.id % 3 == 1 else "quick") if isinstance(one, RequestRecord) else one
        for one in frames
    ]
    made = workload_of(Recorded.of(frames), "closed")
    assert len(check(made, simulate(made))) == 2


@pytest.mark.parametrize(("wake", "is_the_loops"), [("loop", True), ("socket", True), ("thread", False)])
def test_what_the_loop_takes_between_two_steps_is_its_work_and_no_messages(wake: str, is_the_loops: bool) -> None:
    """Two steps of 10 ms, and 4 ms between them in which the second could have run; the loop was at work for 24 ms."""
    first, ready, start, over = (SECOND + at * MS for at in (0, 10, 14, 24))
    record = make_request(
        id=1, arrival_ns=SECOND, first_step_ns=SECOND, result_ns=over, end_ns=over, transport="stdio", loop=1
    )
    one = StepRun(1, first, first, first, first, ready, 0)
    two = StepRun(1, ready, ready, ready, start, over, WAKES.index(wake))
    timeline = Timeline(1, SECOND, over, (one, two), (), (), (), ())
    frames: list[Frame] = [make_header(full=True, start_ns=SECOND), make_loop_sample([24 * MS]), record, timeline]
    made = workload_of(Recorded.of(frames))
    [unit] = made.calls[0].units
    assert [(step.run_ns, step.late_ns) for step in unit] == [
        (10 * MS, 0),
        (14 * MS, 0) if is_the_loops else (10 * MS, 4 * MS),
    ]
    assert made.calls[0].way.in_run_ns + made.calls[0].way.out_run_ns == 0
    assert durations(made) == [24 * MS]
