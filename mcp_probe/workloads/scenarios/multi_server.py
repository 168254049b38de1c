"""Document 001, scenario S3: one call to each of several servers takes as long as the slowest, not their sum."""

from __future__ import annotations

from collections.abc import Sequence

from mcp_probe.workloads.bench.context import Bench
from mcp_probe.workloads.bench.serving import side_by_side
from mcp_probe.workloads.bench.shapes import Outcome
from mcp_probe.workloads.client import Call
from mcp_probe.workloads.scenarios.arms import put_arm, put_ratio, take_turns
from mcp_probe.workloads.scenarios.documents import doc001 as doc
from mcp_probe.workloads.scenarios.tables import Burst, Table, through_session

SERVER = "mcp_probe.workloads.servers.delays"


async def run(bench: Bench) -> Outcome:
    """The three equal providers that the document names, and the five unequal ones of its suite."""
    await _providers(bench, doc.PROVIDERS_MS, bench.size(quick=0.5, full=1.0))
    if not bench.quick:
        await _providers(bench, doc.FIVE_PROVIDERS_MS, 1.0)
    return bench.outcome()


async def _providers(bench: Bench, delays_ms: Sequence[float], scale: float) -> None:
    """One set: by turns, all at once, one by one, and all calls to one server."""
    count, longest, total = len(delays_ms), scale * max(delays_ms), scale * sum(delays_ms)
    equal = len(set(delays_ms)) == 1
    bench.step(f"{count} servers")
    calls = [Call("wait", {"delay_ms": scale * delay_ms}) for delay_ms in delays_ms]
    async with side_by_side([bench.server(SERVER) for _ in delays_ms]) as servers:
        ways = [through_session(server.session) for server in servers]
        spread = list(zip(ways, calls, strict=True))
        turns = {
            "at once": Burst(spread),
            "one by one": Burst(spread, one_by_one=True),
            "one server": Burst([(ways[0], call) for call in calls]),
        }
        for server in servers:
            await server.session.call("wait", delay_ms=0)
        # The slowest says where the time went.
        slowest = servers[max(range(count), key=lambda place: delays_ms[place])]
        rounds, excused = (
            bench.size(quick=3, full=12 if equal else 8),
            "" if equal else "its calls are of unequal length",
        )
        arms = await take_turns(bench, turns, rounds, slowest, *servers, twin="at once", excused=excused)
        documented = doc.OVERHEAD["S3"].direct_ms if equal else None
        sizes = f"{count} × {delays_ms[0]:g}" if equal else " + ".join(f"{delay_ms:g}" for delay_ms in delays_ms)
        note = f"{sizes} ms" + ("" if scale == 1 else f", at {scale:g} of it")
        table = Table(bench, "001 S3", scale=scale, x=f"{count} providers", note=note)
        at_once, serial, one_server = arms.values()
        put_arm(table, f"{count} providers, parallel", at_once, documented, series="at once")
        put_arm(table, f"{count} providers, one by one", serial, series="one by one")
        why = servers[0].later("one server")
        put_arm(table, f"{count} calls to one provider, parallel", one_server, series="one server", why=why)
        put_ratio(table, f"{count} providers, ratio", serial, at_once, series="ratio")
    bench.claim(
        doc.CLAIMS["001-7" if equal else "001-7a"],
        at_once.quickest_over(longest),
        said=f"{at_once.quickest_ms:.0f} ms at once, {serial.quickest_ms:.0f} ms one by one; "
        f"longest {longest:g} ms, sum {total:g} ms",
        why=slowest.why("at once"),
    )
