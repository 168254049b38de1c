"""A tool may be sent any number to sleep for."""

from __future__ import annotations

import sys
from typing import Any

import anyio
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from tests.harm.running import ONE_CORE, ROOT, How, bare, environment, told

SECONDS = ("nan", "inf", "-inf", "1e300", "-1")


async def ask(core: How, seconds: str, found: dict[str, Any]) -> None:
    """Call ``sleep`` of a server of its own, for a while, and then ask it something easy."""
    command = StdioServerParameters(
        command=sys.executable,
        args=["-m", "tests.harm.programs.sleepy_server", core],
        env=environment(core),
        cwd=ROOT,
    )
    said = []
    try:
        async with Client(stdio_client(command)) as client:
            for tool, arguments in (("sleep", {"seconds": seconds}), ("add", {"a": 1, "b": 2})):
                # Those that answer do so at once, though four others start beside them; the rest never do.
                with anyio.move_on_after(10.0 if tool == "sleep" else 60) as scope:
                    try:
                        result: Any = await client.call_tool(tool, arguments)
                        said.append(f"{tool}: {result.is_error} {[item.text for item in result.content]}")
                    except Exception as exc:
                        said.append(f"{tool}: {type(exc).__name__}: {exc}")
                if scope.cancelled_caught:
                    said.append(f"{tool}: no answer yet")
    except Exception as exc:
        said.append(f"the connection: {type(exc).__name__}")
    found[seconds] = said


async def conversations(core: How) -> dict[str, Any]:
    found: dict[str, Any] = {}
    async with anyio.create_task_group() as group:
        for seconds in SECONDS:
            group.start_soon(ask, core, seconds, found)
    return found


@pytest.fixture(scope="module")
def bare_conversations() -> dict[str, Any]:
    return anyio.run(conversations, "bare")


@ONE_CORE
def test_a_tool_sleeps_for_any_number_as_without_the_probe(core: How, bare_conversations: dict[str, Any]) -> None:
    assert anyio.run(conversations, core) == bare_conversations


@ONE_CORE
def test_a_timer_takes_any_number_as_without_the_probe(core: How) -> None:
    assert told("odd_delays", core) == bare("odd_delays")
