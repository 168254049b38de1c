"""What a flight recording is written for, against schedules made by hand."""

from __future__ import annotations

import pytest

from mcp_probe.histogram import bucket_of
from mcp_probe.live.triggers import FLOOR_NS, HANGS_NS, ONCE_NS, Triggers
from mcp_probe.model import Finding, RequestRecord
from mcp_probe.record.raw import PythonRequest
from mcp_probe.record.running_p99 import MIN_COUNT
from tests.frames import MS, SECOND, make_group, make_request


def took(ms: float, name: str = "search", id: int = 1, **given: object) -> RequestRecord:
    return make_request(id=id, name=name, end_ns=round(ms * MS), **given)


def trained(ms: float = 50.0, **options: float) -> Triggers:
    triggers = Triggers(3.0, **options)  # type: ignore[arg-type]
    assert triggers.of_frames([took(ms) for _ in range(10 * MIN_COUNT)], 0) == []
    return triggers


def in_flight(arrival: int, name: str = "search", id: int = 9, method: str = "tools/call") -> PythonRequest:
    raw = PythonRequest(id, "request", method, name, "stdio")
    raw.arrival_ns = arrival
    return raw


def test_three_times_the_p99_is_slow_and_a_little_less_is_not() -> None:
    triggers = trained(50.0)
    assert triggers.of_frames([took(140)], 0) == []
    [fired] = triggers.of_frames([took(170)], 0)
    assert (fired.key, fired.word) == ("slow search", "search")
    assert fired.sentence.startswith("search took 170 ms; its p99 is ")


def test_a_fast_tool_is_never_slow_below_a_tenth_of_a_second() -> None:
    triggers = trained(1.0)
    assert triggers.of_frames([took(99)], 0) == []
    assert triggers.limit_ns("search") == FLOOR_NS
    assert len(triggers.of_frames([took(101)], 0)) == 1


def test_without_a_hundred_calls_only_what_hangs_is_slow() -> None:
    triggers = Triggers(3.0)
    assert triggers.of_frames([took(10), took(20_000)], 0) == []
    [fired] = triggers.of_frames([took(31_000)], 0)
    assert fired.sentence == "search took 31.00 s; fewer than 100 calls are known, so its limit is 30.00 s."


def test_a_limit_of_the_users_own_goes_before() -> None:
    triggers = Triggers(3.0, slow_ns=500 * MS)
    assert triggers.of_frames([took(499)], 0) == []
    assert triggers.of_frames([took(500)], 0)[0].sentence == "search took 500 ms; slow is 500 ms here."


def test_requests_without_a_record_teach_it_as_well() -> None:
    triggers = Triggers(3.0)
    triggers.of_frames([make_group([(bucket_of(50 * MS), MIN_COUNT, 0)], name="search")], 0)
    assert len(triggers.of_frames([took(200)], 0)) == 1


def test_the_same_is_said_once_a_minute_and_another_operation_at_once() -> None:
    triggers = trained()
    triggers.of_frames([took(5, "list") for _ in range(10 * MIN_COUNT)], 0)
    assert len(triggers.of_frames([took(900), took(950)], 0)) == 1
    assert triggers.of_frames([took(900)], ONCE_NS - 1) == []
    assert [one.key for one in triggers.of_frames([took(900, "list")], 1)] == ["slow list"]
    assert len(triggers.of_frames([took(900)], ONCE_NS)) == 1


def test_one_that_hangs_is_told_once_and_not_again_when_it_ends() -> None:
    triggers = trained()
    raw = in_flight(0)
    assert triggers.of_live([raw], 100 * MS) == []
    [fired] = triggers.of_live([raw], 2 * SECOND)
    assert fired.sentence.startswith("search has not answered for 2.00 s; its p99 is ")
    assert triggers.of_live([raw], 2 * ONCE_NS) == []
    assert triggers.of_frames([took(200_000, id=9)], 2 * ONCE_NS) == []


@pytest.mark.parametrize(
    "raw", [in_flight(0, id=1, method="subscriptions/listen"), PythonRequest(2, "function", "f", None, "function")]
)
def test_what_lives_for_long_by_itself_does_not_hang(raw: PythonRequest) -> None:
    assert Triggers(3.0).of_live([raw], 10 * HANGS_NS) == []


def test_notifications_and_unfinished_records_fire_nothing() -> None:
    triggers = Triggers(3.0)
    assert triggers.of_frames([took(60_000, kind="notification"), took(60_000, outcome="unfinished")], 0) == []


def finding(code: str, severity: str = "warn", subject: str = "search") -> Finding:
    return Finding(code, severity, "exact", subject, f"`{subject}`: {code}.", "", {})  # type: ignore[arg-type]


def test_a_finding_fires_as_it_is_raised_and_not_while_it_stays() -> None:
    triggers = Triggers(3.0)
    [fired] = triggers.of_findings([finding("blocking-call"), finding("not-enough-data", "info")], 0)
    assert (fired.key, fired.word) == ("blocking-call search", "blocking-call")
    assert fired.sentence == "`search`: blocking-call."
    assert triggers.of_findings([finding("blocking-call")], 10 * ONCE_NS) == []
    assert triggers.of_findings([], 11 * ONCE_NS) == []
    assert len(triggers.of_findings([finding("blocking-call")], 12 * ONCE_NS)) == 1


def test_invented_tools_do_not_grow_it() -> None:
    triggers = Triggers(3.0)
    for number in range(5_000):
        triggers.of_frames([took(60_000, f"tool {number}")], number)
        triggers.of_live([in_flight(0, f"tool {number}", number)], HANGS_NS)
    assert len(triggers._fired) <= 512
    assert len(triggers._hung) <= 512
    assert len(triggers._p99._durations) <= 501
