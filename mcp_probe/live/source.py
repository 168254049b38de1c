"""What a server tells its viewers: the live requests of one probe, put together on the channel's thread."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from mcp_probe import __version__
from mcp_probe.capture.drain import memory_limit_bytes, unread_lines
from mcp_probe.capture.hub import Hub
from mcp_probe.capture.in_flight import InFlight
from mcp_probe.capture.proc_files import rss_bytes
from mcp_probe.clock import now_ns
from mcp_probe.errors import LiveError
from mcp_probe.live.recent import Recent
from mcp_probe.model import DEFAULT_LIMITER, Header
from mcp_probe.now import Detail, LoopNow, PoolNow, ServerNow, Snapshot

MAX_OPERATIONS = 50
"""In one snapshot, those called most."""
NO_FLIGHT = (
    "This server keeps no flight recording. Start it with `mcp-probe run --live --flight DIR -- ...`, with "
    "`attach(server, live=True, flight=DIR)` or with MCP_PROBE_FLIGHT=DIR."
)


class FlightRecorder(Protocol):
    """What keeps the last seconds, as far as a viewer can ask for them."""

    folder: str

    def write_now(self, why: str) -> str:
        """Write them; returns the path. Raises: OSError."""


class LiveSource:
    """See the module's text. ``session`` owns the requests; ``header`` says who it is; ``wake`` has frames drained."""

    def __init__(
        self,
        hub: Hub,
        session: object,
        header: Callable[[], Header],
        wake: Callable[[], None],
        flight: FlightRecorder | None,
    ) -> None:
        self.recent = Recent()
        self._hub = hub
        self._session = session
        self._header = header
        self._wake = wake
        self._flight = flight
        self._in_flight = InFlight(hub)

    def hello(self) -> dict[str, object]:
        """Who this is."""
        return {"probe": __version__, "pid": os.getpid(), "name": self._header().server}

    def begin(self) -> None:
        """Frames are taken from now on, and drained more often."""
        self.recent.begin(now_ns())
        self._wake()

    def stop(self) -> None:
        """They are no more."""
        self.recent.stop()

    def snapshot(self, every_s: float, took_ms: float | None) -> Snapshot:
        """The server now."""
        loops = [self._with_health(loop) for loop in self._in_flight.loops()]  # first: it may be blocked now
        pools = self._in_flight.pools()
        requests, count = self._in_flight.requests(self._session)
        operations, window_s = self.recent.operations(now_ns())
        channels = self._hub.channels
        unread = unread_lines(channels) if any(one.stamps is not None for one in channels) else None
        return Snapshot(
            server=self._server(),
            at_unix=time.time(),
            every_s=every_s,
            slow_step_ms=self._hub.slow_step_ns / 1e6,
            in_flight=count,
            unread=unread,
            requests=tuple(requests),
            loops=tuple(loops),
            pools=tuple(pools),
            operations=tuple(operations[:MAX_OPERATIONS]),
            window_s=window_s,
            rss_bytes=rss_bytes(),
            memory_limit_bytes=memory_limit_bytes(),
            took_ms=took_ms,
            flight=None if self._flight is None else self._flight.folder,
            notes=tuple([*self._notes(loops), *_starved(unread, pools)]),
        )

    def detail(self, number: int) -> Detail | None:
        """One request in flight."""
        return self._in_flight.detail(self._session, number)

    def dump(self) -> dict[str, object]:
        """Write a flight recording."""
        if self._flight is None:
            raise LiveError(NO_FLIGHT)
        try:
            return {"path": self._flight.write_now("somebody asked for it by `mcp-probe top`")}
        except OSError as exc:
            raise LiveError(f"The flight recording cannot be written in {self._flight.folder}: {exc}.") from exc

    def _with_health(self, loop: LoopNow) -> LoopNow:
        health = self.recent.loop(loop.loop)
        if health is None or health.quality == "unavailable":
            return loop
        return replace(loop, **health._asdict())

    def _server(self) -> ServerNow:
        header = self._header()
        return ServerNow(
            pid=os.getpid(),
            name=header.server,
            sdk=f"{header.sdk} {header.sdk_version}",
            python=header.python,
            probe=header.probe_version,
            transport=header.transport,
            loop=header.loop,
            command=os.path.basename(sys.argv[0] if sys.argv else "") or "python",
        )

    def _notes(self, loops: list[LoopNow]) -> list[str]:
        notes = []
        if not self._hub.awaits.active:
            notes.append("awaits are off: what requests wait for is not looked at.")
        if not loops:
            notes.append("no event loop is followed yet: no request has come.")
        notes += [
            f"the {loop.name} loop shows no steps: what its requests do is unknown."
            for loop in loops
            if loop.state == "unknown"
        ]
        return notes


def _starved(unread: int | None, pools: list[PoolNow]) -> list[str]:
    """The stdio transport reads and writes on threads of the same pool as tools."""
    full = [pool for pool in pools if pool.name == DEFAULT_LIMITER and pool.max is not None]
    return [
        f"{unread} messages are unread: the stdio transport reads on a thread of {pool.name}, too, and all "
        f"{pool.max:g} are taken."
        for pool in full
        if unread and pool.taken is not None and pool.taken >= (pool.max or 0)
    ]
