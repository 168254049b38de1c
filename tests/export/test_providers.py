"""Whose providers are used, what becomes global, and who is named: each in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.export.otlp_backend import HttpBackend
from tests.export.speaking import FAST, Spoken, environment, server_program

# Runs `main` against an in-memory client; `calls(server, n)` is what it is for.
_PROGRAM = """
import json, logging, os, sys
import anyio
from mcp import Client
from mcp.client._memory import InMemoryTransport
from mcp.server.mcpserver import MCPServer
import mcp_probe

def made(name):
    server = MCPServer(name, log_level="CRITICAL")

    @server.tool()
    async def add(a: int, b: int) -> int:
        return a + b

    return server

def calls(server, count):
    async def run():
        async with Client(InMemoryTransport(server)) as client:
            for _ in range(count):
                await client.call_tool("add", {"a": 1, "b": 2})
    anyio.run(run)

server = made("shop")
"""

_APPLICATION = """
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

spans, reader = InMemorySpanExporter(), InMemoryMetricReader()

def own_traces():
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    trace.set_tracer_provider(provider)

def own_metrics():
    metrics.set_meter_provider(MeterProvider([reader]))

def span_names():
    return [span.name for span in spans.get_finished_spans()]

def metric_names():
    data = reader.get_metrics_data()
    found = [m.name for r in data.resource_metrics for s in r.scope_metrics for m in s.metrics] if data else []
    return sorted(found)
"""


def run(folder: Path, source: str, **env: str) -> Any:
    """What the program printed last, as JSON."""
    script = folder / "program.py"
    script.write_text(_PROGRAM + source, "utf-8")
    command = [sys.executable, "-X", "dev", "-W", "ignore::DeprecationWarning", str(script)]
    given = environment(**{"MCP_PROBE_OTLP_EXIT_MS": "60000", **env})
    ended = subprocess.run(command, capture_output=True, text=True, env=given, timeout=120, cwd=folder)
    assert ended.returncode == 0, ended.stderr
    assert "Traceback" not in ended.stderr and "Exception ignored" not in ended.stderr, ended.stderr
    return json.loads(ended.stdout.splitlines()[-1])


@pytest.mark.parametrize("when", ["before", "after"])
def test_the_applications_providers_are_used_whenever_it_sets_them(when: str, tmp_path: Path) -> None:
    set_up = "own_traces(); own_metrics()\n"
    attach = "probe = mcp_probe.attach(server)\n"
    found = run(
        tmp_path,
        _APPLICATION
        + (set_up + attach if when == "before" else attach + set_up)
        + "calls(server, 3); probe.snapshot(); calls(server, 1); probe.snapshot()\n"
        + "print(json.dumps([span_names(), metric_names(), len(probe.snapshot().probe.telemetry)]))",
    )
    names, metrics, deliveries = found
    assert names.count("tools/call add") == 4
    assert "mcp.server.operation.duration" in metrics
    assert "mcp_probe.loop.utilization" in metrics
    assert deliveries == 0  # what the application's exporters lose is theirs to count


def test_what_is_left_at_exit_reaches_the_applications_providers_before_they_shut_down(tmp_path: Path) -> None:
    found = run(
        tmp_path,
        _APPLICATION
        + """
class Told(SimpleSpanProcessor):
    def shutdown(self):
        print(json.dumps(metric_names_at_end()), flush=True)

def metric_names_at_end():
    return metric_names()

own_metrics()
provider = TracerProvider()
probe = mcp_probe.attach(server)
provider.add_span_processor(Told(spans))
trace.set_tracer_provider(provider)
calls(server, 3)
""",
    )
    assert "mcp.server.operation.duration" in found


def test_with_telemetry_off_nothing_is_told_to_the_applications_providers(tmp_path: Path) -> None:
    names, metrics = run(
        tmp_path,
        _APPLICATION
        + "own_traces(); own_metrics(); probe = mcp_probe.attach(server, otlp=True, telemetry='off')\n"
        + "calls(server, 2); probe.snapshot()\n"
        + "attributes = [key for span in spans.get_finished_spans() for key in span.attributes]\n"
        + "print(json.dumps([[key for key in attributes if key.startswith('mcp_probe')], metric_names()]))",
    )
    assert names == metrics == []


def test_enriching_adds_to_the_applications_spans_and_exports_nothing_else(tmp_path: Path) -> None:
    attributes, metrics = run(
        tmp_path,
        _APPLICATION
        + "own_traces(); own_metrics(); probe = mcp_probe.attach(server, telemetry='enrich')\n"
        + "calls(server, 2); probe.snapshot()\n"
        + "attributes = [key for span in spans.get_finished_spans() for key in span.attributes]\n"
        + "print(json.dumps([sorted({key for key in attributes if key.startswith('mcp_probe')}), metric_names()]))",
    )
    assert "mcp_probe.busy" in attributes
    assert metrics == []


def test_otlp_exports_only_the_signals_for_which_the_application_has_no_provider(tmp_path: Path) -> None:
    with HttpBackend() as backend:
        names = run(
            tmp_path,
            _APPLICATION
            + f"own_traces(); probe = mcp_probe.attach(server, otlp={backend.url!r})\n"
            + "calls(server, 2); probe.detach()\nprint(json.dumps(span_names()))",
        )
    assert names.count("tools/call add") == 2
    assert backend.kept.traces == []
    assert "mcp.server.operation.duration" in backend.kept.metric_names()


def test_otlp_alone_makes_our_providers_the_global_ones_so_the_handlers_spans_go_out_too(tmp_path: Path) -> None:
    with HttpBackend() as backend:
        run(
            tmp_path,
            f"""
probe = mcp_probe.attach(server, otlp={backend.url!r})
from opentelemetry import metrics, trace

@server.tool()
async def inner() -> int:
    metrics.get_meter("shop").create_counter("shop.sold").add(1)
    with trace.get_tracer("shop").start_as_current_span("inner work"):
        return 1

async def go():
    async with Client(InMemoryTransport(server)) as client:
        await client.call_tool("inner", {{}})

anyio.run(go)
probe.detach()
print(json.dumps(None))
""",
        )
    spans = {span.name: span for span in backend.kept.spans()}
    assert spans["inner work"].parent_span_id == spans["tools/call inner"].span_id
    assert "shop.sold" in backend.kept.metric_names()


def test_the_service_is_named_by_the_environment_else_after_the_server(tmp_path: Path) -> None:
    source = "probe = mcp_probe.attach(server, otlp={url!r}); calls(server, 1); probe.detach(); print('null')"
    with HttpBackend() as backend:
        run(tmp_path, source.format(url=backend.url))
        run(tmp_path, source.format(url=backend.url), OTEL_SERVICE_NAME="named")
        run(tmp_path, source.format(url=backend.url), OTEL_RESOURCE_ATTRIBUTES="service.name=attributed,host.name=h")
    resources = backend.kept.resources()
    assert {resource["service.name"] for resource in resources} == {"shop", "named", "attributed"}
    assert {r["host.name"] for r in resources if r["service.name"] == "attributed"} == {"h"}
    assert len({resource["service.instance.id"] for resource in resources}) == 3
    assert all(resource["process.pid"] for resource in resources)


def test_the_switches_of_the_sdk_switch_us_off_too(tmp_path: Path) -> None:
    source = "probe = mcp_probe.attach(server, otlp={url!r}); calls(server, 1); probe.detach(); print('null')"
    with HttpBackend() as backend:
        run(tmp_path, source.format(url=backend.url), OTEL_SDK_DISABLED="true")
        assert backend.kept.asked == 0
        run(tmp_path, source.format(url=backend.url), OTEL_TRACES_EXPORTER="none")
    assert backend.kept.traces == [] and backend.kept.metrics


def test_two_probes_in_one_process_tell_of_its_loop_once_and_of_each_servers_requests(tmp_path: Path) -> None:
    with HttpBackend() as backend:
        run(
            tmp_path,
            f"""
probes = [mcp_probe.attach(each, otlp={backend.url!r}) for each in (server, made("other"))]
other = made("third")
probes.append(mcp_probe.attach(other, otlp={backend.url!r}))
calls(server, 2)
calls(other, 3)
for probe in probes:
    probe.detach()
print(json.dumps(None))
""",
        )
    assert backend.kept.span_names().count("tools/call add") == 5
    (last,) = backend.kept.metrics[-1].resource_metrics
    points = {metric.name: metric for scope in last.scope_metrics for metric in scope.metrics}
    counted = points["mcp.server.operation.duration"].histogram.data_points
    assert sum(point.count for point in counted if any(a.value.string_value == "add" for a in point.attributes)) == 5
    assert len(points["mcp_probe.loop.utilization"].gauge.data_points) == 1


def test_a_probe_attached_anew_exports_again(tmp_path: Path) -> None:
    with HttpBackend() as backend:
        counts = run(
            tmp_path,
            f"""
counts = []
for _ in range(2):
    probe = mcp_probe.attach(server, otlp={backend.url!r})
    calls(server, 2)
    probe.detach()
    counts.append(probe.snapshot().probe.telemetry[0].delivered)
print(json.dumps(counts))
""",
            MCP_PROBE_SLOW_REQUEST_MS="3600000",  # phase spans of a slow first call would be in one round only
        )
        assert backend.kept.span_names().count("tools/call add") == 4
    assert counts == [len(backend.kept.spans()) // 2, len(backend.kept.spans())]


@pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="needs fork")
def test_a_forked_child_sends_its_own_spans_and_not_its_parents_again(tmp_path: Path) -> None:
    with HttpBackend() as backend:
        run(
            tmp_path,
            f"""
from opentelemetry import trace
probe = mcp_probe.attach(server, otlp={backend.url!r})
tracer = trace.get_tracer("shop")
tracer.start_span("parent's, queued before the fork").end()
child = os.fork()
if not child:
    tracer.start_span("child's").end()
    trace.get_tracer_provider().force_flush()
    os._exit(0)
os.waitpid(child, 0)
probe.detach()
print(json.dumps(None))
""",
            OTEL_BSP_SCHEDULE_DELAY="60000",
        )
    assert sorted(backend.kept.span_names()) == ["child's", "parent's, queued before the fork"]


def test_a_missing_sdk_is_said_at_attach_and_names_the_extra(tmp_path: Path) -> None:
    found = run(
        tmp_path,
        """
sys.modules["opentelemetry.sdk.trace"] = None
try:
    mcp_probe.attach(server, otlp=True)
except mcp_probe.MissingExtraError as error:
    from mcp_probe.session import attached
    print(json.dumps([str(error), len(attached())]))
""",
    )
    assert "pip install 'mcp-probe-profiler[otel]'" in found[0]
    assert found[1] == 0


def test_a_bad_variable_is_said_at_attach(tmp_path: Path) -> None:
    found = run(
        tmp_path,
        """
try:
    mcp_probe.attach(server, otlp=True)
except mcp_probe.OptionError as error:
    print(json.dumps(str(error)))
""",
        OTEL_EXPORTER_OTLP_PROTOCOL="http/json",
    )
    assert "'http/json'; expected grpc or http/protobuf" in found


def test_middleware_streams_and_asgi_set_up_telemetry_as_attach_does(tmp_path: Path) -> None:
    with HttpBackend() as backend:
        run(
            tmp_path,
            f"""
probe = mcp_probe.Probe(otlp={backend.url!r})
server = MCPServer("by middleware", middleware=[probe.middleware], log_level="CRITICAL")

@server.tool()
async def add(a: int, b: int) -> int:
    return a + b

calls(server, 2)
probe.detach()
print(json.dumps(None))
""",
        )
    assert backend.kept.span_names().count("tools/call add") == 2


def test_a_closed_transport_delivers_at_once_since_a_signal_may_end_the_process(tmp_path: Path) -> None:
    program = server_program(tmp_path, "import mcp_probe; mcp_probe.attach(server)")
    program.write_text(program.read_text() + "    time.sleep(60)\n")  # killed long before
    slowly = {**FAST, "OTEL_BSP_SCHEDULE_DELAY": "60000", "OTEL_METRIC_EXPORT_INTERVAL": "60000"}
    with (
        HttpBackend() as backend,
        Spoken([sys.executable, program], environment(MCP_PROBE_OTLP=backend.url, **slowly)) as server,
    ):
        server.call()
        server.hang_up()
        assert backend.kept.wait(lambda kept: "tools/call add" in kept.span_names() and bool(kept.metrics))
