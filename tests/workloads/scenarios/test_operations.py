"""Document 002's operations: what is timed, what is set aside, and which verdicts follow."""

from __future__ import annotations

from collections.abc import Mapping

import anyio
import pytest
from mcp.client import Client

from mcp_probe.workloads.bench.context import Bench
from mcp_probe.workloads.bench.serving import Transport
from mcp_probe.workloads.bench.shapes import Check, Little
from mcp_probe.workloads.scenarios import op_latency, op_latency_http, operations
from mcp_probe.workloads.scenarios.op_latency import CONCURRENCY, LEGACY
from mcp_probe.workloads.scenarios.operations import OPERATIONS, WARM_UP, Rate, Timed, closed_loop, take_turns
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


def rate(per_s: float, latency_ms: float, workers: int = CONCURRENCY) -> Rate:
    return Rate(per_s, Little(per_s * latency_ms / 1000, workers), 1.0)


RATES = {
    ("ping", 1): rate(1274, 0.78, 1),
    ("ping", CONCURRENCY): rate(1608, 19),
    ("tool call", 1): rate(1083, 0.92, 1),
    ("tool call", CONCURRENCY): rate(1363, 23),
}


def timed(ms: float, *, contended: bool = False) -> Timed:
    return Timed((9.0,) * WARM_UP, (ms, ms, ms), 0.0, contended)


def latency_verdicts(
    medians: Mapping[str, float] = MEDIANS, rates: Mapping[tuple[str, int], Rate] = RATES
) -> dict[str, Check]:
    found = {(LEGACY, name): timed(ms) for name, ms in medians.items()}
    found |= {("in memory", name): timed(ms) for name, ms in MEMORY.items()}
    bench = Bench(quick=True)
    op_latency._claims(bench, found, rates, {})
    return {check.claim: check for check in bench.outcome().checks}


def test_the_reproduction_s_figures_give_its_verdicts() -> None:
    assert {claim: check.verdict for claim, check in latency_verdicts().items()} == {
        "002-1": "holds",
        "002-2": "holds",
        "002-2a": "does not hold",
        "002-3": "in shape",
        "002-4": "holds",
        "002-6": "does not hold",
        "002-8": "holds",
    }


@pytest.mark.parametrize(
    ("claim", "name", "ms", "verdict"),
    [
        ("002-1", "tool call", 1.14, "does not hold"),
        ("002-1", "tool call", 2.5, "does not hold"),
        ("002-2", "ping", 1.0, "does not hold"),
        ("002-2", "list tools", 0.9, "does not hold"),
        ("002-2a", "list tools", 0.8, "holds"),
        ("002-2", "resource read", 1.2, "does not hold"),
        ("002-3", "tool call", 1.5, "holds"),
        ("002-3", "tool call", 0.75, "does not hold"),
        ("002-4", "list tools", 1.0, "in shape"),
        ("002-4", "list tools", 1.5, "does not hold"),
    ],
)
def test_one_other_figure_is_another_verdict(claim: str, name: str, ms: float, verdict: str) -> None:
    assert latency_verdicts({**MEDIANS, name: ms})[claim].verdict == verdict


def test_a_tail_that_others_may_have_made_refutes_nothing() -> None:
    slow = (*[1.0] * 97, 50.0, 50.0, 50.0)
    for contended, expected in ((False, "does not hold"), (True, "cannot be told here")):
        found = {(LEGACY, name): Timed((9.0,), slow, float(contended), contended) for name in OPERATIONS}
        found |= {("in memory", name): timed(ms) for name, ms in MEMORY.items()}
        bench = Bench(quick=True)
        op_latency._claims(bench, found, RATES, {})
        (check,) = (check for check in bench.outcome().checks if check.claim == "002-8")
        assert check.verdict == expected
        assert bool(check.why) == contended


def test_a_server_that_takes_one_request_after_another_would_be_serial() -> None:
    serial = {**RATES, ("ping", CONCURRENCY): rate(1274, 0.78)}
    assert latency_verdicts(rates=serial)["002-6"].verdict == "holds"


def test_http_is_slower_but_not_by_so_much() -> None:
    medians: dict[Transport, float] = {"stdio": 0.8, "sse": 2.0, "json": 1.3}
    found = {(kind, name): timed(ms) for kind, ms in medians.items() for name in op_latency_http.COMPARED}
    bench = Bench(quick=True)
    rates: dict[Transport, Rate] = {"stdio": rate(1608, 20), "sse": rate(701, 45), "json": rate(1065, 30)}
    op_latency_http._claims(bench, found, rates, {})
    checks = {check.claim: check for check in bench.outcome().checks}
    assert checks["002-5"].verdict == checks["002-7"].verdict == "in shape"
    assert {round(part.measured.value, 3) for part in checks["002-5"].parts} == {1.625, 2.5}
    assert min(part.measured.value for part in checks["002-7"].parts) == pytest.approx(1.51, abs=0.01)


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


def test_a_closed_loop_makes_every_call_once_a_run_and_never_more_than_asked_for_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    numbers: list[int] = []

    async def counted(client: Client, number: int) -> object:
        numbers.append(number)
        return await OPERATIONS["ping"](client, number)

    async def run() -> Rate:
        async with Client(twin.server, mode="legacy", cache=None) as client:
            return await closed_loop(client, "counted", 4, 40)

    monkeypatch.setattr(operations, "OPERATIONS", {"counted": counted})
    found = anyio.run(run)
    assert sorted(numbers) == sorted([*range(40), *range(40)])  # two runs, for the A/A
    assert 0 < found.little.mean_in_flight <= 4.0001
    assert found.floor >= 1
