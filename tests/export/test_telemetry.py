"""What a probe's telemetry loads, and when."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from mcp_probe.export.exporters import TelemetrySettings
from mcp_probe.export.telemetry import Telemetry
from tests.export.speaking import environment
from tests.frames import make_header, make_request

ROOT = Path(__file__).resolve().parent.parent.parent

# OpenTelemetry as on a machine that has none: nothing of it can be imported.
_WITHOUT = """
import sys

class Nothing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "opentelemetry":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Nothing())
import json, mcp_probe
"""


def run(source: str, python: Path | str = sys.executable) -> Any:
    command = [str(python), "-W", "error", "-c", source]
    ended = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=120, check=False)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def test_a_probe_loads_nothing_of_opentelemetry_that_the_application_has_not_loaded() -> None:
    source = """
import json, sys, mcp_probe
probe = mcp_probe.Probe()
probe.snapshot()
probe.detach()
print(json.dumps([name for name in sys.modules if name.split(".")[0] == "opentelemetry"]))
"""
    assert run(source) == []


def test_the_core_works_without_opentelemetry_and_otlp_names_the_extra() -> None:
    source = """
probe = mcp_probe.Probe(telemetry="enrich")
probe.snapshot(); probe.detach()
try:
    mcp_probe.Probe(otlp=True).middleware
except mcp_probe.MissingExtraError as error:
    print(json.dumps(str(error)))
"""
    said = run(_WITHOUT + source)
    assert "pip install 'mcp-probe-profiler[otel]'" in said
    assert "mcp-probe run --otlp" in said


@pytest.mark.parametrize("mode", ["auto", "enrich", "relay", "off"])
def test_every_mode_attaches_to_a_server_of_an_environment_without_opentelemetry(mode: str, env_python: Any) -> None:
    source = f"""
import json, sys
import anyio, mcp_probe
from mcp.server.fastmcp import FastMCP
from mcp.shared.memory import create_connected_server_and_client_session as connected

server = FastMCP("legacy", log_level="CRITICAL")

@server.tool()
def add(a: int, b: int) -> int:
    return a + b

probe = mcp_probe.attach(server, telemetry={mode!r})

async def main():
    async with connected(server._mcp_server) as client:
        await client.call_tool("add", {{"a": 1, "b": 2}})

anyio.run(main)
rows = {{row.name: row.count for row in probe.snapshot().operations}}
probe.detach()
print(json.dumps([rows["add"], any(name.split(".")[0] == "opentelemetry" for name in sys.modules)]))
"""
    assert run(source, env_python("mcp1")) == [1, False]


def test_every_request_is_recorded_once_and_never_on_the_servers_loop() -> None:
    source = """
import json, anyio
from mcp.client.session import ClientSession
from mcp.server import MCPServer
from mcp.shared.memory import create_client_server_memory_streams
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider, TraceBasedExemplarFilter
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
import threading
import mcp_probe

reader = InMemoryMetricReader()
recorded_on = set()

class Noting(TraceBasedExemplarFilter):
    def should_sample(self, *measured):
        recorded_on.add(threading.get_ident())
        return super().should_sample(*measured)

metrics.set_meter_provider(MeterProvider([reader], shutdown_on_exit=False, exemplar_filter=Noting()))
trace.set_tracer_provider(TracerProvider(shutdown_on_exit=False))
server = MCPServer("plain", log_level="CRITICAL")

@server.tool()
async def add(a: int, b: int) -> int:
    return a + b

@server.tool()
async def fail() -> str:
    raise ValueError("on purpose")

probe = mcp_probe.attach(server)
low = server._lowlevel_server

async def main():
    async with create_client_server_memory_streams() as (near, far), anyio.create_task_group() as group:
        group.start_soon(lambda: low.run(far[0], far[1], low.create_initialization_options()))
        async with ClientSession(*near) as client:
            await client.initialize()
            for turn in range(2):
                for _ in range(50):
                    await client.call_tool("add", {"a": 1, "b": 2})
                await client.call_tool("fail", {})
        group.cancel_scope.cancel()

anyio.run(main)
on_loop = threading.get_ident() in recorded_on
probe.snapshot()
found = {
    point.attributes.get("gen_ai.tool.name"): (point.count, point.sum, len(point.exemplars))
    for resource in reader.get_metrics_data().resource_metrics
    for scope in resource.scope_metrics
    for metric in scope.metrics if metric.name == "mcp.server.operation.duration"
    for point in metric.data.data_points
}
rows = {row.name: row.count for row in probe.snapshot().operations}
print(json.dumps([found["add"], found["fail"], rows, on_loop]))
probe.detach()
"""
    (count, seconds, exemplars), (failed, _, _), rows, on_loop = run(source)
    assert (count, failed, rows["add"]) == (100, 2, 100)
    assert seconds > 0
    assert exemplars > 0
    assert not on_loop


# --- who joins the exports: the thread that attaches, or the collector's ---------------------------------


class Joined:
    """Stands in for ``providers.join``: counts, and stays inside until told to go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from mcp_probe.export import providers

        self.servers: list[str | None] = []
        self.entered, self.go_on = threading.Event(), threading.Event()
        monkeypatch.setattr(providers, "join", self)

    def __call__(self, user: object, settings: TelemetrySettings, server: str | None) -> None:
        self.servers.append(server)
        self.entered.set()
        assert self.go_on.wait(100)


def telemetry_with(otlp: bool | str) -> Telemetry:
    return Telemetry(TelemetrySettings(otlp=otlp), trace=lambda _: None, found=lambda: None)


@pytest.mark.parametrize("otlp", [False, "http://127.0.0.1:9"])
def test_frames_that_come_while_a_server_is_attached_do_not_join_a_second_time(
    otlp: bool | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    joined, telemetry = Joined(monkeypatch), telemetry_with(otlp)
    attaching = threading.Thread(target=telemetry.begin, args=("shop",))
    attaching.start()
    assert joined.entered.wait(100)
    telemetry.take([make_header()])  # on the collector's thread
    joined.go_on.set()
    attaching.join(100)
    telemetry.take([make_request()])
    assert joined.servers == ["shop"]


def test_exporters_of_ours_are_set_up_by_the_attaching_thread_alone_under_the_servers_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    joined, telemetry = Joined(monkeypatch), telemetry_with("http://127.0.0.1:9")
    joined.go_on.set()
    telemetry.take([make_header()])
    assert joined.servers == []
    telemetry.begin("shop")
    assert joined.servers == ["shop"]


def test_an_application_that_loads_opentelemetry_later_is_joined_with_the_next_frames(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    joined, telemetry = Joined(monkeypatch), telemetry_with(False)
    joined.go_on.set()
    telemetry.take([make_header()])
    telemetry.take([make_request()])
    assert joined.servers == [None]
