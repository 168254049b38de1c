"""Document 001, scenario S3: one call to each of several servers takes as long as the slowest, not their sum."""

from __future__ import annotations

from collections.abc import Sequence

from mcp_probe.workloads.bench.context import Bench
from mcp_probe.workloads.bench.serving import side_by_side
from mcp_probe.workloads.bench.shapes import Outcome
from mcp_probe.workloads.bench.statistics import quickest, scaled
from mcp_probe.workloads.client import Call
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
        found = await bench.interleaved(turns, bench.size(quick=3, full=12 if equal else 8), twin="at once")
        for label, burst in turns.items():
            for server in servers:
                server.mark(label, burst.last_ns)
        slowest = servers[max(range(count), key=lambda place: delays_ms[place])]
        documented = doc.OVERHEAD["S3"].direct_ms if equal else None
        sizes = f"{count} × {delays_ms[0]:g}" if equal else " + ".join(f"{delay_ms:g}" for delay_ms in delays_ms)
        note = f"{sizes} ms" + ("" if scale == 1 else f", at {scale:g} of it")
        table = Table(bench, "001 S3", scale=scale, x=f"{count} providers", note=note, floor=found.floor)
        for label, name, known, server in (
            ("at once", f"{count} providers, parallel", documented, slowest),
            ("one by one", f"{count} providers, one by one", None, slowest),
            ("one server", f"{count} calls to one provider, parallel", None, servers[0]),
        ):
            little = turns[label].little("" if equal else "its calls are of unequal length")
            table.put(name, "ms", found.stats[label], known, series=label, why=server.later(label), little=little)
        at_once, serial = found.stats["at once"], found.stats["one by one"]
        ratio, contended = serial.median / at_once.median, at_once.contended or serial.contended
        table.put(f"{count} providers, ratio", "×", ratio, metric="ratio", series="ratio", contended=contended)
    quick = {label: burst.wall_ms for label, burst in turns.items()}
    bench.claim(
        doc.CLAIMS["001-7" if equal else "001-7a"],
        scaled(quickest(quick["at once"], floor=found.floor, contended=at_once.contended), 1 / longest),
        said=f"{min(quick['at once']):.0f} ms at once, {min(quick['one by one']):.0f} ms one by one; "
        f"longest {longest:g} ms, sum {total:g} ms",
        why=slowest.why("at once"),
    )
