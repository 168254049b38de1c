"""The rows and the claims of document 001, section 2.2 and scenario S1."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, median

from mcp_probe.workloads.bench.context import Bench
from mcp_probe.workloads.bench.statistics import floor_of
from mcp_probe.workloads.scenarios.documents import doc001 as doc
from mcp_probe.workloads.scenarios.overhead_found import Case, Found
from mcp_probe.workloads.scenarios.tables import Table, judge

INJECTED_US = 200.0
CONSTANT = 1.3
UNEQUAL = "its calls are of unequal length"
FULL_ONLY = "full runs only"


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
    table = Table(bench, "001 §2.2", x=case.key, scale=case.scale, note=case.note, floor=found.floor)
    excused = UNEQUAL if case.key == "S5" else ""
    for series, label, documented in (("direct", "direct", known.direct_ms), ("Hangar", "facade", known.hangar_ms)):
        little = found.bursts[label].little(excused)
        table.put(
            f"{known.label}: {label}",
            "ms",
            found.stats[label],
            documented,
            series=series,
            little=little,
            why=found.why,
        )
    share = 100 * INJECTED_US / 1e3 * case.count / found.stats["direct"].median
    table.put(
        f"{known.label}: overhead",
        "%",
        found.percent("facade"),
        known.percent,
        metric="overhead",
        series="overhead",
        scale=1.0,
        contended=found.contended,
        note=f"0.2 ms a call would read +{share:.2f} %"
        if case.one_by_one
        else f"0.2 ms of work a call would read +{share:.1f} %",
    )


def _added_rows(bench: Bench, case: Case, found: Found) -> None:
    """What this probe adds, and the facade where the document left it out."""
    table = Table(bench, "001 conditions", x=case.key, floor=found.floor, contended=found.contended, note=case.note)
    for label in ("probe", "facade"):
        if label == "probe" or case.key not in doc.OVERHEAD:  # section 2.2 has it
            name = f"{case.label}: the {label}"
            table.put(name, "%", found.percent(label), metric="overhead", series=label)
        cost = found.us_per_call(label, case)
        table.put(f"{case.label}: {label}, a call", "µs", cost, metric="cost", series=label)


def over_the_sleep(case: Case, found: Found) -> float:
    """Milliseconds that a call takes beyond its delay."""
    delay_ms = float(case.calls[0][0].arguments["delay_ms"])
    return median(found.bursts["direct"].latency_ms) - delay_ms


def _documented_rest(delay_ms: float) -> float | None:
    """What the document's row leaves of a call after its sleep; it prints rows of two delays only."""
    known = doc.OVERHEAD.get(f"S1 {delay_ms:g}")
    return None if known is None else round(known.direct_ms / doc.S1_CALLS - delay_ms, 2)


def _per_call_row(bench: Bench, case: Case, found: Found) -> None:
    """S1: what is left of a call after its sleep; the document's 5 ms follow from its two printed rows."""
    delay_ms = case.calls[0][0].arguments["delay_ms"]
    table = Table(bench, "001 S1", series="direct", metric="over the sleep")
    table.put(
        f"a call of {delay_ms:g} ms, beyond its sleep",
        "ms",
        over_the_sleep(case, found),
        _documented_rest(delay_ms),
        x=delay_ms,
        floor=found.floor,
        contended=found.contended,
    )


def injected_row(bench: Bench, key: str, found: Found) -> None:
    """What work of a known length adds in a row of the document's."""
    Table(bench, "001 conditions", metric="overhead", series="injected").put(
        f"{INJECTED_US / 1e3:g} ms put into each call, in {key}",
        "%",
        found.percent("loaded", over="plain"),
        x=key,
        floor=floor_of(found.halves("plain"), found.halves("loaded")),
        contended=found.contended,
        note=f"of {found.level('plain'):.2f} ms",
    )


# --- claims ---


def check_overhead(bench: Bench, found: dict[str, Found]) -> None:
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
        why="rows of calls that sleep dilute a cost: each says what 0.2 ms a call would read. And the clients differ "
        "in more than the framework: one parses with the SDK, the other reads raw JSON in threads",
        value=at_zero,
        contended=contended,
    )
    check_arithmetic(bench)
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


def check_per_call(bench: Bench, cases: Sequence[Case], found: dict[str, Found]) -> None:
    """Whether what a call takes beyond its sleep is a cost of the call: then it would not depend on the sleep."""
    beyond = {
        case.calls[0][0].arguments["delay_ms"]: over_the_sleep(case, found[case.key])
        for case in cases
        if case.one_by_one
    }
    beyond = dict(sorted(beyond.items()))
    least, most = min(beyond.values()), max(beyond.values())
    judge(
        bench,
        "001-10",
        "a call costs the same beyond its sleep, however long it sleeps",
        least > 0 and most / least <= CONSTANT,
        documented="5.03 ms at 50 ms, 5.12 ms at 200 ms, by division",
        measured=", ".join(f"{ms:.2f} ms at {delay_ms:g} ms" for delay_ms, ms in beyond.items()),
        tolerance=f"largest / smallest at most {CONSTANT:g}, median calls",
        why=f"only the figure of calls that do not sleep is a cost; what longer calls take on top is both sides waking "
        f"up after they have slept. {found['S1 0'].why}",
        value=most / least if least > 0 else None,
        contended=any(found[case.key].contended for case in cases if case.one_by_one),
    )


def check_arithmetic(bench: Bench) -> None:
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
