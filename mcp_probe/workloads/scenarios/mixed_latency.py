"""Document 001, scenario S5: quick calls beside slow ones.

The document gave each latency a provider of its own, where nothing can stand in anybody's way. Here all of them
share one session as well, in both orders and under a cap, and the quick calls' completion is read beside the
round's: that is where a slow call at the head shows. Last, a slow call that blocks the event loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

from mcp_probe.workloads.bench.context import Bench, Ms
from mcp_probe.workloads.bench.serving import ProfiledServer
from mcp_probe.workloads.bench.shapes import Outcome, Stats
from mcp_probe.workloads.bench.statistics import describe
from mcp_probe.workloads.client import Call
from mcp_probe.workloads.scenarios.documents import doc001 as doc
from mcp_probe.workloads.scenarios.tables import Burst, One, Table, judge, through_session

SERVER = "mcp_probe.workloads.servers.delays"
CAP = 4
UNEQUAL = "its calls are of unequal length"


@dataclass
class Mixed:
    """One way to make the nine calls. ``quick_ms``: when the last of the shortest ones was answered, round by round."""

    name: str
    burst: Burst
    quick: Sequence[int]  # the places of the shortest calls
    quick_ms: list[float]

    async def __call__(self) -> Ms:
        """One round."""
        wall_ms = await self.burst()
        self.quick_ms.append(max(self.burst.last_ms[place] for place in self.quick))
        return wall_ms


async def run(bench: Bench) -> Outcome:
    """One session, both orders, a cap; the document's three providers; then a tool that blocks."""
    scale = bench.size(quick=0.5, full=1.0)
    async with AsyncExitStack() as stack:
        bench.step("starting three servers")
        servers = [await stack.enter_async_context(bench.server(SERVER)) for _ in doc.MIXED]
        ways = [through_session(server.session) for server in servers]
        mixes = _mixes(ways, scale)
        bench.step("nine calls, quick and slow")
        rounds = bench.size(quick=2, full=20)
        found = await bench.interleaved(mixes, rounds, twin="parallel")
        for label in mixes:
            with servers[0].phase(label):
                await mixes[label].burst()
        bench.step("a quick call beside a slow one")
        beside = await _beside(bench, servers[0], ways[0], scale)
    why = {label: servers[0].why(label) for label in mixes}
    _rows(bench, mixes, found.stats, found.floor, why, scale)
    _beside_rows(bench, servers[0], beside, scale)
    _check(bench, mixes, found.stats, why, scale)
    return bench.outcome()


def _mixes(ways: Sequence[One], scale: float) -> dict[str, Mixed]:
    """The nine calls, quickest first; and the same with the slowest first."""
    calls = [
        (place, Call("wait", {"delay_ms": scale * delay_ms}))
        for place, (count, delay_ms) in enumerate(doc.MIXED)
        for _ in range(count)
    ]
    quick_count = doc.MIXED[0][0]
    slow_first = calls[::-1]
    one = [(ways[0], call) for _, call in calls]
    turned = [(ways[0], call) for _, call in slow_first]
    spread = [(ways[place], call) for place, call in calls]
    head, tail = range(quick_count), range(len(calls) - quick_count, len(calls))
    return {
        "parallel": Mixed("one session, parallel", Burst(one), head, []),
        "providers": Mixed("three providers, parallel", Burst(spread), head, []),
        "fast first": Mixed("one by one, quickest first", Burst(one, one_by_one=True), head, []),
        "slow first": Mixed("one by one, slowest first", Burst(turned, one_by_one=True), tail, []),
        "capped": Mixed(f"{CAP} at once, slowest first", Burst(turned, in_flight=CAP), tail, []),
    }


async def _beside(bench: Bench, server: ProfiledServer, one: One, scale: float) -> dict[str, Stats]:
    """A call of 0 ms, sent while one call of 500 ms runs in each of the ways that a tool can wait."""
    slow_ms = scale * max(delay_ms for _, delay_ms in doc.MIXED)
    taken: dict[str, list[float]] = {}
    for tool in ("wait", "threaded", "blocking"):
        for _ in range(bench.size(quick=2, full=10)):
            taken.setdefault(tool, []).append(await _quick_beside(one, tool, slow_ms))
        with server.phase(f"beside {tool}"):
            await _quick_beside(one, tool, slow_ms)
    return {tool: describe(values) for tool, values in taken.items()}


async def _quick_beside(one: One, tool: str, slow_ms: float) -> float:
    """Latency of the quick call, milliseconds; sent right behind the slow one, on the same pipe."""
    both = Burst([(one, Call(tool, {"delay_ms": slow_ms})), (one, Call("wait", {"delay_ms": 0}))])
    await both()
    return both.latency_ms[1]


def _rows(
    bench: Bench,
    mixes: dict[str, Mixed],
    stats: dict[str, Stats],
    floor: float | None,
    why: dict[str, str],
    scale: float,
) -> None:
    note = "5 × 10, 3 × 100 and 1 × 500 ms" + ("" if scale == 1 else f", at {scale:g} of it")
    table = Table(bench, "001 S5", scale=scale, note=note)
    for label, mix in mixes.items():
        documented = doc.OVERHEAD["S5"].direct_ms if label == "providers" else None
        little = mix.burst.little(UNEQUAL)
        table.put(
            f"{mix.name}: all",
            "ms",
            stats[label],
            documented,
            series="all",
            x=mix.name,
            floor=floor,
            little=little,
            why=why[label],
        )
        table.put(
            f"{mix.name}: quick ones",
            "ms",
            describe(mix.quick_ms),
            series="quick",
            x=mix.name,
            metric="quick calls",
            why=why[label],
        )
    ratio = stats["fast first"].median / stats["parallel"].median
    table.put("ratio, one by one over parallel", "×", ratio, metric="ratio", series="ratio", scale=1.0, floor=floor)


def _beside_rows(bench: Bench, server: ProfiledServer, beside: dict[str, Stats], scale: float) -> None:
    """Head-of-line blocking, which three pipes cannot show."""
    slow_ms = scale * max(delay_ms for _, delay_ms in doc.MIXED)
    table = Table(bench, "001 conditions", metric="beside", series="quick call")
    about = {
        "wait": "awaiting",
        "threaded": "on a thread",
        "blocking": "blocking",
    }
    for tool, stats in beside.items():
        table.put(
            f"0 ms beside {slow_ms:g} ms {about[tool]}",
            "ms",
            stats,
            x=tool,
            why=server.why(f"beside {tool}"),
        )


def _check(bench: Bench, mixes: dict[str, Mixed], stats: dict[str, Stats], why: dict[str, str], scale: float) -> None:
    parallel, serial = stats["parallel"], stats["fast first"]
    quickest = {label: min(mix.burst.wall_ms) for label, mix in mixes.items()}
    ratio = quickest["fast first"] / quickest["parallel"]
    quick = {label: min(mix.quick_ms) for label, mix in mixes.items()}
    judge(
        bench,
        "001-8",
        "calls of mixed latency take as long as the slowest",
        1.55 <= ratio <= 1.85,
        documented=f"{doc.OVERHEAD['S5'].direct_ms} ms (its parameters expect 850 one by one)",
        measured=f"{quickest['parallel']:.0f} ms parallel, {quickest['fast first']:.0f} ms one by one: {ratio:.2f}×; "
        f"the quick calls are done after {quick['parallel']:.0f} ms, with the slowest first after "
        f"{quick['slow first']:.0f} ms, capped at {CAP} after {quick['capped']:.0f} ms",
        tolerance="1.55-1.75×, 1.85× at half the delays; quickest rounds",
        value=ratio,
        why=why["slow first"],
        contended=parallel.contended or serial.contended,
    )
