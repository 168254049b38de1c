"""A server whose calls outlive their connections: it keeps every event, so that a client can read on where it was."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import anyio
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.streamable_http import EventCallback, EventMessage, EventStore
from mcp.types import JSONRPCMessage

from mcp_probe.workloads.servers import serving

server = MCPServer("resumable", log_level="WARNING")

MEETING_LIMIT_S = 60.0


class Kept(EventStore):
    """Every event of every stream, in memory; their ids count from 1."""

    def __init__(self) -> None:
        self._events: list[tuple[str, JSONRPCMessage | None]] = []

    async def store_event(self, stream_id: str, message: JSONRPCMessage | None) -> str:
        """Keeps it."""
        self._events.append((stream_id, message))
        return str(len(self._events))

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> str | None:
        """What came after it in the same stream."""
        last = int(last_event_id)
        stream = self._events[last - 1][0]
        for number, (stream_id, message) in enumerate(islice(self._events, last, None), start=last + 1):
            if stream_id == stream and message is not None:
                await send_callback(EventMessage(message, str(number)))
        return stream


class Halfway:
    """Where :func:`count_up` waits if it is told to; the number of its calls that are over."""

    go = anyio.Event()
    over = 0


@server.tool(structured_output=False)
async def count_up(count: int, pauses: bool, ctx: Context) -> str:
    """Reports its progress so often; halfway it waits for :func:`go_on` if it pauses."""
    for number in range(count):
        if pauses and number == count // 2:
            with anyio.fail_after(MEETING_LIMIT_S):
                await Halfway.go.wait()
        await ctx.report_progress(number + 1, count)
    Halfway.over += 1
    return f"counted to {count}"


@server.tool(structured_output=False)
async def go_on() -> str:
    """Has the calls that wait go on, and waits until one of them is over."""
    before = Halfway.over
    Halfway.go.set()
    with anyio.fail_after(MEETING_LIMIT_S):
        while Halfway.over == before:
            await anyio.sleep(0.001)
    Halfway.go = anyio.Event()
    return "over"


def main(arguments: Sequence[str] | None = None) -> None:
    """Serves streamable HTTP; with ``--keep`` what its clients missed is there for them."""
    parser = serving.parser("A server whose events can be read again.")
    parser.add_argument("--keep", action="store_true", help="keep every event")
    options = parser.parse_args(arguments)
    serving.serve(server, options, event_store=Kept() if options.keep else None)


if __name__ == "__main__":
    main()
