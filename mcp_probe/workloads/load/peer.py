"""A connected server, over whatever transport: requests go out without waiting for one another."""

from __future__ import annotations

import asyncio
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from mcp_probe.errors import LaunchError, OptionError
from mcp_probe.export.delivery import shown
from mcp_probe.workloads.load.wire import Era, Order, Reply

START_S = 60.0
"""How long a server may take to start and to answer its first request, where nothing else was said."""


@dataclass(frozen=True, slots=True)
class Target:
    """What to connect to: a command, for stdio, or the URL of a streamable HTTP endpoint; exactly one of the two."""

    command: tuple[str, ...] = ()
    url: str = ""
    era: Era = "auto"
    headers: Mapping[str, str] = field(default_factory=dict)  # for HTTP: an authorization, for example
    environment: Mapping[str, str] = field(default_factory=dict)  # for a command, on top of this process's own
    stderr: Path | None = None  # where a command's stderr is kept; ``None``: thrown away at the end
    label: str = ""  # how a report names it, where that is not the command
    start_s: float | None = None  # how long it may take to start; ``None``: START_S, and a URL must be there at once

    def __post_init__(self) -> None:
        if bool(self.command) == bool(self.url):
            raise OptionError("Name one server: either a command (--server) or a URL (--url).")
        if self.url and not self.url.startswith(("http://", "https://")):
            raise OptionError(f"{self.url!r} is no URL of a server; expected http://… or https://…, such as …/mcp.")

    @property
    def transport(self) -> str:
        """``stdio`` or ``http``."""
        return "http" if self.url else "stdio"

    @property
    def name(self) -> str:
        """How a report names it: a URL without user, password and query."""
        return self.label or shown(self.url) or shlex.join(self.command)

    def under_probe(self, recording: Path) -> Target:
        """The same command under ``mcp-probe run``, which records to ``recording``.

        Raises: LaunchError where there is no such program; said here, it is not said by the probe's own process.
        """
        if shutil.which(self.command[0]) is None:
            raise LaunchError(f"The server {self.name} does not start: there is no program {self.command[0]}.")
        run = [sys.executable, "-m", "mcp_probe", "run", "--record", str(recording)]
        command = (*run, "--output", str(recording.with_suffix(".txt")), "--", *self.command)
        return replace(self, command=command, label=self.name)


def command_of(text: str) -> tuple[str, ...]:
    """A command line as a shell would split it.

    Raises: OptionError when it is empty or its quotes do not match.
    """
    try:
        parts = tuple(shlex.split(text))
    except ValueError as exc:
        raise OptionError(f"The command {text!r} cannot be split into words: {exc}.") from None
    if not parts:
        raise OptionError("The server's command is empty; expected a command line such as 'python server.py'.")
    return parts


class Peer(Protocol):
    """A connected server. All methods run on the loop that it was connected on."""

    modern: bool = True
    protocol: str = ""  # the version that was agreed on
    server: str = ""  # name and version, as the server states them; may be empty
    capabilities: Mapping[str, Any] = {}
    pid: int | None = None  # of the process that was started, for stdio

    def post(self, order: Order, *, stamped: bool = False) -> asyncio.Future[Reply]:
        """Sends at once and returns what will be the reply. It never raises; cancelling it gives the request up.

        ``stamped`` puts the instant of sending into ``_meta``, for a probe inside the server.
        """

    def notify(self, order: Order) -> asyncio.Future[Reply]:
        """Sends a notification; done when it is out."""

    def gone(self) -> str:
        """Why the server can no longer be reached; empty while it can."""

    async def last_words(self) -> str:
        """As :meth:`gone`, when the exit code of a server that is just ending is known as well."""


async def reply_within(posted: asyncio.Future[Reply], limit_s: float) -> Reply | None:
    """What came; ``None`` if nothing did in so many seconds, and then the request is given up."""
    await asyncio.wait((posted,), timeout=max(limit_s, 0.0))
    if posted.done() and not posted.cancelled():
        return posted.result()
    posted.cancel()
    return None


async def listed(peer: Peer, what: str, *, most_pages: int = 50) -> list[Mapping[str, Any]]:
    """Every ``tools``, ``prompts``, ``resources`` of the server, page by page; empty where it has none of them.

    Raises: LaunchError when the server cannot list what it says it has.
    """
    if what not in peer.capabilities:
        return []
    found: list[Mapping[str, Any]] = []
    cursor: Any = None
    for _ in range(most_pages):
        order = Order(f"{what}/list", {} if cursor is None else {"cursor": cursor})
        reply = await reply_within(peer.post(order), START_S)
        if reply is None or reply.kind != "ok" or reply.result is None:
            said = f"{order.method} was not answered within {START_S:g} s" if reply is None else reply.failure
            raise LaunchError(f"The server does not list its {what}: {await peer.last_words() or said}.")
        items = reply.result.get(what)
        found += [item for item in items if isinstance(item, Mapping)] if isinstance(items, list) else []
        cursor = reply.result.get("nextCursor")
        if cursor is None:
            break
    return found


def names(items: Sequence[Mapping[str, Any]]) -> list[str]:
    """Their names, in the server's order."""
    return [str(item["name"]) for item in items if "name" in item]
