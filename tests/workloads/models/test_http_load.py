"""Document 004's client patterns against a server that counts what really reached it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import anyio
import pytest

from mcp_probe.workloads.models.clients import installed
from mcp_probe.workloads.models.http_load import Level, Pattern, profiled_shares
from mcp_probe.workloads.models.model_process import ask_model, explain_model
from mcp_probe.workloads.servers.delay_http import DelayServer, delay_server

pytestmark = pytest.mark.workloads

MODULE = "mcp_probe.workloads.models.http_load"
LIBRARIES = installed(("httpx2", "httpx"))


@pytest.fixture(scope="module")
def server() -> Iterator[DelayServer]:
    with delay_server(5) as running:
        yield running


def arguments(library: str, server: DelayServer, *levels: Level) -> list[object]:
    told = json.dumps([asdict(level) for level in levels])
    return ["--library", library, "--url", f"{server.url}/health", "--levels", told]


def load(library: str, server: DelayServer, *levels: Level) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = anyio.run(ask_model, MODULE, *arguments(library, server, *levels))["levels"]
    return found


@pytest.mark.parametrize("library", LIBRARIES)
def test_what_the_client_counts_is_what_the_server_saw(library: str, server: DelayServer) -> None:
    """The server also sees the one request that gets the imports over with."""
    size: dict[str, Any] = {"concurrency": 4, "seconds": 0.8, "drain_s": 60.0}
    patterns: tuple[Pattern, ...] = ("one_context", "no_keepalive", "default", "limits", "raw")
    found = load(library, server, *(Level(pattern=pattern, **size) for pattern in patterns))
    for pattern, said in zip(patterns, found, strict=True):
        assert said["errors"] == {}, pattern
        assert said["cancelled"] == 0, pattern
        assert 1 <= said["started"] <= 4, pattern  # a machine that stands still may let some begin too late
        assert said["server"]["requests"] == said["answered"] + 1, pattern
        assert said["versions"] == ["HTTP/1.1"], pattern
        assert said["answered"] >= said["started"], pattern
        assert said["rps"] == pytest.approx(said["answered"] / said["seconds"]), pattern
        assert said["server"]["in_flight_peak"] <= 4, pattern
    by_pattern = {pattern: said["server"] for pattern, said in zip(patterns, found, strict=True)}
    assert by_pattern["one_context"]["connections"] == by_pattern["one_context"]["requests"]
    assert by_pattern["no_keepalive"]["connections"] == by_pattern["no_keepalive"]["requests"]
    assert by_pattern["default"]["connections"] <= 5
    assert by_pattern["raw"]["connections"] <= 5


@pytest.mark.parametrize("library", LIBRARIES)
def test_no_more_is_ever_in_flight_than_the_pool_has_connections(library: str, server: DelayServer) -> None:
    level = Level(concurrency=12, connections=3, keepalive=3, seconds=0.8, drain_s=60.0)
    (said,) = load(library, server, level)
    assert 1 <= said["server"]["in_flight_peak"] <= 3
    assert said["server"]["connections"] <= 3
    assert said["server"]["requests"] == said["answered"] + 1


def test_what_is_unanswered_after_the_drain_is_cancelled_and_counted() -> None:
    """Nothing but the request before the clock is answered: the others wait longer than anybody has patience."""
    with delay_server(1500) as slow:
        (said,) = load(LIBRARIES[0], slow, Level(concurrency=5, seconds=0.05, drain_s=0.1))
    assert said["answered"] == 0
    assert said["cancelled"] == said["started"]
    assert said["mean_ms"] is None
    assert said["rps"] == 0
    assert said["versions"] == []


@pytest.mark.parametrize("library", LIBRARIES)
def test_default_limits_and_the_cost_of_a_client(library: str, server: DelayServer) -> None:
    said = anyio.run(ask_model, MODULE, *arguments(library, server), "--construct", 3)
    assert said["default_limits"] == {
        "max_connections": 100,
        "max_keepalive_connections": 20,
        "keepalive_expiry": 5.0,
    }
    made = said["construction_ms"]
    # Both are of one process, and one of them reads every root certificate: some 20 ms against 0.1 ms.
    assert made["per_request"] > 3 * made["one_context"]


def test_a_client_per_request_is_explained_by_its_construction(server: DelayServer) -> None:
    level = Level(pattern="per_request", concurrency=3, seconds=1.5, drain_s=60.0)
    seen, sentence = anyio.run(explain_model, MODULE, *arguments(LIBRARIES[0], server, level))
    assert {each.method for each in seen.requests} == {"per_request"}
    # Where in it the time went is sampled, and a busy machine may sample nothing; that it held the loop is counted.
    assert any(step.tool == "per_request" for step in seen.summary.slow_steps)
    assert sentence.endswith(".")


def test_the_profiler_s_shares_are_of_the_time_inside_a_function() -> None:
    def load_verify_locations() -> int:
        return sum(range(300_000))

    def everything() -> None:
        load_verify_locations()
        sum(range(300_000))

    shares = profiled_shares(everything)
    assert shares["_assign_requests_to_connections"] == 0
    assert 0 < shares["load_verify_locations"] < 1
