"""Document 002's operations: what is timed, what is set aside, and which verdicts follow."""

from __future__ import annotations

from collections.abc import Mapping

import anyio
import pytest
from mcp.client import Client

from mcp_probe.workloads.bench.context import Bench
from mcp_probe.workloads.bench.shapes import Check
from mcp_probe.workloads.scenarios import op_latency, op_latency_http
from mcp_probe.workloads.scenarios.op_latency import CONCURRENCY, LEGACY
from mcp_probe.workloads.scenarios.operations import OPERATIONS, WARM_UP, Timed, closed_loop, take_turns
from mcp_probe.workloads.servers import twin

MEDIANS = {
    "ping": 0.730,
    "tool call": 0.888,
    "resource read": 0.839,
    "list tools": 0.885,
    "list resources": 0.812,
    "list prompts": 0.799,
}
MEMORY = {name: value / 4 for name, value in MEDIANS.items()}
RATES = {
    ("ping", 1): (1274.0, 0.78),
    ("ping", CONCURRENCY): (1608.0, 19.0),
    ("tool call", 1): (1083.0, 0.92),
    ("tool call", CONCURRENCY): (1363.0, 23.0),
}


def timed(ms: float, *, contended: bool = False) -> Timed:
    return Timed((9.0,) * WARM_UP, (ms, ms, ms), 0.0, contended)


def latency_verdicts(
    medians: Mapping[str, float] = MEDIANS, rates: Mapping[tuple[str, int], tuple[float, float]] = RATES
) -> dict[str, Check]:
    found = {(LEGACY, name): timed(ms) for name, ms in medians.items()}
    found |= {("in memory", name): timed(ms) for name, ms in MEMORY.items()}
    bench = Bench(quick=True)
    op_latency._claims(bench, found, rates)
    return {check.claim: check for check in bench.outcome().checks}


def test_the_reproduction_s_figures_give_its_verdicts() -> None:
    assert {claim: check.verdict for claim, check in latency_verdicts().items()} == {
        "002-1": "holds",
        "002-2": "holds",
        "002-3": "holds",
        "002-4": "holds",
        "002-6": "does not hold",
        "002-8": "holds",
    }


@pytest.mark.parametrize(
    ("claim", "name", "ms", "verdict"),
    [
        ("002-1", "tool call", 1.5, "holds in shape"),
        ("002-1", "tool call", 2.5, "does not hold"),
        ("002-2", "ping", 1.0, "does not hold"),
        ("002-2", "list tools", 0.9, "holds in shape"),
        ("002-2", "resource read", 1.2, "does not hold"),
        ("002-3", "tool call", 2.0, "does not hold"),
        ("002-4", "list tools", 1.0, "holds in shape"),
        ("002-4", "list tools", 1.5, "does not hold"),
    ],
)
def test_one_other_figure_is_another_verdict(claim: str, name: str, ms: float, verdict: str) -> None:
    assert latency_verdicts({**MEDIANS, name: ms})[claim].verdict == verdict


def test_a_server_that_takes_one_request_after_another_would_be_serial() -> None:
    serial = {**RATES, ("ping", CONCURRENCY): (1274.0, 0.78)}
    assert latency_verdicts(rates=serial)["002-6"].verdict == "holds"


def test_http_is_slower_but_not_by_so_much() -> None:
    stdio = {("stdio", name): timed(0.8) for name in op_latency_http.COMPARED}
    http = {(kind, name): timed(ms) for kind, ms in (("sse", 2.0), ("json", 1.3)) for name in op_latency_http.COMPARED}
    bench = Bench(quick=True)
    rates = {"stdio": (1608.0, 20.0), "sse": (701.0, 45.0), "json": (1065.0, 30.0)}
    op_latency_http._claims(bench, {**stdio, **http}, rates)
    checks = {check.claim: check for check in bench.outcome().checks}
    assert checks["002-5"].verdict == checks["002-7"].verdict == "holds in shape"
    assert checks["002-5"].value == pytest.approx(1.625)
    assert checks["002-7"].value == pytest.approx(1.51, abs=0.01)


def test_the_warm_up_is_kept_apart_and_can_be_put_back() -> None:
    one = timed(1.0)
    assert (one.stats.n, one.stats.mean) == (3, 1.0)
    assert one.with_warm_up.n == 3 + WARM_UP
    assert one.with_warm_up.mean == pytest.approx((9.0 * WARM_UP + 3) / (3 + WARM_UP))


def test_every_operation_has_its_turn_on_the_twin_server() -> None:
    async def run() -> dict[tuple[str, str], Timed]:
        async with Client(twin.server, mode="legacy", cache=None) as client:
            return await take_turns(Bench(quick=True), {"memory": client}, tuple(OPERATIONS), 3)

    taken = anyio.run(run)
    assert {name for _, name in taken} == set(OPERATIONS)
    assert all(len(each.warm_up) == WARM_UP and len(each.kept) == 3 for each in taken.values())


def test_the_twin_server_is_the_document_s() -> None:
    async def run() -> tuple[object, ...]:
        async with Client(twin.server, cache=None) as client:
            tools = [tool.name for tool in (await client.list_tools()).tools]
            resources = [str(each.uri) for each in (await client.list_resources()).resources]
            prompts = [each.name for each in (await client.list_prompts()).prompts]
            (content,) = (await client.read_resource(twin.RESOURCE)).contents
            added = await client.call_tool("add", {"a": 2, "b": 3})
            return tools, resources, prompts, getattr(content, "text", None), added.structured_content

    assert anyio.run(run) == (
        ["add", "concat"],
        ["file:///test.txt"],
        ["write_essay"],
        "This is a test file content.",
        {"result": 5},
    )


def test_a_closed_loop_makes_every_call_once_and_never_more_than_asked_for_at_a_time() -> None:
    async def run() -> tuple[float, float]:
        async with Client(twin.server, mode="legacy", cache=None) as client:
            return await closed_loop(client, "ping", 4, 40)

    rate, mean_ms = anyio.run(run)
    assert 0 < rate * mean_ms / 1000 <= 4.0001  # Little: the mean number in flight
