"""Real servers with faults in what they await: each is named, at its line, and neither its mended twin nor a near miss.

One server on stdio under `mcp-probe run`, with backends on loopback that have known delays; see its module.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.adapters.raw_clients import StdioClient
from tests.adapters.test_http_arrival import tls_contexts
from tests.adapters.waits.backend import serving
from tests.aggregate.live_faults import findings, is_right, line_in
from tests.rounds import until_right

SERVER = Path(__file__).with_name("await_faults_server.py")
ROOT = Path(__file__).resolve().parents[2]

BURSTS = {  # tool -> (calls at once, how often)
    "lock_fault": (6, 6), "lock_mended": (6, 6), "lock_near": (6, 6),
    "pool_fault": (6, 6), "pool_mended": (6, 6), "pool_near": (2, 16),
    "engine_fault": (6, 6), "engine_mended": (6, 6), "engine_near": (2, 16),
    "client_fault": (2, 8), "client_mended": (2, 8), "client_near": (2, 6),
    "serial_fault": (4, 4), "serial_mended": (4, 4), "serial_near": (4, 4),
    "rows_fault": (1, 12), "rows_mended": (1, 12), "rows_near": (1, 12),
    "slow_fault": (10, 3), "slow_mended": (1, 40), "slow_near": (10, 3),
    "growing": (1, 12), "growing_near": (1, 12),
    "queue_fault": (8, 8), "queue_near": (8, 8),
}  # fmt: skip

FAULTS = [
    ("serial-handler", "lock"), ("pool-exhausted", "pool"), ("pool-exhausted", "engine"),
    ("client-per-request", "client"), ("serial-awaits", "serial"), ("serial-awaits", "rows"),
    ("slow-backend", "slow"), ("long-wait", "queue"),
]  # fmt: skip


@pytest.fixture(scope="module")
def summary(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A process that gets no CPU for a fifth of a second is a slow backend: such a run is made again."""
    return until_right(lambda: serve(tmp_path_factory.mktemp("faults")), all_are_right)


def all_are_right(summary: dict[str, Any]) -> bool:
    if "growing_near" in findings(summary, "slow-backend"):
        return False
    return all(is_right(summary, code, name) for code, name in FAULTS)


def serve(folder: Path) -> dict[str, Any]:
    tls, _ = tls_contexts(folder)
    with ExitStack() as stack:
        backends = [
            stack.enter_context(serving(first_byte=0.02)),
            stack.enter_context(serving(first_byte=0.4)),
            stack.enter_context(serving(first_byte=0.04, one_by_one=True)),
            stack.enter_context(serving(tls, first_byte=0.02, handshake=0.02)),
        ]
        command = [sys.executable, str(SERVER), *(backend.address for backend in backends)]
        with StdioClient(command, folder, {"PYTHONPATH": str(ROOT)}) as client:
            for tool, (calls, times) in [*BURSTS.items(), ("growing", (12, 3)), ("growing_near", (12, 3))]:
                for number in range(times):
                    client.wait_for(*(client.call(f"{tool} {calls} {number} {n}", tool) for n in range(calls)))
        failed = {id for id, (_, answer) in client.answers.items() if answer.get("result", {}).get("isError")}
        assert not failed, client.stderr
        summary: dict[str, Any] = client.summary
    return summary


@pytest.mark.parametrize(("code", "name"), FAULTS)
def test_a_fault_is_named_and_neither_its_mended_twin_nor_its_near_miss(
    summary: dict[str, Any], code: str, name: str
) -> None:
    found = findings(summary, code)
    assert f"{name}_fault" in found, summary["findings"]
    assert not {f"{name}_mended", f"{name}_near"} & found.keys()
    assert found[f"{name}_fault"]["cost_ms"] > 0


def test_a_lock_that_is_held_over_a_request_says_what_narrowing_saves(summary: dict[str, Any]) -> None:
    """Six calls whose backend takes 20 ms: they wait 0, 20, ... 100 ms at least, for a call that awaits the backend."""
    evidence = findings(summary, "serial-handler")["lock_fault"]["evidence"]
    least = 6 * (20 + 40 + 60 + 80 + 100)
    assert evidence["waited_ms"] >= 0.9 * least, "calls of a burst come one after the other"
    # On a busy machine an answer waits for the loop while the holder still awaits it: that part is the loop's.
    assert 0.5 * least <= evidence["narrow_ms"] <= evidence["waited_ms"]
    assert (evidence["holder"], evidence["root_kind"]) == ("lock_fault", "http")


def test_a_pool_of_two_says_its_size_and_the_one_it_needs(summary: dict[str, Any]) -> None:
    """Six calls of 20 ms on two connections: four wait at first, then two."""
    evidence = findings(summary, "pool-exhausted")["pool_fault"]["evidence"]
    assert (evidence["limit"], evidence["pending_peak"], evidence["holder"]) == (2, 4, "pool_fault")
    assert 4 <= evidence["needed"] <= 6  # 2 + 3 on average: four and then two, for as long as the machine makes it


def test_a_pool_of_a_database_says_the_same(summary: dict[str, Any]) -> None:
    evidence = findings(summary, "pool-exhausted")["engine_fault"]["evidence"]
    assert (evidence["limit"], evidence["pending_peak"], evidence["holder"]) == (2, 4, "engine_fault")
    assert evidence["pool"].startswith("SQLAlchemy pool")
    assert evidence["waited_ms"] >= 0.9 * 6 * (2 * 20 + 2 * 40)


def test_statements_in_a_row_are_counted_and_told_to_become_one(summary: dict[str, Any]) -> None:
    finding = findings(summary, "serial-awaits")["rows_fault"]
    assert (finding["evidence"]["awaits"], finding["evidence"]["kind"]) == (6, "db")
    assert "one statement" in finding["advice"]


def test_a_client_per_request_counts_connections_and_their_handshakes(summary: dict[str, Any]) -> None:
    evidence = findings(summary, "client-per-request")["client_fault"]["evidence"]
    assert (evidence["connections"], evidence["calls"]) == (16, 16)
    assert evidence["connect_ms"] >= 10.0  # the backend waits 20 before its handshake, from when it accepts
    assert evidence["where"] is not None and evidence["where"].startswith(SERVER.name)


def test_requests_in_a_row_say_what_a_task_group_would_give(summary: dict[str, Any]) -> None:
    evidence = findings(summary, "serial-awaits")["serial_fault"]["evidence"]
    assert (evidence["awaits"], evidence["calls"], evidence["kind"]) == (6, 16, "http")
    (row,) = [each for each in summary["operations"] if each["name"] == "serial_fault"]
    late_ms = row["budget_ms"]["ready_wait"] * row["count"]  # once an answer is there, what is left is the loop's
    assert evidence["waited_ms"] + late_ms >= 0.9 * 16 * 6 * 20
    # Of six the longest is at least their mean, however late a process was; the other five took at least 20 ms each.
    assert evidence["saved_ms"] <= 1.05 * 5 / 6 * evidence["waited_ms"]
    assert evidence["saved_ms"] + late_ms >= 0.8 * 16 * 5 * 20


def test_a_slow_backend_is_told_by_its_first_byte_and_whether_it_grows(summary: dict[str, Any]) -> None:
    slow = findings(summary, "slow-backend")
    assert slow["slow_fault"]["evidence"]["first_byte_p50_ms"] >= 370.0  # percentiles are off by less than 6.3 %
    assert slow["slow_fault"]["severity"] == "info"
    growing = slow["growing"]
    assert growing["severity"] == "warn"
    assert growing["evidence"]["crowded_p50_ms"] > 1.5 * growing["evidence"]["alone_p50_ms"]


def test_a_backend_that_serves_all_at_once_is_not_slow(summary: dict[str, Any]) -> None:
    assert "growing_near" not in findings(summary, "slow-backend")


def test_a_queue_that_feeds_slowly_is_told_with_its_line(summary: dict[str, Any]) -> None:
    evidence = findings(summary, "long-wait")["queue_fault"]["evidence"]
    assert (evidence["kind"], evidence["where"], evidence["grows"]) == ("queue", line_in(SERVER, "fed"), 0)


def test_a_server_with_faults_is_not_healthy_and_what_hooks_see_is_explained(summary: dict[str, Any]) -> None:
    assert summary["verdict"]["code"] not in ("healthy", "not-enough-data")
    unexplained = findings(summary, "unexplained-wait")
    hooked = {
        f"{name}_{form}" for name in ("lock", "pool", "engine", "client", "serial") for form in ("fault", "mended")
    }
    assert not hooked & unexplained.keys(), "what hooks name needs no look"
