"""Document 001, section 1.1 and scenario S2: calls on one stdio session, one by one and all at once."""

from __future__ import annotations

from dataclasses import dataclass

from mcp_probe.aggregate.phrasing import plural
from mcp_probe.workloads.bench.context import Bench
from mcp_probe.workloads.bench.serving import ProfiledServer
from mcp_probe.workloads.bench.shapes import Outcome
from mcp_probe.workloads.scenarios.arms import Arm, put_arm, put_ratio, take_turns
from mcp_probe.workloads.scenarios.documents import doc001 as doc
from mcp_probe.workloads.scenarios.readings import most_in_flight
from mcp_probe.workloads.scenarios.tables import Table, burst, calls_of, through_session

SERVER = "mcp_probe.workloads.servers.delays"
BEYOND = (40, 80, 160)
"""Calls at once where the document stopped."""


@dataclass(frozen=True, slots=True)
class Both:
    """Calls that are made one by one and at once, and their rows; the last is of the ratio."""

    table: str
    count: int
    rounds: tuple[int, int]  # of a quick run and of a full one
    rows: tuple[str, str, str]
    series: tuple[str, str, str] = ("sequential", "parallel", "ratio")
    documented: tuple[float | None, float | None, float | None] = (None, None, None)
    sleeps: bool = True
    says_protocol: bool = False
    note: str = ""
    note_of_ratio: str = ""


SECTION_1 = Both(
    "001 §1.1",
    10,
    (3, 7),
    ("10 calls, sequential", "10 calls, parallel", "10 calls, ratio"),
    documented=(doc.ONE_BY_ONE_MS, doc.ALL_AT_ONCE_MS, doc.ONE_BY_ONE_MS / doc.ALL_AT_ONCE_MS),
    says_protocol=True,
)
HEADLINE = Both(
    "001 headline",
    20,
    (1, 5),
    ("20 calls, one by one", "20 calls at once", "20 calls, ratio"),
    documented=(None, None, doc.HEADLINE),
    note="no table of the document has it, 20 calls of 100 ms fit",
)
WITHOUT_WAIT = Both(
    "001 conditions",
    10,
    (10, 100),
    ("10 calls of 0 ms, one by one", "10 calls of 0 ms, at once", "10 calls of 0 ms, ratio"),
    series=("", "", ""),
    sleeps=False,
    note_of_ratio='"10× on the table" needs calls that wait',
)


async def run(bench: Bench) -> Outcome:
    """Ten calls both ways, then N at once, then calls that have nothing to wait for."""
    delay_ms = bench.size(quick=50.0, full=doc.DELAY_MS)
    async with bench.server(SERVER) as server:
        bench.step("one by one, and all at once")
        serial, at_once = await _both_ways(bench, server, SECTION_1, delay_ms)
        counts = (*doc.FAN_OUT, *bench.size(BEYOND[:1], BEYOND))
        wide = {count: await _at_once(bench, server, count, delay_ms) for count in counts}
        await _both_ways(bench, server, HEADLINE, delay_ms)
        bench.step("calls that need not wait")
        await _both_ways(bench, server, WITHOUT_WAIT, 0)
    ratio = serial.quickest_over(at_once)
    bench.claim(
        doc.CLAIMS["001-1"],
        ratio,
        said=f"{serial.quickest_ms:,.0f} ms and {at_once.quickest_ms:,.0f} ms: {ratio.value:.1f}×",
        why=f"the server had {most_in_flight(server.seen(SECTION_1.rows[1]).requests)} calls in flight at once",
    )
    bench.claim(
        doc.CLAIMS["001-2"],
        wide[20].quickest_over(wide[1]),
        said=", ".join(f"{wide[count].quickest_ms:.0f}" for count in doc.FAN_OUT) + " ms",
        why=server.grown("1", "20")(),
    )
    return bench.outcome()


async def _both_ways(bench: Bench, server: ProfiledServer, both: Both, delay_ms: float) -> tuple[Arm, Arm]:
    """By turns: what a ratio rests on."""
    one, calls = through_session(server.session), calls_of("wait", both.count, delay_ms)
    serial, at_once, ratio = both.rows
    ways = {serial: burst(one, calls, one_by_one=True), at_once: burst(one, calls)}
    arms = await take_turns(
        bench, ways, bench.size(*both.rounds), server, twin=at_once, warm_up=bench.size(quick=0, full=1)
    )
    table = _table(bench, both.table, delay_ms if both.sleeps else doc.DELAY_MS, both.note)
    if both.sleeps:
        table = table.sub(x=both.count)
    protocol = str(server.session.client.protocol_version) if both.says_protocol else ""
    for label, series, documented in zip(ways, both.series, both.documented, strict=False):
        put_arm(table, label, arms[label], documented, series=series, protocol=protocol)
    if both.note_of_ratio:
        table = table.sub(note=both.note_of_ratio)
    own = table.sub(series=both.series[2], why=server.grown(serial, at_once))
    put_ratio(own, ratio, arms[serial], arms[at_once], both.documented[2])
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


def _table(bench: Bench, name: str, delay_ms: float, note: str = "") -> Table:
    """One that says what a quick run does differently."""
    size = "" if delay_ms == doc.DELAY_MS else f"calls of {delay_ms:g} ms instead of {doc.DELAY_MS:g}"
    return Table(bench, name, scale=delay_ms / doc.DELAY_MS, note="; ".join(filter(None, (note, size))))
