"""Results, exceptions and cancellation pass the probe as the same objects, and are recorded as what they were."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest
from mcp import Client, MCPError
from mcp.client._memory import InMemoryTransport
from mcp.server import Server, ServerRequestContext
from mcp.server.mcpserver import MCPServer
from mcp.shared.memory import create_client_server_memory_streams
from mcp_types import CallToolRequestParams, CallToolResult, ListToolsResult, PaginatedRequestParams, TextContent

import mcp_probe
from mcp_probe.model import RequestRecord
from tests.kept import keep, probed
from tests.loops import LOOPS

on_each_loop = pytest.mark.parametrize("anyio_backend", LOOPS)
on_each_path = pytest.mark.parametrize("over_streams", [True, False], ids=["streams", "in process"])


class Refusal(BaseException):
    """An exception that is no ``Exception``."""


FAULTS: list[BaseException] = [
    ValueError("x"),
    MCPError(code=-32050, message="refused"),
    Refusal("y"),
    asyncio.CancelledError("by hand"),
    KeyboardInterrupt(),
    SystemExit(3),
    GeneratorExit(),
]


class Context:
    """What our middleware reads of the SDK's context."""

    def __init__(self, request_id: Any = 1) -> None:
        self.request_id = request_id
        self.method = "tools/call"
        self.params = {"name": "it", "arguments": {}}
        self.protocol_version = "2026-07-28"
        self.session = object()


def run_by_hand(awaitable: Awaitable[Any]) -> Any:
    """Drives a coroutine that never suspends, with nothing between us and what it raises."""
    iterator: Any = awaitable.__await__()
    try:
        iterator.send(None)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("it suspended")


async def in_a_loop(work: Callable[[], Any]) -> Any:
    return work()


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: type(fault).__name__)
def test_exception_passes_the_middleware_as_the_same_object(fault: BaseException) -> None:
    server = MCPServer("outcomes", log_level="CRITICAL")
    probe = mcp_probe.attach(server)
    middleware: Any = server._lowlevel_server.middleware[0]
    calls = []

    async def raises(ctx: Any) -> Any:
        calls.append(ctx)
        raise fault

    def raises_at_once(ctx: Any) -> Any:
        calls.append(ctx)
        raise fault

    def work() -> None:
        for call_next in (raises, raises_at_once):
            calls.clear()
            ctx = Context()
            with pytest.raises(type(fault)) as caught:
                run_by_hand(middleware(ctx, call_next))
            assert caught.value is fault
            assert calls == [ctx], "the rest of the chain runs once"

    work()
    asyncio.run(in_a_loop(work))
    probe.detach()
    work()


def test_result_passes_the_middleware_as_the_same_object() -> None:
    server = MCPServer("outcomes", log_level="CRITICAL")
    probe = mcp_probe.attach(server)
    middleware: Any = server._lowlevel_server.middleware[0]
    result = object()

    async def returns(ctx: Any) -> Any:
        return result

    def work() -> None:
        assert run_by_hand(middleware(Context(), returns)) is result

    asyncio.run(in_a_loop(work))
    work()
    probe.detach()


class Outermost:
    """A middleware outside ours, which sees what passed ours."""

    def __init__(self) -> None:
        self.saw: list[Any] = []

    async def __call__(self, ctx: Any, call_next: Any) -> Any:
        try:
            result = await call_next(ctx)
        except BaseException as exc:
            self.saw.append(exc)
            raise
        self.saw.append(result)
        return result


@on_each_loop
@on_each_path
async def test_what_the_handler_raises_is_what_the_sdk_gets(over_streams: bool) -> None:
    faults: dict[str, Exception] = {
        "value": ValueError("x"),
        "mcp": MCPError(code=-32050, message="refused"),
        "timeout": TimeoutError("late"),
    }

    async def call_tool(ctx: ServerRequestContext[Any], params: CallToolRequestParams) -> CallToolResult:
        await anyio.lowlevel.checkpoint()
        if params.name in faults:
            raise faults[params.name]
        return CallToolResult(content=[TextContent(type="text", text=params.name)], is_error=params.name == "sorry")

    async def list_tools(ctx: ServerRequestContext[Any], params: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=[])

    server = Server("low level", on_call_tool=call_tool, on_list_tools=list_tools)
    outside = Outermost()
    with probed(server) as kept:
        server.middleware.insert(0, outside)
        async with Client(InMemoryTransport(server) if over_streams else server) as client:
            for name in ("fine", "sorry"):
                assert (await client.call_tool(name, {})).is_error == (name == "sorry")
            for name in faults:
                with pytest.raises(MCPError):
                    await client.call_tool(name, {})
    raised = [thing for thing in outside.saw if isinstance(thing, BaseException)]
    assert [next(fault for fault in raised if fault is mine) for mine in faults.values()] == list(faults.values())
    assert outcomes(kept.requests()) >= {
        ("fine", "ok"),
        ("sorry", "tool_error"),
        ("value", "error"),
        ("mcp", "error"),
        ("timeout", "error"),
    }
    assert kept.only("mcp").error == "-32050"


def outcomes(records: list[RequestRecord]) -> set[tuple[str, str]]:
    return {(record.name or record.method, record.outcome) for record in records}


class Holding:
    """A server with a tool that stays until it is cancelled, and tells how that came."""

    def __init__(self) -> None:
        self.server = MCPServer("holding", log_level="CRITICAL")
        self.entered = anyio.Event()
        self.left = anyio.Event()
        self.saw: list[BaseException] = []

        @self.server.tool()
        async def hold() -> str:
            try:
                self.entered.set()
                await anyio.sleep_forever()
            except BaseException as exc:
                self.saw.append(exc)
                raise
            finally:
                self.left.set()
            return "never"

        @self.server.tool()
        async def hold_a_thread() -> str:
            self.entered.set()
            try:
                await anyio.to_thread.run_sync(self.block, abandon_on_cancel=True)
            finally:
                self.left.set()
            return "never"

        @self.server.tool()
        async def ping() -> str:
            return "pong"

        @self.server.tool()
        async def own_timeout() -> str:
            with anyio.fail_after(0.001):
                await anyio.sleep_forever()
            return "never"

        @self.server.tool()
        async def own_scope() -> str:
            async with anyio.create_task_group() as group:
                group.start_soon(anyio.sleep_forever)
                group.start_soon(anyio.sleep_forever)
                await anyio.lowlevel.checkpoint()
                group.cancel_scope.cancel()
            return "cancelled its children"

        @self.server.tool()
        async def cleans_up() -> str:
            self.entered.set()
            try:
                await anyio.sleep_forever()
            finally:
                with anyio.CancelScope(shield=True):
                    await anyio.sleep(0.001)
                    self.left.set()
            return "never"

        import threading

        self._release = threading.Event()

    def block(self) -> None:
        self._release.wait(250)

    def release(self) -> None:
        self._release.set()


@on_each_loop
@on_each_path
@pytest.mark.parametrize("tool", ["hold", "hold_a_thread", "cleans_up"])
async def test_call_that_the_client_gives_up_is_cancelled_in_the_server_and_recorded_so(
    tool: str, over_streams: bool
) -> None:
    holding = Holding()
    with probed(holding.server) as kept:
        async with Client(InMemoryTransport(holding.server) if over_streams else holding.server) as client:
            with anyio.fail_after(100):
                async with anyio.create_task_group() as group:
                    group.start_soon(client.call_tool, tool, {})
                    await holding.entered.wait()
                    group.cancel_scope.cancel()
                await holding.left.wait()
                assert not (await client.call_tool("ping", {})).is_error
        holding.release()
    record = kept.only(tool)
    assert record.outcome == "cancelled"
    assert record.first_step_ns is not None and record.end_ns > record.arrival_ns
    assert kept.only("ping").outcome == "ok"
    if tool == "hold":
        assert [type(exc) for exc in holding.saw] == [anyio.get_cancelled_exc_class()]


@on_each_loop
@on_each_path
async def test_cancellation_and_timeouts_inside_a_tool_stay_inside(over_streams: bool) -> None:
    holding = Holding()
    with probed(holding.server) as kept:
        async with Client(InMemoryTransport(holding.server) if over_streams else holding.server) as client:
            with anyio.fail_after(100):
                timed_out = await client.call_tool("own_timeout", {})
                scoped = await client.call_tool("own_scope", {})
    assert timed_out.is_error
    assert scoped.structured_content == {"result": "cancelled its children"}
    assert outcomes(kept.requests()) >= {("own_timeout", "tool_error"), ("own_scope", "ok")}


@on_each_loop
async def test_client_that_hangs_up_cancels_what_runs_and_ends_the_server() -> None:
    holding = Holding()
    ended = anyio.Event()
    with probed(holding.server) as kept:
        server = holding.server._lowlevel_server
        with anyio.fail_after(100):
            async with create_client_server_memory_streams() as ((_, write), streams):

                async def serve() -> None:
                    await server.run(*streams, server.create_initialization_options())
                    ended.set()

                async with anyio.create_task_group() as group:
                    group.start_soon(serve)
                    await send_call(write, "hold")
                    await holding.entered.wait()
                    await write.aclose()
                    await ended.wait()
    assert holding.left.is_set()
    assert kept.only("hold").outcome in ("cancelled", "error")


async def send_call(write: Any, tool: str) -> None:
    from mcp.shared.message import SessionMessage
    from mcp_types import JSONRPCRequest

    from tests.adapters.asgi_client import META

    params = {"name": tool, "arguments": {}, "_meta": META}
    await write.send(SessionMessage(JSONRPCRequest(jsonrpc="2.0", id=1, method="tools/call", params=params)))


@on_each_loop
@on_each_path
async def test_request_in_flight_when_the_probe_leaves_is_unfinished_with_what_is_known(over_streams: bool) -> None:
    holding = Holding()
    probe = mcp_probe.attach(holding.server)
    kept = keep(probe)
    async with Client(InMemoryTransport(holding.server) if over_streams else holding.server) as client:
        with anyio.fail_after(100):
            async with anyio.create_task_group() as group:
                group.start_soon(client.call_tool, "hold", {})
                await holding.entered.wait()
                await anyio.sleep(0.005)
                probe.detach()
                group.cancel_scope.cancel()
    record = kept.only("hold")
    assert record.outcome == "unfinished"
    assert record.result_ns is None
    assert record.budget.awaiting is not None and record.budget.awaiting > 0
    parts = [getattr(record.budget, name) for name in record.budget.__slots__]
    assert sum(part for part in parts if part is not None) == record.end_ns - record.arrival_ns


async def test_base_exception_of_a_handler_ends_the_server_as_without_a_probe() -> None:
    async def run(probe_it: bool) -> list[type[BaseException]]:
        server = MCPServer("refusing", log_level="CRITICAL")

        @server.tool()
        async def refuse() -> str:
            raise Refusal("no")

        if probe_it:
            mcp_probe.attach(server)
        try:
            async with Client(InMemoryTransport(server)) as client:
                with anyio.fail_after(100):
                    await client.call_tool("refuse", {})
        except BaseException as exc:  # noqa: BLE001 - whatever comes out is what is looked at
            return leaves(exc)
        return []

    bare = await run(probe_it=False)
    probed = await run(probe_it=True)
    [probe] = mcp_probe.session.attached()
    probe.detach()
    assert Refusal in bare
    assert probed == bare


def leaves(exc: BaseException) -> list[type[BaseException]]:
    inner = getattr(exc, "exceptions", None)
    return [type(exc)] if inner is None else [leaf for one in inner for leaf in leaves(one)]
