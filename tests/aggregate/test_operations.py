from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mcp_probe.aggregate.blocking import OTHER, Blame, victim_of
from mcp_probe.aggregate.first_calls import FirstCallsTally
from mcp_probe.aggregate.operations import MAX_OPERATIONS, Operations
from mcp_probe.aggregate.slow_steps import SlowSteps
from mcp_probe.model import (
    ALL_SEEN,
    BUDGET_PARTS,
    CROWDING_OPERATION,
    WAKE_UPS,
    OperationSummary,
    Quality,
    RequestRecord,
    WriteMeans,
)
from tests.frames import MS, make_budget, make_open, make_request, make_wait

NO_SLOW_STEPS = SlowSteps(10 * MS, 50 * MS)


def summaries(operations: Operations) -> tuple[OperationSummary, ...]:
    return operations.summaries(NO_SLOW_STEPS, {}, FirstCallsTally())


def operations_of(*records: RequestRecord) -> Operations:
    operations = Operations()
    for record in records:
        operations.of(record).add(record)
    return operations


def only_row(*records: RequestRecord) -> OperationSummary:
    (row,) = summaries(operations_of(*records))
    return row


def test_the_mean_of_each_part_is_over_the_calls_that_could_see_it() -> None:
    row = only_row(
        make_request(1, busy=2 * MS, queue_transport=None), make_request(2, busy=4 * MS, queue_transport=10 * MS)
    )

    assert row.budget_ms.busy == 3
    assert row.budget_ms.queue_transport == 10
    assert row.count == 2


def test_a_part_that_no_call_could_see_is_unavailable_and_not_0() -> None:
    row = only_row(make_request(queue_transport=None, quality=(("queue_transport", "unavailable", None, None),)))

    assert row.budget_ms.queue_transport is None
    assert row.quality["queue_transport"] == Quality("unavailable")


def test_waits_of_the_writer_are_told_apart_by_cause_and_by_when_it_took_the_answer() -> None:
    """The answer is there at 100 ms, taken at 160, and written at 200. Waits reach beyond both ends."""
    waits = (
        make_wait(0, 5 * MS, "queue"),
        make_wait(90 * MS, 120 * MS, "write"),
        make_wait(150 * MS, 170 * MS, "write"),
        make_wait(190 * MS, 230 * MS, "write"),
    )
    starved = (("read", 0, 5 * MS, "pool", "render"), ("write", 120 * MS, 140 * MS, "pool", "render"))
    known: dict[str, Any] = {"result_ns": 100 * MS, "end_ns": 200 * MS, "write_wait": 60 * MS, "write_flush": 40 * MS}
    found = make_request(1, waits=waits, starved=starved, weight=3, **known)
    assert only_row(found).write_ms == WriteMeans(30.0, 20.0, 20.0, 0.0)
    both = operations_of(found)
    both.merge(operations_of(make_request(2), make_request(3), make_request(4)))
    (row,) = summaries(both)
    assert row.write_ms == WriteMeans(15.0, 10.0, 10.0, 0.0)


def test_exact_parts_have_no_quality_entry() -> None:
    assert only_row(make_request(busy=MS)).quality == {}


def test_bounds_of_a_part_are_means_that_count_exact_calls_as_they_are() -> None:
    exact = make_request(1, ready_wait=4 * MS)
    bounded = make_request(2, ready_wait=2 * MS, quality=(("ready_wait", "bounded", 2 * MS, 8 * MS),))

    assert only_row(exact, bounded).quality == {"ready_wait": Quality("bounded", 3.0, 6.0)}


def test_the_worst_tag_of_a_part_is_the_operations() -> None:
    bounded = make_request(1, ready_wait=2 * MS, quality=(("ready_wait", "bounded", 0, 8 * MS),))
    lower = make_request(2, ready_wait=4 * MS, quality=(("ready_wait", "lower", None, None),))

    assert only_row(bounded, lower).quality == {"ready_wait": Quality("lower", 2.0, None)}


def test_failed_cancelled_and_unfinished_calls_are_counted_and_all_are_in_the_count() -> None:
    outcomes = ["ok", "error", "tool_error", "cancelled", "unfinished"]
    row = only_row(*(make_request(n + 1, outcome=outcome, busy=MS) for n, outcome in enumerate(outcomes)))

    assert (row.count, row.errors, row.cancelled, row.unfinished) == (5, 2, 1, 1)


def test_an_unfinished_call_raises_the_maximum_as_a_lower_bound_and_no_percentile() -> None:
    finished = [make_request(number, busy=10 * MS) for number in range(1, 11)]
    row = only_row(*finished, make_request(99, outcome="unfinished", awaiting=3000 * MS))

    assert (row.total_ms.p50, row.total_ms.p99) == (10, 10)
    assert row.total_ms.max == 3000
    assert row.quality["total_ms"] == Quality("lower", 3000)
    assert row.budget_ms.awaiting == pytest.approx(3000 / 11)


def test_a_young_unfinished_call_leaves_the_maximum_exact() -> None:
    row = only_row(make_request(1, busy=10 * MS), make_request(2, outcome="unfinished", busy=MS))

    assert row.total_ms.max == 10
    assert "total_ms" not in row.quality


def test_an_operation_that_never_finished_has_a_maximum_but_no_percentiles() -> None:
    operations = Operations()
    operations.of(make_open(name="hangs")).add_unfinished(5000 * MS)
    (row,) = summaries(operations)

    assert (row.total_ms.p50, row.total_ms.max) == (None, 5000)
    assert row.quality["total_ms"].tag == "lower"
    assert row.budget_ms.busy is None


def test_tools_and_prompts_go_by_name_and_everything_else_by_method() -> None:
    operations = operations_of(
        make_request(1, "search"),
        make_request(2, "search", method="prompts/get"),
        make_request(3, None, method="tools/list"),
    )

    assert sorted((row.method, row.name) for row in summaries(operations)) == [
        ("prompts/get", "search"),
        ("tools/call", "search"),
        ("tools/list", "tools/list"),
    ]


def test_names_beyond_the_limit_are_counted_under_other() -> None:
    operations = operations_of(*(make_request(n + 1, f"tool {n}") for n in range(MAX_OPERATIONS + 50)))

    rows = {row.name: row.count for row in summaries(operations)}

    assert len(rows) == MAX_OPERATIONS + 1
    assert rows[OTHER] == 50


def test_operations_stand_in_order_of_the_time_they_took_in_sum() -> None:
    operations = operations_of(
        make_request(1, "rare and slow", busy=90 * MS), *(make_request(n, "often", busy=10 * MS) for n in range(2, 20))
    )

    assert [row.name for row in summaries(operations)] == ["often", "rare and slow"]


def test_what_an_unfinished_call_has_flushed_so_far_is_no_flush_time() -> None:
    unfinished = [make_request(n, outcome="unfinished", write_flush=9000 * MS) for n in range(5)]

    assert only_row(make_request(9, write_flush=MS), *unfinished).write_flush_p95_ms == 1


def test_work_seen_after_its_requests_had_ended_is_the_operations() -> None:
    operations = operations_of(make_request(1, "a", detached_ns=2 * MS), make_request(2, "b"))

    seen = operations.summaries(NO_SLOW_STEPS, {"a": 3 * MS, "gone": MS}, FirstCallsTally())
    rows = {row.name: row.detached_ms for row in seen}

    assert rows == {"a": 5, "b": 0}


# --- what others cost it ---


def blamed(operations: Operations, record: RequestRecord, **rows: int) -> None:
    victim = victim_of(replace(record, waits=(make_wait(0, record.end_ns),)))
    assert victim is not None
    operations.of(record).add(record)
    operations.add_blame(victim, Blame({name: (ns, ns) for name, ns in rows.items()}))


def test_time_lost_to_others_is_a_mean_over_all_calls_and_a_lower_bound() -> None:
    operations = Operations()
    blamed(operations, make_request(1, busy=100 * MS), block=30 * MS, other_tool=10 * MS)
    operations.of(make_request(2)).add(make_request(2))
    (row,) = summaries(operations)

    assert row.waited_for_others_ms == 20
    assert row.quality["waited_for_others_ms"].tag == "lower"


def test_crowding_and_the_servers_own_work_are_not_other_requests() -> None:
    operations = Operations()
    blamed(operations, make_request(1, busy=100 * MS), **{CROWDING_OPERATION: 30 * MS, "(loop)": 5 * MS})
    (row,) = summaries(operations)

    assert row.waited_for_others_ms == 0
    assert row.crowding_ms == 30
    assert (row.waited_for_others_p95_share, row.crowding_p95_share) == (0, 0.3)


def test_the_share_lost_near_p95_looks_at_the_slow_calls_only() -> None:
    operations = Operations()
    for number in range(80):
        blamed(operations, make_request(number + 1, busy=10 * MS))
    for number in range(20):
        blamed(operations, make_request(number + 101, busy=100 * MS), block=60 * MS)
    (row,) = summaries(operations)

    assert row.waited_for_others_p95_share == pytest.approx(0.6)


def test_a_single_extreme_call_is_beyond_p99_and_does_not_decide_the_share() -> None:
    operations = Operations()
    for number in range(200):
        blamed(operations, make_request(number + 1, busy=10 * MS))
    blamed(operations, make_request(999, busy=9000 * MS), block=9000 * MS)
    (row,) = summaries(operations)

    assert row.waited_for_others_p95_share == 0


def test_what_an_unfinished_call_waited_is_no_share_of_the_finished_ones() -> None:
    operations = Operations()
    blamed(operations, make_request(1, busy=10 * MS))
    blamed(operations, make_request(2, busy=10 * MS, outcome="unfinished"), block=9 * MS)
    (row,) = summaries(operations)

    assert row.waited_for_others_p95_share == 0
    assert row.waited_for_others_ms == 4.5


# --- merging ---


def test_merged_operations_tell_what_one_of_both_streams_would() -> None:
    records = [
        make_request(1, "a", busy=3 * MS, decode_ns=MS, request_bytes=10, gc=MS),
        make_request(2, "a", outcome="error", queue_transport=None, steps=4, client_wait_ns=2 * MS),
        make_request(3, "b", ready_wait=MS, quality=(("ready_wait", "bounded", 0, 9 * MS),)),
        make_request(5, "b", ready_wait=MS, quality=(("ready_wait", "estimate", None, None),)),
        make_request(4, "a", outcome="unfinished", awaiting=99 * MS, response_bytes=7, encode_ns=5),
    ]
    whole = operations_of(*records)
    for cut in range(6):
        left, right = operations_of(*records[:cut]), operations_of(*records[cut:])
        left.merge(right)
        assert sorted(summaries(left), key=str) == sorted(summaries(whole), key=str)


def test_every_budget_part_reaches_the_summary_under_its_own_name() -> None:
    for part in BUDGET_PARTS:
        budget = only_row(make_request(budget=make_budget(**{part: 7 * MS}))).budget_ms
        assert [name for name in BUDGET_PARTS if getattr(budget, name)] == [part]
        assert getattr(budget, part) == 7


def test_steps_that_followed_no_wait_are_counted_per_call_where_wake_ups_are_seen() -> None:
    calls = [make_request(1, steps=10, immediate_resumes=8), make_request(2, steps=4, immediate_resumes=1, weight=3)]
    assert only_row(*calls).steps.immediate == (8 + 3 * 1) / 4
    assert only_row(*calls, make_request(3, seen=ALL_SEEN & ~WAKE_UPS)).steps.immediate is None
