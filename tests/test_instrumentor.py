"""``opentelemetry-instrument python server.py``: loaded like any instrumentation, and in nobody's way."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from mcp_probe.instrumentor import ProbeInstrumentor
from tests.export.otlp_backend import HttpBackend, Kept
from tests.export.speaking import FAST, Spoken, environment, server_program
from tests.launch.running import probe_run

INSTRUMENT = Path(sys.executable).with_name("opentelemetry-instrument")
INTO_HTTP = {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf", "OTEL_LOGS_EXPORTER": "none"}


def instrumented(url: str, **added: str) -> dict[str, str]:
    return environment(OTEL_EXPORTER_OTLP_ENDPOINT=url, OTEL_SERVICE_NAME="instrumented", **INTO_HTTP, **FAST, **added)


def ours(kept: Kept) -> set[str]:
    """Attributes of ours on the spans taken."""
    return {item.key for span in kept.spans() for item in span.attributes if item.key.startswith("mcp_probe.")}


def test_the_entry_point_is_there_and_names_no_conflict() -> None:
    (point,) = entry_points(group="opentelemetry_instrumentor", name="mcp_probe")
    assert point.load() is ProbeInstrumentor
    assert list(ProbeInstrumentor().instrumentation_dependencies()) == []


def test_a_server_started_by_opentelemetry_instrument_sends_what_we_know_through_its_providers(tmp_path: Path) -> None:
    program = server_program(tmp_path)
    with HttpBackend() as backend:
        with Spoken([INSTRUMENT, sys.executable, program], instrumented(backend.url)) as server:
            for _ in range(3):
                server.call()
            server.end()
        assert server.exit_code == 0
    assert backend.kept.span_names().count("tools/call add") == 3
    assert "mcp_probe.busy" in ours(backend.kept)
    assert {"mcp.server.operation.duration", "mcp_probe.loop.utilization"} <= backend.kept.metric_names()
    assert {resource["service.name"] for resource in backend.kept.resources()} == {"instrumented"}


def test_it_can_be_left_out_as_any_instrumentation(tmp_path: Path) -> None:
    program = server_program(tmp_path)
    with HttpBackend() as backend:
        env = instrumented(backend.url, OTEL_PYTHON_DISABLED_INSTRUMENTATIONS="mcp_probe")
        with Spoken([INSTRUMENT, sys.executable, program], env) as server:
            server.call()
            server.end()
    assert "tools/call add" in backend.kept.span_names()
    assert ours(backend.kept) == set()


def test_an_attach_in_the_code_takes_the_server_over_with_its_own_options(tmp_path: Path) -> None:
    report = tmp_path / "report.txt"
    program = server_program(tmp_path, f"import mcp_probe; mcp_probe.attach(server, report={str(report)!r})")
    with (
        HttpBackend() as backend,
        Spoken([INSTRUMENT, sys.executable, program], instrumented(backend.url)) as server,
    ):
        for _ in range(3):
            server.call()
        server.end()
    assert "add" in report.read_text()
    assert backend.kept.span_names().count("tools/call add") == 3
    counted = [
        point.count
        for resource in backend.kept.metrics[-1].resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        if metric.name == "mcp.server.operation.duration"
        for point in metric.histogram.data_points
        if any(item.value.string_value == "add" for item in point.attributes)
    ]
    assert sum(counted) == 3  # partial ones have a series of their own


def test_with_mcp_probe_run_around_it_requests_are_reported_once_and_the_providers_are_the_same(tmp_path: Path) -> None:
    program = server_program(tmp_path)
    summary = tmp_path / "summary.json"
    report = str(tmp_path / "report")
    run = probe_run([], "--json", str(summary), "--output", report)
    with (
        HttpBackend() as backend,
        Spoken([*run, INSTRUMENT, sys.executable, program], instrumented(backend.url)) as server,
    ):
        for _ in range(3):
            server.call()
        server.end()
    rows = {row["name"]: row["count"] for row in json.loads(summary.read_text())["operations"]}
    assert rows["add"] == 3
    assert backend.kept.span_names().count("tools/call add") == 3
    assert "mcp_probe.busy" in ours(backend.kept)


def test_a_program_that_never_imports_mcp_loads_no_more_than_the_instrumentor(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(
        "import json, sys, threading\n"
        "print(json.dumps([[m for m in sys.modules if m.startswith('mcp_probe.')], threading.active_count()]))\n"
    )
    env = environment(OTEL_TRACES_EXPORTER="none", OTEL_METRICS_EXPORTER="none", **INTO_HTTP)
    ended = subprocess.run([INSTRUMENT, sys.executable, script], capture_output=True, text=True, env=env, timeout=120)
    loaded, threads = json.loads(ended.stdout)
    assert sorted(loaded) == ["mcp_probe.adapters", "mcp_probe.adapters.imports", "mcp_probe.instrumentor"]
    assert threads == 1


def test_an_option_that_makes_no_sense_costs_the_probe_and_not_the_server(tmp_path: Path) -> None:
    program = server_program(tmp_path)
    with HttpBackend() as backend:
        env = instrumented(backend.url, MCP_PROBE_SLOW_STEP_MS="soon")
        with Spoken([INSTRUMENT, sys.executable, program], env) as server:
            server.call()
            server.end()
    assert server.exit_code == 0
    assert "servers of this process are not instrumented" in server.stderr
    assert "MCP_PROBE_SLOW_STEP_MS is 'soon'" in server.stderr
    assert "tools/call add" in backend.kept.span_names()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_server_created_by_a_forked_worker_is_attached_to_there() -> None:
    source = """
import os, sys
import mcp
from mcp_probe.session import AutomaticProbe, attached
from mcp.server.mcpserver import MCPServer

AutomaticProbe()
worker = os.fork()
if not worker:
    server = MCPServer("in a worker")
    (probe,) = attached()
    os._exit(0 if probe.automatic and probe.serves(server) else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1]))
"""
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", source]
    ended = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=120)
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.fixture
def instrumentor() -> ProbeInstrumentor:
    return ProbeInstrumentor()


def test_uninstrumenting_detaches(instrumentor: ProbeInstrumentor) -> None:
    import mcp  # noqa: F401

    from mcp_probe.session import attached

    instrumentor.instrument(skip_dep_check=True, telemetry="off")
    (probe,) = attached()
    assert probe.automatic
    instrumentor.uninstrument()
    assert attached() == ()
