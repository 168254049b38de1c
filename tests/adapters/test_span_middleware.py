"""Spans around real handlers of mcp 2.x and fastmcp 4, in memory and over HTTP, with the SDK's own exporter."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any
from urllib.request import Request, urlopen

import anyio
import pytest
from mcp import Client, MCPError
from mcp.client._memory import InMemoryTransport
from mcp.server import Server
from mcp.server.mcpserver import MCPServer
from opentelemetry import baggage, propagate, trace
from opentelemetry.propagators.textmap import TextMapPropagator
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import SpanKind, StatusCode

from mcp_probe.adapters.span_middleware import OuterNote, SpanMiddleware
from mcp_probe.export.generated_ids import GeneratedIds
from mcp_probe.export.phase_spans import SpanExport
from mcp_probe.export.server_spans import ServerSpans
from mcp_probe.model import RequestRecord
from mcp_probe.session import Probe, attach
from tests.adapters.asgi_client import META, Handshake, Modern, started
from tests.loops import LOOPS
from tests.running import kind_of
from tests.tracing import CALLER_ID, TRACE_ID, TRACEPARENT, Spans, attributes_of, make_global, traced

pytestmark = pytest.mark.anyio
SECRET = "the-secret-41c9"


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Spans:
    """Where the application's spans go."""
    found = Spans()
    make_global(found, monkeypatch)
    return found


def make_server(*tools: Callable[..., Any], middleware: Any = None) -> MCPServer:
    server = MCPServer("traced", log_level="CRITICAL", middleware=middleware)

    @server.tool()
    async def add(a: int, b: int) -> int:
        return a + b

    for tool in tools:
        server.tool()(tool)
    return server


def make_lowlevel() -> Any:
    import mcp_types as types

    async def on_call(ctx: Any, params: Any) -> types.CallToolResult:
        return types.CallToolResult(content=[])

    async def on_list(ctx: Any, params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[types.Tool(name="add", input_schema={"type": "object"})])

    return Server("low", on_call_tool=on_call, on_list_tools=on_list)


def make_fastmcp() -> Any:
    from fastmcp import FastMCP

    server = FastMCP("fast")

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    return server


def lowlevel_of(server: Any) -> Any:
    for name in ("_lowlevel_server", "_mcp_server"):
        if hasattr(server, name):
            return getattr(server, name)
    return server


def without_sdk_spans(server: MCPServer) -> MCPServer:
    chain = server._lowlevel_server.middleware
    chain[:] = [item for item in chain if type(item).__name__ != "OpenTelemetryMiddleware"]
    return server


async def call(server: Any, tool: str, meta: dict[str, Any] | None = None, **arguments: Any) -> Any:
    async with Client(InMemoryTransport(lowlevel_of(server))) as client:
        try:
            return await client.call_tool(tool, arguments, meta=meta)  # type: ignore[arg-type]
        except MCPError as error:
            return error


# --- whose span it is -----------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [make_server, make_lowlevel, make_fastmcp], ids=["MCPServer", "Server", "fastmcp"])
async def test_the_frameworks_own_span_gets_the_budget_and_stays_the_only_one(make: Any, spans: Spans) -> None:
    server = make()
    with traced(server) as kept:
        await call(server, "add", a=1, b=2)
    span = spans.only("tools/call add")
    found = attributes_of(span)
    assert found["mcp_probe.steps"] >= 1
    assert found["mcp_probe.busy"] > 0
    step, busy, gc = (round(1e9 * found.get(f"mcp_probe.{name}", 0)) for name in ("step.max", "busy", "gc"))
    assert step <= busy + gc
    assert {"mcp_probe.awaiting", "mcp_probe.ready_wait"} <= found.keys()
    assert found["gen_ai.operation.name"] == "execute_tool"
    assert found["gen_ai.tool.name"] == "add"
    assert found["mcp.protocol.version"]
    assert found["jsonrpc.request.id"]
    record = kept.only("add")
    assert (record.server_span, (record.trace_flags or 0) & 1) == ("app", 1)
    assert record.trace_id == f"{span.context.trace_id:032x}"
    assert record.span_id == f"{span.context.span_id:016x}"
    assert len({span.context.span_id for span in spans.server()}) == len(kept.requests()) + len(
        kept.requests(kind="notification")
    )


async def test_where_the_sdks_middleware_is_gone_ours_follows_the_conventions(spans: Spans) -> None:
    server = without_sdk_spans(make_server())
    with traced(server) as kept:
        await call(server, "add", a=1, b=2)
    span = spans.only("tools/call add")
    assert span.instrumentation_scope is not None
    assert span.instrumentation_scope.name == "mcp_probe"
    found = attributes_of(span)
    assert found["mcp.method.name"] == "tools/call"
    assert found["gen_ai.tool.name"] == "add"
    assert found["gen_ai.operation.name"] == "execute_tool"
    assert found["jsonrpc.request.id"].isdigit()
    assert found["mcp_probe.busy"] > 0
    assert span.status.status_code is StatusCode.UNSET
    assert kept.only("add").server_span == "probe"


async def test_a_request_that_the_sampler_refused_gets_no_second_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = Spans(sampler=ALWAYS_OFF)
    make_global(refused, monkeypatch)
    server = make_server()
    with traced(server) as kept:
        await call(server, "add", a=1, b=2)
    assert refused.all() == []
    record = kept.only("add")
    assert (record.server_span, (record.trace_flags or 0) & 1) == ("app", 0)


async def test_enriching_only_opens_nothing(spans: Spans) -> None:
    server = without_sdk_spans(make_server())
    with traced(server, ServerSpans(opens=False)) as kept:
        await call(server, "add", a=1, b=2)
    assert spans.server() == []
    assert kept.only("add").span_id is None


async def test_without_any_provider_nothing_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)
    server = without_sdk_spans(make_server())
    with traced(server) as kept:
        await call(server, "add", a=1, b=2)
    assert kept.only("add").span_id is None


async def test_the_middleware_form_adds_to_the_sdks_span(spans: Spans) -> None:
    probe = Probe(telemetry="off")
    try:
        probe.trace_with(ServerSpans())
        server = make_server(middleware=[probe.middleware])
        await call(server, "add", a=1, b=2)
    finally:
        probe.detach()
    assert attributes_of(spans.only("tools/call add"))["mcp_probe.busy"] > 0


@pytest.mark.parametrize("between", [False, True], ids=["alone", "with another between"])
async def test_detaching_takes_the_middleware_out_again(between: bool) -> None:
    server = make_server()
    chain = server._lowlevel_server.middleware
    if between:
        chain.insert(0, passing)
    before = list(chain)
    with traced(server):
        ours = [type(item) for item in chain if isinstance(item, (OuterNote, SpanMiddleware))]
        assert ours == ([OuterNote, SpanMiddleware] if between else [SpanMiddleware])
    assert chain == before


async def passing(ctx: Any, call_next: Any) -> Any:
    """A middleware of the application's."""
    return await call_next(ctx)


async def test_a_probe_without_telemetry_puts_nothing_around_handlers() -> None:
    server = make_server()
    probe = attach(server, telemetry="off")
    try:
        chain = server._lowlevel_server.middleware
        assert not [item for item in chain if isinstance(item, (OuterNote, SpanMiddleware))]
    finally:
        probe.detach()


# --- the caller's context ---------------------------------------------------------------------------------


def seen() -> tuple[int, int]:
    context = trace.get_current_span().get_span_context()
    return context.trace_id, context.span_id


@pytest.mark.parametrize("opened_by", ["the SDK", "us"])
async def test_the_callers_trace_reaches_tasks_threads_and_pools(spans: Spans, opened_by: str) -> None:
    found: dict[str, tuple[int, int]] = {}

    async def spread() -> str:
        loop = asyncio.get_running_loop()
        found["handler"] = seen()

        async def child() -> None:
            found["child task"] = seen()

        await asyncio.create_task(child())
        found["to_thread"] = await asyncio.to_thread(seen)
        found["anyio"] = await anyio.to_thread.run_sync(seen)
        with ThreadPoolExecutor(1) as pool:
            found["run_in_executor"] = await loop.run_in_executor(pool, seen)
            found["submit"] = await asyncio.wrap_future(pool.submit(seen))
        found["default pool"] = await loop.run_in_executor(None, seen)
        thread = threading.Thread(target=lambda: found.update(thread=seen()))
        thread.start()
        await asyncio.to_thread(thread.join)
        return "done"

    server = make_server(spread)
    if opened_by == "us":
        without_sdk_spans(server)
    with traced(server) as kept:
        await call(server, "spread", {"traceparent": TRACEPARENT, "tracestate": "vendor=1"})
    span = spans.only("tools/call spread")
    assert span.parent is not None
    assert (span.context.trace_id, span.parent.span_id) == (TRACE_ID, CALLER_ID)
    assert len(found) == 8
    assert set(found.values()) == {(TRACE_ID, span.context.span_id)}
    record = kept.only("spread")
    assert record.trace_id == f"{TRACE_ID:032x}"
    assert record.parent_span_id == f"{CALLER_ID:016x}"
    assert record.trace_state == "vendor=1"


async def test_a_pools_thread_keeps_nothing_of_the_trace(spans: Spans) -> None:
    pool = ThreadPoolExecutor(1)

    async def lend() -> str:
        await asyncio.get_running_loop().run_in_executor(pool, seen)
        return "done"

    server = make_server(lend)
    with traced(server):
        await call(server, "lend")
        assert await asyncio.wrap_future(pool.submit(seen)) == (0, 0)
    pool.shutdown()


async def test_an_outgoing_http_call_of_the_handler_carries_the_callers_trace(spans: Spans) -> None:
    asked: list[str | None] = []

    class Backend(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.headers.get("traceparent"))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *args: Any) -> None:
            pass

    backend = HTTPServer(("127.0.0.1", 0), Backend)
    serving = threading.Thread(target=backend.serve_forever)
    serving.start()

    async def fetch() -> str:
        headers: dict[str, str] = {}
        propagate.inject(headers)  # as an instrumented HTTP client does
        request = Request(f"http://127.0.0.1:{backend.server_port}/", headers=headers)
        await asyncio.to_thread(lambda: urlopen(request).close())
        return "done"

    server = make_server(fetch)
    try:
        with traced(server):
            await call(server, "fetch", {"traceparent": TRACEPARENT})
    finally:
        backend.shutdown()
        serving.join()
        backend.server_close()
    span = spans.only("tools/call fetch")
    assert asked == [f"00-{TRACE_ID:032x}-{span.context.span_id:016x}-01"]


@pytest.mark.parametrize("opened_by", ["the SDK", "us"])
async def test_baggage_of_the_caller_reaches_the_handler_and_no_further(spans: Spans, opened_by: str) -> None:
    found = []

    async def read() -> str:
        found.append((baggage.get_baggage("tenant"), seen()))
        return "done"

    server = make_server(read)
    if opened_by == "us":
        without_sdk_spans(server)
    with traced(server):
        await call(server, "read", {"traceparent": TRACEPARENT, "baggage": "tenant=blue"})
        await call(server, "read")
    first, second = spans.server("tools/call read")
    assert [tenant for tenant, _ in found] == ["blue", None]
    assert [ids[1] for _, ids in found] == [first.context.span_id, second.context.span_id]


@pytest.mark.parametrize(
    "meta",
    [
        {"traceparent": "00-0-0-00"},
        {"traceparent": 7, "tracestate": [1], "baggage": {"a": "b"}},
        {"traceparent": "00-" + "0" * 32 + "-" + "0" * 16 + "-01"},
        {"traceparent": TRACEPARENT + "\n" * 9_000, "baggage": "x" * 20_000},
    ],
    ids=["short", "no text", "zeros", "long"],
)
async def test_nonsense_in_meta_does_the_request_no_harm(spans: Spans, meta: dict[str, Any]) -> None:
    server = without_sdk_spans(make_server())
    with traced(server) as kept:
        assert not (await call(server, "add", meta, a=1, b=2)).is_error
    assert spans.only("tools/call add").attributes
    assert kept.header().hooks
    assert not [why for hook, why in kept.header().hooks if hook == "spans" and not why.startswith("active")]


@pytest.mark.parametrize("between", [False, True], ids=["alone", "with another between"])
async def test_the_ambient_http_span_becomes_a_link_where_meta_names_the_parent(spans: Spans, between: bool) -> None:
    server = make_server()
    if between:
        server._lowlevel_server.middleware.insert(0, passing)
    tracer = spans.provider.get_tracer("http instrumentation")
    with traced(server):
        async with started(server.streamable_http_app()) as app:

            async def instrumented(scope: Any, receive: Any, send: Any) -> None:
                with tracer.start_as_current_span("POST /mcp", kind=SpanKind.SERVER):
                    await app(scope, receive, send)

            http = Modern(instrumented)
            await http.open()
            await http.send(
                1, "tools/call", name="add", arguments={"a": 1, "b": 2}, _meta=META | {"traceparent": TRACEPARENT}
            )
            await http.call(2, "add", a=1, b=2)
    linked, nested = spans.server("tools/call add")
    ambient = {span.context.span_id for span in spans.server("POST /mcp")}
    assert linked.parent is not None
    assert linked.parent.span_id == CALLER_ID
    [link] = linked.links
    assert link.context.span_id in ambient
    assert attributes_of(link)["mcp_probe.link"] == "ambient"
    assert nested.parent is not None
    assert nested.parent.span_id in ambient
    assert not nested.links
    found = attributes_of(nested)
    assert (found["network.transport"], found["network.protocol.name"]) == ("tcp", "http")
    assert (found["client.address"], found["client.port"]) == ("127.0.0.1", 5000)


async def test_a_sessions_id_is_named_and_a_sessionless_request_has_none(spans: Spans) -> None:
    server = make_server()
    with traced(server):
        for kind in (Handshake, Modern):
            async with started(server.streamable_http_app()) as app:
                http = kind(app)
                await http.open()
                await http.call(3, "add", a=1, b=2)
    with_session, without = spans.server("tools/call add")
    assert attributes_of(with_session)["mcp.session.id"]
    assert "mcp.session.id" not in attributes_of(without)


@pytest.mark.parametrize("anyio_backend", LOOPS, ids=kind_of)
async def test_on_every_loop_the_span_has_its_budget_and_threads_have_its_trace(spans: Spans) -> None:
    found = []

    def work() -> str:
        found.append(seen())
        time.sleep(0.02)  # done before the step that sent it is over, it would have run in no time of its own
        return "done"

    async def hop() -> str:
        await anyio.to_thread.run_sync(work)
        with ThreadPoolExecutor(1) as pool:
            future = pool.submit(work)
            await anyio.to_thread.run_sync(future.result)
        return "done"

    server = make_server(hop, work)
    with traced(server):
        await call(server, "hop", {"traceparent": TRACEPARENT})
        await call(server, "work", {"traceparent": TRACEPARENT})
    hopped, worked = spans.only("tools/call hop"), spans.only("tools/call work")
    for span in (hopped, worked):
        assert attributes_of(span)["mcp_probe.busy"] > 0
        assert attributes_of(span)["mcp_probe.executor.run"] > 0
    assert found == [(TRACE_ID, hopped.context.span_id)] * 2 + [(TRACE_ID, worked.context.span_id)]


# --- who held it up -----------------------------------------------------------------------------------------


async def test_a_victims_span_names_its_blocker_and_links_to_the_blockers_span(spans: Spans) -> None:
    woken = anyio.Event()
    waiting = anyio.Event()

    async def wait() -> str:
        waiting.set()
        await woken.wait()
        return "done"

    async def block() -> str:
        woken.set()
        time.sleep(0.1)
        return "done"

    server = make_server(wait, block)
    with traced(server) as kept:
        async with Client(InMemoryTransport(lowlevel_of(server))) as client, anyio.create_task_group() as group:
            group.start_soon(client.call_tool, "wait", {})
            await waiting.wait()
            await client.call_tool("block", {})
    victim, blocker = spans.only("tools/call wait"), spans.only("tools/call block")
    assert attributes_of(victim)["mcp_probe.blocked_by"] == "block"
    # On a busy machine steps of the SDK's own may be long enough to be told after it.
    event, *others = victim.events
    assert event.name == "mcp_probe.blocked_by"
    found = attributes_of(event)
    assert (found["mcp_probe.blocker"], found["mcp_probe.quality"]) == ("block", "exact")
    assert "block" not in [attributes_of(other)["mcp_probe.blocker"] for other in others]
    assert 0 < found["mcp_probe.duration"] <= attributes_of(victim)["mcp_probe.ready_wait"]
    [link] = victim.links
    assert link.context.span_id == blocker.context.span_id
    assert attributes_of(link)["mcp_probe.link"] == "blocked_by"
    assert kept.only("block").span_id in {step.span_id for step in kept.steps()}


# --- how it ended ---------------------------------------------------------------------------------------------


async def failing() -> str:
    raise ValueError(SECRET)


async def refusing() -> str:
    raise MCPError(code=-32050, message=SECRET)


async def missing() -> str:
    raise MCPError(code=-32002, message=SECRET)


@pytest.mark.parametrize(
    ("tool", "error_type", "code"),
    [("failing", "tool_error", None), ("refusing", "-32050", "-32050"), ("missing", None, "-32002")],
)
async def test_our_span_says_how_a_call_failed_and_not_with_which_words(
    spans: Spans, tool: str, error_type: str | None, code: str | None
) -> None:
    server = without_sdk_spans(make_server(failing, refusing, missing))
    with traced(server) as kept:
        await call(server, tool)
    span = spans.only(f"tools/call {tool}")
    found = attributes_of(span)
    assert found.get("error.type") == error_type
    assert found.get("rpc.response.status_code") == code
    assert span.status.status_code is (StatusCode.UNSET if error_type is None else StatusCode.ERROR)
    assert SECRET not in spans.text()
    assert kept.only(tool).error_code == code


@pytest.mark.parametrize("opened_by", ["the SDK", "us"])
async def test_a_cancelled_call_says_so(spans: Spans, opened_by: str) -> None:
    hanging = anyio.Event()

    async def hang() -> str:
        hanging.set()
        await anyio.sleep_forever()
        return "never"

    server = make_server(hang)
    if opened_by == "us":
        without_sdk_spans(server)
    with traced(server):
        async with Client(InMemoryTransport(lowlevel_of(server))) as client, anyio.create_task_group() as group:
            group.start_soon(client.call_tool, "hang", {})
            await hanging.wait()
            group.cancel_scope.cancel()
    span = spans.only("tools/call hang")
    assert attributes_of(span)["error.type"] == "cancelled"
    assert span.status.status_code is StatusCode.ERROR


@pytest.mark.parametrize("part", ["_budget_now", "ServerSpans.begin", "ServerSpans.listens", "ServerSpans._open"])
async def test_a_fault_of_ours_ends_the_tracing_and_not_the_request(
    spans: Spans, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError("ours")

    monkeypatch.setattr(f"mcp_probe.export.server_spans.{part}", broken)
    server = without_sdk_spans(make_server())
    with traced(server) as kept:
        first = await call(server, "add", a=1, b=2)
        second = await call(server, "add", a=1, b=2)
    assert not first.is_error
    assert not second.is_error
    assert len(kept.requests("add")) == 2
    assert dict(kept.header().hooks)["spans"].startswith("disabled after RuntimeError")
    assert spans.server("tools/call add") == []


async def test_a_fault_in_carrying_the_trace_leaves_the_job_as_it_is(
    spans: Spans, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError("ours")

    async def lend() -> str:
        with ThreadPoolExecutor(1) as pool:
            return await asyncio.wrap_future(pool.submit(str, 7))

    monkeypatch.setattr(ServerSpans, "carry", broken)
    server = make_server(lend)
    with traced(server) as kept:
        assert (await call(server, "lend")).content[0].text == "7"
    assert any(why.startswith("disabled after RuntimeError") for _, why in kept.header().hooks)


# --- content ----------------------------------------------------------------------------------------------------


async def echo(text: str) -> str:
    return text * 2


def make_talkative() -> MCPServer:
    server = make_server(echo, failing)

    @server.prompt()
    def greet(name: str) -> str:
        return f"Hello {name}"

    @server.resource("note://{key}")
    def note(key: str) -> str:
        return f"body {SECRET}"

    return without_sdk_spans(server)


async def talk(server: MCPServer) -> None:
    async with Client(InMemoryTransport(lowlevel_of(server))) as client:
        await client.call_tool("echo", {"text": SECRET})
        await client.call_tool("failing", {})
        await client.get_prompt("greet", {"name": SECRET})
        await client.read_resource("note://" + "k" * 1000)


async def test_no_content_is_shown_unless_it_is_asked_for_by_name(spans: Spans) -> None:
    server = make_talkative()
    with traced(server):
        await talk(server)
    assert SECRET not in spans.text()
    assert len(attributes_of(spans.only("resources/read"))["mcp.resource.uri"]) == 256


async def test_only_the_kinds_that_were_named_are_shown(spans: Spans) -> None:
    server = make_talkative()
    with traced(server, ServerSpans(capture_content=("arguments", "prompt"))):
        await talk(server)
    called = attributes_of(spans.only("tools/call echo"))
    assert called["gen_ai.tool.call.arguments"] == f'{{"text": "{SECRET}"}}'
    assert "gen_ai.tool.call.result" not in called
    assert attributes_of(spans.only("prompts/get greet"))["gen_ai.prompt.variable.name"] == SECRET
    assert "mcp_probe.resource.contents" not in attributes_of(spans.only("resources/read"))


async def test_content_passes_the_redaction_first(spans: Spans) -> None:
    asked = []

    def redact(kind: str, value: Any) -> Any:
        asked.append(kind)
        if kind == "resource":
            raise RuntimeError("broken")
        return None if kind == "prompt" else "kept back"

    server = make_talkative()
    kinds = ("arguments", "result", "prompt", "resource")
    with traced(server, ServerSpans(capture_content=kinds, redact=redact)):
        await talk(server)
    assert set(asked) == set(kinds)
    assert SECRET not in spans.text()
    called = attributes_of(spans.only("tools/call echo"))
    assert called["gen_ai.tool.call.arguments"] == called["gen_ai.tool.call.result"] == "kept back"


# --- a process without OpenTelemetry of its own ---------------------------------------------------------------------


async def test_minted_ids_become_a_server_span_elsewhere_and_the_parent_of_what_the_handler_sends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)
    sent: dict[str, str] = {}

    async def fetch() -> str:
        propagate.inject(sent)
        await asyncio.get_running_loop().run_in_executor(None, propagate.inject, sent)
        return "done"

    server = without_sdk_spans(make_server(fetch))
    with traced(server, GeneratedIds()) as kept:
        await call(server, "fetch", {"traceparent": TRACEPARENT})
        await call(server, "add", a=1, b=2)
    record = kept.only("fetch")
    assert record.server_span is None
    assert sent["traceparent"] == f"00-{TRACE_ID:032x}-{record.span_id}-01"
    elsewhere = Spans()
    export = SpanExport(elsewhere.provider, give_ids=elsewhere.ids.give)
    export.take(kept.frames)
    export.close(1.0)
    span = elsewhere.only("tools/call fetch")
    assert span.parent is not None
    assert (span.context.trace_id, span.parent.span_id) == (TRACE_ID, CALLER_ID)
    assert f"{span.context.span_id:016x}" == record.span_id
    alone = elsewhere.only("tools/call add")
    assert alone.parent is None
    assert f"{alone.context.trace_id:032x}" == kept.only("add").trace_id


async def test_where_the_application_records_spans_minting_leaves_them_alone(spans: Spans) -> None:
    server = make_server()
    with traced(server, GeneratedIds()) as kept:
        await call(server, "add", a=1, b=2)
    assert attributes_of(spans.only("tools/call add"))["mcp_probe.busy"] > 0
    assert kept.only("add").server_span == "app"


async def test_requests_of_a_record_without_ids_are_nobodys_spans() -> None:
    server = make_server()
    probe = attach(server, telemetry="off")
    elsewhere = Spans()
    probe.add_listener(SpanExport(elsewhere.provider, slow_request_ms=0, give_ids=elsewhere.ids.give))
    seen_records: list[RequestRecord] = []

    class Listener:
        def take(self, frames: Any) -> None:
            seen_records.extend(frame for frame in frames if isinstance(frame, RequestRecord))

        def close(self, timeout_s: float) -> None:
            pass

    probe.add_listener(Listener())
    await call(server, "add", a=1, b=2)
    probe.detach()
    assert seen_records
    assert elsewhere.all() == []


# --- what changes while the server runs -----------------------------------------------------------------------


async def test_another_provider_is_seen_to_as_the_first_was(spans: Spans, monkeypatch: pytest.MonkeyPatch) -> None:
    server, other = make_server(), Spans()
    with traced(server):
        await call(server, "add", a=1, b=2)
        make_global(other, monkeypatch)
        await call(server, "add", a=1, b=2)
    for found in (spans, other):
        assert "mcp_probe.busy" in attributes_of(found.only("tools/call add"))


class Tenant(TextMapPropagator):
    """A propagator of the application's own."""

    @property
    def fields(self) -> set[str]:
        return {"x-tenant"}

    def extract(self, carrier: Any, context: Any = None, getter: Any = None) -> Any:
        return baggage.set_baggage("tenant", carrier.get("x-tenant"), context)

    def inject(self, carrier: Any, context: Any = None, setter: Any = None) -> None:
        pass


async def test_propagators_that_are_put_in_later_are_heard(spans: Spans, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    async def read() -> str:
        seen.append(baggage.get_baggage("tenant"))
        return "done"

    server = make_server(read)
    before = propagate.get_global_textmap()
    try:
        with traced(server):
            async with Client(InMemoryTransport(lowlevel_of(server))) as client:
                await client.call_tool("read", {}, meta={"x-tenant": "blue"})  # type: ignore[arg-type]
                propagate.set_global_textmap(Tenant())
                await client.call_tool("read", {}, meta={"x-tenant": "blue"})  # type: ignore[arg-type]
                await client.call_tool("read", {})
    finally:
        propagate.set_global_textmap(before)
    assert seen == [None, "blue", None]
