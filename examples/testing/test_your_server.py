"""Tests of a server: `python -m pytest examples/testing/test_your_server.py`. Two of the four fail, on purpose."""

import asyncio
import time

import pytest
from mcp.client import Client
from mcp.server.mcpserver import MCPServer

server = MCPServer("shop")
lock = asyncio.Lock()
seen: list[bytes] = []


@server.tool()
async def price(item: str) -> int:
    await asyncio.sleep(0.01)  # the backend
    return len(item)


@server.tool()
async def search(text: str) -> int:
    time.sleep(0.1)  # nobody else is served meanwhile
    return len(text)


@server.tool()
async def note(text: str) -> int:
    async with lock:
        await asyncio.sleep(0.01)  # every other call of `note` waits for it, too
        seen.append(text.encode() * 1_000)
    return len(seen)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def ask(tool: str, **arguments: str) -> None:
    async with Client(server) as client:
        for _ in range(10):
            await client.call_tool(tool, arguments)


@pytest.mark.anyio
@pytest.mark.mcp_budget(findings="blocking-call", retained="1kB", step_cpu="20ms", max_tasks=4)
async def test_price_is_cheap(mcp_profile):
    mcp_profile(server)
    await ask("price", item="tea")


@pytest.mark.anyio
@pytest.mark.mcp_budget(findings="blocking-call")
async def test_search_blocks_nobody(mcp_profile):
    mcp_profile(server)
    await ask("search", text="tea")


@pytest.mark.anyio
@pytest.mark.mcp_budget(retained="1kB", max_awaits_under_lock=0)
async def test_note_keeps_little_and_locks_briefly(mcp_profile):
    mcp_profile(server)
    await ask("note", text="tea and cake")


@pytest.mark.anyio
async def test_asserts_of_your_own(mcp_profile):
    with mcp_profile(server) as profile:
        await ask("price", item="cake")
    assert profile.calls("price") == 10
    assert not profile.findings("blocking-call")
    assert profile.longest_step_cpu("price").ms < 20
    assert profile.connections_opened() == 0
    assert profile.tasks_at_once("price") == 1


# mypy: ignore-errors
