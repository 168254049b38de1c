"""Document 001, section 1.1 and scenario S2: calls on one stdio session, one by one and all at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mcp_probe.aggregate.phrasing import plural
from mcp_probe.workloads.bench.context import Bench
from mcp_probe.workloads.bench.serving import ProfiledServer
from mcp_probe.workloads.bench.shapes import Outcome
from mcp_probe.workloads.client import Call
from mcp_probe.workloads.scenarios.arms import Arm, put_arm, put_ratio, take_turns
from mcp_probe.workloads.scenarios.documents import doc001 as doc
from mcp_probe.workloads.scenarios.readings import most_in_flight
from mcp_probe.workloads.scenarios.tables import Table, burst, calls_of, through_session

SERVER = "mcp_probe.workloads.servers.delays"
BEYOND = (40, 80, 160)
"""Calls at once where the document stopped."""


async def run(bench: Bench) -> Outcome:
    """Ten calls both ways, then N at once, then calls that have nothing to wait for."""
    delay_ms = bench.size(quick=50.0, full=doc.DELAY_MS)
    async with bench.server(SERVER) as server:
        bench.step("one by one, and all at once")
        serial, at_once = await _both_ways(
            bench,
            server,
            _table(bench, "001 §1.1", delay_ms, x=10),
            calls_of("wait", 10, delay_ms),
            ("10 calls, sequential", "10 calls, parallel", "10 calls, ratio"),
            bench.size(3, 7),
            documented=(doc.ONE_BY_ONE_MS, doc.ALL_AT_ONCE_MS, doc.ONE_BY_ONE_MS / doc.ALL_AT_ONCE_MS),
            protocol=str(server.session.client.protocol_version),
        )
        counts = (*doc.FAN_OUT, *bench.size(BEYOND[:1], BEYOND))
        wide = {count: await _at_once(bench, server, count, delay_ms) for count in counts}
        note = "no table of the document has it, 20 calls of 100 ms fit"
        await _both_ways(
            bench,
            server,
            _table(bench, "001 headline", delay_ms, note, x=20),
            calls_of("wait", 20, delay_ms),
            ("20 calls, one by one", "20 calls at once", "20 calls, ratio"),
            bench.size(1, 5),
            documented=(None, None, doc.HEADLINE),
        )
        bench.step("calls that need not wait")
        await _both_ways(
            bench,
            server,
            Table(bench, "001 conditions"),
            calls_of("wait", 10, 0),
            ("10 calls of 0 ms, one by one", "10 calls of 0 ms, at once", "10 calls of 0 ms, ratio"),
            bench.size(10, 100),
            series=("", "", ""),
            note='"10× on the table" needs calls that wait',
        )
    ratio = serial.quickest_over(at_once)
    bench.claim(
        doc.CLAIMS["001-1"],
        ratio,
        said=f"{serial.quickest_ms:,.0f} ms and {at_once.quickest_ms:,.0f} ms: {ratio.value:.1f}×",
        why=f"the server had {most_in_flight(server.seen('10 calls, parallel').requests)} calls in flight at once",
    )
    bench.claim(
        doc.CLAIMS["001-2"],
        wide[20].quickest_over(wide[1]),
        said=", ".join(f"{wide[count].quickest_ms:.0f}" for count in doc.FAN_OUT) + " ms",
        why=server.grown("1", "20")(),
    )
    return bench.outcome()


async def _both_ways(
    bench: Bench,
    server: ProfiledServer,
    table: Table,
    calls: Sequence[Call],
    labels: tuple[str, str, str],
    rounds: int,
    *,
    series: tuple[str, str, str] = ("sequential", "parallel", "ratio"),
    documented: tuple[float | None, float | None, float | None] = (None, None, None),
    protocol: str = "",
    **more: Any,
) -> tuple[Arm, Arm]:
    """Calls one by one and at once, by turns, and their rows; the last is of the ratio, and ``more`` is its own."""
    one, (serial, at_once, ratio) = through_session(server.session), labels
    ways = {serial: burst(one, calls, one_by_one=True), at_once: burst(one, calls)}
    arms = await take_turns(bench, ways, rounds, server, twin=at_once, warm_up=bench.size(quick=0, full=1))
    for place, label in enumerate(ways):
        put_arm(table, label, arms[label], documented[place], series=series[place], protocol=protocol)
    why = server.grown(serial, at_once)
    put_ratio(table, ratio, arms[serial], arms[at_once], documented[2], series=series[2], why=why, **more)
    return arms[serial], arms[at_once]


async def _at_once(bench: Bench, server: ProfiledServer, count: int, delay_ms: float) -> Arm:
    """N calls at once, and their row: S2's, or a condition where the document stopped."""
    label = f"{count}"
    bench.step(f"{plural(count, 'call')} at once")
    ways = {label: burst(through_session(server.session), calls_of("wait", count, delay_ms))}
    rounds, warm_up = bench.size(quick=3, full=25 if count <= 20 else 8), bench.size(quick=0, full=doc.WARM_UP)
    arm = (await take_turns(bench, ways, rounds, server, twin=label, warm_up=warm_up))[label]
    if count in BEYOND:
        table, name = Table(bench, "001 conditions"), f"{plural(count, 'call')} of {delay_ms:g} ms at once"
    else:
        table, name = _table(bench, "001 S2", delay_ms), f"{plural(count, 'call')} at once"
    why = arm.why if count == 1 else server.grown("1", label)
    put_arm(table, name, arm, doc.DIRECT.get(count), series="direct, parallel", x=count, why=why)
    return arm


def _table(bench: Bench, name: str, delay_ms: float, note: str = "", **shared: Any) -> Table:
    """One that says what a quick run does differently."""
    size = "" if delay_ms == doc.DELAY_MS else f"calls of {delay_ms:g} ms instead of {doc.DELAY_MS:g}"
    return Table(bench, name, scale=delay_ms / doc.DELAY_MS, note="; ".join(filter(None, (note, size))), **shared)
