"""Document 001, section 2.2: what a layer around a call costs, for its framework and for this probe.

Both are measured against the direct client by turns. The framework is the client that the document describes, on
servers of its own; the probe is switched on and off in the process of the direct client's server. A percentage says
little where the calls themselves only sleep, so each row also has microseconds a call, and there is a row of calls
that do not sleep at all: the only one that can show a cost.
"""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, median

from mcp_probe.aggregate.explain import Seen, explain
from mcp_probe.errors import LaunchError
from mcp_probe.record.file import read_recording
from mcp_probe.workloads.bench.context import Bench, Ms, Timed
from mcp_probe.workloads.bench.shapes import Outcome, Stats
from mcp_probe.workloads.client import Call, LoadSession
from mcp_probe.workloads.facade import Facade
from mcp_probe.workloads.scenarios.documents import doc001 as doc
from mcp_probe.workloads.scenarios.providers import threaded_provider
from mcp_probe.workloads.scenarios.tables import Burst, One, Table, calls_of, judge, through_facade, through_session

TOGGLED = "mcp_probe.workloads.servers.toggled"
PLAIN = "mcp_probe.workloads.servers.delays"
THREADS = 20
PROVIDERS = 3
INJECTED_US = 200.0
SETTLING = 10
"""Calls after a switch that nobody times."""
UNEQUAL = "its calls are of unequal length"
FULL_ONLY = "full runs only"


@dataclass(frozen=True, slots=True)
class Case:
    """One row: ``calls[k]`` go to provider k. ``scale`` is the size of a round over the document's."""

    key: str
    label: str
    calls: tuple[tuple[Call, ...], ...]
    rounds: int
    scale: float = 1.0
    one_by_one: bool = False
    note: str = ""

    @property
    def count(self) -> int:
        """Calls of a round."""
        return sum(map(len, self.calls))

    def round_of(self, ways: Sequence[One]) -> Burst:
        """One round, each provider's calls by its own way."""
        plan = [(ways[place], call) for place, calls in enumerate(self.calls) for call in calls]
        return Burst(plan, one_by_one=self.one_by_one)


@dataclass
class Found:
    """What one case came to. Of calls that are made one by one the median call is compared, else the median round."""

    stats: dict[str, Stats]
    bursts: dict[str, Burst]
    why: str
    one_by_one: bool

    @property
    def floor(self) -> float:
        """A/A: the direct client against itself."""
        low, high = sorted((self._level("direct"), self._level("direct again")))
        return high / low

    @property
    def contended(self) -> bool:
        """Whether others used the machine meanwhile."""
        return self.stats["direct"].contended

    def percent(self, label: str) -> float:
        """Over the direct client."""
        return 100 * (self._level(label) / self._level("direct") - 1)

    def us_per_call(self, label: str, case: Case) -> float:
        """What a call takes longer; of calls made at once the round's excess is shared out."""
        excess_ms = self._level(label) - self._level("direct")
        return 1e3 * (excess_ms if self.one_by_one else excess_ms / case.count)

    def _level(self, label: str) -> float:
        return median(self.bursts[label].latency_ms) if self.one_by_one else self.stats[label].median


async def run(bench: Bench) -> Outcome:
    """The seven rows of the document, those it left out, and the one that can show something."""
    cases = _cases(bench)
    found: dict[str, Found] = {}
    async with _clients(bench) as clients:
        for case in cases:
            bench.step(case.label)
            found[case.key] = await _measure(bench, clients, case)
        injected = await _inject(bench, clients)
    _documented_rows(bench, cases, found)
    _probe_rows(bench, cases, found)
    _per_call_rows(bench, cases, found)
    _injected_rows(bench, injected)
    _checks(bench, found)
    return bench.outcome()


def _cases(bench: Bench) -> list[Case]:
    """In the document's order, then what it left out."""
    delay = bench.size(quick=50.0, full=doc.DELAY_MS)
    short = delay / doc.DELAY_MS
    wide = bench.size(quick=4, full=30)
    note = "" if short == 1 else f"calls of {delay:g} ms instead of {doc.DELAY_MS:g}"
    mixed = short / bench.size(quick=2, full=1)
    spread = tuple(tuple(calls_of("wait", count, ms * mixed)) for count, ms in doc.MIXED)

    def at_once(count: int) -> Case:
        calls = (tuple(calls_of("wait", count, delay)),)
        return Case(f"S2 N={count}", f"S2 N={count}, parallel", calls, wide, short, note=note)

    def serial(delay_ms: float, quick: int, full: int, rounds: int) -> Case:
        count = bench.size(quick=quick, full=full)
        calls = (tuple(calls_of("wait", count, delay_ms)),)
        note = f"{count} calls a round instead of {doc.S1_CALLS}"
        return Case(
            f"S1 {delay_ms:g}", f"S1 {delay_ms:g} ms, sequential", calls, rounds, count / doc.S1_CALLS, True, note
        )

    by_delay = bench.size(quick=3, full=10)
    cases = [
        at_once(20),
        at_once(5),
        Case(
            "S3",
            f"S3 {PROVIDERS} providers, parallel",
            (tuple(calls_of("wait", 1, delay)),) * PROVIDERS,
            wide,
            short,
            note=note,
        ),
        Case(
            "S5",
            "S5 mixed latency, parallel",
            spread,
            bench.size(quick=3, full=20),
            mixed,
            note="" if mixed == 1 else f"at {mixed:g} of its delays",
        ),
        serial(50, 2, 10, by_delay),
        *([] if bench.quick else [serial(200, 0, 10, 6)]),
        at_once(10),
        serial(0, 30, 50, bench.size(quick=10, full=40)),
        *([] if bench.quick else [serial(10, 0, 10, by_delay), serial(100, 0, 10, 6)]),
    ]
    return cases


# --- clients ---


class Clients:
    """The direct client's sessions, the facade's, and the switch of the probe in the direct client's servers."""

    def __init__(self, sessions: Sequence[LoadSession], facades: Sequence[Facade]) -> None:
        self._sessions = sessions
        self.direct: list[One] = [through_session(session) for session in sessions]
        self.facade: list[One] = [through_facade(facade) for facade in facades]

    async def probed(self, burst: Burst, providers: int, folder: Path | None = None) -> Ms:
        """One round with the probe attached, and recording into ``folder`` if there is one.

        Attaching, detaching and the calls after it are not timed: the interpreter has to get used to functions
        that have been replaced, and back.
        """
        try:
            await self._switch(True, providers, folder)
            return await burst()
        finally:
            await self._switch(False, providers, None)

    async def why(self, burst: Burst, providers: int) -> str:
        """One sentence on a round that nobody times, from the last provider, which has the longest calls."""
        with tempfile.TemporaryDirectory(prefix="mcp-probe-bench-") as folder:
            await self.probed(burst, providers, Path(folder))
            seen = Seen.of(read_recording(Path(folder, f"{providers - 1}.jsonl")))
        rounds = [request for request in seen.requests if request.name == "wait"]
        return explain(replace(seen, requests=tuple(rounds[SETTLING:])))

    async def _switch(self, on: bool, providers: int, folder: Path | None) -> None:
        for number, session in enumerate(self._sessions[:providers]):
            record = None if folder is None else str(folder / f"{number}.jsonl")
            answer = await session.call("probe", on=on, record=record)
            if answer.error is not None:
                raise LaunchError(f"The probe could not be switched: {answer.error}")
            for _ in range(SETTLING):
                await session.call("wait", delay_ms=0)


@asynccontextmanager
async def _clients(bench: Bench) -> AsyncIterator[Clients]:
    """Three servers of each kind."""
    bench.step("starting six servers")
    async with AsyncExitStack() as stack:
        servers = [await stack.enter_async_context(bench.server(TOGGLED, probe=False)) for _ in range(PROVIDERS)]
        providers = [await stack.enter_async_context(threaded_provider(PLAIN, probe=False)) for _ in range(PROVIDERS)]
        facades = [Facade(provider.client, THREADS) for provider in providers]
        for facade in facades:
            stack.callback(facade.close)
        clients = Clients([server.session for server in servers], facades)
        for one in (*clients.direct, *clients.facade):
            for _ in range(doc.WARM_UP):
                await one(Call("wait", {"delay_ms": 0}))
        await clients.probed(Burst([(clients.direct[0], Call("wait", {"delay_ms": 0}))]), PROVIDERS)
        yield clients


async def _measure(bench: Bench, clients: Clients, case: Case) -> Found:
    """All three, and the direct one twice, by turns."""
    direct, again, facade, probed = (
        case.round_of(ways) for ways in (clients.direct, clients.direct, clients.facade, clients.direct)
    )

    async def with_probe() -> Ms:
        return await clients.probed(probed, len(case.calls))

    turns: dict[str, Timed] = {"direct": direct, "direct again": again, "facade": facade, "probe": with_probe}
    measured = await bench.interleaved(turns, case.rounds)
    bursts = {"direct": direct, "direct again": again, "facade": facade, "probe": probed}
    why = await clients.why(case.round_of(clients.direct), len(case.calls))
    return Found(measured.stats, bursts, why, case.one_by_one)


async def _inject(bench: Bench, clients: Clients) -> dict[str, tuple[float, float]]:
    """What work of a known length does to two of the rows: percent at delay 0, and at 20 at once."""
    bench.step("a known cost, injected")
    reads: dict[str, tuple[float, float]] = {}
    for key, count, delay_ms, one_by_one in (
        ("S1 0", 30, 0.0, True),
        ("S2 N=20", 20, bench.size(quick=50.0, full=doc.DELAY_MS), False),
    ):
        plain = Burst([(clients.direct[0], call) for call in calls_of("wait", count, delay_ms)], one_by_one=one_by_one)
        loaded = Burst(
            [(clients.direct[0], call) for call in calls_of("wait", count, delay_ms, busy_us=INJECTED_US)],
            one_by_one=one_by_one,
        )
        both = await bench.interleaved({"plain": plain, "loaded": loaded}, bench.size(quick=5, full=20))
        base_ms = median(plain.latency_ms) if one_by_one else both.stats["plain"].median
        more_ms = median(loaded.latency_ms) if one_by_one else both.stats["loaded"].median
        reads[key] = 100 * (more_ms / base_ms - 1), base_ms
    return reads


# --- rows ---


def _documented_rows(bench: Bench, cases: Sequence[Case], found: dict[str, Found]) -> None:
    """Section 2.2, line by line."""
    by_key = {case.key: case for case in cases}
    for key, known in doc.OVERHEAD.items():
        case, measured = by_key.get(key), found.get(key)
        table = Table(
            bench, "001 §2.2", x=key, scale=case.scale if case else 1.0, note=case.note if case else FULL_ONLY
        )
        for series, label, documented in (("direct", "direct", known.direct_ms), ("Hangar", "facade", known.hangar_ms)):
            stats = measured.stats[label] if measured else None
            little = measured.bursts[label].little(UNEQUAL if key == "S5" else "") if measured else None
            name = "direct" if label == "direct" else f"threads behind a facade of {THREADS}"
            table.put(
                f"{known.label}: {name}",
                "ms",
                stats,
                documented,
                series=series,
                little=little,
                why=measured.why if measured else "",
            )
        hidden = ""
        if case and measured:
            share = INJECTED_US / 1e3 * case.count / measured.stats["direct"].median
            hidden = f"0.2 ms of work a call would read +{100 * share:.1f} %" if not case.one_by_one else ""
            hidden = hidden or f"0.2 ms a call would read +{100 * share:.2f} %"
        table.put(
            f"{known.label}: overhead",
            "%",
            measured.percent("facade") if measured else None,
            known.percent,
            metric="overhead",
            series="overhead",
            scale=1.0,
            floor=measured.floor if measured else None,
            contended=measured.contended if measured else False,
            note=hidden or FULL_ONLY,
        )


def _probe_rows(bench: Bench, cases: Sequence[Case], found: dict[str, Found]) -> None:
    """What this probe adds to the same rows, and to the rows that the document left out."""
    table = Table(bench, "001 conditions", metric="overhead")
    for case in cases:
        measured = found[case.key]
        floor, contended = measured.floor, measured.contended
        for label, name in (("probe", "the probe, switched on in the same process"), ("facade", "the facade")):
            if label == "facade" and case.key in doc.OVERHEAD:
                continue  # section 2.2 has it
            table.put(
                f"{case.label}: {name}",
                "%",
                measured.percent(label),
                x=case.key,
                series=label,
                floor=floor,
                contended=contended,
                note=case.note,
            )
        for label in ("probe", "facade"):
            table.put(
                f"{case.label}: {label}, a call",
                "µs",
                measured.us_per_call(label, case),
                x=case.key,
                metric="cost",
                series=label,
                floor=floor,
                contended=contended,
                note=case.note,
            )


def _over_the_sleep(case: Case, found: Found) -> float:
    """Milliseconds that a call takes beyond its delay."""
    delay_ms = float(case.calls[0][0].arguments["delay_ms"])
    return median(found.bursts["direct"].latency_ms) - delay_ms


def _per_call_rows(bench: Bench, cases: Sequence[Case], found: dict[str, Found]) -> None:
    """S1: what is left of a call after its sleep; the document's 5 ms follow from its two printed rows."""
    table = Table(bench, "001 S1", series="direct", metric="over the sleep")
    serial = {case.key: case for case in cases if case.one_by_one}
    for delay_ms in doc.S1_DELAYS_MS:
        key = f"S1 {delay_ms}"
        known = doc.OVERHEAD.get(key)
        documented = None if known is None else round(known.direct_ms / doc.S1_CALLS - delay_ms, 2)
        case = serial.get(key)
        value = None if case is None else _over_the_sleep(case, found[key])
        table.put(
            f"a call of {delay_ms} ms, beyond its sleep",
            "ms",
            value,
            documented,
            x=delay_ms,
            floor=found[key].floor if case else None,
            note="" if case else FULL_ONLY,
            contended=found[key].contended if case else False,
        )


def _injected_rows(bench: Bench, injected: dict[str, tuple[float, float]]) -> None:
    table = Table(bench, "001 conditions", metric="overhead", series="injected")
    for key, (percent, base_ms) in injected.items():
        table.put(
            f"{INJECTED_US / 1e3:g} ms of work put into each call, as {key} reads it",
            "%",
            percent,
            x=key,
            note=f"of {base_ms:.2f} ms",
        )


# --- claims ---


def _checks(bench: Bench, found: dict[str, Found]) -> None:
    shown = {key: one.percent("facade") for key, one in found.items() if key in doc.OVERHEAD}
    bare, contended = found["S1 0"], any(one.contended for one in found.values())
    at_zero = bare.percent("facade")
    worst_floor = 100 * max((one.floor or 1.0) - 1 for one in found.values())
    judge(
        bench,
        "001-5",
        "a framework around the client costs nothing that can be measured",
        max(map(abs, shown.values())) <= max(5.0, worst_floor) and abs(at_zero) <= 100 * (bare.floor - 1) + 2,
        documented="-3.2 % to +2.2 %, seven rows of calls that sleep",
        measured=f"{min(shown.values()):+.1f} % to {max(shown.values()):+.1f} % in these rows (A/A up to "
        f"{worst_floor:.1f} %); {at_zero:+.0f} % where calls do not sleep",
        tolerance="within 5 % or the A/A floor in the rows, and within 2 % of the floor at 0 ms",
        why="rows of calls that sleep cannot show it: 0.2 ms a call put in on purpose reads below 5 % there. And the "
        "two clients differ in more than the framework: one parses with the SDK, the other reads raw JSON in threads",
        value=at_zero,
        contended=contended,
    )
    _check_arithmetic(bench)
    probe = bare.percent("probe")
    floor = 100 * (bare.floor - 1)
    judge(
        bench,
        "001-5c",
        "this probe, in the row where a cost shows",
        probe <= 5.0 + floor,
        documented="(not in the document)",
        measured=f"{probe:+.1f} % of a call of 0 ms; A/A {floor:.1f} %",
        tolerance="at most 5 % over the A/A floor, switched on and off in one process",
        value=probe,
        contended=bare.contended,
    )


def _check_arithmetic(bench: Bench) -> None:
    """What the document's own figures say of its statistics."""
    percents = [known.percent for known in doc.OVERHEAD.values()]
    bench.check(
        "001-5a",
        "the mean overhead is approximately -0.5 %",
        documented="-0.5 %",
        measured=f"{fmean(percents):.2f} %",
        tolerance="the mean of the seven rows that the document prints",
        verdict="does not hold",
        value=fmean(percents),
        why="seven of 23 comparable rows are printed; the 0 ms row, which alone can show an overhead, is not",
    )
    apart = {key: doc.OVERHEAD[key].hangar_ms - doc.OVERHEAD[key].direct_ms for key in ("S2 N=20", "S2 N=10")}
    half_width = doc.HALF_WIDTH_MS * 2**0.5
    bench.check(
        "001-5b",
        "the overhead is statistically indistinguishable from zero",
        documented="intervals of ± 0.5 ms",
        measured=", ".join(f"{key}: {value:+.1f} ms" for key, value in apart.items()),
        tolerance=f"within {half_width:.1f} ms: the half-width of a difference of two such means",
        verdict="does not hold" if any(abs(value) > half_width for value in apart.values()) else "holds",
        why="by its own intervals two rows differ significantly, one in each direction",
        value=max(map(abs, apart.values())),
    )
