"""`python -m tools.field.awaits [WORD …]`: how much of what real servers wait for has a name: rows of docs/awaits.md.

Runs the rows of `make field` whose environment contains one of the words, and proxies of another server.
What a server waits for is its awaiting, and the time of its worker threads' jobs in which these used no CPU. A server
whose tools run on the loop, or compute, waits for nothing.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

from mcp_probe.capture.executor import NO_REQUEST_OPERATION
from tests.ports import free_port
from tools.field import __main__ as field
from tools.field.servers import ROWS, Ask, Row, Setting, Transport

LEAST_MS = 100
"""Servers that wait less than this in all have no row: a share of nothing says nothing."""

BACKEND = """
import asyncio, sys
from mcp.server import MCPServer
server = MCPServer("behind")

@server.tool()
async def slow() -> str:
    await asyncio.sleep(0.15)
    return "slow"

@server.tool()
async def quick() -> str:
    return "quick"

server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
"""


def proxied(*before: str) -> Callable[[Transport, int, Path], AbstractContextManager[Setting]]:
    """A server over HTTP, and a proxy before it. ``before`` stands before the address on the proxy's command line."""

    @contextmanager
    def set_up(transport: Transport, port: int, folder: Path) -> Iterator[Setting]:
        behind = free_port()
        (folder / "behind.py").write_text(BACKEND, "utf-8")
        command = [sys.executable, str(folder / "behind.py"), str(behind)]
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            _answers(behind)
            place = ("--transport", "http", "--host", "127.0.0.1", "--port", str(port)) if transport == "HTTP" else ()
            yield Setting(Ask("slow"), Ask("quick"), (*before, f"http://127.0.0.1:{behind}/mcp", *place))
        finally:
            server.kill()
            server.wait()

    return set_up


def _answers(port: int) -> None:
    for _ in range(200):
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)
    raise TimeoutError(f"nobody listens on port {port}")


PROXIES = [
    *(
        Row("fastmcp", environment, "fastmcp", "stdio", False, "a server over HTTP, 150 ms", proxied("run"))
        for environment in ("fastmcp2", "fastmcp3", "fastmcp4")
    ),
    Row("fastmcp", "fastmcp4", "fastmcp", "HTTP", False, "a server over HTTP, 150 ms", proxied("run")),
    Row(
        "mcp-proxy",
        "field-proxy",
        "mcp-proxy",
        "stdio",
        False,
        "a server over HTTP, 150 ms",
        proxied("--transport", "streamablehttp"),
    ),
]


def row_of(name: str, summary: dict[str, Any]) -> str | None:
    """A row: server, SDK, ms waited, share with a name, share of it that is estimated by looks, the longest names.

    ``None``: it hardly waits.
    """
    named: Counter[str] = Counter()
    operations = summary["operations"]
    run_ms = sum((one["budget_ms"]["executor_run"] or 0) * one["count"] for one in operations)
    pools = [pool for pool in summary["executors"] if set(pool["holders"]) - {NO_REQUEST_OPERATION}]
    waited_ms = max(0.0, run_ms - sum(pool["cpu_ms"] for pool in pools))
    in_jobs_ms = estimated_ms = 0.0
    for operation in operations:
        waited_ms += operation["awaits_unnamed_ms"] or 0.0
        for one in operation["awaits"]:
            if one["stage"] == "busy":
                continue  # on the loop, which is no waiting
            named[f"{one['kind']} {one['object']}"] += one["total_ms"]
            estimated_ms += one["estimated_ms"]
            if one["stage"] == "awaiting":
                waited_ms += one["total_ms"]
            else:
                in_jobs_ms += one["total_ms"]
    if waited_ms < LEAST_MS:
        return None
    share, estimated = min(1.0, named.total() / waited_ms), min(1.0, estimated_ms / waited_ms)
    longest = ", ".join(f"{what} {ms:.0f} ms" for what, ms in named.most_common(2) if ms >= 1)
    waited = f"{waited_ms:.0f} ms{' in threads' if in_jobs_ms > waited_ms / 2 else ''}"
    sdk = summary["server"]["sdk_version"]
    return f"| {name} | {sdk} | {waited} | {share:.1%} | {estimated:.1%} | {longest} |"


def main(words: list[str]) -> None:
    for row in (*ROWS, *PROXIES):
        if words and not any(word in row.lock for word in words):
            continue
        outcome = field.run(row)
        report = field.KEPT / row.name.replace(" ", "-") / "report.json"
        found = row_of(row.name, json.loads(report.read_text("utf-8"))) if report.exists() else outcome.absent
        print(found or f"{row.name}: waits less than {LEAST_MS} ms", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
