"""Document 001, section 4: a pool of 4 in front of everything, and the other widths that hide in a server.

The client with the pool is the document's: threads and raw JSON. The widths of a server are an application's own
pool, anyio's limiter for plain ``def`` tools, which the stdio transport takes two threads of, asyncio's default
executor, and one where a tool blocks the event loop.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from math import ceil
from typing import Any

from mcp_probe.aggregate.explain import Seen, explain
from mcp_probe.aggregate.phrasing import plural
from mcp_probe.workloads.bench.context import Bench
from mcp_probe.workloads.bench.shapes import Outcome
from mcp_probe.workloads.bench.statistics import counted, floor_of, scaled
from mcp_probe.workloads.facade import Facade, ThreadedClient
from mcp_probe.workloads.scenarios.arms import Arm, put_arm, take_turns
from mcp_probe.workloads.scenarios.documents import doc001 as doc
from mcp_probe.workloads.scenarios.providers import followed, threaded_provider
from mcp_probe.workloads.scenarios.readings import longest_wait_ms, most_in_flight
from mcp_probe.workloads.scenarios.tables import Table, burst, calls_of, through_facade, through_session

SERVER = "mcp_probe.workloads.servers.delays"
POOL = 4
WIDE = 20
STDIO_WIDTH = 39
"""anyio's 40 tokens, one of which the reader of stdin always holds. The writer needs one for each answer."""


async def run(bench: Bench) -> Outcome:
    """The client's pool, then the server's widths."""
    waves = Waves(bench)
    await waves.measure_client()
    waves.client_checks()
    await waves.measure_server()
    waves.limiter_check()
    return bench.outcome()


@dataclass(frozen=True, slots=True)
class Width:
    """One that hides in a server: the tool that shows it, and the numbers of calls at once."""

    tool: str
    name: str
    width: int
    counts: tuple[int, ...]


class Waves:
    """What was measured, by label and number of calls."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.delay_ms = bench.size(quick=50.0, full=doc.DELAY_MS)
        note = f"calls of {self.delay_ms:g} ms instead of {doc.DELAY_MS:g}" if bench.quick else ""
        self.size = {"scale": self.delay_ms / doc.DELAY_MS, "note": note}
        self.arms: dict[tuple[str, int], Arm] = {}
        self.at_client: dict[int, Seen] = {}
        self.at_server: dict[tuple[str, int], Seen] = {}

    # --- the client's pool ---

    async def measure_client(self) -> None:
        """N calls through a facade of 4 and of 20 threads, and by the SDK's client without either, by turns."""
        async with threaded_provider(SERVER) as provider, self.bench.server(SERVER, probe=False) as server:
            direct = through_session(server.session)
            narrow, wide = Facade(provider.client, POOL), Facade(provider.client, WIDE)
            ones = {"pool 4": through_facade(narrow), "pool 20": through_facade(wide), "direct": direct}
            try:
                for count in (POOL, 5, 10, 20):
                    self.bench.step(f"{count} calls through pools of {POOL} and of {WIDE} threads")
                    calls = calls_of("wait", count, self.delay_ms)
                    ways = {f"{label} {count}": burst(one, calls) for label, one in ones.items()}
                    rounds = self.bench.size(quick=3, full=8)
                    found = await take_turns(self.bench, ways, rounds, provider, twin=f"pool 20 {count}")
                    self.arms |= {(label, count): found[f"{label} {count}"] for label in ones}
                    if count != POOL:
                        self.at_client[count] = await self._seen_at_client(provider.client, count)
                        self.client_rows(count)
            finally:
                narrow.close()
                wide.close()
        for label in ("pool 4", "pool 20"):
            for count in (5, 10, 20):
                self.at_server[label, count] = provider.seen(f"{label} {count}")

    async def _seen_at_client(self, client: ThreadedClient, count: int) -> Seen:
        """What a probe in this process says of the facade's pool, in a round that is not timed."""
        facade = Facade(client, POOL)
        try:
            with followed() as calls:
                invoke = calls.follow(facade.invoke)
                await asyncio.gather(*(invoke("wait", delay_ms=self.delay_ms) for _ in range(count)))
        finally:
            facade.close()
        return calls.seen

    def client_rows(self, count: int) -> None:
        """A line of each of section 4's tables."""
        narrow, wide, direct = (self.arms[label, count] for label in ("pool 4", "pool 20", "direct"))
        why = explain(self.at_client[count])
        before = Table(self.bench, "001 §4 before", series=f"pool of {POOL}", x=count, why=why, **self.size)
        put_arm(before, f"{count} calls", narrow, doc.POOL_OF_4[count], why=why, floor=None)
        # Of quickest rounds, over one full wave: what the client and the pipe add is in both.
        waves = narrow.quickest_ms / self.arms["pool 4", POOL].quickest_ms
        floor, contended = floor_of(narrow.stats, self.arms["pool 4", POOL].stats), narrow.stats.contended
        more: dict[str, Any] = {"metric": "waves", "scale": 1.0, "floor": floor, "contended": contended}
        before.put(f"{count} calls, waves", "waves", waves, ceil(count / POOL), **more)
        after = Table(self.bench, "001 §4 after", series=f"pool of {WIDE}", x=count, why=wide.why, **self.size)
        put_arm(after, f"{count} calls", wide, doc.POOL_OF_20[count], floor=None)
        percent, note = 100 * (wide.over(direct).value - 1), f"the direct client took {direct.stats.median:.1f} ms"
        more = {"metric": "overhead", "scale": 1.0, "floor": wide.floor, "contended": wide.stats.contended}
        after.put(f"{count} calls, over direct", "%", percent, doc.POOL_OF_20_PERCENT[count], note=note, **more)

    def client_checks(self) -> None:
        """001-3 and 001-4."""
        expected = {count: ceil(count / POOL) for count in doc.POOL_OF_4}
        narrow, wide = ([self.arms[label, n] for n in expected] for label in ("pool 4", "pool 20"))
        most = max(most_in_flight(self.at_server["pool 4", n].requests) for n in expected)
        waits = {n: longest_wait_ms(self.at_client[n].requests) or 0.0 for n in expected}
        steps = all(abs(waits[n] / (self.delay_ms * (waves - 1)) - 1) < 0.15 for n, waves in expected.items())
        found = [arm.quickest_over(self.arms["pool 4", POOL]) for arm in narrow]
        walls = " / ".join(f"{arm.quickest_ms:.0f}" for arm in narrow)
        self.bench.claim(
            doc.CLAIMS["001-3"],
            [scaled(each, 1 / waves) for each, waves in zip(found, expected.values(), strict=True)],
            counted(most),
            said=f"{walls} ms: {', '.join(f'{each.value:.2f}' for each in found)} waves",
            why=f"the longest wait for a thread of the pool was {', '.join(f'{ms:.0f}' for ms in waits.values())} ms, "
            f"{'in steps' if steps else 'not quite in steps'} of {self.delay_ms:g}; the server never had more than "
            f"{most} requests",
        )
        self.bench.claim(
            doc.CLAIMS["001-4"],
            [arm.quickest_over(self.delay_ms) for arm in wide],
            said=" / ".join(f"{arm.quickest_ms:.0f}" for arm in wide) + f" ms, of {self.delay_ms:g}",
            why=explain(self.at_server["pool 20", 20]),
        )

    # --- the server's widths ---

    async def measure_server(self) -> None:
        """One session that puts no limit on anything; the tools do."""
        async with self.bench.server(SERVER, "--pool", str(POOL)) as server:
            for width in widths(self.bench):
                for count in width.counts:
                    self.bench.step(f"{count} calls of {width.tool} at once")
                    label = f"{width.tool} {count}"
                    ways = {label: burst(through_session(server.session), calls_of(width.tool, count, self.delay_ms))}
                    arms = await take_turns(self.bench, ways, self.bench.size(quick=2, full=8), server)
                    self.arms[width.tool, count] = arms[label]
                    self._server_row(width, count)
        self.at_server["threaded", STDIO_WIDTH + 1] = server.seen(f"threaded {STDIO_WIDTH + 1}")

    def _server_row(self, width: Width, count: int) -> None:
        """A condition: the document's hard-coded number has relatives in every server."""
        waves = plural(ceil(count / width.width), "wave")
        note = f"calls of {self.delay_ms:g} ms; width {width.width}, so {waves}"
        table = Table(self.bench, "001 conditions", series=width.name, x=count, note=note)
        put_arm(table, f"{width.name}: {plural(count, 'call')}", self.arms[width.tool, count])

    def limiter_check(self) -> None:
        """The modern SDK's own hidden number, which the document did not know."""
        one, more = (self.arms["threaded", count] for count in (STDIO_WIDTH, STDIO_WIDTH + 1))
        said = f"{STDIO_WIDTH} calls {one.quickest_ms:.0f} ms, {STDIO_WIDTH + 1} calls {more.quickest_ms:.0f} ms"
        why = explain(self.at_server["threaded", STDIO_WIDTH + 1])
        self.bench.claim(doc.CLAIMS["001-3a"], more.quickest_over(one), said=said, why=why)


def widths(bench: Bench) -> tuple[Width, ...]:
    """Which numbers of calls show what of each tool."""
    threads = default_threads()
    return (
        Width("pooled", f"a pool of {POOL} in the server", POOL, bench.size(quick=(4, 5, 20), full=(4, 5, 10, 20))),
        Width(
            "threaded",
            "plain def tools",
            STDIO_WIDTH,
            bench.size(quick=(20, 39, 40, 80), full=(10, 20, 39, 40, 41, 80)),
        ),
        Width("to_thread", "asyncio.to_thread", threads, (threads, 2 * threads)),
        Width("blocking", "tools that block the loop", 1, bench.size(quick=(1, 5), full=(1, 5, 10))),
    )


def default_threads() -> int:
    """Threads of asyncio's default executor. Source: CPython, concurrent/futures/thread.py."""
    counted = getattr(os, "process_cpu_count", os.cpu_count)()
    return min(32, (counted or 1) + 4)
