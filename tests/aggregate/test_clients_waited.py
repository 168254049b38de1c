"""What clients waited for all calls together: the sum of what each was seen to wait, not a mean times their number."""

from __future__ import annotations

from typing import Any

import pytest

from mcp_probe.aggregate.fold import Fold
from mcp_probe.model import ALL_SEEN, WRITES, Frame, OperationSummary, Quality, Summary
from mcp_probe.report.console import render
from tests.frames import (
    MS,
    SECOND,
    make_end,
    make_group,
    make_header,
    make_histogram,
    make_open,
    make_process,
    make_request,
    make_step,
    make_wait,
)


def summary_of(*frames: Frame, ended: bool = True) -> Summary:
    fold = Fold()
    fold.add_all([make_header(), *frames, *([make_end()] if ended else [])])
    return fold.summary()


def row_of(summary: Summary) -> OperationSummary:
    (row,) = summary.operations
    return row


def said(summary: Summary) -> str:
    """What the report's first line says that clients waited."""
    (line,) = [
        line
        for line in render(summary, width=140, color=False, ascii_only=False).splitlines()
        if "clients waited" in line
    ][:1]
    return line.partition("clients waited ")[2].partition(" in all")[0]


def test_a_part_that_some_calls_do_not_show_is_not_believed_of_them() -> None:
    unseen = make_request(2, queue_transport=None, busy=10 * MS, end_ns=10 * MS)
    found = summary_of(make_request(1, queue_transport=500 * MS, busy=10 * MS, end_ns=510 * MS), unseen)
    assert found.clients_waited_ms == row_of(found).all_calls_ms == 520.0


def test_a_call_that_a_killed_server_left_open_counts_with_its_age_and_not_with_the_others_mean() -> None:
    ended = [make_request(number, busy=SECOND, end_ns=SECOND) for number in range(1, 41)]
    fresh = make_open(id=99, arrival_ns=2 * SECOND, seen_ns=2 * SECOND + 50 * MS)
    found = summary_of(*ended, fresh, make_process(at_ns=2 * SECOND + 100 * MS), ended=False)
    assert row_of(found).count == 41
    assert found.clients_waited_ms == 40_100.0
    assert found.clients_waited_quality == Quality("lower", 40_100.0)
    assert said(found) == "≥40.1 s"


def test_nobody_waits_for_a_notification_whatever_it_waited_for_itself() -> None:
    note = make_request(
        1, None, method="notifications/initialized", kind="notification", waits=(make_wait(0, 2 * SECOND),),
        ready_wait=2 * SECOND, end_ns=2 * SECOND,
    )  # fmt: skip
    held = make_step(0, 2 * SECOND)
    found = summary_of(held, note)
    assert (row_of(found).all_calls_ms, found.clients_waited_ms, found.blocked_by) == (None, None, ())
    assert "all_calls_ms" not in row_of(found).quality
    asked = summary_of(held, note, make_request(2, waits=(make_wait(0, SECOND),), ready_wait=SECOND, end_ns=SECOND))
    assert [(row.victim, row.victims, row.lo_ms) for row in asked.blocked_by] == [("add", 1, 1_000.0)]
    assert asked.clients_waited_ms == 1_000.0


def test_a_client_that_gave_up_waited_until_then() -> None:
    found = summary_of(make_request(1, outcome="cancelled", end_ns=3 * SECOND, gone_ns=SECOND))
    assert (found.clients_waited_ms, row_of(found).all_calls_ms) == (1_000.0, 1_000.0)
    assert found.clients_waited_quality == Quality("exact")


def test_a_client_that_lost_its_exchange_waited_at_least_until_then() -> None:
    lost = make_request(1, end_ns=3 * SECOND, gone_ns=SECOND, seen=ALL_SEEN & ~WRITES)
    found = summary_of(lost)
    assert (found.clients_waited_ms, found.clients_waited_quality) == (1_000.0, Quality("lower", 1_000.0))


def test_what_is_open_at_the_end_is_waited_for_until_the_client_has_left() -> None:
    left = summary_of(make_request(1, outcome="unfinished", end_ns=3 * SECOND, gone_ns=SECOND))
    assert (left.clients_waited_ms, left.clients_waited_quality) == (1_000.0, Quality("exact"))
    unknown = summary_of(make_request(1, outcome="unfinished", end_ns=3 * SECOND))
    assert (unknown.clients_waited_ms, unknown.clients_waited_quality) == (3_000.0, Quality("upper", None, 3_000.0))
    assert said(unknown) == "≤3.00 s"


def test_a_server_that_is_killed_after_its_client_has_left_is_not_waited_for_longer() -> None:
    hangs = make_open(id=7, seen_ns=300 * MS)
    after = make_process(at_ns=3 * SECOND, input_ended_ns=SECOND)
    found = summary_of(hangs, after, ended=False)
    assert (found.clients_waited_ms, found.clients_waited_quality) == (1_000.0, Quality("exact"))
    over_http = summary_of(make_open(id=7, seen_ns=300 * MS, transport="http"), after, ended=False)
    assert over_http.clients_waited_ms == 3_000.0


def test_calls_without_a_record_are_in_the_sum_as_they_were() -> None:
    rest = make_group(make_histogram([10 * MS] * 30))
    found = summary_of(make_request(1, weight=31, busy=200 * MS, end_ns=200 * MS), rest)
    assert found.clients_waited_ms == 500.0, "the record stands for 31, but is one long call and 30 short ones"


@pytest.mark.parametrize(
    ("first", "second", "tag"),
    [
        ({"outcome": "unfinished"}, {"seen": ALL_SEEN & ~WRITES}, "estimate"),
        ({}, {"quality": (("queue_transport", "bounded", 0, SECOND),), "queue_transport": 0}, "bounded"),
        ({}, {"seen": ALL_SEEN & ~WRITES}, "lower"),
        ({}, {}, "exact"),
    ],
)
def test_a_sum_is_as_exact_as_its_parts(first: dict[str, Any], second: dict[str, Any], tag: str) -> None:
    rows = (make_request(1, end_ns=SECOND, **first), make_request(2, "other", end_ns=SECOND, **second))
    one, merged = Fold(), Fold()
    one.add_all([make_header(), rows[0], make_end()])
    merged.add_all([make_header(), rows[1], make_end()])
    merged.merge(one)
    for found in (summary_of(*rows), merged.summary()):
        assert (found.clients_waited_ms, found.clients_waited_quality.tag) == (2_000.0, tag)
