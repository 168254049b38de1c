"""A client in the server's own process and loop: what it waits is in its requests, or they say that it was not seen."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
from mcp.client import Client
from mcp.server.mcpserver import MCPServer

from mcp_probe.aggregate.blocking import StepIndex, blame, victim_of
from mcp_probe.model import QUEUE, WRITES
from mcp_probe.session import attach
from tests.adapters.serving import ROOT, over_memory_streams
from tests.adapters.truth_server import build
from tests.kept import keep, probed
from tests.loops import LOOPS
from tests.running import Backend, run_on

MS = 1_000_000
BLOCK_MS = 225


@pytest.mark.parametrize("backend", LOOPS)
def test_a_caller_in_process_waited_from_its_call_until_it_went_on(backend: Backend) -> None:
    """Three calls are made in the loop in which another tool then blocks for 225 ms: each gets its answer after it."""
    server = build()
    spans: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    held: list[tuple[int, int]] = []

    @server.tool()
    async def holds() -> str:
        began = time.monotonic_ns()
        time.sleep(BLOCK_MS / 1000)
        held.append((began, time.monotonic_ns()))
        return ""

    async def scene() -> None:
        async with Client(server) as client:
            await client.list_tools()
            await client.call_tool("quick", {})

            async def call(tool: str) -> None:
                began = time.monotonic_ns()
                await client.call_tool(tool, {})
                spans[tool].append((began, time.monotonic_ns()))

            async with anyio.create_task_group() as group:
                for _ in range(3):
                    group.start_soon(call, "quick")
                await anyio.lowlevel.checkpoint()
                group.start_soon(call, "holds")

    with probed(server) as kept:
        run_on(backend, scene)
    [(held_from, held_until)] = held
    records = sorted(kept.requests("quick")[1:], key=lambda record: record.arrival_ns)
    assert len(records) == 3
    for record, (called, went_on) in zip(records, sorted(spans["quick"]), strict=True):
        assert called <= record.arrival_ns and record.end_ns <= went_on
        assert record.seen & QUEUE and record.seen & WRITES
        assert sum(filter(None, (getattr(record.budget, name) for name in record.budget.__slots__))) == (
            record.end_ns - record.arrival_ns
        )
        if went_on > held_until:
            assert record.arrival_ns <= held_from and held_until <= record.end_ns
            victim = victim_of(record)
            assert victim is not None
            lo, hi = blame(victim, StepIndex(kept.steps())).rows["holds"]
            slept = held_until - held_from
            assert lo == hi  # the step has more than the sleep, and what the host takes there
            assert 0.95 * slept <= lo <= max(1.05 * slept, went_on - called)
    assert not {"total_ms", "queue_transport", "write_wait"} & {name for each in records for name, *_ in each.quality}


def test_a_call_that_fails_or_is_cancelled_ends_with_its_caller() -> None:
    server = MCPServer("failing")

    @server.tool()
    async def fails() -> str:
        raise ValueError("no")

    @server.tool()
    async def sleeps() -> str:
        await anyio.sleep(3600)
        return "never"

    async def scene() -> None:
        async with Client(server) as client:
            await client.list_tools()
            assert (await client.call_tool("fails", {})).is_error
            with anyio.move_on_after(0.05):
                await client.call_tool("sleeps", {})

    with probed(server) as kept:
        run_on("asyncio", scene)
    assert {record.name: record.outcome for record in kept.requests() if record.name} == {
        "fails": "tool_error",
        "sleeps": "cancelled",
    }


def test_a_server_called_by_a_tool_of_another_gets_its_own_arrival() -> None:
    inner, outer = MCPServer("inner"), MCPServer("outer")

    @inner.tool()
    async def low() -> str:
        return "low"

    @outer.tool()
    async def high() -> str:
        async with Client(inner) as client:
            await client.list_tools()
            await anyio.sleep(0.02)
            await client.call_tool("low", {})
        return "high"

    async def scene() -> None:
        async with Client(outer) as client:
            await client.list_tools()
            await client.call_tool("high", {})

    probe = attach(inner, telemetry="off")
    below = keep(probe)
    with probed(outer) as kept:
        run_on("asyncio", scene)
    probe.detach()
    around, within = kept.only("high"), below.only("low")
    assert around.arrival_ns + 20 * MS <= within.arrival_ns <= within.end_ns <= around.end_ns


def test_over_streams_in_process_what_was_not_seen_is_never_exact() -> None:
    server = build()

    async def scene() -> None:
        async with over_memory_streams(server) as session:
            await session.call_tool("quick", {})

    probe = attach(server, telemetry="off")
    run_on("asyncio", scene)
    (row,) = [each for each in probe.snapshot().operations if each.name == "quick"]
    probe.detach()
    assert row.quality["total_ms"].tag == "lower"
    assert row.quality["queue_transport"].tag == "unavailable" and row.budget_ms.queue_transport is None


@pytest.mark.parametrize(
    ("env", "which"),
    [("", "mcp2"), ("mcp1", "mcp1"), ("fastmcp2", "fastmcp"), ("fastmcp3", "fastmcp"), ("fastmcp4", "fastmcp")],
    ids=lambda each: each or "mcp",
)
def test_no_client_in_process_waited_longer_than_is_said(
    env: str, which: str, env_python: Callable[[str], Path]
) -> None:
    """A total is what the client waited, or a lower bound that says so. Over streams most of the wait is not seen."""
    python = env_python(env) if env else Path(sys.executable)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [str(python), "-m", "tests.adapters.in_process_clients", which]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=100, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    took_ms, row = found["took_ms"], found["row"]
    assert row["count"] == len(took_ms) == 5
    assert row["total_ms"]["max"] <= took_ms[-1]
    tags = {name: row["quality"].get(name, {"tag": "exact"})["tag"] for name in ("total_ms", "queue_transport")}
    if which == "mcp2":  # without streams; how exact it is, is tested above
        assert tags == {"total_ms": "exact", "queue_transport": "exact"}
    else:
        assert tags == {"total_ms": "lower", "queue_transport": "unavailable"}
        assert {row["quality"][f"total_ms_{each}"]["tag"] for each in ("p50", "p95", "p99", "max")} == {"lower"}
        assert row["budget_ms"]["queue_transport"] is None
        assert took_ms[-1] > 200
