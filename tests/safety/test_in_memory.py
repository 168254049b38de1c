"""In-process connections: what they lack is said to be unavailable, never 0."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from mcp import Client
from mcp.client._memory import InMemoryTransport
from mcp.server.mcpserver import MCPServer

import mcp_probe
from mcp_probe.model import OperationSummary, RequestRecord
from tests.adapters.asgi_client import Handshake, Modern, started
from tests.kept import keep, unavailable
from tests.loops import LOOPS

on_each_loop = pytest.mark.parametrize("anyio_backend", LOOPS)
PARTS = {"queue_transport", "queue_dispatch", "write_wait", "write_flush"}
OVER_STREAMS = {"queue_transport", "write_flush"}


def make_server() -> MCPServer:
    server = MCPServer("in memory", log_level="CRITICAL")

    @server.tool()
    async def add(a: int, b: int) -> int:
        await anyio.sleep(0.001)
        return a + b

    @server.tool()
    def in_thread(text: str) -> str:
        return text[::-1]

    return server


async def call_both(target: Any) -> None:
    async with Client(target) as client:
        for _ in range(3):
            assert (await client.call_tool("add", {"a": 1, "b": 2})).structured_content == {"result": 3}
            assert (await client.call_tool("in_thread", {"text": "ab"})).structured_content == {"result": "ba"}


def assert_says_what_it_lacks(record: RequestRecord, lacking: set[str]) -> None:
    assert unavailable(record) == lacking
    for part in PARTS:
        assert (getattr(record.budget, part) is None) == (part in lacking), part
    parts = [getattr(record.budget, part) for part in record.budget.__slots__]
    assert sum(part for part in parts if part is not None) == record.end_ns - record.arrival_ns
    assert record.outcome == "ok" and record.steps > 0 and not record.partial


def assert_row_says_what_it_lacks(row: OperationSummary, lacking: set[str]) -> None:
    for part in PARTS:
        assert (getattr(row.budget_ms, part) is None) == (part in lacking), part
        assert (part in row.quality and row.quality[part].tag == "unavailable") == (part in lacking), part


@on_each_loop
@pytest.mark.parametrize("over_streams", [True, False], ids=["streams", "in process"])
async def test_part_that_the_connection_does_not_have_is_unavailable(over_streams: bool) -> None:
    server = make_server()
    lacking = OVER_STREAMS if over_streams else set()
    probe = mcp_probe.attach(server)
    kept = keep(probe)
    await call_both(InMemoryTransport(server) if over_streams else server)
    summary = probe.snapshot()
    probe.detach()
    assert len(kept.requests("add")) == len(kept.requests("in_thread")) == 3
    for record in kept.requests("add") + kept.requests("in_thread"):
        assert record.transport == ("streams" if over_streams else "memory")
        assert_says_what_it_lacks(record, lacking)
    rows = {row.name: row for row in summary.operations}
    for name in ("add", "in_thread"):
        assert_row_says_what_it_lacks(rows[name], lacking)
    if over_streams:
        assert all(row.quality["queue_transport"].tag == "unavailable" for row in summary.operations)


@on_each_loop
async def test_server_called_from_a_tool_of_another_server_is_charged_to_both() -> None:
    inner, outer = make_server(), MCPServer("outer", log_level="CRITICAL")

    @outer.tool()
    async def relay(a: int, b: int) -> int:
        async with Client(inner) as client:
            result = await client.call_tool("add", {"a": a, "b": b})
        assert result.structured_content is not None
        value: int = result.structured_content["result"]
        return value

    of_inner, of_outer = mcp_probe.attach(inner), mcp_probe.attach(outer)
    kept_inner, kept_outer = keep(of_inner), keep(of_outer)
    async with Client(InMemoryTransport(outer)) as client:
        async with anyio.create_task_group() as group:
            for number in range(3):
                group.start_soon(client.call_tool, "relay", {"a": number, "b": 1})
        answer = await client.call_tool("relay", {"a": 40, "b": 2})
    of_inner.detach()
    of_outer.detach()
    assert answer.structured_content == {"result": 42}
    assert len(kept_inner.requests("add")) == len(kept_outer.requests("relay")) == 4
    assert kept_outer.requests("add") == kept_inner.requests("relay") == []
    for record in kept_inner.requests("add"):
        assert record.outcome == "ok" and unavailable(record) == set()
    for record in kept_outer.requests("relay"):
        assert_says_what_it_lacks(record, OVER_STREAMS)
        assert record.budget.awaiting is not None and record.budget.ready_wait is not None
        # A task of its own may be ready all the time: then it waits for the loop and not for the other server.
        assert record.budget.awaiting + record.budget.ready_wait > 0


@on_each_loop
@pytest.mark.parametrize("over_http", [True, False], ids=["http", "streams"])
async def test_attached_server_called_from_a_tool_of_one_that_is_not_keeps_its_own_records(over_http: bool) -> None:
    inner, outer = make_server(), MCPServer("outer", log_level="CRITICAL")

    @outer.tool()
    async def relay() -> str:
        async with Client(inner) as client:
            for _ in range(4):  # so that some request ids of both connections are the same
                await client.call_tool("add", {"a": 1, "b": 1})
        return "done"

    probe = mcp_probe.attach(inner)
    kept = keep(probe)
    if over_http:
        async with started(outer.streamable_http_app()) as app:
            http = Handshake(app)
            await http.open()
            for id in range(1, 5):
                assert (await http.call(id, "relay")).status == 200
    else:
        async with Client(InMemoryTransport(outer)) as client:
            for _ in range(4):
                await client.call_tool("relay", {})
    probe.detach()
    assert len(kept.requests("add")) == 16
    assert {record.transport for record in kept.requests("add")} == {"memory"}
    assert kept.requests("relay") == kept.requests("initialize") == []


@on_each_loop
@pytest.mark.parametrize("kind", [Modern, Handshake], ids=["modern", "session"])
async def test_in_process_call_from_a_tool_served_over_http_leaves_the_exchange_to_its_caller(
    kind: type[Modern],
) -> None:
    inner, outer = make_server(), MCPServer("outer", log_level="CRITICAL")

    @outer.tool()
    async def relay() -> str:
        for target in (inner, InMemoryTransport(inner)):
            async with Client(target) as client:
                await client.call_tool("add", {"a": 1, "b": 1})
        async with started(inner.streamable_http_app()) as nested:
            await Modern(nested).call(1, "add", a=1, b=1)
        return "done"

    of_inner, of_outer = mcp_probe.attach(inner), mcp_probe.attach(outer)
    kept_inner, kept_outer = keep(of_inner), keep(of_outer)
    async with started(outer.streamable_http_app()) as app:
        http = kind(app)
        await http.open()
        for id in range(1, 4):
            assert (await http.call(id, "relay")).status == 200
    of_inner.detach()
    of_outer.detach()
    assert [record.outcome for record in kept_outer.requests("relay")] == ["ok"] * 3
    for record in kept_outer.requests("relay"):
        assert record.transport == "http"
        assert unavailable(record) == {"queue_transport"}, "no server has read it from a socket"
    assert [record.transport for record in kept_inner.requests("add")] == ["memory", "streams", "http"] * 3
    for record, caller in zip(
        kept_inner.requests("add"), [r for r in kept_outer.requests("relay") for _ in "123"], strict=True
    ):
        assert caller.arrival_ns < record.arrival_ns < record.end_ns < caller.end_ns
