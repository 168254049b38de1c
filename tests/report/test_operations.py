from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mcp_probe.model import (
    BUDGET_PARTS,
    AwaitSummary,
    GrownPart,
    OperationSummary,
    Quality,
    RequestCounts,
    ServerInfo,
    SlowCalls,
    WriteMeans,
)
from mcp_probe.report.console import render
from tests.report.summaries import make_budget, make_operation, make_summary


def table(*operations: OperationSummary, width: int = 100, **overrides: Any) -> list[str]:
    """The section's lines, without its heading and column titles."""
    counts = RequestCounts(sum(operation.count for operation in operations), 0, 0, 0, 0)
    summary = make_summary(requests=counts, operations=operations, **overrides)
    lines = render(summary, width=width, color=False, ascii_only=False).split("\n")
    start = next(index for index, line in enumerate(lines) if line.startswith("Where the time goes"))
    return lines[start + 2 : lines.index("", start)]


def notes(*operations: OperationSummary, **overrides: Any) -> str:
    counts = RequestCounts(sum(operation.count for operation in operations), 0, 0, 0, 0)
    summary = make_summary(requests=counts, operations=operations, **overrides)
    return " ".join(render(summary, color=False, ascii_only=False).rpartition("\nNotes")[2].split())


UNSEEN = Quality("bounded", 0.0, 99.0)


def one(**budget: float | None) -> OperationSummary:
    return make_operation("search", 40, 10.0, 20.0, 30.0, make_budget(**budget))


def test_rows_are_sorted_by_their_total_time() -> None:
    rare = make_operation("rare", 1, 500.0, 500.0, 500.0, make_budget(awaiting=500.0))
    often = make_operation("often", 1_000, 1.0, 1.0, 1.0, make_budget(busy=1.0))
    middle = make_operation("middle", 10, 60.0, 60.0, 60.0, make_budget(busy=60.0))
    assert [row.split()[0] for row in table(rare, often, middle)[:3]] == ["often", "middle", "rare"]


def test_a_row_has_the_time_of_all_its_calls_together() -> None:
    late = {"all_calls_ms": Quality("bounded", 2_000.0, 2_400.0)}
    came_earlier = make_operation("late", 40, 50.0, 50.0, 50.0, make_budget(queue_transport=50.0), quality=late)
    rows = table(one(busy=20.0, awaiting=5.0), came_earlier, one(busy=None), width=140)
    assert [row.split("|")[0].split()[2:4] for row in rows[:2]] == [["≥2.00", "s"], ["1.00", "s"]]


def test_the_time_of_an_operation_without_any_part_is_unknown() -> None:
    row = table(make_operation("search", 40, 10.0, 20.0, 30.0, make_budget(**dict.fromkeys(BUDGET_PARTS))))[0]
    assert row.split()[:3] == ["search", "40", "–"]


@pytest.mark.parametrize(
    ("budget", "seen", "words"),
    [
        (
            {"write_wait": 60.0, "write_flush": 20.0},
            WriteMeans(50.0, 0.0, 15.0, 0.0),
            "loop busy ≥65%  write: others first ≤10%",
        ),
        ({"write_wait": 80.0}, WriteMeans(10.0, 70.0, 0.0, 0.0), "no thread ≥70%  write: loop busy ≥10%"),
        ({"write_wait": 80.0}, WriteMeans(0.0, 0.0, 0.0, 0.0), "others first ≤80%"),
        ({"write_flush": 80.0}, WriteMeans(0.0, 0.0, 0.0, 0.0), "slow client ≤80%"),
    ],
)
def test_a_write_is_named_by_what_the_answer_waited_for(budget: dict[str, float], seen: WriteMeans, words: str) -> None:
    rest = 100.0 - sum(budget.values())
    operation = replace(one(busy=rest, **budget), write_ms=seen, write_flush_p95_ms=90.0)
    assert f"write: {words}" in table(operation, width=160)[0]


def test_a_write_that_nothing_explains_has_its_own_name() -> None:
    operation = replace(one(busy=20.0, write_flush=80.0), write_flush_p95_ms=49.0)
    assert table(operation, width=160)[0].endswith("write 80%  busy 20%")
    assert "write: encoding 50%  write 30%" in table(replace(operation, encode_ms=50.0), width=160)[0]


def test_bar_shows_parts_in_the_order_of_time_and_in_proportion() -> None:
    row = table(one(queue_transport=25.0, busy=50.0, awaiting=25.0), width=160)[0]
    bar = row[row.index("|") + 1 : row.rindex("|")]
    assert len(bar) == 30
    assert bar == "q" * bar.count("q") + "B" * bar.count("B") + "." * bar.count(".")
    assert bar.count("B") == 15


def test_largest_parts_are_named_with_their_percentages() -> None:
    row = table(one(queue_dispatch=5.0, busy=20.0, awaiting=75.0), width=140)[0]
    assert row.endswith("await 75%  busy 20%  queue 5%")


def test_bounded_lower_and_estimated_parts_carry_their_marks() -> None:
    budget = make_budget(ready_wait=50.0, busy=30.0, awaiting=20.0)
    quality = {"ready_wait": Quality("bounded", 40.0, 55.0), "busy": Quality("estimate"), "awaiting": Quality("upper")}
    row = table(make_operation("search", 40, 1.0, 1.0, 1.0, budget, quality=quality), width=140)[0]
    assert row.endswith("ready [40–55%]  busy ~30%  await ≤20%")


def test_a_part_known_by_half_is_named_by_that_half_and_the_other_half_unavailable() -> None:
    operation = one(queue_transport=None, queue_dispatch=50.0, busy=50.0)
    assert "queue dispatch 50%" in table(operation, width=140)[0]
    assert "– unavailable queue_transport (not visible from where the probe is attached)" in notes(operation)


def test_a_part_of_which_only_an_upper_bound_is_known_is_not_shown_as_a_lower_one() -> None:
    """mcp 1.x: from the answer to its take-over by the writer, and nothing of the flush."""
    budget = make_budget(write_wait=99.0, write_flush=None, busy=1.0)
    row = table(make_operation("search", 40, 1.0, 1.0, 1.0, budget, quality={"write_wait": UNSEEN}), width=140)[0]
    assert "write wait ≤99%" in row


def test_parts_nobody_could_see_are_dashes_in_the_legend_and_named_in_the_notes() -> None:
    operation = one(queue_transport=None, queue_dispatch=None, write_wait=None, write_flush=None, busy=10.0)
    server = ServerInfo("s", "mcp", "2.3.0", "memory", "asyncio", "3.13.0")
    assert table(operation, server=server)[1].strip() == "– queue  B busy: on the event loop  – write"
    assert "– unavailable queue, write (the client calls the server in its own" in notes(operation, server=server)


def test_a_part_only_one_operation_could_not_see_is_a_dash_in_its_row() -> None:
    blind = make_operation("blind", 40, 1.0, 1.0, 1.0, make_budget(busy=1.0, executor_run=None))
    rows = table(one(busy=6.0, executor_run=4.0), blind, width=140)
    assert rows[0].endswith("busy 60%  exec run 40%")
    assert rows[1].endswith("busy 100%  exec run –")
    assert "executor_run of blind (not visible on asyncio)" in notes(one(busy=6.0, executor_run=4.0), blind)


def test_a_value_tagged_unavailable_is_as_unknown_as_none() -> None:
    operation = make_operation(
        "search", 40, 1.0, 1.0, 1.0, make_budget(busy=1.0, gc=0.0), quality={"gc": Quality("unavailable")}
    )
    assert "– gc" in table(operation)[1]


def test_a_notification_is_not_blamed_for_having_no_answer() -> None:
    silent = make_operation(
        "notifications/x",
        3,
        1.0,
        1.0,
        1.0,
        make_budget(busy=1.0, write_wait=None, write_flush=None),
        method="notifications/x",
        kind="notification",
    )
    assert "unavailable" not in notes(one(busy=1.0), silent)


def test_percentiles_of_requests_that_never_ended_are_lower_bounds() -> None:
    budget = make_budget(busy=9_000.0)
    hung = make_operation("hung", 2, 9_000.0, 9_100.0, 9_100.0, budget, unfinished=2)
    rows = table(hung)
    assert rows[0].count("≥9.") == 3
    assert any("never finished: hung ×2" in row for row in rows)


def test_missing_percentiles_say_why() -> None:
    few = make_operation("few", 3, 1.0, 1.0, None, make_budget(busy=1.0))
    hung = make_operation("hung", 1, None, None, None, make_budget(busy=1.0), unfinished=1)
    assert "p99 of few (too few requests were seen from arrival to end)" in notes(few, hung)
    assert "p50, p95, p99 of hung (no request of it ever ended)" in notes(few, hung)


def test_many_operations_collapse_into_one_line_with_their_share() -> None:
    tools = [
        make_operation(f"tool_{index:02}", 10, 5.0, 5.0, 5.0, make_budget(busy=float(100 - index)))
        for index in range(25)
    ]
    rows = table(*tools)
    assert sum(row.strip().startswith("tool_") for row in rows) == 15
    assert " +10 more: 100 calls, 37% of the time" in rows


def test_one_operation_too_many_is_shown_since_saying_so_takes_as_much_room() -> None:
    tools = [make_operation(f"tool_{index:02}", 1, 5.0, 5.0, 5.0, make_budget(busy=5.0)) for index in range(16)]
    rows = table(*tools)
    assert sum(row.strip().startswith("tool_") for row in rows) == 16
    assert not any("more" in row for row in rows)


def test_long_names_lose_their_middle() -> None:
    operation = make_operation("search_all_notes_of_every_workspace", 4, 1.0, 1.0, 1.0, make_budget(busy=2.0, gc=1.0))
    name = table(operation, width=80)[0].split()[0]
    head, _, tail = name.partition("…")
    assert len(head) >= 6
    assert len(tail) >= 6
    assert "search_all_notes_of_every_workspace".startswith(head)
    assert "search_all_notes_of_every_workspace".endswith(tail)


def test_prompts_resources_and_functions_are_told_from_tools() -> None:
    rows = table(
        make_operation("greet", 3, 1.0, 1.0, 1.0, make_budget(busy=3.0), method="prompts/get"),
        make_operation("refresh", 1, 1.0, 1.0, 1.0, make_budget(busy=1.0), method="", kind="function"),
    )
    assert "greet  prompt" in rows[0]
    assert "refresh  function" in rows[1]


def test_work_after_the_end_and_waiting_for_the_client_get_lines_of_their_own() -> None:
    operation = make_operation(
        "ask", 40, 10.0, 10.0, 10.0, make_budget(awaiting=10.0), detached_ms=1_200.0, client_wait_ms=8.0, decode_ms=0.1
    )
    rows = table(operation)
    assert " ran on after its request had ended: ask 1.20 s in all" in rows
    assert " of its await, the client took: ask 8.0 ms per call" in rows
    assert not any("parsing" in row for row in rows)  # 1 % of the time: not worth a line


def test_narrow_reports_give_up_words_before_numbers() -> None:
    row = table(one(busy=10.0), width=60)[0]
    assert "10 ms" in row
    assert "20 ms" in row  # p95, of which findings speak
    assert "BBBB" in row


# --- what awaiting was for ---


def awaited(kind: Any, thing: str, ms: float, **more: Any) -> AwaitSummary:
    """Over 40 calls, each of which waited ``ms``."""
    return AwaitSummary(kind, thing, "n.py:3", 40, 40 * ms, ms, (), (), "exact", **more)


HTTP = awaited("http", "https://api.example.com:443", 50.0)


def named(*awaits: AwaitSummary, width: int = 160, **budget: float) -> str:
    operation = make_operation("search", 40, 1.0, 1.0, 1.0, make_budget(**budget), awaits=awaits)
    return table(operation, width=width)[0]


def test_awaiting_is_named_by_what_it_was_for() -> None:
    pool = awaited("connection-pool", "pool of https://api.example.com:443", 20.0)
    row = named(HTTP, pool, awaited("lock", "a", 15.0), awaited("sleep", "sleep", 5.0), busy=10.0, awaiting=90.0)
    assert row.endswith("api.example.com 50%  pool 20%  lock 15%  sleep 5%  busy 10%")


def test_awaits_of_one_host_are_one_and_what_has_no_name_is_the_rest() -> None:
    connect = awaited("connect", "https://api.example.com:443", 20.0)
    row = named(HTTP, connect, awaited("other", "x.y", 10.0), busy=10.0, awaiting=90.0)
    assert row.endswith("api.example.com 70%  await 20%  busy 10%")


def test_what_a_job_waited_for_is_named_in_its_run_and_not_in_awaiting() -> None:
    in_job = awaited("db", "postgresql://db.example.com:5432", 50.0, stage="executor_run")
    row = named(in_job, awaited("sleep", "sleep", 10.0), executor_run=80.0, awaiting=20.0)
    assert row.endswith("db.example.com 50%  exec run 30%  sleep 10%  await 10%")


def test_a_name_that_redact_withholds_leaves_the_kind() -> None:
    assert named(awaited("http", "redacted", 90.0), busy=10.0, awaiting=90.0).endswith("http 90%  busy 10%")


def test_a_long_host_loses_its_middle_and_never_its_share() -> None:
    host = awaited("http", "https://search-cluster.internal.eu-west-1.example.com:9200", 90.0)
    assert named(host, busy=10.0, awaiting=90.0).endswith("search-cluster.….example.com 90%  busy 10%")
    for width in (80, 100, 120):
        row = named(host, width=width, busy=10.0, awaiting=90.0)
        assert "90%" in row
        assert len(row) <= width


def test_a_line_says_what_slow_calls_took_longer_for() -> None:
    parts = (GrownPart("loop", None, "resize", 140.0, "estimate"), GrownPart("busy", None, None, -14.0, "exact"))
    slow = SlowCalls(quick_ms=12.0, quick_calls=50, slow_ms=138.0, slow_calls=9, parts=parts)
    shown = " ".join(" ".join(table(replace(one(busy=1.0), slow_calls=slow), one(busy=0.1))).split())
    assert (
        "slow calls of search 138 ms on average around p95, 12 ms in the quicker half; the difference: about +140 ms "
        "waiting for `resize`, −14 ms of its own on the event loop."
    ) in shown
    assert shown.count("slow calls of") == 1
