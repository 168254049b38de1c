"""Agreeing on a protocol with a server that may be old, new, or slow to start.

``server/discover`` goes first. Some old servers never answer it, so after :data:`PATIENCE_S` ``initialize`` goes out as
well, and the first good answer to either counts. A server that was only slow answers both, the first one first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from mcp_probe.clock import now_ns
from mcp_probe.errors import LaunchError
from mcp_probe.workloads.load import wire
from mcp_probe.workloads.load.peer import START_S, Target
from mcp_probe.workloads.load.wire import LEGACY, MODERN, Order, Reply

Say = Callable[[str], None]

PATIENCE_S = 15.0
"""How long ``server/discover`` may take before ``initialize`` is sent beside it."""

TELL_S = 1.0
"""Between two words on how long a server has been starting."""

_AGAIN_S = 0.25
_NOT_THERE = ("nobody listens", "HTTP 502", "HTTP 503")


async def shake_hands(peer: Any, target: Target, say: Say | None = None) -> None:
    """Agrees on a protocol version within the target's time to start; ``say`` hears meanwhile how long it has taken.

    A URL at which nobody listens is tried again if the target was given a time to start.

    Raises:
        LaunchError: the server ends, refuses both protocols, or does not answer in time.
    """
    limit_s = START_S if target.start_s is None else target.start_s
    started = _Start(peer, target, now_ns() + round(limit_s * 1e9), limit_s, say or (lambda what: None))
    while (said := await started.agree()) is not None:
        if target.start_s is None or not said.startswith(_NOT_THERE) or started.left_s <= 0:
            raise LaunchError(await started.refusal(said))
        await started.wait(set(), _AGAIN_S)


class _Start:
    """One server's start: what was sent, and until when an answer counts."""

    def __init__(self, peer: Any, target: Target, until_ns: int, limit_s: float, say: Say) -> None:
        self._peer = peer
        self._target = target
        self._until_ns = until_ns
        self._limit_s = limit_s
        self._say = say
        self._told_ns = now_ns()
        self._was_late = False

    @property
    def left_s(self) -> float:
        return max(0.0, (self._until_ns - now_ns()) / 1e9)

    async def agree(self) -> str | None:
        """``None`` once there is an agreement, else why there is none."""
        said, discover, hello = "", None, None
        if self._target.era != "legacy":
            discover = self._post(Order("server/discover", {}), modern=True)
            await self.wait({discover}, self.left_s if self._target.era == "modern" else PATIENCE_S)
            if discover.done():
                said = self._modern(discover.result())
                if not said:
                    return None
                discover = None
            if self._target.era == "modern" or self._peer.gone():
                return said
        asked = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": wire.CLIENT}
        hello = self._post(Order("initialize", asked), modern=False)
        while waiting := {future for future in (discover, hello) if future is not None}:
            await self.wait(waiting, self.left_s)
            if not any(future.done() for future in waiting):
                self._was_late = True
                return said
            # An answer to the question that was asked first counts first: a server that speaks both had a choice.
            if discover is not None and discover.done():
                if not (why := self._modern(discover.result())):
                    return None
                said, discover = said or why, None
            elif hello is not None and hello.done():
                if not (why := await self._legacy(hello.result())):
                    return None
                said, hello = why, None
        return said

    async def refusal(self, said: str) -> str:
        """Why there is no agreement, as a sentence: late is not the same as something else than an MCP server."""
        last = await self._peer.last_words()
        if self._was_late and not last:
            heard = said or self._peer.heard()
            return (
                f"{self._target.name} has not answered {self._limit_s:g} s after its start"
                f"{f'; it said: {heard}' if heard else ''}. If it needs longer, say --start-timeout SECONDS."
            )
        over = self._target.transport
        return f"{self._target.name} is not an MCP server that can be talked to over {over}: {last or said}."

    async def wait(self, futures: set[asyncio.Future[Reply]], limit_s: float) -> None:
        """Until one of them is done, or ``limit_s`` is over; tells every second how long it has been."""
        end_ns = min(self._until_ns, now_ns() + round(limit_s * 1e9))
        while (left_ns := end_ns - now_ns()) > 0:
            pause_s = min(left_ns / 1e9, TELL_S)
            if not futures:
                await asyncio.sleep(pause_s)
            elif (await asyncio.wait(futures, timeout=pause_s, return_when=asyncio.FIRST_COMPLETED))[0]:
                return
            if now_ns() - self._told_ns >= TELL_S * 1e9:
                self._told_ns = now_ns()
                heard = self._peer.heard()
                passed = f"waiting for the server's first answer, {self._limit_s - self.left_s:.0f} s"
                self._say(f"{passed} of {self._limit_s:g} s{f'; it said last: {heard}' if heard else ''}")
        if self.left_s <= 0 and futures:
            self._was_late = True

    def _post(self, order: Order, *, modern: bool) -> asyncio.Future[Reply]:
        # It is never cancelled: that would tell the server so, and `initialize` must not be.
        self._peer.modern = modern
        posted: asyncio.Future[Reply] = self._peer.post(order)
        return posted

    def _modern(self, reply: Reply) -> str:
        """Empty if the server speaks 2026-07-28, else why it does not."""
        if reply.kind != "ok" or reply.result is None:
            return reply.failure
        versions = reply.result.get("supportedVersions")
        if not isinstance(versions, list) or MODERN not in versions:
            return f"it speaks {versions}, not {MODERN}"
        self._peer.modern, self._peer.protocol = True, MODERN
        meta = reply.result.get("_meta")
        info = meta.get("io.modelcontextprotocol/serverInfo") if isinstance(meta, dict) else None
        _introduce(self._peer, reply.result, info)
        return ""

    async def _legacy(self, reply: Reply) -> str:
        """Empty if the server has taken ``initialize``, else why not."""
        if reply.kind != "ok" or reply.result is None:
            return reply.failure
        self._peer.protocol = str(reply.result.get("protocolVersion", LEGACY))
        _introduce(self._peer, reply.result, reply.result.get("serverInfo"))
        await self._peer.notify(Order("notifications/initialized", {}))
        return ""


def _introduce(peer: Any, result: Mapping[str, Any], server: Any) -> None:
    capabilities = result.get("capabilities")
    peer.capabilities = capabilities if isinstance(capabilities, Mapping) else {}
    info = server if isinstance(server, Mapping) else result.get("serverInfo")
    if isinstance(info, Mapping):
        peer.server = " ".join(str(info[key]) for key in ("name", "version") if info.get(key))
