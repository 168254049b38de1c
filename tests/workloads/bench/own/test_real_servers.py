"""Servers from PyPI that nobody here wrote, from the command line alone to a number that another client confirms."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from itertools import count
from pathlib import Path
from statistics import fmean, median
from typing import Any

import anyio
import pytest
from mcp.client import Client

from tests.ports import free_port
from tools.field.servers import clickhouse

ENVS = Path(__file__).parents[4] / ".envs"
GIT = ENVS / "field-git-mcp1" / "bin" / "mcp-server-git"
TIME = ENVS / "field-time" / "bin" / "mcp-server-time"
CLICKHOUSE = ENVS / "field-clickhouse" / "bin" / "mcp-clickhouse"
DUCK = ENVS / "field-motherduck" / "bin" / "mcp-server-motherduck"
SPAN_S, ROUNDS = 1.0, 8
PATIENCE_S = 600


def needs(program: Path) -> pytest.MarkDecorator:
    name = program.parent.parent.name
    return pytest.mark.skipif(not program.exists(), reason=f"make .envs/{name}/.installed")


def benched(folder: Path, *options: str) -> dict[str, Any]:
    """What ``mcp-probe bench --quick`` with these options and no others says, and that its page has the same."""
    saved, page = folder / "own.json", folder / "own.html"
    outputs = ["--json", str(saved), "--html", str(page)]
    command = [sys.executable, "-m", "mcp_probe", "bench", "--quick", *options, *outputs]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    (result,) = json.loads(saved.read_text())["results"]
    assert result["outcome"]["advice"]
    assert page.read_text("utf-8").count(result["outcome"]["advice"][:40]) == 1
    found: dict[str, Any] = result["outcome"]
    return found


def number_in(outcome: dict[str, Any]) -> int | None:
    found = re.match(r"Keep at most (\d+) call", outcome["advice"])
    assert found or outcome["advice"].startswith("No limit is recommended: ")
    return int(found[1]) if found else None


class Asked:
    """What the sweep called: a JSON-RPC method and its parameters."""

    def __init__(self, outcome: dict[str, Any]) -> None:
        (table,) = {row["table"] for row in outcome["rows"] if row["table"].startswith("concurrency sweep of ")}
        operation = table.removeprefix("concurrency sweep of ")
        tools = {row["label"]: row["note"] for row in outcome["rows"] if row["table"] == "tools"}
        self.method, self.params = "tools/list", {}
        if operation.startswith("tool "):
            name = operation.removeprefix("tool ")
            call = shlex.split(tools[name].partition("To call it: ")[2].strip("`"))[-1]
            self.method, self.params = "tools/call", {"name": name, "arguments": json.loads(call.partition("=")[2])}


Window = Callable[[int], Awaitable[float]]
"""Keeps so many calls in flight for a while; calls a second."""


@asynccontextmanager
async def over_pipes(command: Sequence[str], asked: Asked) -> AsyncIterator[Window]:
    """A client that does next to nothing between an answer and the next call: as many are in flight as it says."""
    pipe = asyncio.subprocess.PIPE
    server = await asyncio.create_subprocess_exec(
        *command, stdin=pipe, stdout=pipe, stderr=asyncio.subprocess.DEVNULL, limit=1 << 24
    )
    assert server.stdin is not None and server.stdout is not None
    numbers = count()

    def send(method: str, params: Mapping[str, Any], **id: int) -> None:
        assert server.stdin is not None
        server.stdin.write(json.dumps({"jsonrpc": "2.0", "method": method, "params": params, **id}).encode() + b"\n")

    async def answer() -> None:
        assert server.stdout is not None
        while b'"id"' not in (line := await server.stdout.readline()):
            assert line, "the server has ended"
        assert b'"error"' not in line, line

    async def window(in_flight: int) -> float:
        began = time.monotonic()
        for _ in range(in_flight):
            send(asked.method, asked.params, id=next(numbers))
        answered = 0
        while (now := time.monotonic()) - began < SPAN_S:
            await answer()
            answered += 1
            send(asked.method, asked.params, id=next(numbers))
        for _ in range(in_flight):
            await answer()
        return answered / (now - began)

    about = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "sweep", "version": "1"}}
    send("initialize", about, id=next(numbers))
    await answer()
    send("notifications/initialized", {})
    try:
        yield window
    finally:
        server.stdin.close()
        server.kill()
        await server.wait()


@asynccontextmanager
async def over_http(url: str, asked: Asked) -> AsyncIterator[Window]:
    """The SDK's own client."""
    async with Client(url, read_timeout_seconds=60, cache=None) as client:

        async def window(in_flight: int) -> float:
            answered, began = 0, time.monotonic()

            async def worker() -> None:
                nonlocal answered
                while time.monotonic() - began < SPAN_S:
                    if asked.method == "tools/list":
                        await client.list_tools()
                    else:
                        await client.call_tool(asked.params["name"], asked.params["arguments"])
                    answered += 1

            async with anyio.create_task_group() as group:
                for _ in range(in_flight):
                    group.start_soon(worker)
            return answered / (time.monotonic() - began)

        await client.list_tools()
        yield window


async def shares(server: Sequence[str] | str, outcome: dict[str, Any], levels: Sequence[int]) -> dict[int, float]:
    """Calls a second at each number in flight, as a share of their mean in the same round: the median of the rounds."""
    asked = Asked(outcome)
    opened = over_http(server, asked) if isinstance(server, str) else over_pipes(server, asked)
    rounds = []
    async with opened as window:
        for number in range(ROUNDS):
            rates = {level: await window(level) for level in (levels if number % 2 else levels[::-1])}
            rounds.append({level: rate / fmean(rates.values()) for level, rate in rates.items()})
    return {level: median(each[level] for each in rounds) for level in levels}


def confirm(server: Sequence[str] | str, outcome: dict[str, Any]) -> None:
    """Another client gets as much with the recommended number in flight as with more, and less with half of it."""
    number = number_in(outcome)
    if number is None:
        return
    levels = sorted({max(1, number // 2), number, 2 * number, 4 * number})
    found = anyio.run(shares, server, outcome, levels)
    assert found[number] >= 0.8 * max(found.values()), (outcome["advice"], found)
    assert number < 4 or found[number // 2] < 0.8 * found[number], (outcome["advice"], found)


@contextmanager
def served(
    folder: Path, command: Sequence[str], port: int, environment: Mapping[str, str] | None = None
) -> Iterator[str]:
    """The URL of a server that runs meanwhile."""
    variables = {**os.environ, "HOME": str(folder), **(environment or {})}
    with (folder / "log.txt").open("wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log, env=variables)
    try:
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        server.kill()
        server.wait()


@contextmanager
def repository(folder: Path) -> Iterator[Path]:
    path = folder / "repository"
    path.mkdir()
    (path / "tea.txt").write_text("tea\n")
    git = ["git", "-C", str(path), "-c", "user.name=a", "-c", "user.email=a@example.com"]
    for arguments in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "tea"]):
        subprocess.run([*git, *arguments], check=True)
    yield path


@pytest.mark.knees
@needs(GIT)
def test_a_server_on_mcp_1(tmp_path: Path) -> None:
    with repository(tmp_path) as path:
        command = [str(GIT), "--repository", str(path)]
        confirm(command, benched(tmp_path, "--server", shlex.join(command)))


@pytest.mark.knees
@needs(TIME)
def test_a_server_that_starts_slowly(tmp_path: Path) -> None:
    """Longer than ``server/discover`` is waited for before ``initialize`` goes out beside it."""
    slow = ["sh", "-c", f"sleep 17; exec {shlex.quote(str(TIME))}"]
    outcome = benched(tmp_path, "--server", shlex.join(slow), "--no-probe")
    called = {row["label"]: row["figure"] if "figure" in row else row["measured"] for row in outcome["rows"]}
    assert called["get_current_time"] and called["convert_time"]
    confirm([str(TIME)], outcome)


@pytest.mark.knees
@needs(DUCK)
def test_a_fastmcp_server_over_http(tmp_path: Path) -> None:
    port = free_port()
    at = ["--transport", "http", "--port", str(port), "--host", "127.0.0.1"]
    command = [str(DUCK), *at, "--db-path", ":memory:", "--read-write"]
    with served(tmp_path, command, port) as url:
        confirm(url, benched(tmp_path, "--url", url, "--start-timeout", "60"))


@pytest.mark.knees
@needs(CLICKHOUSE)
def test_the_ten_threads_that_a_fastmcp_server_has_for_queries(tmp_path: Path) -> None:
    """By its source (executors.py:9). It declares no tool read-only, so the call must be named."""
    port = free_port()
    with (
        clickhouse("HTTP", port, tmp_path) as setting,
        served(tmp_path, [str(CLICKHOUSE)], port, setting.environment) as url,
    ):
        call = f"run_query={json.dumps(setting.holding.arguments)}"
        outcome = benched(tmp_path, "--url", url, "--start-timeout", "60", "--call", call)
        assert number_in(outcome) in (None, 9, 10, 11), outcome["advice"]
        confirm(url, outcome)
