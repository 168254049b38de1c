"""A small load client: starts a stdio MCP server, calls it as asked, and times every call at the client's end.

Its times are taken in another process than the server's, so they are an independent truth for whatever a
probe inside that server says. Needs the ``mcp`` package, 2.0 or newer; importing this module imports it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Literal, TextIO

import anyio
from mcp import MCPError
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from mcp_probe.clock import now_ns

ANSWER_S = 60.0


@dataclass(frozen=True, slots=True)
class Call:
    """One tool call to make."""

    tool: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Answer:
    """One call as the client saw it; both instants are on this process's :func:`mcp_probe.clock.now_ns`.

    ``sent_ns`` is when the call was handed to the SDK's client, whose own encoding and writing therefore
    count: some 0.3 ms a call, and their sum for the last of many calls started together.
    """

    operation: str  # tool name, or "ping"
    sent_ns: int
    answered_ns: int
    error: str | None  # what the server, or the tool, gave as its failure
    text: str  # the result's first text block; empty where there is none

    @property
    def total_ms(self) -> float:
        """From handing over to answer, milliseconds."""
        return (self.answered_ns - self.sent_ns) / 1e6


class LoadSession:
    """One connected client; made by :func:`stdio_client_session`. ``answers`` keeps every answer, oldest first."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.answers: list[Answer] = []

    async def call(self, tool: str, **arguments: Any) -> Answer:
        """Calls one tool and waits for its answer; a failing tool is an answer too, with its ``error`` set."""
        sent_ns = now_ns()
        error, text = None, ""
        try:
            result = await self.client.call_tool(tool, arguments)
            text = next((block.text for block in result.content if block.type == "text"), "")
            error = text if result.is_error else None
        except MCPError as exc:
            error = str(exc)
        return self._keep(Answer(tool, sent_ns, now_ns(), error, text))

    async def ping(self) -> Answer:
        """Pings the server. Only in ``mode="legacy"``: the 2026-07-28 protocol has no ping and refuses it."""
        sent_ns = now_ns()
        await self.client.session.send_ping()
        return self._keep(Answer("ping", sent_ns, now_ns(), None, ""))

    async def one_by_one(self, calls: Iterable[Call]) -> list[Answer]:
        """Makes each call when the one before it has been answered."""
        return [await self.call(call.tool, **call.arguments) for call in calls]

    async def pipelined(self, calls: Iterable[Call], *, in_flight: int | None = None) -> list[Answer]:
        """Sends calls without waiting for their answers; at most ``in_flight`` unanswered, ``None`` = no limit.

        The answers come back in the order of ``calls``, not in the order they arrived.
        """
        limit = anyio.Semaphore(in_flight) if in_flight is not None else None
        answers: dict[int, Answer] = {}

        async def one(position: int, call: Call) -> None:
            try:
                answers[position] = await self.call(call.tool, **call.arguments)
            finally:
                if limit is not None:
                    limit.release()

        async with anyio.create_task_group() as group:
            for position, call in enumerate(calls):
                if limit is not None:
                    await limit.acquire()
                group.start_soon(one, position, call)
        return [answers[position] for position in sorted(answers)]

    def _keep(self, answer: Answer) -> Answer:
        self.answers.append(answer)
        return answer


@asynccontextmanager
async def stdio_client_session(
    command: Sequence[str],
    *,
    mode: Literal["auto", "legacy"] = "auto",
    environment: Mapping[str, str] | None = None,
    stderr: TextIO | None = None,
    options: Mapping[str, Any] | None = None,
) -> AsyncIterator[LoadSession]:
    """Starts ``command`` as a stdio MCP server, connects to it, lists its tools once, and stops it at the end.

    The server gets this process's whole environment with ``environment`` on top (the SDK alone would pass
    on a handful of variables). ``stderr`` must be a real file, not a StringIO; ``None`` = this process's own.
    :data:`ANSWER_S` bounds each wait for an answer. Tools are listed because the SDK's client otherwise
    does so in the middle of the first calls, to check their results. ``options`` are more of the SDK's client: its
    callbacks.

    Raises:
        OSError: the command cannot be started.
        MCPError: the server ended, or did not answer in time.
        What the body raises comes out as it was, not in a group.
    """
    parameters = StdioServerParameters(
        command=command[0], args=list(command[1:]), env={**os.environ, **(environment or {})}
    )
    transport = stdio_client(parameters, errlog=stderr if stderr is not None else sys.stderr)
    try:
        async with Client(transport, mode=mode, read_timeout_seconds=ANSWER_S, cache=None, **(options or {})) as client:
            await client.list_tools()
            yield LoadSession(client)
    except Exception as exc:
        if (cause := _only_cause(exc)) is exc:
            raise
        raise cause from cause.__cause__


def _only_cause(exc: Exception) -> Exception:
    """What is in the groups that the SDK's own task groups put around a single exception."""
    inner: tuple[Exception, ...] = getattr(exc, "exceptions", ())
    return _only_cause(inner[0]) if len(inner) == 1 else exc
