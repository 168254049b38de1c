"""A server whose tools talk to their client while they work: notifications, and questions that it has to answer."""

from __future__ import annotations

import warnings
from typing import Annotated, Literal

import anyio
from mcp.server import MCPServer
from mcp.server.mcpserver import Context, Elicit, Resolve
from mcp.types import SamplingMessage, TextContent
from pydantic import BaseModel

from mcp_probe.workloads.servers import serving

server = MCPServer("talking", log_level="WARNING")


class Answer(BaseModel):
    """What a client is asked for."""

    number: int


@server.tool(structured_output=False)
async def report(count: int, kind: Literal["progress", "log"], ctx: Context) -> str:
    """Sends so many notifications, one after another, and is done."""
    for number in range(count):
        if kind == "progress":
            await ctx.report_progress(number + 1, count)
        else:
            await ctx.info(f"step {number + 1}")
    return "done"


@server.tool(structured_output=False)
async def ask(kind: Literal["sampling", "elicitation"], rounds: int, together: bool, ctx: Context) -> str:
    """Asks its client so many questions, one after another or all at once, and has their answers in one call."""
    numbers: list[int] = []

    async def one() -> None:
        numbers.append(await (_sampled(ctx) if kind == "sampling" else _elicited(ctx)))

    if together:
        async with anyio.create_task_group() as group:
            for _ in range(rounds):
                group.start_soon(one)
    else:
        for _ in range(rounds):
            await one()
    return str(sum(numbers))


async def _sampled(ctx: Context) -> int:
    messages = [SamplingMessage(role="user", content=TextContent(type="text", text="A number, please."))]
    found = await ctx.session.create_message(messages, max_tokens=10, related_request_id=ctx.request_id)
    return int(found.content.text) if isinstance(found.content, TextContent) else 0


async def _elicited(ctx: Context) -> int:
    found = await ctx.elicit("A number, please.", Answer)
    return found.data.number if found.action == "accept" else 0


async def _question() -> Elicit[Answer]:
    return Elicit("A number, please.", Answer)


@server.tool(structured_output=False)
async def resumed(answer: Annotated[Answer, Resolve(_question)]) -> str:
    """Has its question answered before it begins: in protocol 2026-07-28, by a second request."""
    return str(answer.number)


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # the SDK's own, on what is deprecated as of 2026-07-28
    serving.main(server, "Tools that talk to their client.")
