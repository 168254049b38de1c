"""What a layer around a call costs: the rows and the claims of document 001, section 2.2 and scenario S1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from mcp_probe.workloads.bench.context import Bench
from mcp_probe.workloads.bench.shapes import Measured, Stats
from mcp_probe.workloads.bench.statistics import floor_of, halves_floor, ratio_floor
from mcp_probe.workloads.client import Call
from mcp_probe.workloads.scenarios.documents import doc001 as doc
from mcp_probe.workloads.scenarios.tables import Burst, One, Table

INJECTED_US = 200.0
UNEQUAL = "its calls are of unequal length"
FULL_ONLY = "full runs only"


@dataclass(frozen=True, slots=True)
class Case:
    """One row: ``calls[k]`` go to provider k. ``scale`` is the size of a round over the document's."""

    key: str
    label: str
    calls: Sequence[Sequence[Call]]
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
        return ratio_floor([self.level("direct")], [self.level("direct again")])

    @property
    def contended(self) -> bool:
        """Whether others used the machine meanwhile."""
        return any(stats.contended for stats in self.stats.values())

    def compared(self, label: str) -> Measured:
        """Over the direct client, with what the direct client differs from itself by."""
        return Measured(self.level(label) / self.level("direct"), floor=self.floor, contended=self.contended)

    def percent(self, label: str, over: str = "direct") -> float:
        """What it takes more than ``over``."""
        return 100 * (self.level(label) / self.level(over) - 1)

    def us_per_call(self, label: str, case: Case) -> float:
        """What a call takes longer; of calls made at once the round's excess is shared out."""
        excess_ms = self.level(label) - self.level("direct")
        return 1e3 * (excess_ms if self.one_by_one else excess_ms / case.count)

    def halves(self, label: str) -> float | None:
        """A/A of one of them: every other call, or round, against the rest."""
        return halves_floor(self.bursts[label].latency_ms) if self.one_by_one else self.stats[label].halves

    def level(self, label: str) -> float:
        """Milliseconds: what is compared."""
        return median(self.bursts[label].latency_ms) if self.one_by_one else self.stats[label].median


# --- rows ---


def case_rows(bench: Bench, case: Case, found: Found) -> None:
    """All that one case says: section 2.2's line, the probe's, and what is left of a call after its sleep."""
    if case.key in doc.OVERHEAD:
        _documented_rows(bench, case, found)
    _added_rows(bench, case, found)
    if case.one_by_one:
        _per_call_row(bench, case, found)


def rows_not_run(bench: Bench, cases: Sequence[Case]) -> None:
    """Documented lines that a quick run leaves out."""
    run = {case.key for case in cases}
    for key, known in doc.OVERHEAD.items():
        if key not in run:
            table = Table(bench, "001 §2.2", x=key, note=FULL_ONLY)
            table.put(f"{known.label}: direct", "ms", None, known.direct_ms, series="direct")
            table.put(f"{known.label}: facade", "ms", None, known.hangar_ms, series="Hangar")
            table.put(f"{known.label}: overhead", "%", None, known.percent, metric="overhead", series="overhead")
    table = Table(bench, "001 S1", series="direct", metric="over the sleep", note=FULL_ONLY)
    for delay_ms in doc.S1_DELAYS_MS:
        if f"S1 {delay_ms}" not in run:
            table.put(f"a call of {delay_ms} ms, beyond its sleep", "ms", None, _documented_rest(delay_ms), x=delay_ms)


def _documented_rows(bench: Bench, case: Case, found: Found) -> None:
    """Section 2.2, one line."""
    known = doc.OVERHEAD[case.key]
    table = Table(bench, "001 §2.2", x=case.key, scale=case.scale, note=case.note, floor=found.floor, why=found.why)
    excused = UNEQUAL if case.key == "S5" else ""
    for series, label, documented in (("direct", "direct", known.direct_ms), ("Hangar", "facade", known.hangar_ms)):
        little = found.bursts[label].little(excused)
        table.put(f"{known.label}: {label}", "ms", found.stats[label], documented, series=series, little=little)
    share = 100 * INJECTED_US / 1e3 * case.count / found.stats["direct"].median
    note = f"0.2 ms a call would read +{share:.2f} %"
    if not case.one_by_one:
        note = f"0.2 ms of work a call would read +{share:.1f} %"
    overhead = table.sub(metric="overhead", series="overhead", scale=1.0, contended=found.contended, note=note)
    overhead.put(f"{known.label}: overhead", "%", found.percent("facade"), known.percent)


def _added_rows(bench: Bench, case: Case, found: Found) -> None:
    """What this probe adds, and the facade where the document left it out."""
    table = Table(
        bench, "001 conditions", x=case.key, floor=found.floor, contended=found.contended, note=case.note, why=found.why
    )
    for label in ("probe", "facade"):
        if label == "probe" or case.key not in doc.OVERHEAD:  # section 2.2 has it
            name = f"{case.label}: the {label}"
            table.put(name, "%", found.percent(label), metric="overhead", series=label)
        cost = found.us_per_call(label, case)
        table.put(f"{case.label}: {label}, a call", "µs", cost, metric="cost", series=label)


def over_the_sleep(case: Case, found: Found) -> float:
    """Milliseconds that a call takes beyond its delay."""
    return median(found.bursts["direct"].latency_ms) - delay_of(case)


def _documented_rest(delay_ms: float) -> float | None:
    """What the document's row leaves of a call after its sleep; it prints rows of two delays only."""
    known = doc.OVERHEAD.get(f"S1 {delay_ms:g}")
    return None if known is None else round(known.direct_ms / doc.S1_CALLS - delay_ms, 2)


def _per_call_row(bench: Bench, case: Case, found: Found) -> None:
    """S1: what is left of a call after its sleep; the document's 5 ms follow from its two printed rows."""
    delay_ms = delay_of(case)
    table = Table(bench, "001 S1", series="direct", metric="over the sleep", x=delay_ms, why=found.why)
    noise = {"floor": found.floor, "contended": found.contended}
    label = f"a call of {delay_ms:g} ms, beyond its sleep"
    table.put(label, "ms", over_the_sleep(case, found), _documented_rest(delay_ms), **noise)


def injected_row(bench: Bench, key: str, found: Found) -> None:
    """What work of a known length adds in a row of the document's."""
    floor = floor_of(found.halves("plain"), found.halves("loaded"))
    table = Table(bench, "001 conditions", metric="overhead", series="injected", x=key)
    label, note = f"{INJECTED_US / 1e3:g} ms put into each call, in {key}", f"of {found.level('plain'):.2f} ms"
    percent = found.percent("loaded", over="plain")
    table.put(label, "%", percent, floor=floor, contended=found.contended, note=note)


# --- claims ---


def check_overhead(bench: Bench, found: dict[str, Found]) -> None:
    shown = {key: one.compared("facade") for key, one in found.items() if key in doc.OVERHEAD}
    bare = found["S1 0"]
    percents = [100 * (each.value - 1) for each in shown.values()]
    worst = 100 * (max(found[key].floor for key in shown) - 1)
    at_zero, probe, floor = bare.percent("facade"), bare.percent("probe"), 100 * (bare.floor - 1)
    bench.claim(
        doc.CLAIMS["001-5"],
        list(shown.values()),
        said=f"{min(percents):+.1f} % to {max(percents):+.1f} % (A/A up to {worst:.1f} %)",
    )
    bench.claim(
        doc.CLAIMS["001-5z"], bare.compared("facade"), said=f"{at_zero:+.1f} % of a call of 0 ms; A/A {floor:.1f} %"
    )
    bench.claim(
        doc.CLAIMS["001-5c"],
        bare.compared("probe"),
        said=f"{probe:+.1f} % of a call of 0 ms; A/A {floor:.1f} %",
        why=bare.why,
    )
    for note in doc.NOTES:
        bench.note(note)


def check_per_call(bench: Bench, cases: Sequence[Case], found: dict[str, Found]) -> None:
    """Whether what a call takes beyond its sleep is a cost of the call: then it would not depend on the sleep."""
    serial = sorted((case for case in cases if case.one_by_one), key=delay_of)
    beyond = {delay_of(case): over_the_sleep(case, found[case.key]) for case in serial}
    ends = [_ends_beyond(case, found[case.key]) for case in serial]
    lows, highs = zip(*ends, strict=True)
    contended = any(found[case.key].contended for case in serial)
    figures = []
    if min(beyond.values()) > 0 and min(lows) > 0:
        ratio = max(beyond.values()) / min(beyond.values())
        figures.append(Measured(ratio, max(lows) / min(highs), max(highs) / min(lows), contended=contended))
    bench.claim(
        doc.CLAIMS["001-10"],
        *figures,
        said=", ".join(f"{ms:.2f} ms at {delay_ms:g} ms" for delay_ms, ms in beyond.items()),
        why=found["S1 0"].why,
        untold="what is left of a call after its sleep is less than two runs of it differ by",
    )


def delay_of(case: Case) -> float:
    """Milliseconds that each of its calls sleeps."""
    return float(case.calls[0][0].arguments["delay_ms"])


def _ends_beyond(case: Case, found: Found) -> tuple[float, float]:
    """Both ends of what a call takes beyond its sleep, by what two runs of it differ by."""
    level, delay_ms = found.level("direct"), delay_of(case)
    return level / found.floor - delay_ms, level * found.floor - delay_ms
