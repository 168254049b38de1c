"""What a request awaited, and who held it: events, links, spans of backends and the metric."""

from __future__ import annotations

import json
import sys
import threading
from types import ModuleType
from typing import Any

import anyio
import pytest
from mcp import Client
from mcp.server.mcpserver import MCPServer

from mcp_probe.capture import awaits
from mcp_probe.export import semantic_conventions as names
from mcp_probe.export.metrics import MetricExport
from mcp_probe.export.phase_spans import MAX_AWAIT_SPANS, SpanExport
from mcp_probe.export.server_spans import ServerSpans
from mcp_probe.export.span_attributes import await_attributes, waited_for
from mcp_probe.header import client_spans
from mcp_probe.model import BACKGROUND_OPERATION, UNKNOWN_HOLDER, Await, HolderPart, RequestRecord
from mcp_probe.report.console import render
from mcp_probe.session import attach
from tests.export.collected import Backend, tool, values
from tests.frames import MS, SECOND, make_header, make_request
from tests.kept import keep
from tests.tracing import Spans, attributes_of, make_global, traced

HOST = "https://api.example.com:443"


def held(since: int, until: int, holder: str, *, request: int = 7, among: int = 1, ids: bool = False) -> HolderPart:
    spans = (f"{request:032x}", f"{request:016x}") if ids else (None, None)
    return HolderPart(request, holder, "n.py:9", since * MS, until * MS, among, *spans)


def awaited(since: int, until: int, *holders: HolderPart, kind: Any = "lock", thing: str = "a lock") -> Await:
    return Await(kind, thing, "n.py:3", since * MS, until * MS, (until - since) * MS, "exact", holders=holders)


def spanned(*awaits: Await, **given: Any) -> RequestRecord:
    ids = {"trace_id": f"{1:032x}", "span_id": f"{1:016x}", "trace_flags": 1, "server_span": "app"}
    return make_request(1, "victim", awaiting=2 * SECOND, awaits=awaits, **{**ids, **given})


# --- events: who held it ---


def test_waits_for_one_holder_at_one_line_are_one_event_and_shares_are_divided() -> None:
    record = spanned(
        awaited(0, 40, held(0, 30, "a"), held(30, 40, "a", among=2), held(30, 40, "b", request=8, among=2)),
        awaited(50, 60, held(50, 60, "a")),
    )
    found = [(row.holder, row.ns / MS, row.end_ns / MS) for row in waited_for(record)]
    assert found == [("a", 45, 60), ("b", 5, 40)]


def test_the_longest_five_are_kept() -> None:
    record = spanned(*(awaited(0, 10 + n, held(0, 10 + n, f"h{n}", request=n)) for n in range(1, 9)))
    assert [row.holder for row in waited_for(record)] == ["h8", "h7", "h6", "h5", "h4"]


def test_a_holder_that_nobody_saw_is_unavailable_and_a_background_task_is_named() -> None:
    record = spanned(
        awaited(0, 20, held(0, 20, BACKGROUND_OPERATION, request=0)),
        awaited(30, 40, held(30, 40, UNKNOWN_HOLDER, request=0)),
    )
    assert [(row.event()[names.HOLDER], row.event()[names.QUALITY]) for row in waited_for(record)] == [
        ("(background task)", "exact"),
        ("(unknown)", "unavailable"),
    ]


def test_a_request_whose_awaits_nobody_looked_at_says_nothing() -> None:
    assert waited_for(make_request(1, "victim", awaiting=SECOND)) == []


def test_spans_of_another_process_link_each_holders_span_once() -> None:
    spans = Spans()
    export = SpanExport(spans.provider, give_ids=spans.ids.give, anchor=lambda: (0.0, 0))
    parts = (held(0, 30, "a", ids=True), held(30, 40, "b", request=8))
    export.take([spanned(awaited(0, 40, *parts), awaited(50, 60, held(50, 60, "a", ids=True)), server_span=None)])
    export.close(1.0)
    server = spans.only("tools/call victim")
    assert [event.name for event in server.events] == [names.EVENT_WAITED_FOR] * 2
    assert [(link.context.span_id, attributes_of(link)) for link in server.links] == [
        (7, {"mcp_probe.link": "waited_for"})
    ]


def guarded_server() -> MCPServer:
    server = MCPServer("guarded", log_level="CRITICAL")
    lock, taken = anyio.Lock(), anyio.Event()

    @server.tool()
    async def append_note() -> str:
        async with lock:
            taken.set()
            await anyio.sleep(0.06)
        return "appended"

    @server.tool()
    async def list_notes() -> str:
        await taken.wait()
        async with lock:
            return "listed"

    return server


def test_a_call_that_waits_for_a_lock_links_the_span_of_the_call_that_holds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    spans = Spans()
    make_global(spans, monkeypatch)
    server = guarded_server()

    async def talk() -> None:
        async with Client(server) as client, anyio.create_task_group() as tasks:
            tasks.start_soon(client.call_tool, "append_note", {})
            tasks.start_soon(client.call_tool, "list_notes", {})

    with traced(server) as kept:
        anyio.run(talk)
    holder, victim = spans.only("tools/call append_note"), spans.only("tools/call list_notes")
    (event,) = [event for event in victim.events if event.name == names.EVENT_WAITED_FOR]
    told = attributes_of(event)
    (lock,) = [one for one in kept.only("list_notes").awaits or () if one.kind == "lock"]
    assert told == {
        "mcp_probe.kind": "lock",
        "mcp_probe.object": lock.object,
        "mcp_probe.holder": "append_note",
        "mcp_probe.held_at": told["mcp_probe.held_at"],
        "mcp_probe.duration": sum(part.to_ns - part.from_ns for part in lock.holders if part.request) / 1e9,
        "mcp_probe.quality": lock.tag,
        "code.file.path": __file__,
        "code.line.number": told["code.line.number"],
    }
    assert str(told["mcp_probe.held_at"]).startswith(f"{__file__}:")
    assert [
        (link.context.trace_id, link.context.span_id)
        for link in victim.links
        if attributes_of(link) == {"mcp_probe.link": "waited_for"}
    ] == [(holder.context.trace_id, holder.context.span_id)]
    assert [event for event in holder.events if event.name == names.EVENT_WAITED_FOR] == []


GATE = anyio.Lock()
"""Older than any probe: only a search through all modules finds its name."""


def test_the_end_of_a_span_finds_the_name_of_a_lock_and_searches_for_none_on_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A search takes milliseconds. The holder lets go once somebody has found its lock."""
    spans = Spans()
    make_global(spans, monkeypatch)
    server, taken = MCPServer("guarded", log_level="CRITICAL"), anyio.Event()
    searched_on: list[int] = []
    named_ones: list[awaits.Awaited] = []
    variable_of, search = awaits.variable_of, awaits.Awaited.search

    def searching(*args: Any) -> str | None:
        searched_on.append(threading.get_ident())
        return variable_of(*args)

    def search_to_its_end(one: awaits.Awaited) -> None:
        search(one)
        if one.thing is not None and one.thing() is GATE:
            named_ones.append(one)

    monkeypatch.setattr(awaits, "variable_of", searching)
    monkeypatch.setattr(awaits.Awaited, "search", search_to_its_end)

    @server.tool()
    async def append_note() -> str:
        async with GATE:
            taken.set()
            with anyio.move_on_after(20):
                while not named_ones:
                    await anyio.sleep(0.001)
        return "appended"

    @server.tool()
    async def list_notes() -> str:
        await taken.wait()
        async with GATE:
            return "listed"

    async def talk() -> int:
        async with Client(server) as client, anyio.create_task_group() as tasks:
            tasks.start_soon(client.call_tool, "append_note", {})
            tasks.start_soon(client.call_tool, "list_notes", {})
        return threading.get_ident()

    with traced(server) as kept:
        loop = anyio.run(talk)
    assert loop not in searched_on
    (event,) = [event for event in spans.only("tools/call list_notes").events if event.name == names.EVENT_WAITED_FOR]
    told = attributes_of(event)
    assert (told["mcp_probe.object"], told["mcp_probe.quality"]) == ("anyio.Lock test_waited_for.GATE", "exact")
    (lock,) = [one for one in kept.only("list_notes").awaits or () if one.kind == "lock"]
    assert (lock.object, lock.tag) == ("anyio.Lock test_waited_for.GATE", "exact")


# --- spans of waits for backends ---


def outbound_spans(*awaits: Await, client_spans: tuple[str, ...] = ()) -> list[str]:
    spans = Spans()
    export = SpanExport(spans.provider, anchor=lambda: (0.0, 0))
    export.take([make_header(client_spans=client_spans), spanned(*awaits)])
    export.close(1.0)
    return [str(attributes_of(span)["mcp_probe.kind"]) for span in spans.all(names.SPAN_AWAIT)]


OUTBOUND = (
    awaited(0, 10, kind="connection-pool", thing="httpx pool made at n.py:5"),
    awaited(10, 20, kind="connect", thing=HOST),
    awaited(20, 30, kind="http", thing=HOST),
    awaited(30, 40, kind="connection-pool", thing="SQLAlchemy pool made at n.py:6"),
    awaited(40, 50, kind="db", thing="postgresql://db:5432"),
    awaited(50, 60, kind="subprocess", thing="sleep"),
)


@pytest.mark.parametrize(
    ("others", "left"),
    [
        ((), ["connection-pool", "connect", "http", "connection-pool", "db", "subprocess"]),
        (("http",), ["connection-pool", "db", "subprocess"]),
        (("db",), ["connection-pool", "connect", "http", "subprocess"]),
        (("db", "http"), ["subprocess"]),
    ],
)
def test_calls_that_another_library_makes_client_spans_of_get_none(others: tuple[str, ...], left: list[str]) -> None:
    assert outbound_spans(*OUTBOUND, client_spans=others) == left


def test_a_database_that_has_no_address_is_named_by_its_system() -> None:
    assert outbound_spans(awaited(0, 10, kind="connect", thing="sqlite"), client_spans=("http",)) == ["connect"]
    assert await_attributes(awaited(0, 10, kind="db", thing="sqlite"))[names.DB_SYSTEM_NAME] == "sqlite"


def test_waits_inside_the_process_and_sums_of_short_ones_have_no_span() -> None:
    summed = Await("http", HOST, None, 0, 90 * MS, 12 * MS, "exact", count=4)
    assert outbound_spans(awaited(0, 10), awaited(10, 20, kind="sleep", thing="sleep"), summed) == []


def test_spans_of_waits_are_bounded_and_the_longest_are_kept_in_the_order_of_time() -> None:
    many = [awaited(at * 100, at * 100 + 10, kind="http", thing=HOST) for at in range(MAX_AWAIT_SPANS)]
    longer = awaited(9_900, 9_990, kind="db", thing="postgresql://db:5432")
    assert outbound_spans(*many, longer) == ["http"] * (MAX_AWAIT_SPANS - 1) + ["db"]


@pytest.mark.parametrize(("library", "kind"), [("httpx", "http"), ("aiohttp_client", "http"), ("asyncpg", "db")])
def test_an_instrumentation_that_is_loaded_makes_client_spans(
    library: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in [name for name in sys.modules if name.startswith("opentelemetry.instrumentation.")]:
        monkeypatch.delitem(sys.modules, module)
    assert client_spans() == ()
    monkeypatch.setitem(sys.modules, f"opentelemetry.instrumentation.{library}", ModuleType(library))
    assert client_spans() == (kind,)


# --- the metric ---


def awaits_sent(*records: RequestRecord, **options: Any) -> dict[str, dict[Any, Any]]:
    backend = Backend()
    export = MetricExport(backend.provider, **options)
    export.take(records)
    export.close(1.0)
    found = backend.collect()
    return {
        suffix: values(found[f"{names.AWAIT.name}_{suffix}"])
        for suffix in ("count", "sum")
        if f"{names.AWAIT.name}_{suffix}" in found
    }


def test_each_wait_is_a_value_by_kind_and_short_ones_count_with_their_mean() -> None:
    short = Await("lock", "a lock", None, 0, 90 * MS, 12 * MS, "exact", count=4)
    found = awaits_sent(spanned(awaited(0, 30), short, awaited(50, 60, kind="http", thing=HOST)))
    assert found["count"] == {tool("victim", kind="lock"): 5, tool("victim", kind="http"): 1}
    assert found["sum"] == pytest.approx({tool("victim", kind="lock"): 0.042, tool("victim", kind="http"): 0.01})


def test_hosts_are_labels_only_if_asked_for_and_bounded() -> None:
    calls = [awaited(n, n + 1, kind="http", thing=f"https://h{n}.example.com") for n in range(names.MAX_HOSTS + 9)]
    lock = awaited(900, 910)
    assert set(awaits_sent(spanned(*calls))["count"].values()) == {len(calls)}
    found = awaits_sent(spanned(*calls, lock), await_hosts=True)["count"]
    assert found.pop(tool("victim", kind="lock")) == 1
    hosts = {dict(key)[names.SERVER_ADDRESS]: count for key, count in found.items()}
    assert len(hosts) == names.MAX_HOSTS + 1
    assert (hosts[names.OTHER], hosts["h0.example.com"]) == (9, 1)


def test_without_awaits_there_is_no_metric_of_them() -> None:
    assert awaits_sent(make_request(1, "victim", awaiting=SECOND)) == {}


# --- what redact withholds ---

SECRET = "tenant-7"


def without_tenant(kind: str, value: Any) -> Any:
    return str(value).replace(f"{SECRET}.", "") if kind == "host" else None


def fails(kind: str, value: Any) -> Any:
    raise RuntimeError(value)


@pytest.mark.parametrize(
    ("redact", "there"), [(None, SECRET), (without_tenant, "api.example.com"), (fails, "redacted")]
)
def test_a_name_that_redact_changes_is_changed_in_every_output(
    redact: Any, there: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spans, metrics = Spans(), Backend()
    make_global(spans, monkeypatch)
    server = MCPServer("calling", log_level="CRITICAL")

    @server.tool()
    async def fetch() -> str:
        call = probe._hub.outbound.begin("http", f"https://{SECRET}.api.example.com:443", calls=1)
        await anyio.sleep(0.02)
        probe._hub.outbound.end(call)
        return "fetched"

    async def talk() -> None:
        async with Client(server) as client:
            await client.call_tool("fetch", {})

    probe = attach(server, telemetry="off", redact=redact)
    kept = keep(probe)
    try:
        probe.trace_with(ServerSpans())
        probe.add_listener(SpanExport(spans.provider, slow_request_ms=0))
        probe.add_listener(MetricExport(metrics.provider, await_hosts=True))
        anyio.run(talk)
    finally:
        probe.detach()
    summary = probe.snapshot()
    outputs = {
        "record": repr(kept.frames),
        "recording": repr(kept.lines),
        "json": json.dumps(summary.to_json()),
        "report": render(summary, width=200, color=False),
        "spans": spans.text(),
        "metrics": repr(metrics.collect()),
    }
    assert {name for name, text in outputs.items() if SECRET in text} == (set(outputs) if redact is None else set())
    unnamed = {"spans", "metrics"} if redact is fails else set()  # no host, no attribute
    assert {name for name, text in outputs.items() if there not in text} == unnamed
