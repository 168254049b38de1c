"""When a request was written, as its client says it: believed only on the same clock, and never from the future."""

from __future__ import annotations

from typing import Any

import pytest

from mcp_probe.capture import sent
from mcp_probe.clock import now_ns

pytestmark = pytest.mark.skipif(sent.CLOCK is None, reason="clocks of two processes cannot be compared here")

HOUR_NS = 3_600_000_000_000


def test_a_stamp_of_this_machine_is_believed() -> None:
    written = now_ns()
    assert sent.sent_ns({sent.KEY: sent.stamp(written)}, now_ns()) == written


@pytest.mark.parametrize(
    "value",
    [
        None,
        "1",
        7,
        {},
        {"ns": 5},
        {"ns": 5, "clock": "another machine"},
        {"ns": True, "clock": sent.CLOCK},
        {"ns": "5", "clock": sent.CLOCK},
        {"ns": 1e9, "clock": sent.CLOCK},
        {"ns": 50 * HOUR_NS + 1, "clock": sent.CLOCK},  # of the future
        {"ns": 50 * HOUR_NS - 25 * HOUR_NS, "clock": sent.CLOCK},  # a day and more ago
    ],
)
def test_anything_else_is_none(value: Any) -> None:
    assert sent.sent_ns({sent.KEY: value}, 50 * HOUR_NS) is None


def test_no_stamp_is_none() -> None:
    assert sent.sent_ns({}, now_ns()) is None


def test_a_machine_that_does_not_say_which_clock_it_reads_stamps_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sent, "CLOCK", None)
    assert sent.stamp(5) is None
    assert sent.sent_ns({sent.KEY: {"ns": 5, "clock": None}}, 6) is None
