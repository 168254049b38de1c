"""Ratios of the CPU benchmark on literal blocks, the lean clients, and one small run of the real thing."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from benchmarks.blocks import Estimate, estimate
from benchmarks.cpu_tables import ARMS, Block, console_text, measured_share, ratios, rows, section
from benchmarks.lean_clients import ServerSilentError, drive, is_whole

ROOT = Path(__file__).resolve().parent.parent.parent
ADDED = {"bare": 0.0, "bare again": 20.0, "span": 100.0, "probe": 300.0, "run": 250.0, "telemetry": 600.0}


def cycle_of(cycle: int, slower: float = 1.0, foreign: float = 0.0) -> list[Block]:
    """All arms on a machine that is so many times slower; the mean of the bare ones is 500 µs."""
    return [
        Block(
            "stdio",
            32,
            arm,
            0,
            cycle,
            1_000,
            per_s=2_000.0 / slower if arm.startswith("bare") else 1_000.0 / slower,
            server_cpu_us=slower * (490.0 + added),
            parent_cpu_us=slower * 50.0 if arm == "run" else 0.0,
            foreign_cores=foreign,
        )
        for arm, added in ADDED.items()
    ]


def document(blocks: list[Block]) -> dict[str, Any]:
    return {
        "machine": {
            "python": "3.11.7",
            "cpu": "a processor",
            "cores": 2,
            "system": "Linux",
            "packages": {"mcp": "2.3.0"},
            "commit": "abc1234",
            "date": "2026-01-01",
        },
        "reported": [{"transport": "stdio", "in_flight": 32, "shares": {"probe": [0.1, 0.2], "run": [0.05]}}],
        "blocks": [asdict(block) for block in blocks],
    }


def test_a_machine_that_gets_slower_does_not_show_in_the_ratios() -> None:
    blocks = [block for cycle in range(5) for block in cycle_of(cycle, 1.0 + cycle)]
    span = estimate(ratios(blocks, "span", lambda block: block.cpu_us))
    assert (span.us, span.low, span.high) == pytest.approx((1.18, 1.18, 1.18))
    assert estimate(ratios(blocks, "probe", lambda block: block.per_s)) == Estimate(0.5, 0.5, 0.5)


def test_bare_again_is_compared_with_bare_alone() -> None:
    assert ratios(cycle_of(0), "bare again", lambda block: block.cpu_us) == [[pytest.approx(510 / 490)]]


def test_the_parent_of_run_is_in_the_sum_and_not_in_the_servers_share() -> None:
    blocks = cycle_of(0)
    assert ratios(blocks, "run", lambda block: block.cpu_us) == [[pytest.approx(790 / 500)]]
    assert measured_share(blocks, "run") == pytest.approx(240 / 740)


def test_a_row_has_both_ratios_and_what_was_reported_beside_what_was_measured() -> None:
    found = {row[0]: row[1:] for row in rows(document(cycle_of(0)), "stdio")}
    assert list(found) == [f"32: {arm.shown}" for arm in ARMS.values()]
    assert found["32: bare"] == ["2,000", "", "490", "", "", "", ""]
    ratio = "1.58 (1.58 … 1.58)"
    assert found["32: **`mcp_probe.attach`**"] == ["1,000", "0.50 (0.50 … 0.50)", "790", ratio, "", "15.0%", "36.7%"]
    assert found["32: **`mcp-probe run`**"][2:] == ["790", ratio, "50", "5.0%", "32.4%"]


def test_others_work_is_said_where_there_was_much() -> None:
    assert "Others used up to 0.9 cores" in section(document(cycle_of(0, foreign=0.9)))
    assert "Others used" not in console_text(document(cycle_of(0, foreign=0.1)))


class Answering:
    """A server that has answered at most three calls whenever it is asked."""

    def __init__(self) -> None:
        self.sent: list[int] = []
        self.answers: list[int] = []

    def answered(self) -> int:
        waiting = sum(self.sent) - sum(self.answers)
        assert waiting > 0, "nobody waits for an answer"
        self.answers.append(min(3, waiting))
        return self.answers[-1]


def test_a_burst_sends_no_more_than_it_was_asked_and_waits_for_all() -> None:
    server = Answering()
    burst = drive(4, 10, 3_600.0, server.sent.append, server.answered)
    assert (burst.answers, server.sent, server.answers) == (10, [4, 3, 3], [3, 3, 3, 1])


def test_a_burst_whose_time_is_over_sends_nothing_more() -> None:
    server = Answering()
    assert drive(4, 10, 0.0, server.sent.append, server.answered).answers == 0
    assert server.sent == []


HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"


@pytest.mark.parametrize(
    ("response", "whole"),
    [
        (HEAD, False),
        (HEAD + b"Content-Length: 4\r\n\r\nabc", False),
        (HEAD + b"Content-Length: 4\r\n\r\nabcd", True),
        (HEAD + b"transfer-encoding: chunked\r\n\r\n4\r\nabcd\r\n", False),
        (HEAD + b"transfer-encoding: chunked\r\n\r\n4\r\nabcd\r\n0\r\n\r\n", True),
    ],
)
def test_a_response_is_whole_at_its_length_or_at_its_last_chunk(response: bytes, whole: bool) -> None:
    assert is_whole(response) is whole


def test_a_response_that_is_no_answer_is_refused() -> None:
    with pytest.raises(ServerSilentError, match="503"):
        is_whole(b"HTTP/1.1 503 Service Unavailable\r\n\r\n")


@pytest.mark.workloads
def test_a_small_run_measures_every_arm_on_both_transports(tmp_path: Path) -> None:
    output = tmp_path / "cpu.json"
    command = [sys.executable, "benchmarks/cpu.py", "--smoke", "--in-flight", "8", "--output", str(output)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    found = json.loads(output.read_text("utf-8"))
    assert {(block["transport"], block["arm"]) for block in found["blocks"]} == {
        (transport, arm) for transport in ("stdio", "http") for arm in ARMS
    }
    assert all(block["answers"] == 10 for block in found["blocks"])
    assert all(one["shares"].keys() == {"probe", "run", "telemetry"} for one in found["reported"])
