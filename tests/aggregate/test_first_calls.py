"""What the first calls of a tool cost: from frames, with what they waited for left out."""

from __future__ import annotations

from typing import Any

import pytest

from mcp_probe.aggregate.first_calls import MAX_FIRST, MAX_STEPS
from mcp_probe.aggregate.fold import Fold
from mcp_probe.model import Await, FirstCalls, Frame, RequestRecord, Summary
from tests.frames import MS, SECOND, make_group, make_header, make_histogram, make_request, make_step

START = SECOND


def fold_of(*frames: Frame) -> Summary:
    fold = Fold()
    fold.add_all([make_header(), *frames])
    return fold.summary()


def first_of(summary: Summary, name: str = "t1") -> FirstCalls | None:
    return next(row for row in summary.operations if row.name == name).first_calls


def codes(summary: Summary) -> dict[str, str]:
    wanted = ("cold-start", "cold-start-stampede")
    return {finding.subject: finding.code for finding in summary.findings if finding.code in wanted}


def call(id: int, at: int = START, name: str = "t1", **given: Any) -> RequestRecord:
    given.setdefault("awaits", ())
    return make_request(id, name, arrival_ns=at, **given)


def waited(kind: Any, ns: int, stage: Any = "awaiting", where: str | None = "/srv/s.py:7") -> Await:
    return Await(kind, f"{kind} x", where, START, START + ns, ns, "exact", stage=stage)


def warm(name: str = "t1", count: int = 12, **given: Any) -> list[RequestRecord]:
    """Later calls, one after the other."""
    given = given or {"busy": 2 * MS}
    return [call(1_000 + n, 10 * SECOND + n * SECOND, name, **given) for n in range(count)]


def awaiting(kind: Any, ms: int, **given: Any) -> dict[str, Any]:
    return {"awaiting": ms * MS, "awaits": (waited(kind, ms * MS),), **given}


def test_a_first_call_that_works_long_is_cold() -> None:
    summary = fold_of(call(1, busy=300 * MS), *warm())
    assert codes(summary) == {"t1": "cold-start"}
    first = first_of(summary)
    assert first is not None and (first.count, first.warm, first.warm_p50_ms, first.warm_max_ms) == (1, 12, 2.0, 2.0)
    assert first.warm_known == 12
    assert first.calls[0].own_ms == first.calls[0].alone_ms == 300.0


def test_what_later_calls_wait_for_each_other_is_not_their_work() -> None:
    """Three at once over HTTP: a later call takes 19 ms, and works for 3 of them."""
    cold = [call(id, START + id, queue_dispatch=11 * MS, **awaiting("http", 405, busy=6 * MS)) for id in (1, 2, 3)]
    later = warm(busy=3 * MS, queue_dispatch=11 * MS, write_wait=5 * MS)
    assert codes(fold_of(*cold, *later)) == {"t1": "cold-start-stampede"}
    unknown = warm(busy=3 * MS, queue_dispatch=11 * MS, write_wait=5 * MS, awaits=None)
    assert codes(fold_of(*cold, *unknown)) == {}


@pytest.mark.parametrize("kind", ["connect", "http", "db", "subprocess"])
def test_what_it_awaits_outside_is_part_of_the_start(kind: Any) -> None:
    summary = fold_of(call(1, **awaiting(kind, 300)), *warm())
    (finding,) = [finding for finding in summary.findings if finding.code == "cold-start"]
    assert finding.evidence["cold_ms"] == 300.0
    assert f"(`{kind} {kind} x`, s.py:7)" in finding.sentence


@pytest.mark.parametrize("kind", ["lock", "semaphore", "event", "queue", "task", "sleep", "client", "other"])
def test_what_somebody_else_may_have_caused_is_not(kind: Any) -> None:
    """A call that waits for the server's start, or for another call's, and one that polls for it."""
    assert codes(fold_of(call(1, **awaiting(kind, 300)), *warm())) == {}


@pytest.mark.parametrize(
    "part", ["queue_transport", "queue_dispatch", "ready_wait", "executor_wait", "write_wait", "write_flush", "gc"]
)
def test_a_client_that_starts_and_others_on_the_loop_make_no_call_cold(part: str) -> None:
    assert codes(fold_of(make_request(1, "t1", arrival_ns=START, awaits=(), **{part: 300 * MS}), *warm())) == {}


@pytest.mark.parametrize("cause", ["run-queue", "gil"])
def test_a_step_that_waited_for_a_cpu_or_the_gil_is_not_its_own(cause: Any) -> None:
    step = make_step(START, START + 300 * MS, 1, "t1", cause=cause)
    assert codes(fold_of(step, call(1, busy=302 * MS), *warm())) == {}


def test_the_part_of_a_step_that_waited_for_a_cpu_is_not_its_own() -> None:
    step = make_step(START, START + 300 * MS, 1, "t1", cause="cpu", run_queue_ns=210 * MS)
    first = first_of(fold_of(step, call(1, busy=300 * MS), *warm()))
    assert first is not None and first.calls[0].own_ms == 90.0


@pytest.mark.parametrize("late", [False, True])
def test_imports_are_named_whether_their_step_comes_before_or_after_the_record(late: bool) -> None:
    steps = [
        make_step(START, START + 200 * MS, 1, "t1", cause="cpu", file="/s.py", line=4, library="import of pandas"),
        make_step(START + 200 * MS, START + 250 * MS, 1, "t1", cause="cpu", library="import of numpy"),
    ]
    frames: list[Frame] = [*steps, call(1, busy=300 * MS)]
    summary = fold_of(*([frames[-1], *steps] if late else frames), *warm())
    (finding,) = [finding for finding in summary.findings if finding.code == "cold-start"]
    assert finding.evidence["imports"] == "pandas, numpy"
    assert "worked for 300 ms (import of `pandas` and `numpy`, s.py:4)" in finding.sentence


def test_steps_of_a_first_call_outlive_those_of_many_later_ones() -> None:
    cold = make_step(START, START + 200 * MS, 1, "t1", cause="cpu", library="import of pandas")
    later = [
        make_step(t, t + 11 * MS, 5_000 + n, "t2", cause="cpu")
        for n in range(3 * MAX_STEPS)
        for t in [20 * SECOND + n * SECOND]
    ]
    summary = fold_of(cold, call(1, busy=300 * MS), *warm(), *later)
    first = first_of(summary)
    assert first is not None and first.calls[0].imports == ("pandas",)


def test_calls_that_came_before_the_first_had_ended_are_first_calls_in_any_order() -> None:
    calls = [call(n, START + n * MS, **awaiting("subprocess", 300)) for n in range(4)]
    for order in (calls, calls[::-1]):
        summary = fold_of(*order, *warm())
        assert codes(summary) == {"t1": "cold-start-stampede"}
        (finding,) = [finding for finding in summary.findings if finding.code == "cold-start-stampede"]
        assert (finding.evidence["calls"], finding.evidence["paid_ms"], finding.evidence["saved_ms"]) == (4, 1200, 900)
        first = first_of(summary)
        assert first is not None and [one.alone_ms for one in first.calls] == [75.0] * 4


def test_one_call_that_starts_it_while_the_others_wait_is_no_stampede() -> None:
    others = [call(n, START + n * MS, **awaiting("event", 290)) for n in range(2, 6)]
    assert codes(fold_of(call(1, **awaiting("subprocess", 300)), *others, *warm())) == {"t1": "cold-start"}


def test_calls_one_after_the_other_that_each_start_it_anew_are_not_cold() -> None:
    """No start that later calls are spared."""
    calls = [call(n, START + n * SECOND, **awaiting("subprocess", 300)) for n in range(1, 4)]
    assert codes(fold_of(*calls, *warm())) == {}


def test_a_burst_of_threads_that_share_the_cpu_is_no_stampede() -> None:
    """Twenty calls of 40 ms at once on threads take 800 ms each; alone, each takes 40 ms."""
    given: dict[str, Any] = {"executor_run": 800 * MS, "jobs_looked": True}
    burst = [call(n, **given) for n in range(1, 21)]
    assert codes(fold_of(*burst, *warm(executor_run=40 * MS))) == {}
    slow = [call(n, executor_run=9_000 * MS, jobs_looked=True) for n in range(1, 21)]
    assert codes(fold_of(*slow, *warm(executor_run=40 * MS))) == {"t1": "cold-start-stampede"}


def test_other_tools_of_the_same_burst_count_as_beside_it() -> None:
    """A client that starts calls each of its tools at once."""
    burst = [call(n, name=f"x{n}", executor_run=800 * MS, jobs_looked=True) for n in range(1, 21)]
    later = [one for n in range(1, 21) for one in warm(f"x{n}", executor_run=45 * MS)]
    assert codes(fold_of(*burst, *later)) == {}


def test_calls_without_a_record_count_as_beside_it() -> None:
    group = make_group(make_histogram([MS] * 50), "x", first_ns=START, last_ns=START + SECOND)
    given: dict[str, Any] = {"executor_run": 300 * MS, "jobs_looked": True}
    assert codes(fold_of(call(1, **given), *warm())) == {"t1": "cold-start"}
    assert codes(fold_of(call(1, **given), group, *warm())) == {}


def test_the_run_of_a_job_counts_only_if_somebody_looked_and_without_its_waits() -> None:
    """Two jobs that import the same module: one of them waits for the other's import."""
    assert codes(fold_of(call(1, executor_run=300 * MS), *warm())) == {}
    waits = (waited("other", 250 * MS, "executor_run"),)
    assert codes(fold_of(call(1, executor_run=300 * MS, jobs_looked=True, awaits=waits), *warm())) == {}


@pytest.mark.parametrize(
    "given", [{"awaits": None}, {"partial": True}, {"outcome": "tool_error"}, {"outcome": "cancelled"}, {"busy": None}]
)
def test_a_first_call_of_which_too_little_is_known_is_not_accused(given: dict[str, Any]) -> None:
    summary = fold_of(call(1, **{"busy": 300 * MS, **given}), *warm())
    assert codes(summary) == {} and first_of(summary) is None


def test_calls_without_a_record_before_it_make_it_no_first_call() -> None:
    def cold_after(first_ns: int) -> dict[str, str]:
        group = make_group(make_histogram([MS] * 50), "t1", first_ns=first_ns, last_ns=40 * SECOND)
        return codes(fold_of(call(1, busy=300 * MS), group, *warm()))

    assert cold_after(START - 1) == {}
    assert cold_after(START + SECOND) == {"t1": "cold-start"}


def test_a_tool_that_is_slow_now_and_then_is_not_cold() -> None:
    calls = [*warm(), call(3_000, 40 * SECOND, busy=160 * MS)]
    assert codes(fold_of(call(1, busy=300 * MS), *calls)) == {}


def test_a_first_call_that_turns_out_to_be_a_later_one_counts_as_such() -> None:
    """The call that ended first comes last: records are only about in the order of their ends."""
    summary = fold_of(call(2, START + 50 * MS, busy=300 * MS), call(1, busy=10 * MS), *warm())
    first = first_of(summary)
    assert first is not None and (first.count, first.warm, first.warm_max_ms) == (1, 13, 300.0)


def test_an_unfinished_first_call_does_not_make_all_others_first() -> None:
    hung = call(1, outcome="unfinished", end_ns=60 * SECOND, awaiting=59 * SECOND)
    summary = fold_of(hung, call(2, START + MS, busy=5 * MS), *warm())
    first = first_of(summary)
    assert first is not None and (first.count, first.warm) == (2, 12)


def test_start_up_work_is_never_a_cold_start() -> None:
    """Ten seconds on the loop before the first call, which waits for it."""
    step = make_step(0, 10 * SECOND, 0, "(loop)", cause="cpu", library="import of pandas")
    assert codes(fold_of(step, call(1, queue_dispatch=9 * SECOND, busy=2 * MS), *warm())) == {}


def test_each_process_has_first_calls_of_its_own_and_the_dearest_are_told() -> None:
    fold, other = Fold(), Fold()
    fold.add_all([make_header(), call(1, busy=200 * MS), *warm()])
    other.add_all([make_header(pid=2), call(1, busy=400 * MS), *warm(count=7)])
    fold.merge(other)
    summary = fold.summary()
    first = first_of(summary)
    assert first is not None and (first.calls[0].own_ms, first.warm) == (400.0, 19)
    assert codes(summary) == {"t1": "cold-start"}
    assert fold.summary() == summary, "a summary changes nothing"


def test_there_is_a_bound() -> None:
    calls = [call(n, START + n, **awaiting("http", 9_000)) for n in range(3 * MAX_FIRST)]
    summary = fold_of(*calls, *warm())
    first = first_of(summary)
    assert first is not None and first.count == MAX_FIRST and len(first.calls) <= MAX_FIRST
