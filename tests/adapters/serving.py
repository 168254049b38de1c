"""Calling the server of ``truth_server`` with the SDK's own clients, over streams in memory and over real stdio."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
from mcp.client.session import ClientSession
from mcp.server.mcpserver import MCPServer
from mcp.shared.memory import create_client_server_memory_streams

from mcp_probe.model import Frame, Summary
from mcp_probe.record.file import read_recording
from mcp_probe.session import attach
from mcp_probe.workloads.client import LoadSession, stdio_client_session
from tests.running import Backend, run_on

ROOT = Path(__file__).resolve().parent.parent.parent


@asynccontextmanager
async def over_memory_streams(server: MCPServer) -> AsyncIterator[ClientSession]:
    """A client of ``server``, which runs on the same loop until the block is left."""
    lowlevel = server._lowlevel_server
    async with create_client_server_memory_streams() as (client, serving), anyio.create_task_group() as group:

        async def serve() -> None:
            await lowlevel.run(*serving, lowlevel.create_initialization_options())

        group.start_soon(serve)
        async with ClientSession(*client) as session:
            await session.initialize()
            await session.list_tools()
            yield session
        group.cancel_scope.cancel()


@asynccontextmanager
async def over_stdio(loop: str, recording: Path) -> AsyncIterator[LoadSession]:
    """A client of a server process on ``loop``; the recording is complete once the block has been left."""
    command = [sys.executable, "-m", "tests.adapters.truth_server", loop, str(recording)]
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    environment = {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    async with stdio_client_session(command, mode="legacy", environment=environment) as session:
        yield session


def frames_of(recording: Path) -> list[Frame]:
    """What the server recorded."""
    return list(read_recording(recording))


def summary_of(server: MCPServer, backend: Backend, calls: Callable[[], Awaitable[None]], **options: Any) -> Summary:
    """What a probe of ``server`` says that was attached while ``calls`` ran on a loop of its own."""
    probe = attach(server, telemetry="off", **options)
    try:
        run_on(backend, calls)
        return probe.snapshot()
    finally:
        probe.detach()
