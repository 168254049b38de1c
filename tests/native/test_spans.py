"""What the accelerator does for a SERVER span is what Python does for it, and it knows what to leave to Python."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import anyio
import pytest
from mcp import Client, MCPError
from mcp.client._memory import InMemoryTransport
from mcp.server.mcpserver import MCPServer
from mcp.types import INVALID_PARAMS
from opentelemetry import baggage, propagate, trace
from opentelemetry.attributes import BoundedAttributes
from opentelemetry.propagators.textmap import TextMapPropagator
from opentelemetry.sdk.trace import SpanLimits, TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

from mcp_probe import native
from mcp_probe.capture.current import CURRENT
from mcp_probe.export import inside
from mcp_probe.export.server_spans import ServerSpans
from tests.adapters.asgi_client import META, Handshake, Modern, message, started, with_content_length
from tests.kept import Kept
from tests.tracing import CALLER_ID, TRACEPARENT, Spans, attributes_of, make_global, traced

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(native.core is None, reason="no accelerator"),
]

VARIES = {
    f"mcp_probe.{name}" for name in ("ready_wait.min", "unaccounted", "quality", "gc", "blocked_by", "executor.return")
}
"""Attributes that are there in one run and not in the next, as the machine will have it."""


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Spans:
    """Where the application's spans go."""
    found = Spans()
    make_global(found, monkeypatch)
    return found


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Methods and names of the requests whose span Python began."""
    found: list[str] = []
    original = ServerSpans.begin

    def begin(self: ServerSpans, hub: Any, raw: Any, message: Any) -> Any:
        found.append(raw.operation)
        return original(self, hub, raw, message)

    monkeypatch.setattr(ServerSpans, "begin", begin)
    return found


def make_server() -> MCPServer:
    server = MCPServer("traced", log_level="CRITICAL")

    @server.tool()
    async def add(a: int, b: int) -> int:
        return a + b

    @server.tool()
    async def wait() -> str:
        await anyio.sleep(0.002)
        return "waited"

    @server.tool()
    async def tell() -> str:
        raise ValueError("no")

    @server.tool()
    async def refuse() -> str:
        raise MCPError(code=INVALID_PARAMS, message="no")

    @server.tool()
    async def end() -> str:
        trace.get_current_span().end()
        return "ended"

    @server.resource("note://one")
    async def note() -> str:
        return "text"

    @server.prompt()
    async def ask() -> str:
        return "text"

    return server


async def in_memory(server: MCPServer, use: Callable[[Any], Any]) -> None:
    async with Client(InMemoryTransport(server._lowlevel_server)) as client:

        async def call(tool: str, meta: dict[str, Any] | None = None, **arguments: Any) -> None:
            with suppress(MCPError):
                await client.call_tool(tool, arguments, meta=meta)  # type: ignore[arg-type]

        async def ask(method: str, **params: Any) -> None:
            await (client.read_resource("note://one") if method == "resources/read" else client.get_prompt("ask"))

        await use((call, ask))


def over(kind: Any) -> Callable[..., Any]:
    async def over_http(server: MCPServer, use: Callable[[Any], Any]) -> None:
        async with started(server.streamable_http_app()) as app:
            http = kind(with_content_length(app))
            await http.open()
            ids = iter(range(10, 1000))
            own = {} if kind is Handshake else META

            async def call(tool: str, meta: dict[str, Any] | None = None, **arguments: Any) -> None:
                more = {"_meta": {**own, **(meta or {})}} if own or meta else {}
                await http.send(next(ids), "tools/call", name=tool, arguments=arguments, **more)

            async def ask(method: str, **params: Any) -> None:
                body = message(next(ids), method, **{**http.envelope, **params})
                await http.post(body, method, params.get("name") or params.get("uri"))

            await use((call, ask))

    return over_http


async def everything(how: Any) -> None:
    """Each kind of request twice, after two that show Python what spans there are."""
    call, ask = how
    for _ in range(2):
        await call("add", a=1, b=2)
    for _ in range(2):
        for tool in ("add", "wait", "tell", "refuse", "end"):
            await call(tool, **({"a": 1, "b": 2} if tool == "add" else {}))
        await call("add", {"traceparent": TRACEPARENT}, a=1, b=2)
        await call("add", {"baggage": "tenant=blue"}, a=1, b=2)
        await ask("resources/read", uri="note://one")
        await ask("prompts/get", name="ask")


def said(spans: Spans, kept: Kept, since: int) -> Iterator[Any]:
    """What spans and records say that does not depend on the clock."""
    records = {record.span_id: record for record in (*kept.requests(), *kept.requests(kind="notification"))}
    for span in spans.server()[since:]:
        record = records[f"{span.context.span_id:016x}"]
        found = {key: value for key, value in attributes_of(span).items() if key not in VARIES}
        times = {key for key, value in found.items() if isinstance(value, float)}
        counted = {"mcp_probe.steps", "mcp_probe.memory.requested", "mcp_probe.memory.peak", "jsonrpc.request.id"}
        fixed = {key: value for key, value in found.items() if key not in times | counted}
        fixed["mcp.session.id"] = bool(found.get("mcp.session.id"))
        parent = span.parent is not None and span.parent.span_id == CALLER_ID
        kinds = [attributes_of(link)["mcp_probe.link"] for link in span.links]
        links = [kind for kind in kinds if kind != "blocked_by"]
        yield span.name, set(found), fixed, span.status.status_code, parent, links
        yield (
            record.trace_id == f"{span.context.trace_id:032x}",
            (record.trace_flags, record.server_span, record.parent_span_id),
            record.session_id == attributes_of(span).get("mcp.session.id"),
        )


@pytest.mark.parametrize("memory", ["light", "off"])
@pytest.mark.parametrize("serve", [in_memory, over(Modern), over(Handshake)], ids=["memory", "modern", "handshake"])
async def test_a_span_says_the_same_whoever_sees_to_it(
    spans: Spans, asked: list[str], monkeypatch: pytest.MonkeyPatch, serve: Any, memory: str
) -> None:
    found = []
    for accelerated in (True, False):
        if not accelerated:
            monkeypatch.setattr(ServerSpans, "known", lambda self: None)
        before = len(spans.server())
        asked.clear()
        server = make_server()
        with traced(server, memory=memory) as kept:
            await serve(server, everything)
        found.append(list(said(spans, kept, before)))
        calls = [name for name in asked if name == "add"]
        # Until Python has seen what spans there are, and then those whose meta says more.
        assert len(calls) in (range(4, 7) if accelerated else [2 + 2 + 4]), asked
        assert ("wait" in asked) is not accelerated
        assert "disabled" not in dict(kept.header().hooks).get("spans", "")
    assert found[0] == found[1]
    assert len(found[0]) >= 2 * (2 + 2 * 9)  # for each span two rows


async def test_a_span_with_few_attributes_to_give_loses_what_it_would_have_lost(
    asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lists = []
    for accelerated in (True, False):
        if not accelerated:
            monkeypatch.setattr(ServerSpans, "known", lambda self: None)
        limited = Spans()
        limited.provider = TracerProvider(span_limits=SpanLimits(max_attributes=9))
        limited.provider.add_span_processor(limited_processor(limited))
        make_global(limited, monkeypatch)
        server = make_server()
        with traced(server):
            await in_memory(server, everything)
        lists.append([len(attributes_of(span)) for span in limited.server("tools/call add")])
    assert lists[0] == lists[1]
    assert set(lists[0]) == {9}
    assert "wait" in asked  # of the second run


async def test_attributes_that_are_kept_in_their_order_stay_in_it(
    spans: Spans, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As older SDKs keep them."""

    def ordered(self: Any, *args: Any, **options: Any) -> None:
        original(self, *args, **options)
        self._dict = OrderedDict(self._dict)

    original = BoundedAttributes.__init__
    monkeypatch.setattr(BoundedAttributes, "__init__", ordered)
    server = make_server()
    with traced(server):
        await in_memory(server, everything)
    assert "wait" not in asked
    [*_, last] = spans.server("tools/call wait")
    assert "mcp_probe.busy" in list(last.attributes or ())
    assert len(list(last.attributes or ())) == len(last.attributes or ())


def limited_processor(spans: Spans) -> Any:
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor

    return SimpleSpanProcessor(spans._exporter)


async def test_another_provider_is_seen_to_as_the_first_was(
    spans: Spans, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = make_server()
    other = Spans()

    async def use(how: Any) -> None:
        call, _ = how
        for _ in range(4):
            await call("add", a=1, b=2)
        make_global(other, monkeypatch)
        for _ in range(4):
            await call("add", a=1, b=2)

    with traced(server):
        await in_memory(server, use)
    assert asked.count("add") in range(1, 5)
    for found in (spans, other):
        assert ["mcp_probe.busy" in attributes_of(span) for span in found.server("tools/call add")] == [True] * 4


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
    server, seen = make_server(), []

    @server.tool()
    async def read() -> str:
        seen.append(baggage.get_baggage("tenant"))
        return "done"

    async def use(how: Any) -> None:
        call, _ = how
        for _ in range(3):
            await call("read", {"x-tenant": "blue"})
        monkeypatch.setattr(propagate, "_HTTP_TEXT_FORMAT", Tenant())
        for _ in range(3):
            await call("read", {"x-tenant": "blue"})
        await call("read", {"traceparent": TRACEPARENT})

    with traced(server):
        await in_memory(server, use)
    assert seen == [None] * 3 + ["blue"] * 3 + [None]
    *_, last = spans.server("tools/call read")
    assert "caller" in [attributes_of(link)["mcp_probe.link"] for link in last.links] or (
        last.parent is not None and last.parent.span_id == CALLER_ID
    )


async def test_what_a_sampler_refused_is_left_as_it_is(asked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    refused = Spans(sampler=ALWAYS_OFF)
    make_global(refused, monkeypatch)
    server = make_server()
    with traced(server) as kept:
        await in_memory(server, everything)
    assert refused.all() == []
    assert {(record.server_span, (record.trace_flags or 0) & 1) for record in kept.requests("add")} == {("app", 0)}


async def test_a_cancelled_call_says_so_as_before(spans: Spans) -> None:
    server, hanging = make_server(), anyio.Event()

    @server.tool()
    async def hang() -> str:
        hanging.set()
        await anyio.sleep_forever()
        return "never"

    with traced(server):
        async with Client(InMemoryTransport(server._lowlevel_server)) as client:
            for _ in range(3):
                await client.call_tool("add", {"a": 1, "b": 2})
            async with anyio.create_task_group() as group:
                group.start_soon(client.call_tool, "hang", {})
                await hanging.wait()
                group.cancel_scope.cancel()
    assert attributes_of(spans.only("tools/call hang"))["error.type"] == "cancelled"


@pytest.mark.parametrize("names", [([], "a", "b"), ("a", [], "b")], ids=["session", "address"])
async def test_a_fault_of_the_accelerators_ends_the_tracing_and_not_the_request(
    spans: Spans, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, names: Any
) -> None:
    original = native.core.KnownSpan
    monkeypatch.setattr(native.core, "KnownSpan", lambda *parts: original(*parts[:-1], names))
    server = make_server()
    calls = 0

    @server.tool()
    async def prompt() -> str:
        raw: Any = CURRENT.get()
        raw.arrival_ns = None  # what came 1 ms before its first step is for Python, as most does on a slow machine
        return "here"

    async def use(how: Any) -> None:
        nonlocal calls
        call, _ = how
        while calls < 100 and "hook spans is disabled" not in caplog.text:
            await call("prompt")
            calls += 1
        await call("prompt")

    with traced(server) as kept:
        await over(Handshake)(server, use)
    assert len(kept.requests("prompt")) == len(spans.server("tools/call prompt")) == calls + 1
    assert dict(kept.header().hooks)["spans"].startswith("disabled after TypeError")


@pytest.mark.parametrize("parts", [(), (1, 2, 3), (int, *"12345", {}, 1, 2, (), (), {}, (1, 2, 3))])
def test_what_is_known_of_spans_is_looked_at_once(parts: Any) -> None:
    with pytest.raises(TypeError):
        native.core.KnownSpan(*parts)


def test_a_context_that_is_kept_elsewhere_is_left_to_opentelemetry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inside, "_current", None)
    assert inside.current_server_span(object()) is None
    assert inside.known_span(object(), propagate.get_global_textmap(), ()) is None
