"""A stdio server of the SDK with one tool per way of behaving; the wire tests run it bare and probed.

Usage: everything_server.py LOOP [attach | detached], LOOP being asyncio, uvloop or trio.
"""

from __future__ import annotations

import os
import sys

import anyio
from mcp.server.mcpserver import Context, MCPServer
from mcp_types import SamplingMessage, TextContent

MEGABYTE = 1 << 20

# Silent: where rich is importable, the SDK's log of each failing tool costs 100 ms and more.
server = MCPServer("everything", version="1", log_level="CRITICAL")


@server.tool()
async def echo(text: str) -> str:
    return text


@server.tool()
def in_thread(text: str) -> str:
    return text[::-1]


@server.tool()
async def fail(text: str) -> str:
    raise ValueError(f"refused: {text}")


@server.tool()
async def large(letter: str) -> str:
    await anyio.lowlevel.checkpoint()
    return letter * MEGABYTE


@server.tool()
async def count(to: int, ctx: Context) -> str:
    for number in range(to):
        await ctx.report_progress(number, to)
    return f"counted to {to}"


@server.tool()
async def ask(question: str, ctx: Context) -> str:
    answer = await ctx.session.create_message(
        [SamplingMessage(role="user", content=TextContent(type="text", text=question))], max_tokens=5
    )
    return f"the client says {getattr(answer.content, 'text', None)}"


@server.tool()
async def hang(ctx: Context) -> str:
    await ctx.report_progress(0, 1)  # so that the client knows that it has begun
    await anyio.sleep_forever()
    return "never"


@server.tool()
async def print_to_stdout(text: str) -> str:
    print(text, flush=True)
    return "printed"


@server.tool()
async def children(number: int) -> str:
    done: list[int] = []

    async def child(index: int) -> None:
        await anyio.to_thread.run_sync(str, index)
        done.append(index)

    async with anyio.create_task_group() as group:
        for index in range(number):
            group.start_soon(child, index)
    return f"{sorted(done)}"


@server.tool()
async def child_fails(text: str) -> str:
    async def child() -> None:
        raise LookupError(text)

    try:
        async with anyio.create_task_group() as group:
            group.start_soon(child)
            group.start_soon(anyio.sleep_forever)
    except BaseException as exc:  # noqa: BLE001 - told to the client as it is
        inner = getattr(exc, "exceptions", (exc,))
        raise RuntimeError(f"{type(exc).__name__} of {[repr(one) for one in inner]}") from None
    return "never"


@server.tool()
async def gives_up_on_itself() -> str:
    with anyio.move_on_after(0.001) as scope:
        await anyio.sleep_forever()
    return f"cancelled: {scope.cancelled_caught}"


@server.prompt()
def greet(name: str) -> str:
    return f"Greet {name}."


@server.resource("note://today")
def today() -> str:
    return "a note"


@server.resource("note://of/{day}")
def of_day(day: str) -> str:
    return f"the note of {day}"


def main(loop: str, mode: str) -> None:
    if mode in ("attach", "detached"):
        import mcp_probe

        probe = mcp_probe.attach(server)
        if mode == "detached":
            probe.detach()
    options = {"use_uvloop": True} if loop == "uvloop" else {}
    anyio.run(server.run_stdio_async, backend="trio" if loop == "trio" else "asyncio", backend_options=options)
    os.write(2, b"served\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "bare")
