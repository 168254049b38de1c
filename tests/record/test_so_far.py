"""The short way says what the long way says, wherever it says anything."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_probe import native
from mcp_probe.record.assemble import assemble
from mcp_probe.record.raw import WAKE_LOOP, WAKE_SOCKET, WAKE_THREAD, Job, RawRequest, StepMark
from mcp_probe.record.so_far import SoFar, so_far


def long_way(raw: RawRequest, running: StepMark) -> SoFar:
    record = assemble(raw, running[5], running)
    budget = record.budget
    vague = [(hi or 0) - (lo or 0) for part, tag, lo, hi in record.quality if part == "ready_wait" and tag == "bounded"]
    assert not record.waits
    return SoFar(
        budget.busy or 0,
        budget.ready_wait or 0,
        budget.executor_return or 0,
        budget.awaiting or 0,
        budget.unaccounted or 0,
        budget.queue_transport,
        budget.queue_dispatch,
        record.steps,
        record.step_max_ns,
        sum(vague),
    )


@st.composite
def runs(draw: st.DrawFn) -> tuple[RawRequest, StepMark]:
    """A request with one unit, never late, and the step that it is on."""
    at = 200
    marks: list[StepMark] = []
    for number in range(draw(st.integers(1, 6))):
        suspended = at
        if number == 0:
            earliest = ready = start = suspended
        else:
            earliest = suspended + draw(st.integers(0, 40)) - draw(st.integers(0, 1)) * 30
            ready = max(earliest, suspended) + draw(st.integers(0, 40))
            start = ready + draw(st.integers(0, 60))
            earliest -= earliest == suspended  # on a real clock only a first mark has the two alike
        at = start + draw(st.integers(1, 100))
        wake = draw(st.sampled_from((WAKE_LOOP, WAKE_THREAD, WAKE_SOCKET)))
        marks.append((1, suspended, earliest, ready, start, at, wake))
    return request(*marks[:-1]), marks[-1]


@pytest.mark.skipif(native.core is None, reason="without the accelerator every request goes the long way")
@given(runs())
@settings(max_examples=200, deadline=None)
def test_what_it_says_of_a_running_request_is_what_assembling_says(run: tuple[RawRequest, StepMark]) -> None:
    raw, running = run
    assert so_far(raw, running) == long_way(raw, running)


def request(*marks: StepMark) -> RawRequest:
    raw = RawRequest(1, "request", "tools/call", "add", "stdio")
    raw.arrival_ns, raw.taken_ns, raw.first_step_ns = 100, 150, 200
    for mark in marks:
        raw.add_mark(mark)
        raw.set_unit(mark[0], mark[5])
    return raw


FIRST = (1, 200, 200, 200, 200, 300, WAKE_LOOP)


def test_a_request_in_its_first_step_is_busy_since_it_began() -> None:
    found = so_far(request(), (1, 200, 200, 200, 200, 260, WAKE_LOOP))
    assert found == (None if native.core is None else SoFar(60, 0, 0, 0, 0, 50, 50, 1, 60, 0))


def test_the_step_that_runs_counts_with_the_wait_before_it() -> None:
    raw = request(FIRST)
    for wake, parts in ((WAKE_LOOP, (150, 70, 0, 30)), (WAKE_THREAD, (150, 0, 70, 30))):
        running = (1, 300, 250, 330, 400, 450, wake)
        found = so_far(raw, running)
        if found is None:  # without the accelerator every request goes the long way
            continue
        assert found[:4] == parts
        assert found == long_way(raw, running)


def test_a_socket_wait_keeps_its_bounds() -> None:
    raw = request(FIRST)
    running = (1, 300, 310, 380, 400, 450, WAKE_SOCKET)
    found = so_far(raw, running)
    assert found in (None, long_way(raw, running))


def test_whatever_is_not_plain_is_left_to_assembling() -> None:
    running = (1, 300, 250, 330, 400, 450, WAKE_LOOP)
    with_job, with_pause, late, queued = (request(FIRST) for _ in range(4))
    with_job.jobs = [Job(None, with_job, "add", 250)]
    with_pause.pauses = [(210, 220)]
    queued.arrival_ns = -2_000_000
    assert so_far(with_job, running) is None
    assert so_far(with_pause, running) is None
    assert so_far(late, (1, 300, 310, 330, 2_000_000, 2_000_100, WAKE_LOOP)) is None
    assert so_far(queued, running) is None
