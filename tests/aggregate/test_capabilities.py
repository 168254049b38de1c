"""What a hook did not see is unknown to everything that is worked out from it: reports of a loop nobody knows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mcp_probe.aggregate.fold import Fold
from mcp_probe.model import ALL_SEEN, QUEUE, STEPS, WAKE_UPS, WRITES, Frame, MemoryUse, RequestRecord, Summary
from mcp_probe.record.assemble import assemble
from mcp_probe.record.raw import WAKE_LOOP, WAKE_UNKNOWN, RawRequest
from mcp_probe.report.console import render
from tests.frames import MS, make_end, make_header, make_process, make_request, make_step, make_wait

BLIND = ALL_SEEN & ~(STEPS | WAKE_UPS)
ON_LOOP = ("busy", "gc", "ready_wait", "executor_return", "awaiting")


def raw_request(seen: int = ALL_SEEN, number: int = 1, **given: Any) -> RawRequest:
    """A request as an unknown loop shows it: of 500 ms of `time.sleep` nothing but a suspension was seen."""
    raw = RawRequest(number, "request", "tools/call", "block", "stdio")
    raw.seen = seen
    raw.loop = 0
    raw.arrival_ns, raw.taken_ns, raw.first_step_ns = 0, 1 * MS, 2 * MS
    raw.add_mark((1, 2 * MS, 2 * MS, 2 * MS, 2 * MS, 3 * MS, WAKE_LOOP))
    raw.set_unit(1, 3 * MS)
    raw.result_ns, raw.write_taken_ns, raw.end_ns = 502 * MS, 503 * MS, 504 * MS
    raw.write_seen = raw.ended = True
    for name, value in given.items():
        setattr(raw, name, value)
    return raw


def record_of(seen: int = ALL_SEEN, memory: MemoryUse | None = None, **given: Any) -> RequestRecord:
    raw = raw_request(seen, **given)
    return assemble(raw, raw.end_ns or 0, memory=memory)


def summary_of(*frames: Frame, requests: int = 40) -> Summary:
    """These frames, and so many quiet requests beside them that shares and percentiles mean something."""
    quiet = [make_request(id=1000 + number, name="quiet", arrival_ns=number * 100 * MS) for number in range(requests)]
    fold = Fold()
    fold.add_all([make_header(), make_process(), *frames, *quiet, make_end(at_ns=5_000 * MS)])
    return fold.summary()


def text_of(summary: Summary) -> str:
    return " ".join(render(summary, width=160, color=False, ascii_only=False).split())


def test_a_sleep_on_a_loop_nobody_knows_is_no_awaiting() -> None:
    seen, blind = record_of(), record_of(BLIND)
    assert seen.budget.awaiting == 499 * MS
    assert all(getattr(blind.budget, part) is None for part in ON_LOOP)
    assert {name for name, tag, _, _ in blind.quality if tag == "unavailable"} == set(ON_LOOP)
    summary = summary_of(blind)
    [row] = [row for row in summary.operations if row.name == "block"]
    assert row.budget_ms.awaiting is None
    assert row.quality["awaiting"].tag == "unavailable"
    assert row.unseen == ("wake-ups", "steps")
    assert "await 9" not in text_of(summary)
    assert "await 100%" not in text_of(summary)


@pytest.mark.parametrize("seen", [ALL_SEEN, BLIND, ALL_SEEN & ~WAKE_UPS, ALL_SEEN & ~STEPS, 0])
def test_what_is_known_of_a_budget_sums_up_to_the_total_whatever_was_seen(seen: int) -> None:
    record = record_of(seen)
    parts = [getattr(record.budget, name) or 0 for name in record.budget.__slots__]
    assert sum(parts) == record.end_ns - record.arrival_ns
    assert min(parts) >= 0


def test_where_only_wake_ups_are_unseen_the_time_on_the_loop_is_known() -> None:
    budget = record_of(ALL_SEEN & ~WAKE_UPS).budget
    assert budget.busy == 1 * MS
    assert (budget.ready_wait, budget.awaiting, budget.unaccounted) == (None, None, 499 * MS)


def test_coding_is_not_timed_by_a_loop_nobody_knows() -> None:
    """The loop's last instant is old there: of five bytes it said that encoding takes 251 ms a call."""
    coded: dict[str, Any] = {"decode_ns": 0, "encode_ns": 251 * MS, "request_bytes": 5, "response_bytes": 5}
    known = [record_of(number=number, **coded) for number in range(1, 40)]
    blind = [record_of(BLIND, number=number, **coded) for number in range(1, 40)]
    assert "large-payload" in {finding.code for finding in summary_of(*known).findings}
    assert "large-payload" not in {finding.code for finding in summary_of(*blind).findings}
    assert blind[0].encode_ns is None


def test_memory_is_not_charged_to_requests_whose_steps_nobody_saw() -> None:
    use = MemoryUse("native-hybrid", "all", 54_000_000, 10, 54_000_000, 20_000_000)
    assert record_of(memory=use).memory == use
    assert record_of(BLIND, memory=use).memory is None


def blocked(seen: int) -> Summary:
    return summary_of(
        make_step(0, 300 * MS, request=7, operation="block", cause="cpu"),
        make_request(id=7, name="block", busy=300 * MS, seen=seen),
    )


def test_that_nobody_was_held_up_is_said_only_where_it_could_be_seen() -> None:
    assert "held up no other request" in text_of(blocked(ALL_SEEN))
    for hidden in (QUEUE, STEPS, WAKE_UPS):
        text = text_of(blocked(ALL_SEEN & ~hidden))
        assert "held up no other request" not in text
        assert "it cannot be seen here whether others waited for it before they were handled" in text
    assert "held up no other request" in text_of(blocked(ALL_SEEN & ~WRITES))


def test_who_waited_for_whom_is_unknown_where_steps_are() -> None:
    victim = make_request(
        id=9, name="add", queue_dispatch=200 * MS, waits=(make_wait(0, 200 * MS, "queue"),), transport="stdio"
    )
    step = make_step(0, 200 * MS, request=7, operation="block")
    [known] = [row for row in summary_of(step, victim).blocked_by if row.blocker == "block"]
    assert known.lo_ms == 200
    summary = summary_of(step, replace(victim, seen=BLIND))
    assert summary.blocked_by == ()
    [row] = [row for row in summary.operations if row.name == "add"]
    assert {row.quality[name].tag for name in ("waited_for_others_ms", "crowding_ms", "steps")} == {"unavailable"}


def test_a_server_is_not_called_healthy_where_nobody_could_know() -> None:
    assert summary_of(record_of()).verdict.code == "healthy"
    verdict = summary_of(record_of(BLIND)).verdict
    assert verdict.code == "not-enough-data"
    assert "what they did on the event loop could not be seen here" in verdict.sentence


def test_a_client_is_not_called_serial_where_nobody_could_see_what_calls_await() -> None:
    one_by_one = [
        make_request(id=number, name="add", arrival_ns=number * 10 * MS, awaiting=10 * MS) for number in range(1, 60)
    ]
    blind = [
        replace(record, seen=BLIND, budget=replace(record.budget, awaiting=None, unaccounted=10 * MS))
        for record in one_by_one
    ]
    assert summary_of(*one_by_one, requests=0).signals.serial_awaiting_share == 1
    assert summary_of(*blind, requests=0).signals.serial_awaiting_share is None


def test_in_process_the_time_before_the_handler_is_unknown_and_so_the_total_is_a_lower_bound() -> None:
    """A client that waited 225 ms was shown 0.08 ms, as exact."""
    given: dict[str, Any] = {
        "arrival_ns": None,
        "taken_ns": None,
        "write_seen": False,
        "write_taken_ns": None,
        "transport": "memory",
    }
    record = record_of(**given)
    assert not record.seen & QUEUE
    assert (record.budget.queue_transport, record.budget.queue_dispatch) == (None, None)
    [row] = [row for row in summary_of(record).operations if row.name == "block"]
    assert {row.quality[f"total_ms_{name}"].tag for name in ("p50", "p95", "p99", "max")} == {"lower"}
    assert "≥502 ms" in text_of(summary_of(record))


def test_marks_that_saw_no_wake_up_are_no_waiting() -> None:
    raw = raw_request()
    raw.add_mark((1, 3 * MS, 4 * MS, 300 * MS, 300 * MS, 301 * MS, WAKE_UNKNOWN))
    raw.set_unit(1, 301 * MS)
    budget = assemble(raw, raw.end_ns or 0).budget
    assert (budget.ready_wait, budget.unaccounted, budget.awaiting) == (0, 297 * MS, 201 * MS)
