"""What the spans of one visit must say, whichever backend is asked for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from itertools import chain
from pathlib import Path

from tests.export.backends.received import Point, Span, last_points
from tests.export.backends.shopping import CALLS, PARENT_SPAN_ID, SERVER, WAITED_MS, Visit

NOT_ALL_OF_IT = 0.4
"""Share of a known wait that must at least be found: on a loaded machine the victim itself comes late."""

SLOW_S = 1.0
"""A request that takes longer gets phase spans."""

PARTS = ("busy", "awaiting", "ready_wait", "gc", "unaccounted")


def server_spans(spans: Sequence[Span], tool: str | None = None) -> list[Span]:
    """SERVER spans of tool calls."""
    calls = [span for span in spans if span.kind == "SERVER" and span.attributes.get("mcp.method.name") == "tools/call"]
    return [span for span in calls if tool in (None, span.tool)]


def check_one_server_span_per_request(
    visit: Visit, spans: Sequence[Span], others: Sequence[str] = ("server/discover", "tools/list")
) -> None:
    """``others``: names of the SERVER spans that are no calls of tools."""
    found = server_spans(spans)
    assert Counter(str(span.tool) for span in found) == {tool: CALLS[tool] for tool in visit.traces}
    assert {span.trace_id for span in found} == set(chain.from_iterable(visit.traces.values()))
    rest = sorted(span.name for span in spans if span.kind == "SERVER" and span not in found)
    assert rest == sorted(others), rest


def check_parents(visit: Visit, spans: Sequence[Span]) -> None:
    """The SERVER span is its client's child; ours and the application's own are children of it."""
    parents = {span.trace_id: span.span_id for span in server_spans(spans)}
    for span in server_spans(spans):
        assert span.parent_id == PARENT_SPAN_ID
        assert span.trace_id in visit.traces[str(span.tool)]
    inner = [span for span in spans if span.kind in ("INTERNAL", "CLIENT")]
    assert "write" in {span.name for span in inner}
    for span in inner:
        assert span.parent_id == parents[span.trace_id]


def check_conventions(spans: Sequence[Span], transport: str, version: str = "2026-07-28") -> None:
    for span in server_spans(spans):
        assert span.name == f"tools/call {span.tool}"
        assert span.attributes["gen_ai.operation.name"] == "execute_tool"
        assert span.attributes["network.transport"] == {"stdio": "pipe", "http": "tcp"}[transport]
        assert isinstance(span.attributes["jsonrpc.request.id"], str)
        assert span.attributes["mcp.protocol.version"] == version


def check_failures(spans: Sequence[Span]) -> None:
    failed = [span for span in server_spans(spans) if span.status == "ERROR"]
    assert [(span.tool, span.attributes["error.type"]) for span in failed] == [("fail", "tool_error")]
    assert [span.tool for span in server_spans(spans) if "error.type" in span.attributes] == ["fail"]


def check_victims_name_their_blocker(spans: Sequence[Span], server: Path = SERVER) -> None:
    (blocker,) = server_spans(spans, "hold")
    line = next(
        number
        for number, text in enumerate(server.read_text("utf-8").splitlines(), 1)
        if text == "    time.sleep(ms / 1000)"
    )
    for victim in server_spans(spans, "nap"):
        event = next(event for event in victim.events if event.attributes.get("mcp_probe.blocker") == "hold")
        assert event.name == "mcp_probe.blocked_by"
        assert NOT_ALL_OF_IT * WAITED_MS / 1000 < float(event.attributes["mcp_probe.duration"]) < victim.seconds
        assert event.attributes["mcp_probe.quality"] in ("exact", "bounded")
        assert event.attributes["code.file.path"] == str(server)
        assert int(event.attributes["code.line.number"]) == line
        assert event.attributes["code.function.name"] == "hold"
        assert victim.attributes["mcp_probe.blocked_by"] == "hold"
        assert (blocker.trace_id, blocker.span_id) in victim.links
        assert len(victim.events) <= 5


def are_complete(spans: Sequence[Span], tools: Collection[str]) -> bool:
    """Every call of ``tools`` has its SERVER span, and that of ``wait`` the phase that ends last."""
    slow = {span.trace_id for span in server_spans(spans, "wait")}
    return all(len(server_spans(spans, tool)) >= CALLS[tool] for tool in tools) and any(
        span.name == "write" and span.trace_id in slow for span in spans
    )


def counts_of(points: Iterable[Point], tools: Iterable[str]) -> dict[str, int]:
    """Calls of each tool by the server's metrics. Those whose arrival is known roughly have a series of their own."""
    counts: Counter[str] = Counter()
    for point in last_points(points, "mcp.server.operation.duration"):
        counts[str(point.attributes.get("gen_ai.tool.name"))] += int(point.data["count"])
    return {tool: counts[tool] for tool in tools}


def check_budget(spans: Sequence[Span]) -> None:
    """What is on the span accounts for the span, but for what the SDK does around the handler."""
    for span in server_spans(spans, "nap"):
        part = {name: float(span.attributes.get(f"mcp_probe.{name}", 0)) for name in PARTS}
        assert abs(sum(part.values()) - span.seconds) < 0.2 * span.seconds
        assert part["ready_wait"] > NOT_ALL_OF_IT * WAITED_MS / 1000
    for span in server_spans(spans, "render"):
        assert float(span.attributes["mcp_probe.executor.run"]) >= 0.02


def check_phases(spans: Sequence[Span]) -> None:
    """Slow requests have phase spans with true times; what comes after the SERVER span is linked to it."""
    (slow,) = server_spans(spans, "wait")
    phases = {span.name: span for span in spans if span.trace_id == slow.trace_id and span.kind == "INTERNAL"}
    assert phases.keys() - {"step"} == {"queue", "write"}  # a loaded machine makes any step a slow one
    assert phases["queue"].start_ns < slow.start_ns
    assert phases["write"].end_ns > slow.end_ns
    assert (slow.trace_id, slow.span_id) in phases["write"].links
    fast = {span.trace_id for span in server_spans(spans, "add") if span.seconds < SLOW_S}
    assert [span.name for span in spans if span.trace_id in fast and span.kind == "INTERNAL"] == []


def check_traces_go_on(visit: Visit, spans: Sequence[Span]) -> None:
    """The client's trace came out of the handler's own HTTP call, below the SERVER span, also from a thread."""
    for tool in ("forward", "forward_from_thread"):
        version, trace_id, span_id, flags = visit.outgoing[f"/{tool}"].split("-")
        assert (version, trace_id, flags) == ("00", visit.traces[tool][0], "01")
        (caller,) = [span for span in spans if span.span_id == span_id]
        (server,) = server_spans(spans, tool)
        assert (caller.kind, caller.trace_id, caller.parent_id) == ("CLIENT", trace_id, server.span_id)
