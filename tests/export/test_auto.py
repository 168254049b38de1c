"""What a probe's telemetry loads, and when."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.export.speaking import environment

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
