"""Document 001, section 4: a pool of 4 in front of everything, and the other widths that hide in a server.

The client with the pool is the document's: threads and raw JSON. The widths of a server are an application's own
pool, anyio's limiter for plain ``def`` tools, which the stdio transport takes two threads of, asyncio's default
executor, and one where a tool blocks the event loop.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from math import ceil

from mcp_probe.aggregate.explain import Seen, explain
from mcp_probe.aggregate.phrasing import plural
from mcp_probe.workloads.bench.context import Bench
from mcp_probe.workloads.bench.shapes import Little, Outcome, Stats, Why
from mcp_probe.workloads.bench.statistics import counted, floor_of, quickest, scaled
from mcp_probe.workloads.facade import Facade, ThreadedClient
from mcp_probe.workloads.scenarios.documents import doc001 as doc
from mcp_probe.workloads.scenarios.providers import followed, threaded_provider
from mcp_probe.workloads.scenarios.readings import longest_wait_ms, most_in_flight
from mcp_probe.workloads.scenarios.tables import (
    Burst,
    Table,
    burst,
    calls_of,
    through_facade,
    through_session,
)

SERVER = "mcp_probe.workloads.servers.delays"
POOL = 4
WIDE = 20
STDIO_WIDTH = 39
"""anyio's 40 tokens, one of which the reader of stdin always holds. The writer needs one for each answer."""
UNITS = {"pool 4": POOL, "pool 20": WIDE}


async def run(bench: Bench) -> Outcome:
    """The client's pool, then the server's widths."""
    waves = Waves(bench)
    await waves.measure_client()
    waves.client_checks()
    await waves.measure_server()
    waves.limiter_check()
    return bench.outcome()


class Waves:
    """What was measured, by label and number of calls."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.delay_ms = bench.size(quick=50.0, full=doc.DELAY_MS)
        self.scale = self.delay_ms / doc.DELAY_MS
        self.note = "" if bench.quick is False else f"calls of {self.delay_ms:g} ms instead of {doc.DELAY_MS:g}"
        self.rounds = bench.size(quick=3, full=8)
        self.stats: dict[tuple[str, int], Stats] = {}
        self.walls: dict[tuple[str, int], list[float]] = {}
        self.floor: dict[tuple[str, int], float | None] = {}
        self.bursts: dict[tuple[str, int], Burst] = {}
        self.at_client: dict[int, Seen] = {}
        self.at_server: dict[tuple[str, int], Seen] = {}

    # --- the client's pool ---

    async def measure_client(self) -> None:
        """N calls through a facade of 4 and of 20 threads, and by the SDK's client without either, by turns."""
        async with threaded_provider(SERVER) as provider, self.bench.server(SERVER, probe=False) as server:
            direct = through_session(server.session)
            narrow, wide = Facade(provider.client, POOL), Facade(provider.client, WIDE)
            try:
                for count in (POOL, 5, 10, 20):
                    self.bench.step(f"{count} calls through pools of {POOL} and of {WIDE} threads")
                    turns = {
                        "pool 4": self._through(narrow, count),
                        "pool 20": self._through(wide, count),
                        "direct": burst(direct, calls_of("wait", count, self.delay_ms)),
                    }
                    found = await self.bench.interleaved(turns, self.rounds, twin="pool 20")
                    for label, stats in found.stats.items():
                        self.stats[label, count] = stats
                        self.bursts[label, count] = turns[label]
                        self.floor[label, count] = found.floor
                        provider.mark(f"{label} {count}", turns[label].last_ns)
                    if count != POOL:
                        self.at_client[count] = await self._seen_at_client(provider.client, count)
                        self.client_rows(count, provider.later(f"pool 20 {count}"))
            finally:
                narrow.close()
                wide.close()
        for label in UNITS:
            for count in (5, 10, 20):
                self.at_server[label, count] = provider.seen(f"{label} {count}")

    def _through(self, facade: Facade, count: int) -> Burst:
        return burst(through_facade(facade), calls_of("wait", count, self.delay_ms))

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

    def client_rows(self, count: int, why_wide: Why) -> None:
        """A line of each of section 4's tables."""
        before = Table(self.bench, "001 §4 before", scale=self.scale, note=self.note, series=f"pool of {POOL}")
        after = Table(self.bench, "001 §4 after", scale=self.scale, note=self.note, series=f"pool of {WIDE}")
        why = explain(self.at_client[count])
        stats, wide, direct = (self.stats[label, count] for label in ("pool 4", "pool 20", "direct"))
        little = self.bursts["pool 4", count].little()
        before.put(f"{count} calls", "ms", stats, doc.POOL_OF_4[count], x=count, why=why, little=little)
        before.put(
            f"{count} calls, waves",
            "waves",
            self._waves(count),
            ceil(count / POOL),
            metric="waves",
            x=count,
            scale=1.0,
            floor=floor_of(stats, self.stats["pool 4", POOL]),
            contended=stats.contended,
            why=why,
        )
        little = self.bursts["pool 20", count].little()
        after.put(f"{count} calls", "ms", wide, doc.POOL_OF_20[count], x=count, why=why_wide, little=little)
        after.put(
            f"{count} calls, over direct",
            "%",
            100 * (wide.median / direct.median - 1),
            doc.POOL_OF_20_PERCENT[count],
            metric="overhead",
            x=count,
            scale=1.0,
            floor=self.floor["pool 20", count],
            contended=wide.contended,
            why=why_wide,
            note=f"the direct client took {direct.median:.1f} ms",
        )

    def _waves(self, count: int) -> float:
        """Multiples of the time of one full wave, quickest rounds: what the client and the pipe add is in both."""
        return min(self.bursts["pool 4", count].wall_ms) / min(self.bursts["pool 4", POOL].wall_ms)

    def client_checks(self) -> None:
        """001-3 and 001-4."""
        expected = {count: ceil(count / POOL) for count in doc.POOL_OF_4}
        contended = any(stats.contended for stats in self.stats.values())
        most = max(most_in_flight(self.at_server["pool 4", count].requests) for count in expected)
        waits = {count: longest_wait_ms(self.at_client[count].requests) or 0.0 for count in expected}
        steps = all(abs(waits[n] / (self.delay_ms * (expected[n] - 1)) - 1) < 0.15 for n in expected)
        walls = {count: self.bursts["pool 4", count].wall_ms for count in (POOL, *expected)}
        found = {
            n: quickest(walls[n], walls[POOL], floor=self.floor["pool 4", n], contended=contended) for n in expected
        }
        self.bench.claim(
            doc.CLAIMS["001-3"],
            [scaled(each, 1 / expected[count]) for count, each in found.items()],
            counted(most),
            said=" / ".join(f"{min(walls[n]):.0f}" for n in expected)
            + " ms: "
            + ", ".join(f"{each.value:.2f}" for each in found.values())
            + " waves",
            why="the longest wait for a thread of the pool was "
            + ", ".join(f"{waits[n]:.0f}" for n in expected)
            + f" ms, {'in steps' if steps else 'not quite in steps'} of {self.delay_ms:g}; the server never had more "
            f"than {most} requests",
        )
        wide = {count: self.bursts["pool 20", count].wall_ms for count in expected}
        self.bench.claim(
            doc.CLAIMS["001-4"],
            [
                scaled(quickest(wide[n], floor=self.floor["pool 20", n], contended=contended), 1 / self.delay_ms)
                for n in expected
            ],
            said=" / ".join(f"{min(walls):.0f}" for walls in wide.values()) + f" ms, of {self.delay_ms:g}",
            why=explain(self.at_server["pool 20", 20]),
        )

    # --- the server's widths ---

    async def measure_server(self) -> None:
        """One session that puts no limit on anything; the tools do."""
        async with self.bench.server(SERVER, "--pool", str(POOL)) as server:
            for tool, counts in self.tools.items():
                for count in counts:
                    self.bench.step(f"{count} calls of {tool} at once")
                    calls = burst(through_session(server.session), calls_of(tool, count, self.delay_ms))
                    self.stats[tool, count] = await self.bench.timed(calls, self.bench.size(quick=2, full=8))
                    self.walls[tool, count] = calls.wall_ms
                    server.mark(f"{tool} {count}", calls.last_ns)
                    self._server_row(tool, count, calls.little(), server.later(f"{tool} {count}"))
        count = STDIO_WIDTH + 1
        self.at_server["threaded", count] = server.seen(f"threaded {count}")

    @property
    def tools(self) -> dict[str, Sequence[int]]:
        """Which numbers of calls show what of each tool."""
        return {
            "pooled": self.bench.size(quick=(4, 5, 20), full=(4, 5, 10, 20)),
            "threaded": self.bench.size(quick=(20, 39, 40, 80), full=(10, 20, 39, 40, 41, 80)),
            "to_thread": (default_threads(), 2 * default_threads()),
            "blocking": self.bench.size(quick=(1, 5), full=(1, 5, 10)),
        }

    def _server_row(self, tool: str, count: int, little: Little, why: Why) -> None:
        """A condition: the document's hard-coded number has relatives in every server."""
        name, width = {
            "pooled": (f"a pool of {POOL} in the server", POOL),
            "threaded": ("plain def tools", STDIO_WIDTH),
            "to_thread": ("asyncio.to_thread", default_threads()),
            "blocking": ("tools that block the loop", 1),
        }[tool]
        Table(self.bench, "001 conditions").put(
            f"{name}: {plural(count, 'call')}",
            "ms",
            self.stats[tool, count],
            series=name,
            x=count,
            why=why,
            little=little,
            note=f"calls of {self.delay_ms:g} ms; width {width}, so {plural(ceil(count / width), 'wave')}",
        )

    def limiter_check(self) -> None:
        """The modern SDK's own hidden number, which the document did not know."""
        one, more = (self.walls["threaded", count] for count in (STDIO_WIDTH, STDIO_WIDTH + 1))
        stats = [self.stats["threaded", count] for count in (STDIO_WIDTH, STDIO_WIDTH + 1)]
        self.bench.claim(
            doc.CLAIMS["001-3a"],
            quickest(more, one, floor=floor_of(*stats), contended=any(each.contended for each in stats)),
            said=f"{STDIO_WIDTH} calls {min(one):.0f} ms, {STDIO_WIDTH + 1} calls {min(more):.0f} ms",
            why=explain(self.at_server["threaded", STDIO_WIDTH + 1]),
        )


def default_threads() -> int:
    """Threads of asyncio's default executor. Source: CPython, concurrent/futures/thread.py."""
    counted = getattr(os, "process_cpu_count", os.cpu_count)()
    return min(32, (counted or 1) + 4)
