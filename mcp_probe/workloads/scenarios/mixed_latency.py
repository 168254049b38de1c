"""Document 001, scenario S5: quick calls beside slow ones.

The document gave each latency a provider of its own, where nothing can stand in anybody's way. Here all of them
share one session as well, in both orders and under a cap, and the quick calls' completion is read beside the
round's: that is where a slow call at the head shows. Last, a slow call that blocks the event loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mcp_probe.workloads.bench.context import Bench, Interleaved, Ms
from mcp_probe.workloads.bench.serving import ProfiledServer, side_by_side
from mcp_probe.workloads.bench.shapes import Outcome
from mcp_probe.workloads.bench.statistics import describe, quickest, scaled
from mcp_probe.workloads.client import Call
from mcp_probe.workloads.scenarios.documents import doc001 as doc
from mcp_probe.workloads.scenarios.tables import Burst, One, Table, through_session

SERVER = "mcp_probe.workloads.servers.delays"
CAP = 4
UNEQUAL = "its calls are of unequal length"
BESIDE = {"wait": "awaiting", "threaded": "on a thread", "blocking": "blocking"}
"""How the slow call waits, by its tool."""


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
    bench.step("starting three servers")
    async with side_by_side([bench.server(SERVER) for _ in doc.MIXED]) as servers:
        ways = [through_session(server.session) for server in servers]
        mixes = _mixes(ways, scale)
        bench.step("nine calls, quick and slow")
        rounds = bench.size(quick=2, full=8)
        found = await bench.interleaved(mixes, rounds, twin="parallel")
        for label, mix in mixes.items():
            servers[0].mark(label, mix.burst.last_ns)
        _rows(bench, servers[0], mixes, found, scale)
        bench.step("a quick call beside a slow one")
        for tool in BESIDE:
            await _beside(bench, servers[0], ways[0], tool, scale)
    _check(bench, mixes, found, scale, servers[0].why("parallel"))
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


async def _beside(bench: Bench, server: ProfiledServer, one: One, tool: str, scale: float) -> None:
    """A call of 0 ms, sent while one of 500 ms waits in one of the ways that a tool can: head-of-line blocking,
    which three pipes cannot show.
    """
    slow_ms = scale * max(delay_ms for _, delay_ms in doc.MIXED)
    taken, both = [], _quick_beside(one, tool, slow_ms)
    for _ in range(bench.size(quick=2, full=6)):
        await both()
        taken.append(both.latency_ms[-1])
    server.mark(f"beside {tool}", both.last_ns)
    table = Table(bench, "001 conditions", metric="beside", series="quick call")
    why = server.later(f"beside {tool}")
    table.put(f"0 ms beside {slow_ms:g} ms {BESIDE[tool]}", "ms", describe(taken), x=tool, why=why)


def _quick_beside(one: One, tool: str, slow_ms: float) -> Burst:
    """The quick call is sent right behind the slow one, on the same pipe; its latency is the last of each round."""
    return Burst([(one, Call(tool, {"delay_ms": slow_ms})), (one, Call("wait", {"delay_ms": 0}))])


def _rows(bench: Bench, server: ProfiledServer, mixes: dict[str, Mixed], found: Interleaved, scale: float) -> None:
    note = "5 × 10, 3 × 100 and 1 × 500 ms" + ("" if scale == 1 else f", at {scale:g} of it")
    table = Table(bench, "001 S5", scale=scale, note=note)
    for label, mix in mixes.items():
        documented = doc.OVERHEAD["S5"].direct_ms if label == "providers" else None
        both = table.sub(x=mix.name, why=server.later(label))
        little, name = mix.burst.little(UNEQUAL), f"{mix.name}: all"
        both.put(name, "ms", found.stats[label], documented, series="all", floor=found.floor, little=little)
        quick = describe(mix.quick_ms)
        both.put(f"{mix.name}: quick ones", "ms", quick, series="quick", metric="quick calls")
    ratio, name = found.ratio("fast first", "parallel"), "ratio, one by one over parallel"
    table.put(name, "×", ratio, metric="ratio", series="ratio", scale=1.0, floor=found.floor)


def _check(bench: Bench, mixes: dict[str, Mixed], found: Interleaved, scale: float, why: str) -> None:
    walls = {label: mix.burst.wall_ms for label, mix in mixes.items()}
    contended = any(found.stats[label].contended for label in ("parallel", "fast first"))
    longest_ms = scale * max(delay_ms for _, delay_ms in doc.MIXED)
    quick = {label: min(mix.quick_ms) for label, mix in mixes.items()}
    bench.claim(
        doc.CLAIMS["001-8"],
        scaled(quickest(walls["parallel"], floor=found.floor, contended=contended), 1 / longest_ms),
        said=f"{min(walls['parallel']):.0f} ms parallel, {min(walls['fast first']):.0f} ms one by one: "
        f"{min(walls['fast first']) / min(walls['parallel']):.2f}×; the quick calls are done after "
        f"{quick['parallel']:.0f} ms, with the slowest first after {quick['slow first']:.0f} ms, "
        f"capped at {CAP} after {quick['capped']:.0f} ms",
        why=why,
    )
