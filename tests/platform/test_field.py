"""What `make field` says of a server: each rule breaks where it should, and the page has a table of the right form."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tools.compatibility import rows
from tools.field.client import Exchange
from tools.field.judge import PING, QUICK, QUIET, Percentile, judge, nearest_rank
from tools.field.servers import ROWS
from tools.interpreters import ROOT


@pytest.mark.parametrize(
    ("client", "low", "high", "fault"),
    [
        (400, 395, 395, ""),
        (400, 350, 350, "false"),
        (400, 390, 410, ""),
        (400, 200, 410, "too wide"),
        (2000, 1850, 2010, ""),
        (400, 100, 200, "false"),
        (152, 131, 141, "false"),
        (152, 140, 148, ""),
        (400, 390, None, "not bounded on both sides"),
        (4, 2, 2, ""),
        (4, 9, 9, "false"),
    ],
)
def test_a_percentile_is_near_the_clients_or_a_narrow_interval_around_it(
    client: float, low: float, high: float | None, fault: str
) -> None:
    assert Percentile(client, low, high).fault == fault


def exchanges() -> list[Exchange]:
    """Ten quiet calls of 10 ms, ten of 510 that waited, and as many pings."""
    found = []
    for operation, label in (("get", QUICK), ("ping", PING)):
        found += [Exchange(operation, QUIET, 0.0, 0.010) for _ in range(10)]
        found += [Exchange(operation, label, 0.0, 0.510) for _ in range(10)]
    return [*found, Exchange("slow", "holding", 0.0, 0.6)]


def report(*, blamed_ms: float, pings: int = 20) -> dict[str, Any]:
    def operation(name: str, count: int) -> dict[str, Any]:
        figures = {"p50": 10.0, "p95": 510.0}
        return {"name": name, "kind": "request", "count": count, "total_ms": figures, "quality": {}}

    return {
        "server": {"sdk": "mcp", "sdk_version": "1.30.0"},
        "operations": [operation("get", 20), operation("ping", pings), operation("slow", 1)],
        "blocked_by": [{"victim": "get", "blocker": "slow", "lo_ms": blamed_ms, "hi_ms": None}],
        "verdict": {"code": "blocking-call", "sentence": "It blocks."},
    }


def test_a_true_report_has_no_fault() -> None:
    found = judge(exchanges(), report(blamed_ms=9_500), blocks=True)
    assert found.waited == pytest.approx(10_000)
    assert found.faults == []


@pytest.mark.parametrize(
    ("blamed_ms", "blocks", "fault"),
    [
        (8_000, True, "blames 80% of the wait"),
        (12_000, True, "blames more than the wait: 120%"),
        (800, False, "blames 800 ms on a server that blocks nobody"),
    ],
)
def test_blame_is_held_against_the_wait(blamed_ms: float, blocks: bool, fault: str) -> None:
    assert judge(exchanges(), report(blamed_ms=blamed_ms), blocks=blocks).faults == [fault]


def test_a_request_that_nobody_sent_is_a_fault() -> None:
    found = judge(exchanges(), report(blamed_ms=9_500, pings=21), blocks=True)
    assert found.faults == ["20 of `ping` sent, 21 counted"]


def test_a_percentile_is_a_value_that_was_measured() -> None:
    assert nearest_rank([5.0, 1.0, 3.0, 2.0, 4.0], 0.5) == 3.0
    assert nearest_rank([5.0, 1.0, 3.0, 2.0, 4.0], 0.95) == 5.0


def test_every_row_has_its_locks_and_its_target() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    listed = {word.removeprefix("field-") for word in re.findall(r"[a-z][\w-]+", makefile)}
    for row in ROWS:
        assert (ROOT / "requirements" / f"{row.lock}.txt").exists(), row.lock
        assert row.lock.removeprefix("field-") in listed, row.lock


def test_the_page_has_the_servers_it_should_have() -> None:
    found = rows("field")
    ran = [row for row in found if len(row) == 13]
    assert len({row[0] for row in ran}) >= 12
    of_mcp_1 = {row[0] for row in ran if re.match(r"mcp 1|fastmcp [23]", row[1])}
    assert len(of_mcp_1) >= 6
    assert len({row[0] for row in ran if row[1].startswith("fastmcp 4") and row[2] == "HTTP"}) >= 3
    for row in ran:
        assert all(re.fullmatch(r"\d+ / (\d+|\?)(–(\d+|\?))?", cell) for cell in row[4:8]), row
