"""What a plain request says on its span while it runs is what assembling a whole record would say."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_probe import native
from mcp_probe.capture.memory import Memory
from mcp_probe.capture.steps import Steps
from mcp_probe.export.enrich import PLAIN, Attributes, budget_attributes
from mcp_probe.record.assemble import assemble
from mcp_probe.record.raw import (
    WAKE_LOOP,
    WAKE_SOCKET,
    WAKE_SPLIT,
    WAKE_THREAD,
    Job,
    PythonRequest,
    RawRequest,
    StepMark,
)
from tests.native.twins import needs_the_accelerator


def short_way(raw: RawRequest, running: StepMark, measured_since: int | None = None) -> Attributes | None:
    steps = Steps()
    steps.owner = raw
    steps.unit, steps.suspended, steps.earliest, steps.ready, steps.since, now, steps.wake = running
    found: Attributes | None = raw.span_attributes(steps, now, measured_since, PLAIN)
    return found


def long_way(raw: RawRequest, running: StepMark) -> Attributes:
    record = assemble(raw, running[5], running)
    assert not record.waits
    return budget_attributes(record)


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


@needs_the_accelerator
@given(runs())
@settings(max_examples=200, deadline=None)
def test_what_it_says_of_a_running_request_is_what_assembling_says(run: tuple[RawRequest, StepMark]) -> None:
    raw, running = run
    assert short_way(raw, running) == long_way(raw, running)


def request(*marks: StepMark) -> RawRequest:
    raw = RawRequest(1, "request", "tools/call", "add", "stdio")
    raw.arrival_ns, raw.taken_ns, raw.first_step_ns = 100, 150, 200
    for mark in marks:
        raw.add_mark(mark)
        raw.set_unit(mark[0], mark[5])
    return raw


FIRST = (1, 200, 200, 200, 200, 300, WAKE_LOOP)


@needs_the_accelerator
def test_a_request_in_its_first_step_is_busy_since_it_began() -> None:
    found = short_way(request(), (1, 200, 200, 200, 200, 260, WAKE_LOOP))
    assert found == {
        "mcp_probe.steps": 1,
        "mcp_probe.step.max": 6e-8,
        "mcp_probe.busy": 6e-8,
        "mcp_probe.awaiting": 0.0,
        "mcp_probe.ready_wait": 0.0,
        "mcp_probe.queue_wait.transport": 5e-8,
        "mcp_probe.queue_wait.dispatch": 5e-8,
    }


@needs_the_accelerator
@pytest.mark.parametrize(("wake", "ready_wait", "executor_return"), [(WAKE_LOOP, 7e-8, None), (WAKE_THREAD, 0.0, 7e-8)])
def test_the_step_that_runs_counts_with_the_wait_before_it(
    wake: int, ready_wait: float, executor_return: float | None
) -> None:
    raw, running = request(FIRST), (1, 300, 250, 330, 400, 450, wake)
    found = short_way(raw, running)
    assert found is not None and found == long_way(raw, running)
    assert (found["mcp_probe.busy"], found["mcp_probe.ready_wait.min"]) == (1.5e-7, ready_wait)
    assert found.get("mcp_probe.executor.return") == executor_return


@needs_the_accelerator
def test_a_socket_wait_keeps_its_bounds() -> None:
    raw, running = request(FIRST), (1, 300, 310, 380, 400, 450, WAKE_SOCKET)
    found = short_way(raw, running)
    assert found == long_way(raw, running)
    assert found["mcp_probe.quality"] == "ready_wait=bounded,awaiting=bounded"


@needs_the_accelerator
@pytest.mark.parametrize("earliest", [None, 60, 100])
@pytest.mark.parametrize("taken", [None, 150])
@pytest.mark.parametrize("seen", [True, False])
@pytest.mark.parametrize("bytes_read", [None, 70])
def test_what_came_before_the_handler_is_said_as_far_as_it_was_seen(
    earliest: int | None, taken: int | None, seen: bool, bytes_read: int | None
) -> None:
    raw = request()
    raw.arrival_earliest_ns, raw.taken_ns, raw.transport_seen, raw.request_bytes = earliest, taken, seen, bytes_read
    running = (1, 200, 200, 200, 200, 900, WAKE_LOOP)
    assert short_way(raw, running) == long_way(raw, running)


def test_whatever_is_not_plain_is_left_to_assembling() -> None:
    running = (1, 300, 250, 330, 400, 450, WAKE_LOOP)
    with_job, with_pause, late, queued, partial = (request(FIRST) for _ in range(5))
    with_job.jobs = [Job(None, with_job, "add", 250)]
    with_pause.pauses = [(210, 220)]
    queued.arrival_ns = -2_000_000
    partial.partial = True
    for raw in (with_job, with_pause, queued, partial):
        assert short_way(raw, running) is None
    assert short_way(late, (1, 300, 310, 330, 2_000_000, 2_000_100, WAKE_LOOP)) is None
    assert short_way(request(FIRST), (1, 300, 250, 330, 400, 450, WAKE_SPLIT)) is None
    assert short_way(request(FIRST), (2, 300, 250, 330, 400, 450, WAKE_LOOP)) is None, "another unit's step"
    assert request(FIRST).span_attributes(Steps(), 450, None, PLAIN) is None, "steps that are not on it"
    assert request(FIRST).span_attributes(None, 450, None, PLAIN) is None


def test_the_python_twin_has_no_short_way() -> None:
    raw = PythonRequest(1, "request", "tools/call", "add", "stdio")
    raw.arrival_ns, raw.taken_ns, raw.first_step_ns = 100, 150, 200
    assert raw.span_attributes(Steps(), 450, None, PLAIN) is None


# --- memory ---------------------------------------------------------------------------------------------


@pytest.fixture
def hooks() -> Iterator[Any]:
    core: Any = native.core
    yield core
    core.charge(None)
    core.memory_uninstall()


@needs_the_accelerator
@pytest.mark.parametrize("sizes", [(), (100,), (5_000,), (100, 5_000, 70_000)])
@pytest.mark.parametrize("mode", ["gross", "hybrid", "shadow"])
def test_memory_is_what_its_use_says(mode: str, sizes: tuple[int, ...], hooks: Any) -> None:
    memory = Memory.__new__(Memory)
    hooks.memory_install(mode)
    raw = request()
    hooks.charge(raw)
    kept = [bytes(size) for size in sizes]
    hooks.charge(None)
    running = (1, 200, 200, 200, 200, 900, WAKE_LOOP)
    found = short_way(raw, running, 200)
    scope = "all Python allocations"
    use = memory._native_use(raw, f"native-{mode}", scope)  # type: ignore[arg-type]
    assert found == budget_attributes(assemble(raw, 900, running, use))
    assert ("mcp_probe.memory.peak" in found) == (mode != "gross")
    assert "mcp_probe.memory.requested" in found
    del kept
    before = short_way(raw, running, 201)
    assert before is not None and "mcp_probe.memory.requested" not in before, "it began before it was measured"


@needs_the_accelerator
def test_what_it_makes_for_itself_is_not_the_requests(hooks: Any) -> None:
    hooks.memory_install("shadow")
    raw, steps = request(), Steps()
    steps.owner = raw
    steps.unit, steps.suspended, steps.earliest, steps.ready, steps.since, steps.wake = 1, 200, 200, 200, 200, WAKE_LOOP
    arguments = (steps, 900, 200, PLAIN)
    hooks.charge(raw)
    raw.span_attributes(*arguments)
    first = raw.memory()
    kept = [raw.span_attributes(*arguments), raw.span_attributes(*arguments)]
    second = raw.memory()
    hooks.charge(None)
    assert first is not None and second is not None and kept[0] is not None
    assert second[0] - first[0] < 300, "a list and two figures; the attributes alone are 800 bytes each"


@needs_the_accelerator
def test_bad_use_is_refused_in_a_sentence() -> None:
    raw: Any = request()
    for arguments in ((), (None, 1, None, ()), (None, 1, None, (*PLAIN[:-1], ()))):
        with pytest.raises(TypeError, match=r"span_attributes\(\) takes steps, now"):
            raw.span_attributes(*arguments)
