"""The demo's server without any probe: its faults are real, seen by the order of answers at the client's end."""

from __future__ import annotations

import sys

import anyio
import pytest

from mcp_probe.workloads.client import Call, LoadSession, stdio_client_session

pytestmark = pytest.mark.parametrize("loop", ["asyncio", "uvloop", "trio"])

LOOKUP = Call("lookup", {"item": "item-1"})
RENDER_MS = 2500


def command(loop: str) -> list[str]:
    return [sys.executable, "-m", "mcp_probe.workloads.demo_server", "--loop", loop]


async def finishing_order(session: LoadSession, *calls: Call) -> list[str]:
    """Names of ``calls``, sent together in this order, in the order in which they were answered."""
    seen = len(session.answers)
    await session.pipelined(calls)
    return [answer.operation for answer in session.answers[seen:]]


async def passes(session: LoadSession, slow: Call) -> bool:
    """Whether a lookup is answered before ``slow``. One that waits for it never is; a late one seems to."""
    for _ in range(4):
        if await finishing_order(session, slow, LOOKUP) == ["lookup", slow.tool]:
            return True
    return False


async def test_every_tool_answers(loop: str) -> None:
    async with stdio_client_session(command(loop)) as session:
        assert (await session.call("lookup", item="item-1")).text == "107"
        assert (await session.call("resize", image="photo", width=100)).text == "photo at 100 px"
        assert (await session.call("render", page=3, dpi=60)).text == "page 3 at 60 dpi"
        assert (await session.call("fetch", url="there")).text == "contents of there"
        assert (await session.call("score", words=1000)).error is None


async def test_a_quick_call_waits_for_the_tool_that_blocks_the_loop_and_for_no_other(loop: str) -> None:
    slow = {
        "fetch": Call("fetch", {"url": "there"}),
        "render": Call("render", {"page": 1, "dpi": 1500}),
        "resize": Call("resize", {"image": "photo", "width": 100}),
    }
    async with stdio_client_session(command(loop)) as session:
        assert await passes(session, slow["fetch"])
        assert await passes(session, slow["render"])
        assert await finishing_order(session, slow["resize"], LOOKUP) == ["resize", "lookup"]


async def test_a_ping_passes_38_busy_threads_and_waits_for_the_first_of_39(loop: str) -> None:
    async with stdio_client_session(command(loop), mode="legacy") as session:
        took = RENDER_MS + 0.0
        for _ in range(3):  # one that needs a thread of theirs is never so early, however often it is sent
            if (took := await ping_beside(session, busy=38)) < RENDER_MS:
                break
        assert took < RENDER_MS
        assert await ping_beside(session, busy=39) >= RENDER_MS


async def ping_beside(session: LoadSession, *, busy: int) -> float:
    """When a ping is answered, in ms since ``busy`` renders of RENDER_MS each were sent.

    A sleeping thread is never done early, so a ping that needs a thread of theirs is never answered before that.
    """
    seen = len(session.answers)
    async with anyio.create_task_group() as group:
        group.start_soon(session.pipelined, [Call("render", {"page": n, "dpi": RENDER_MS}) for n in range(busy)])
        await anyio.sleep(0.8)
        ping = await session.ping()
    return (ping.answered_ns - min(answer.sent_ns for answer in session.answers[seen:])) / 1e6
