from __future__ import annotations

import pytest

from mcp_probe.export.slow import MIN_COUNT, SlowLimit, detailed
from tests.frames import MS, SECOND, make_request


def test_by_default_a_second_is_slow() -> None:
    limit = SlowLimit(None)
    assert not limit.passed_by(make_request(end_ns=SECOND - 1))
    assert limit.passed_by(make_request(end_ns=SECOND))


def test_a_tool_that_always_takes_seconds_is_slow_above_its_own_p99_only() -> None:
    limit = SlowLimit(None)
    for _ in range(MIN_COUNT):
        limit.passed_by(make_request(end_ns=4 * SECOND))
    assert not limit.passed_by(make_request(end_ns=3 * SECOND))
    assert limit.passed_by(make_request(end_ns=5 * SECOND))
    assert limit.passed_by(make_request(name="other", end_ns=3 * SECOND))


def test_a_limit_that_was_given_holds_for_every_tool() -> None:
    limit = SlowLimit(20.0)
    assert limit.passed_by(make_request(end_ns=20 * MS))
    assert not limit.passed_by(make_request(end_ns=20 * MS - 1))


def test_made_up_tool_names_do_not_grow_it() -> None:
    limit = SlowLimit(None)
    for number in range(10_000):
        limit.passed_by(make_request(name=f"tool {number}", end_ns=MS))
    assert len(limit._durations) <= 201


@pytest.mark.parametrize(("share", "chosen"), [(0.0, False), (0.5, True), (1.0, True)])
def test_the_sample_goes_by_trace_id(share: float, chosen: bool) -> None:
    assert detailed(make_request(trace_id="f" * 16 + "7" + "f" * 15), share) is chosen


def test_a_request_without_a_trace_is_in_no_sample() -> None:
    assert not detailed(make_request(), 1.0)
    assert not detailed(make_request(trace_id="0" * 16 + "f" * 16), 0.999)
