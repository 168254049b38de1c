"""The rows and the claims of document 001, section 2.2 and scenario S1."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, median

from mcp_probe.workloads.bench.context import Bench
from mcp_probe.workloads.scenarios.documents import doc001 as doc
from mcp_probe.workloads.scenarios.overhead_found import Case, Found
from mcp_probe.workloads.scenarios.tables import Table, judge

INJECTED_US = 200.0
CONSTANT = 1.3
UNEQUAL = "its calls are of unequal length"
FULL_ONLY = "full runs only"


# --- rows ---


def documented_rows(bench: Bench, cases: Sequence[Case], found: dict[str, Found]) -> None:
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
            name = "direct" if label == "direct" else "facade"
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


def probe_rows(bench: Bench, cases: Sequence[Case], found: dict[str, Found]) -> None:
    """What this probe adds to the same rows, and to the rows that the document left out."""
    table = Table(bench, "001 conditions", metric="overhead")
    for case in cases:
        measured = found[case.key]
        floor, contended = measured.floor, measured.contended
        for label, name in (("probe", "the probe"), ("facade", "the facade")):
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


def over_the_sleep(case: Case, found: Found) -> float:
    """Milliseconds that a call takes beyond its delay."""
    delay_ms = float(case.calls[0][0].arguments["delay_ms"])
    return median(found.bursts["direct"].latency_ms) - delay_ms


def per_call_rows(bench: Bench, cases: Sequence[Case], found: dict[str, Found]) -> None:
    """S1: what is left of a call after its sleep; the document's 5 ms follow from its two printed rows."""
    table = Table(bench, "001 S1", series="direct", metric="over the sleep")
    serial = {case.key: case for case in cases if case.one_by_one}
    for delay_ms in doc.S1_DELAYS_MS:
        key = f"S1 {delay_ms}"
        known = doc.OVERHEAD.get(key)
        documented = None if known is None else round(known.direct_ms / doc.S1_CALLS - delay_ms, 2)
        case = serial.get(key)
        value = None if case is None else over_the_sleep(case, found[key])
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


def injected_rows(bench: Bench, injected: dict[str, tuple[float, float]]) -> None:
    table = Table(bench, "001 conditions", metric="overhead", series="injected")
    for key, (percent, base_ms) in injected.items():
        table.put(
            f"{INJECTED_US / 1e3:g} ms put into each call, in {key}",
            "%",
            percent,
            x=key,
            note=f"of {base_ms:.2f} ms",
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
