"""Document 001, section 1.1 and scenario S2: calls on one stdio session, one by one and all at once."""

from __future__ import annotations

from mcp_probe.aggregate.phrasing import plural
from mcp_probe.workloads.bench.context import Bench
from mcp_probe.workloads.bench.serving import ProfiledServer
from mcp_probe.workloads.bench.shapes import Outcome, Stats
from mcp_probe.workloads.bench.statistics import floor_of, quickest
from mcp_probe.workloads.scenarios.documents import doc001 as doc
from mcp_probe.workloads.scenarios.readings import most_in_flight
from mcp_probe.workloads.scenarios.tables import Burst, Table, burst, calls_of, through_session

SERVER = "mcp_probe.workloads.servers.delays"
BEYOND = (40, 80, 160)


async def run(bench: Bench) -> Outcome:
    """Ten calls both ways, then N at once, then calls that have nothing to wait for."""
    async with bench.server(SERVER) as server:
        fan = FanOut(bench, server)
        await fan.measure()
    fan.checks()
    return bench.outcome()


class FanOut:
    """What was measured on one server, by label."""

    def __init__(self, bench: Bench, server: ProfiledServer) -> None:
        self.bench = bench
        self.server = server
        self.delay_ms = bench.size(quick=50.0, full=doc.DELAY_MS)
        self.scale = self.delay_ms / doc.DELAY_MS
        self.bursts: dict[str, Burst] = {}
        self.stats: dict[str, Stats] = {}
        self.floor: dict[str, float | None] = {}
        self.protocol = str(server.session.client.protocol_version)

    async def measure(self) -> None:
        """All rounds, and their rows; the readings are those of the last round of each kind."""
        delay = self.delay_ms
        one = through_session(self.server.session)
        self.bursts = {
            "10 one by one": burst(one, calls_of("wait", 10, delay), one_by_one=True),
            "20 one by one": burst(one, calls_of("wait", 20, delay), one_by_one=True),
            "10 quick one by one": burst(one, calls_of("wait", 10, 0), one_by_one=True),
            "10 quick": burst(one, calls_of("wait", 10, 0)),
            **{f"{n}": burst(one, calls_of("wait", n, delay)) for n in self.widths},
        }
        self.bench.step("one by one, and all at once")
        serial = self.bench.size(quick=3, full=7)
        await self._pair("10 one by one", "10", serial)
        self._section_1()
        for count in self.widths:
            await self._at_once(count)
        await self._pair("20 one by one", "20", self.bench.size(quick=1, full=5))
        self._headline()
        self.bench.step("calls that need not wait")
        await self._pair("10 quick one by one", "10 quick", self.bench.size(quick=10, full=100))
        self._without_wait()

    @property
    def widths(self) -> tuple[int, ...]:
        """How many calls at once."""
        return (*doc.FAN_OUT, *(BEYOND[:1] if self.bench.quick else BEYOND))

    async def _pair(self, one: str, other: str, rounds: int) -> None:
        """Both ways by turns: what a ratio rests on."""
        both = {label: self.bursts[label] for label in (one, other)}
        found = await self.bench.interleaved(both, rounds, twin=other, warm_up=self.bench.size(quick=0, full=1))
        self.stats[one], self.floor[one] = found.stats[one], found.floor
        self.stats[f"{other} beside"] = found.stats[other]
        for label, calls in both.items():
            self.server.mark(label, calls.last_ns)

    async def _at_once(self, count: int) -> None:
        """N calls at once, and their row: S2's, or a condition where the document stopped."""
        label = f"{count}"
        self.bench.step(f"{plural(count, 'call')} at once")
        rounds = self.bench.size(quick=3, full=25 if count <= 20 else 8)
        warm_up = self.bench.size(quick=0, full=doc.WARM_UP)
        found = await self.bench.interleaved({label: self.bursts[label]}, rounds, twin=label, warm_up=warm_up)
        self.stats[label], self.floor[label] = found.stats[label], found.floor
        self.server.mark(label, self.bursts[label].last_ns)
        if count in BEYOND:
            table, name = (
                Table(self.bench, "001 conditions"),
                f"{plural(count, 'call')} of {self.delay_ms:g} ms at once",
            )
        else:
            table, name = (
                Table(self.bench, "001 S2", scale=self.scale, note=self.note),
                f"{plural(count, 'call')} at once",
            )
        table.put(
            name,
            "ms",
            self.stats[label],
            doc.DIRECT.get(count),
            series="direct, parallel",
            x=count,
            little=self.bursts[label].little(),
            why=self.server.later(label) if count == 1 else self.server.grown("1", label),
            floor=found.floor,
        )

    def _section_1(self) -> None:
        """Section 1.1."""
        floor, contended = self.floor["10 one by one"], self.stats["10 beside"].contended
        table = Table(self.bench, "001 §1.1", scale=self.scale, note=self.note, floor=floor, contended=contended)
        for label, stats, documented, series in (
            ("10 one by one", "10 one by one", doc.ONE_BY_ONE_MS, "sequential"),
            ("10", "10 beside", doc.ALL_AT_ONCE_MS, "parallel"),
        ):
            table.put(
                f"10 calls, {series}",
                "ms",
                self.stats[stats],
                documented,
                series=series,
                x=10,
                little=self.bursts[label].little(),
                why=self.server.later(label),
                protocol=self.protocol,
            )
        table.put(
            "10 calls, ratio",
            "×",
            self.ratio("10"),
            doc.ONE_BY_ONE_MS / doc.ALL_AT_ONCE_MS,
            metric="ratio",
            series="ratio",
            x=10,
            scale=1.0,
            why=self.server.grown("10 one by one", "10"),
        )

    def _headline(self) -> None:
        """The 19.6x of the document's summary."""
        note = "; ".join(filter(None, ("no table of the document has it, 20 calls of 100 ms fit", self.note)))
        floor, contended = self.floor["20 one by one"], self.stats["20 beside"].contended
        table = Table(self.bench, "001 headline", note=note, floor=floor, contended=contended)
        for label, stats, name, series in (
            ("20 one by one", "20 one by one", "20 calls, one by one", "sequential"),
            ("20", "20 beside", "20 calls at once", "parallel"),
        ):
            little, why = self.bursts[label].little(), self.server.later(label)
            table.put(name, "ms", self.stats[stats], series=series, x=20, little=little, why=why)
        why = self.server.grown("20 one by one", "20")
        table.put("20 calls, ratio", "×", self.ratio("20"), doc.HEADLINE, metric="ratio", series="ratio", x=20, why=why)

    def _without_wait(self) -> None:
        """Where the gain ends: calls with nothing to wait for."""
        floor, contended = self.floor["10 quick one by one"], self.stats["10 quick beside"].contended
        table = Table(self.bench, "001 conditions", floor=floor, contended=contended)
        for label, stats, name in (
            ("10 quick one by one", "10 quick one by one", "one by one"),
            ("10 quick", "10 quick beside", "at once"),
        ):
            little, why = self.bursts[label].little(), self.server.later(label)
            table.put(f"10 calls of 0 ms, {name}", "ms", self.stats[stats], little=little, why=why)
        note = '"10× on the table" needs calls that wait'
        why = self.server.grown("10 quick one by one", "10 quick")
        table.put("10 calls of 0 ms, ratio", "×", self.ratio("10 quick"), metric="ratio", note=note, why=why)

    def checks(self) -> None:
        """001-1 and 001-2."""
        walls = {label: calls.wall_ms for label, calls in self.bursts.items()}
        at_once, contended = self.bursts["10"], self.stats["10 beside"].contended
        ratio = quickest(
            walls["10 one by one"], at_once.wall_ms, floor=self.floor["10 one by one"], contended=contended
        )
        most = most_in_flight(self.server.seen("10").requests)
        self.bench.claim(
            doc.CLAIMS["001-1"],
            ratio,
            said=f"{min(walls['10 one by one']):,.0f} ms and {min(at_once.wall_ms):,.0f} ms: {ratio.value:.1f}×",
            why=f"the server had {most} calls in flight at once",
        )
        contended = self.stats["20"].contended or self.stats["1"].contended
        self.bench.claim(
            doc.CLAIMS["001-2"],
            quickest(walls["20"], walls["1"], floor=floor_of(self.floor["20"], self.floor["1"]), contended=contended),
            said=", ".join(f"{min(walls[f'{count}']):.0f}" for count in doc.FAN_OUT) + " ms",
            why=self.server.grown("1", "20")(),
        )

    def ratio(self, label: str) -> float:
        """One by one over at once, rounds of which took turns."""
        return self.stats[f"{label} one by one"].median / self.stats[f"{label} beside"].median

    @property
    def note(self) -> str:
        """What a quick run does differently."""
        return "" if self.scale == 1.0 else f"calls of {self.delay_ms:g} ms instead of {doc.DELAY_MS:g}"
