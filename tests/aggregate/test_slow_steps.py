from __future__ import annotations

from typing import Any

import pytest

from mcp_probe.aggregate.blocking import Blame, Matrix
from mcp_probe.aggregate.first_calls import FirstCallsTally
from mcp_probe.aggregate.slow_steps import MAX_GROUPS, SHOWN, SlowSteps, judged
from mcp_probe.model import LOOP_OPERATION, StepRecord
from tests.frames import MS, make_request, make_step


def slow_steps_of(*steps: StepRecord) -> SlowSteps:
    found = SlowSteps(10 * MS, 50 * MS)
    for step in steps:
        found.add(step)
    return found


def blocking_call(ms: int, line: int = 10, **overrides: Any) -> StepRecord:
    known: dict[str, Any] = {
        "cause": "blocking-call",
        "file": "server.py",
        "line": line,
        "where": "exact",
        "cpu_ns": 0,
        "function": "fetch",
    }
    return make_step(0, ms * MS, **{**known, **overrides})


def test_steps_of_one_place_and_cause_are_one_row() -> None:
    (row,) = slow_steps_of(blocking_call(20), blocking_call(60), blocking_call(40)).rows(Matrix())

    assert (row.tool, row.file, row.line, row.function, row.cause) == (
        "block",
        "server.py",
        10,
        "fetch",
        "blocking-call",
    )
    assert (row.count, row.ms, row.total_ms, row.p50_ms, row.cpu_share) == (3, 60, 120, 40, 0)


def test_steps_below_the_limit_are_not_slow() -> None:
    assert slow_steps_of(make_step(0, 10 * MS - 1)).rows(Matrix()) == ()
    assert len(slow_steps_of(make_step(0, 10 * MS)).rows(Matrix())) == 1


def test_places_and_causes_stay_apart_largest_sum_first() -> None:
    rows = slow_steps_of(blocking_call(20), blocking_call(90, line=20), blocking_call(30, cause="cpu")).rows(Matrix())

    assert [(row.line, row.cause, row.total_ms) for row in rows] == [
        (20, "blocking-call", 90),
        (10, "cpu", 30),
        (10, "blocking-call", 20),
    ]


@pytest.mark.parametrize(("seen", "called"), [(2, "sqlite3.execute without the GIL"), (1, "sqlite3.execute")])
def test_whether_a_line_computes_without_the_gil_is_told_by_all_its_steps(seen: int, called: str) -> None:
    """The longest of ten was not seen to; of the others some were."""
    steps = [blocking_call(20, cause="cpu", library="sqlite3.execute without the GIL")] * seen
    steps += [blocking_call(30, cause="cpu", library="sqlite3.execute")] * (10 - seen)
    one, other = slow_steps_of(*steps[:1]), slow_steps_of(*steps[1:])
    one.merge(other)
    (row,) = one.rows(Matrix())
    assert row.library == called


def test_a_first_call_that_imports_is_a_row_of_its_own() -> None:
    """It says nothing of the calls after it, which do something else on the same line."""
    first = blocking_call(90, library="import of httpcore", function="client")
    rows = slow_steps_of(first, blocking_call(20, library="httpx.Client"), blocking_call(30)).rows(Matrix())

    assert [(row.library, row.count, row.ms) for row in rows] == [("import of httpcore", 1, 90), (None, 2, 30)]


def test_a_place_is_as_sure_as_its_least_sure_sample() -> None:
    (row,) = slow_steps_of(blocking_call(20), blocking_call(20, where="estimate")).rows(Matrix())

    assert row.quality == "estimate"


def test_the_cpu_share_is_over_the_steps_whose_cpu_is_known() -> None:
    (row,) = slow_steps_of(blocking_call(40, cpu_ns=10 * MS), blocking_call(60, cpu_ns=None)).rows(Matrix())

    assert row.cpu_share == 0.25


def test_a_step_still_running_is_named_as_such() -> None:
    (row,) = slow_steps_of(blocking_call(40, running=True, cause=None)).rows(Matrix())

    assert row.running
    assert row.cause == "unknown"


def test_victims_come_from_the_matrix_and_count_only_those_that_certainly_waited() -> None:
    matrix = Matrix()
    matrix.add("add", Blame({"block": (30 * MS, 40 * MS)}))
    matrix.add("ping", Blame({"block": (0, 40 * MS), "else": (9 * MS, 9 * MS)}))
    (row,) = slow_steps_of(blocking_call(40)).rows(matrix)

    assert (row.victims, row.victim_ms) == (1, 30)


def test_work_of_no_request_goes_by_the_loops_name() -> None:
    (row,) = slow_steps_of(make_step(0, 20 * MS, request=0, operation="")).rows(Matrix())

    assert row.tool == LOOP_OPERATION


def test_an_operations_slow_steps_are_counted_over_all_its_places() -> None:
    found = slow_steps_of(blocking_call(20), blocking_call(60, line=11), make_step(0, 90 * MS, operation="else"))

    assert (found.of_operation("block").count, found.of_operation("block").critical) == (2, 1)
    assert found.of_operation("nothing").count == 0


def test_the_number_of_places_is_bounded_and_the_count_is_kept() -> None:
    found = slow_steps_of(*(blocking_call(20, line=line) for line in range(3 * MAX_GROUPS)))

    assert len(found.groups) == MAX_GROUPS + 1
    assert found.of_operation("block").count == 3 * MAX_GROUPS
    assert len(found.rows(Matrix())) == SHOWN


def judged_as(wall: int, **known: Any) -> tuple[str, int]:
    cause, own = judged(blocking_call(wall, **known), 10 * MS)
    return cause, own // MS


def test_what_the_host_added_is_not_the_steps_own_time() -> None:
    assert judged_as(60, run_queue_ns=40 * MS) == ("blocking-call", 20)
    assert judged_as(60, run_queue_ns=51 * MS) == ("run-queue", 9), "what is left is not slow"
    assert judged_as(60, run_queue_ns=50 * MS) == ("blocking-call", 10)
    assert judged_as(60, run_queue_ns=None) == ("blocking-call", 60), "not known on this platform"


def test_a_step_that_computed_or_collected_is_judged_by_its_cpu_time() -> None:
    assert judged_as(60, cause="cpu", cpu_ns=25 * MS, run_queue_ns=20 * MS) == ("cpu", 25)
    assert judged_as(60, cause="gc", cpu_ns=25 * MS, run_queue_ns=20 * MS) == ("gc", 25)
    assert judged_as(60, cause="cpu", cpu_ns=None, run_queue_ns=20 * MS) == ("cpu", 40)


def test_an_older_recording_that_blames_the_host_does_not_absolve_what_is_left() -> None:
    assert judged_as(500, cause="run-queue", cpu_ns=200 * MS, run_queue_ns=260 * MS) == ("cpu", 200)
    assert judged_as(500, cause="run-queue", cpu_ns=2 * MS, run_queue_ns=260 * MS) == ("unknown", 240)


def test_a_row_has_the_own_times_of_its_steps_beside_the_whole() -> None:
    steps = (blocking_call(60, run_queue_ns=40 * MS), blocking_call(30, run_queue_ns=0), blocking_call(25))
    (row,) = slow_steps_of(*steps).rows(Matrix())
    assert (row.ms, row.total_ms) == (60, 115)
    assert (row.own_ms, row.own_total_ms, row.own_p50_ms, row.run_queue_ms) == (30, 75, 25, 40)


def test_what_no_request_did_before_the_first_answer_is_the_servers_start() -> None:
    def of_nobody(start_ms: int, line: int) -> StepRecord:
        where = {"file": "server.py", "line": line, "where": "exact", "cause": "cpu"}
        return make_step(start_ms * MS, (start_ms + 20) * MS, request=0, operation="", **where)

    def starts(*answers_ms: int) -> dict[int | None, tuple[int, int]]:
        found, rows = SlowSteps(10 * MS, 50 * MS), SlowSteps(10 * MS, 50 * MS)
        for step in (of_nobody(200, 3), of_nobody(0, 1), of_nobody(79, 1), of_nobody(81, 2), make_step(0, 20 * MS)):
            found.add(step)
        calls = FirstCallsTally()
        for number, at_ms in enumerate(answers_ms):
            calls.add(make_request(number + 1, end_ns=at_ms * MS))
        rows.merge(found, calls.answered_ns)
        return {row.line: (row.starts, row.count) for row in rows.rows(Matrix()) if row.tool == LOOP_OPERATION}

    assert starts(300, 100, 150) == {1: (2, 2), 2: (0, 1), 3: (0, 1)}
    assert starts(220) == {1: (2, 2), 2: (1, 1), 3: (1, 1)}
    assert starts() == {1: (0, 2), 2: (0, 1), 3: (0, 1)}, "it has answered nothing, and may never"
