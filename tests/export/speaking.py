"""A real stdio server in a process of its own, driven one call at a time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
LIMIT_S = 120.0

_SERVER = """
import logging, os, sys, time
import anyio
from mcp.server.mcpserver import MCPServer

server = MCPServer("spoken-to", log_level="WARNING")

@server.tool()
async def add(a: int, b: int) -> int:
    await anyio.sleep(0)
    return a + b

@server.tool()
async def block(ms: int) -> int:
    time.sleep(ms / 1e3)
    return ms

{before}
if __name__ == "__main__":
    logging.getLogger().handlers[:] = [logging.StreamHandler()]  # rich would fold the lines
    server.run("stdio")
"""

FAST = {"OTEL_BSP_SCHEDULE_DELAY": "100", "OTEL_METRIC_EXPORT_INTERVAL": "200"}
"""Exports often enough that a backend's misbehaviour falls into a short run."""


def server_program(folder: Path, before: str = "") -> Path:
    """A server in ``folder`` that runs ``before`` once ``server`` is made."""
    script = folder / "server.py"
    script.write_text(_SERVER.format(before=before), "utf-8")
    return script


def environment(**added: str) -> dict[str, str]:
    """This process's, without what configures telemetry; mcp_probe is found in this checkout."""
    ours = ("OTEL_", "MCP_PROBE_", "PYTHON", "REQUESTS_CA", "CURL_CA", "GRPC_")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(ours)}
    path = os.pathsep.join([str(Path(sys.executable).parent), kept.get("PATH", "")])
    return {**kept, "PATH": path, "PYTHONPATH": str(ROOT), **added}


class Spoken:
    """A running server. Use as a context manager; :meth:`end` closes its stdin and waits."""

    def __init__(self, command: Sequence[str | Path], env: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            [str(part) for part in command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(env),
        )
        self._stderr: list[bytes] = []
        self._reader = threading.Thread(target=self._read_stderr)
        self._reader.start()
        self._id = 0
        self.exit_code: int | None = None

    def _read_stderr(self) -> None:
        assert self._process.stderr is not None
        self._stderr.extend(self._process.stderr)

    def __enter__(self) -> Spoken:
        try:
            client = {"name": "test", "version": "1"}
            self.ask("initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo=client)
            self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *unused: object) -> None:
        if self.exit_code is None:
            self._process.kill()
            self.end()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def stderr(self) -> str:
        """All that was written there; after :meth:`end`."""
        return b"".join(self._stderr).decode()

    def ask(self, method: str, **params: Any) -> Any:
        """The result of one request."""
        self._id += 1
        self._send({"jsonrpc": "2.0", "id": self._id, "method": method, "params": params})
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise AssertionError(f"the server has gone: {self.stderr}")
        return json.loads(line)["result"]

    def call(self, tool: str = "add", _meta: Mapping[str, str] | None = None, **arguments: Any) -> Any:
        """The result of one tool call."""
        meta = {} if _meta is None else {"_meta": dict(_meta)}
        return self.ask("tools/call", name=tool, arguments=arguments or {"a": 1, "b": 2}, **meta)

    def median_ms(self, calls: int) -> float:
        """Median latency of so many calls, one after another."""
        spans = []
        for _ in range(calls):
            since = time.perf_counter()
            self.call()
            spans.append(time.perf_counter() - since)
        return median(spans) * 1e3

    def hang_up(self) -> None:
        """Close the server's stdin."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def end(self) -> float:
        """How many seconds the server takes to exit once its stdin is closed."""
        assert self._process.stdout is not None
        since = time.perf_counter()
        self.hang_up()
        self.exit_code = self._process.wait(LIMIT_S)
        took = time.perf_counter() - since
        self._process.stdout.close()
        self._reader.join(LIMIT_S)
        assert self._process.stderr is not None
        self._process.stderr.close()
        return took

    def _send(self, message: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        self._process.stdin.flush()
