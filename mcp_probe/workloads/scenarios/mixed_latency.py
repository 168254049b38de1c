"""Document 001, scenario S5: quick calls beside slow ones.

The document gave each latency a provider of its own, where nothing can stand in anybody's way. Here all of them
share one session as well, in both orders and under a cap, and the quick calls' completion is read beside the
round's: that is where a slow call at the head shows. Last, a slow call that blocks the event loop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mcp_probe.workloads.bench.context import Bench, Ms
from mcp_probe.workloads.bench.serving import ProfiledServer, side_by_side
from mcp_probe.workloads.bench.shapes import Outcome
from mcp_probe.workloads.bench.statistics import describe
from mcp_probe.workloads.client import Call
from mcp_probe.workloads.scenarios.arms import Arm, put_arm, put_ratio, take_turns
from mcp_probe.workloads.scenarios.documents import doc001 as doc
from mcp_probe.workloads.scenarios.tables import Burst, One, Table, through_session

SERVER = "mcp_probe.workloads.servers.delays"
CAP = 4
UNEQUAL = "its calls are of unequal length"
BESIDE = {"wait": "awaiting", "threaded": "on a thread", "blocking": "blocking"}
"""How the slow call waits, by its tool."""


class Mixed(Burst):
    """The nine calls, made in one way. ``quick_ms``: when the last of the shortest was answered, round by round."""

    def __init__(self, name: str, plan: Sequence[tuple[One, Call]], **how: Any) -> None:
        super().__init__(plan, **how)
        shortest = min(call.arguments["delay_ms"] for _, call in plan)
        self._quick = [place for place, (_, call) in enumerate(plan) if call.arguments["delay_ms"] == shortest]
        self.name = name
        self.quick_ms: list[float] = []

    async def __call__(self) -> Ms:
        """One round."""
        wall_ms = await super().__call__()
        self.quick_ms.append(max(self.last_ms[place] for place in self._quick))
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
        arms = await take_turns(bench, mixes, rounds, servers[0], twin="parallel", excused=UNEQUAL)
        _rows(bench, mixes, arms, scale)
        bench.step("a quick call beside a slow one")
        for tool in BESIDE:
            await _beside(bench, servers[0], ways[0], tool, scale)
    _check(bench, mixes, arms, scale, servers[0].why("parallel"))
    return bench.outcome()


def _mixes(ways: Sequence[One], scale: float) -> dict[str, Mixed]:
    """The nine calls, quickest first; and the same with the slowest first."""
    spread = [
        (way, Call("wait", {"delay_ms": scale * delay_ms}))
        for way, (count, delay_ms) in zip(ways, doc.MIXED, strict=True)
        for _ in range(count)
    ]
    one = [(ways[0], call) for _, call in spread]
    return {
        "parallel": Mixed("one session, parallel", one),
        "providers": Mixed("three providers, parallel", spread),
        "fast first": Mixed("one by one, quickest first", one, one_by_one=True),
        "slow first": Mixed("one by one, slowest first", one[::-1], one_by_one=True),
        "capped": Mixed(f"{CAP} at once, slowest first", one[::-1], in_flight=CAP),
    }


async def _beside(bench: Bench, server: ProfiledServer, one: One, tool: str, scale: float) -> None:
    """A call of 0 ms, sent while one of 500 ms waits in one of the ways that a tool can: head-of-line blocking,
    which three pipes cannot show.
    """
    slow_ms = scale * max(delay_ms for _, delay_ms in doc.MIXED)
    # The quick call is sent right behind the slow one, on the same pipe; its latency is the last of each round.
    taken, both = [], Burst([(one, Call(tool, {"delay_ms": slow_ms})), (one, Call("wait", {"delay_ms": 0}))])
    for _ in range(bench.size(quick=2, full=6)):
        await both()
        taken.append(both.latency_ms[-1])
    server.mark(f"beside {tool}", both.last_ns)
    table = Table(bench, "001 conditions", metric="beside", series="quick call")
    why = server.later(f"beside {tool}")
    table.put(f"0 ms beside {slow_ms:g} ms {BESIDE[tool]}", "ms", describe(taken), x=tool, why=why)


def _rows(bench: Bench, mixes: Mapping[str, Mixed], arms: Mapping[str, Arm], scale: float) -> None:
    note = "5 × 10, 3 × 100 and 1 × 500 ms" + ("" if scale == 1 else f", at {scale:g} of it")
    table = Table(bench, "001 S5", scale=scale, note=note)
    for label, mix in mixes.items():
        documented = doc.OVERHEAD["S5"].direct_ms if label == "providers" else None
        put_arm(table, f"{mix.name}: all", arms[label], documented, series="all", x=mix.name)
        quick = table.sub(series="quick", metric="quick calls", x=mix.name, why=arms[label].why)
        quick.put(f"{mix.name}: quick ones", "ms", describe(mix.quick_ms))
    put_ratio(table, "ratio, one by one over parallel", arms["fast first"], arms["parallel"], series="ratio")


def _check(bench: Bench, mixes: Mapping[str, Mixed], arms: Mapping[str, Arm], scale: float, why: str) -> None:
    parallel, serial = arms["parallel"], arms["fast first"]
    quick = {label: min(mix.quick_ms) for label, mix in mixes.items()}
    bench.claim(
        doc.CLAIMS["001-8"],
        parallel.quickest_over(scale * max(delay_ms for _, delay_ms in doc.MIXED)),
        said=f"{parallel.quickest_ms:.0f} ms parallel, {serial.quickest_ms:.0f} ms one by one: "
        f"{serial.quickest_over(parallel).value:.2f}×; the quick calls are done after {quick['parallel']:.0f} ms, "
        f"with the slowest first after {quick['slow first']:.0f} ms, capped at {CAP} after {quick['capped']:.0f} ms",
        why=why,
    )
