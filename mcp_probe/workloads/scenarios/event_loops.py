"""``event-loops``: the same server on asyncio and on uvloop, over stdio and streamable HTTP.

Times and CPU are of servers without a probe: what it adds differs from loop to loop. The CPU is counted by the server
itself. Servers with a probe, which are not timed, say where a request's time goes.
"""

from __future__ import annotations

import importlib.util
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import anyio

from mcp_probe.workloads.bench.context import Bench, Interleaved
from mcp_probe.workloads.bench.serving import ProfiledServer, side_by_side
from mcp_probe.workloads.bench.shapes import Asked, Outcome, Stats
from mcp_probe.workloads.bench.statistics import ratio_of
from mcp_probe.workloads.raw_http import RawSession
from mcp_probe.workloads.scenarios.counted_calls import COUNTING, Caller, in_turns, over_stdio, put_calls, through
from mcp_probe.workloads.scenarios.own_claims import exactly, judged
from mcp_probe.workloads.scenarios.providers import threaded_provider
from mcp_probe.workloads.scenarios.tables import Table

TABLE = "now event loops"
CLAIMED = (2.0, 4.0)
"""Source: README of uvloop 0.23: "uvloop makes asyncio 2-4x faster"; of echo servers on plain sockets."""


@dataclass(frozen=True, slots=True)
class Arm:
    """One server. ``parser``: what parses its HTTP, ``None``: it speaks stdio."""

    loop: str
    parser: str | None = None

    @property
    def place(self) -> str:
        """Its transport, as the chart has it."""
        return "stdio" if self.parser is None else "HTTP"

    @property
    def label(self) -> str:
        """Its transport, its loop, and its parser where it is not the plain one."""
        return f"{self.place}, {self.loop}" + ("" if self.parser in (None, "h11") else f" and {self.parser}")

    @property
    def arguments(self) -> tuple[str, ...]:
        """For the server's command line."""
        return ("--loop", self.loop, *(() if self.parser is None else ("--parser", self.parser)))


Connected = tuple[Caller, ProfiledServer]


async def run(bench: Bench) -> Outcome:
    """Under the probe, for the readings; then bare, by turns."""
    arms = _arms(bench)
    calls, rounds = bench.size(40, 200), bench.size(5, 15)
    bench.step(f"{len(arms)} servers with a probe")
    async with side_by_side([_connected(bench, arm, probe=True) for arm in arms]) as probed:
        named = {}
        for arm, (caller, server) in zip(arms, probed, strict=True):
            await caller.some(calls)
            with server.phase("calls"):
                await caller.some(calls)
            named[arm] = await anyio.to_thread.run_sync(caller.counted)
    servers = {arm.label: server for arm, (_, server) in zip(arms, probed, strict=True)}
    bench.step(f"{len(arms)} servers without a probe")
    found = {}
    async with side_by_side([_connected(bench, arm, probe=False) for arm in arms]) as bare:
        for place in dict.fromkeys(arm.place for arm in arms):
            here = {arm.label: caller for arm, (caller, _) in zip(arms, bare, strict=True) if arm.place == place}
            found[place] = await _timed(bench, place, here, servers, calls, rounds)
    for claim, place in (("now-5", "stdio"), ("now-6", "HTTP")):
        if f"{place}, uvloop" in servers:
            _claim(bench, claim, place, *found[place], servers)
    _name_claim(bench, {arm.label: str(said["loop"]) for arm, said in named.items()}, servers)
    return bench.outcome()


def _arms(bench: Bench) -> list[Arm]:
    loops = ["asyncio", "uvloop"]
    if importlib.util.find_spec("uvloop") is None:
        bench.lacks("uvloop", "the servers on it")
        loops = ["asyncio"]
    arms = [Arm(loop, parser) for parser in (None, "h11") for loop in loops]
    if bench.quick:
        return arms
    if importlib.util.find_spec("httptools") is None:
        bench.lacks("httptools", "the HTTP server that uses it, as uvicorn does by itself where it can")
        return arms
    return [*arms, Arm(loops[-1], "httptools")]


@asynccontextmanager
async def _connected(bench: Bench, arm: Arm, *, probe: bool) -> AsyncIterator[Connected]:
    async with AsyncExitStack() as stack:
        if arm.parser is None:
            provider = await stack.enter_async_context(threaded_provider(COUNTING, arm.arguments, probe=probe))
            yield Caller(over_stdio(provider.client)), provider
            return
        server = await stack.enter_async_context(
            bench.server(COUNTING, *arm.arguments, transport="json", probe=probe, connect=False)
        )
        session = stack.enter_context(RawSession(server.url))
        await anyio.to_thread.run_sync(session.open)
        yield Caller(through(session)), server


async def _timed(
    bench: Bench,
    place: str,
    callers: Mapping[str, Caller],
    servers: Mapping[str, ProfiledServer],
    calls: int,
    rounds: int,
) -> tuple[Interleaved, dict[str, Stats]]:
    """The servers of one transport, by turns: time and the server's CPU time."""
    bench.step(f"{place}, without a probe")
    taken = await in_turns(bench, callers, calls, rounds)
    whys = {label: servers[label].later("calls") for label in callers}
    return taken, put_calls(Table(bench, TABLE), callers, taken, rounds, whys)


def _claim(
    bench: Bench,
    claim: str,
    place: str,
    taken: Interleaved,
    cpu_us: Mapping[str, Stats],
    servers: Mapping[str, ProfiledServer],
) -> None:
    plain, quick = f"{place}, asyncio", f"{place}, uvloop"
    ratio = ratio_of(cpu_us[plain], cpu_us[quick])
    judged(
        bench,
        claim,
        f"uvloop makes an MCP server over {place} at least twice as fast",
        Asked("times", CLAIMED),
        ratio,
        documented="2-4× (uvloop's own page; of plain sockets)",
        said=f"{cpu_us[plain].median:.0f} and {cpu_us[quick].median:.0f} µs of the server's CPU a call: "
        f"{ratio.value:.2f}×; {taken.ratio(plain, quick):.2f}× in time",
        how="the server's CPU time of a call, asyncio over uvloop",
        why=f"On asyncio: {servers[plain].why('calls')} On uvloop: {servers[quick].why('calls')}",
    )


def _name_claim(bench: Bench, said: Mapping[str, str], servers: Mapping[str, ProfiledServer]) -> None:
    named = {label: servers[label].summary().server.loop for label in said}
    wrong = [f"{label}: {named[label]} instead of {truth}" for label, truth in said.items() if named[label] != truth]
    exactly(
        bench,
        "now-7",
        "the probe names the event loop that the server runs on",
        said="; ".join([f"{len(said) - len(wrong)} of {len(said)} servers", *wrong]),
        how="each as the server itself says",
        fine=not wrong,
        why=f"It named {', '.join(sorted({str(name) for name in named.values()}))}.",
    )
