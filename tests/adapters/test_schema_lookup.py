"""What the SDK asks a server itself is part of the call that needs it: counts are what the client sent."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from mcp.server.lowlevel import Server
from mcp.server.mcpserver import MCPServer
from mcp_types import CallToolResult, ListToolsResult, TextContent, Tool

from mcp_probe.model import RequestRecord
from tests.adapters.asgi_client import Modern, message, started
from tests.kept import probed
from tests.loops import LOOPS

LIST_S = 0.03
TEXT = {"type": "string"}


def lowlevel(text: dict[str, str] | None = None, *, fails: bool = False) -> Any:
    """Two pages of tools, each of which takes its time; one of them gives up the loop, the other does not."""
    schema = {"type": "object", "properties": {"text": text or TEXT}}

    async def list_tools(ctx: Any, params: Any) -> ListToolsResult:
        if fails:
            raise RuntimeError("no tools today")
        if params is None or params.cursor is None:
            await anyio.sleep(LIST_S)
            return ListToolsResult(tools=[Tool(name="other", input_schema=schema)], next_cursor="more")
        time.sleep(LIST_S)
        return ListToolsResult(tools=[Tool(name="say", input_schema=schema)])

    async def call_tool(ctx: Any, params: Any) -> CallToolResult:
        return CallToolResult(content=[TextContent(type="text", text="said")])

    return Server("lowlevel", on_list_tools=list_tools, on_call_tool=call_tool)


def mcpserver() -> Any:
    server = MCPServer("mcpserver")

    @server.tool()
    async def say(text: str) -> str:
        return text

    return server


def of_fastmcp() -> Any:
    fastmcp = pytest.importorskip("fastmcp")
    server = fastmcp.FastMCP("of fastmcp")

    async def say(text: str) -> str:
        return text

    server.tool(say)
    return server


def app_of(server: Any, *, json: bool) -> Any:
    if hasattr(server, "streamable_http_app"):
        return server.streamable_http_app(json_response=json)
    return server.http_app(json_response=json)


def row(record: RequestRecord, measure: str = "schema_lookup") -> tuple[int | None, str]:
    """(ns, how exact) of its schema look-up."""
    ((value, tag),) = [(value, tag) for name, value, tag in record.measures if name == measure]
    return value, tag


@pytest.mark.parametrize("json", [True, False], ids=["json", "sse"])
@pytest.mark.parametrize("make", [lowlevel, mcpserver, of_fastmcp])
@pytest.mark.parametrize("anyio_backend", LOOPS)
async def test_each_operation_counts_what_the_client_sent(make: Callable[[], Any], json: bool) -> None:
    server = make()
    with probed(server) as kept:
        async with started(app_of(server, json=json)) as app:
            client = Modern(app)
            for id in range(5):
                assert (await client.call(id, "say", text="hello")).status == 200
            await client.send(5, "tools/list")
    assert Counter(record.name or record.method for record in kept.requests()) == {"say": 5, "tools/list": 1}
    assert {record.outcome for record in kept.requests()} == {"ok"}
    for record in kept.requests("say"):
        assert record.budget.unaccounted is not None
        assert record.budget.unaccounted < 0.05 * (record.end_ns - record.arrival_ns) + 1_000_000


@pytest.mark.parametrize("json", [True, False], ids=["json", "sse"])
@pytest.mark.parametrize("anyio_backend", LOOPS)
async def test_the_look_up_is_a_part_of_the_call_and_has_a_name(json: bool) -> None:
    server = lowlevel()
    with probed(server) as kept:
        async with started(app_of(server, json=json)) as app:
            await Modern(app).call(1, "say", text="hello")
            await Modern(app).send(2, "tools/list")
    call = kept.only("say")
    value, tag = row(call)
    assert tag == "exact"
    assert value is not None
    assert 1.9 * LIST_S * 1e9 <= value <= call.end_ns - call.arrival_ns
    assert call.budget.busy is not None and call.budget.busy >= 0.9 * LIST_S * 1e9
    assert call.budget.awaiting is not None and call.budget.awaiting >= 0.9 * LIST_S * 1e9
    assert row(kept.only("tools/list")) == (0, "exact")
    on_loop, tag = row(call, "schema_lookup_busy")
    assert tag == "exact"
    busy = call.budget.busy + (call.budget.gc or 0)
    assert on_loop is not None and 0.9 * LIST_S * 1e9 <= on_loop <= min(busy, value - 0.9 * LIST_S * 1e9)


@pytest.mark.parametrize("json", [True, False], ids=["json", "sse"])
@pytest.mark.parametrize("anyio_backend", LOOPS)
async def test_between_the_look_up_and_the_handler_the_call_waits_as_anywhere(json: bool, anyio_backend: Any) -> None:
    """Another task holds the loop as the look-up is over. Over SSE the handler has a task of its own, which waits."""
    server = lowlevel()
    with probed(server) as kept:
        async with started(app_of(server, json=json)) as app, anyio.create_task_group() as group:
            listing = server.get_request_handler("tools/list")

            listed = anyio.Event()

            async def hold() -> None:
                await listed.wait()
                time.sleep(LIST_S)

            async def list_tools(ctx: Any, params: Any) -> Any:
                if params is not None and params.cursor is not None:
                    listed.set()
                return await listing.handler(ctx, params)

            server.add_request_handler("tools/list", listing.params_type, list_tools)
            group.start_soon(hold)
            await anyio.lowlevel.checkpoint()
            await Modern(app).call(1, "say", text="hello")
    call = kept.only("say")
    assert call.budget.unaccounted is not None and call.budget.unaccounted < 1_000_000
    assert call.detached_ns == 0
    if not json and anyio_backend != "trio":  # which runs what is ready in any order
        assert call.budget.ready_wait is not None and call.budget.ready_wait >= 0.9 * LIST_S * 1e9


async def test_headers_that_do_not_fit_the_schema_are_an_answered_call() -> None:
    server = lowlevel({**TEXT, "x-mcp-header": "text"})
    with probed(server) as kept:
        async with started(app_of(server, json=True)) as app:
            client = Modern(app)
            body = message(1, "tools/call", name="say", arguments={"text": "hello"}, **client.envelope)
            answer = await client.post(body, "tools/call", "say", [(b"mcp-param-text", b"goodbye")])
    assert answer.status == 400
    (record,) = kept.requests()
    assert (record.name, record.outcome) == ("say", "error")
    assert record.error == record.error_code is not None
    assert record.budget.write_flush is not None


async def test_a_listing_that_fails_leaves_one_whole_call() -> None:
    server = lowlevel(fails=True)
    with probed(server) as kept:
        async with started(app_of(server, json=True)) as app:
            assert (await Modern(app).call(1, "say", text="hello")).status == 200
    assert [(record.name, record.outcome) for record in kept.requests()] == [("say", "ok")]
