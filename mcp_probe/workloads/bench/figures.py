"""Numbers of rows as a reader sees them, on the console, in HTML and in the docs."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from math import floor, isfinite, log10
from typing import TypeVar

from mcp_probe.workloads.bench.shapes import Little, Row, Stats, Verdict

T = TypeVar("T", bound=Hashable)

UNKNOWN = "–"


def number(value: float | None, digits: int = 3) -> str:
    """Three significant digits (four where the first is 1), thousands separated, no exponent."""
    if value is None or not isfinite(value):
        return UNKNOWN
    if value == 0:
        return "0"
    if value == round(value) and abs(value) < 1e12:
        return f"{value:,.0f}"
    first = abs(value) / 10 ** floor(log10(abs(value)))
    places = digits - 1 - floor(log10(abs(value))) + (first < 2)
    return f"{round(value, places):,.{max(0, min(places, 6))}f}"


def with_unit(value: float | None, unit: str) -> str:
    """``521 ms``, ``19.6×``, ``41 %``."""
    if value is None or not isfinite(value):
        return UNKNOWN
    return _joined(number(value), unit)


def _joined(text: str, unit: str) -> str:
    if unit in ("×", "x"):
        return text + unit
    return f"{text}/s" if unit == "1/s" else f"{text} {unit}".rstrip()


def documented(row: Row) -> str:
    """As the document prints it, without digits of ours."""
    return "" if row.documented is None else _joined(_as_printed(row.documented, row.unit), row.unit)


def _as_printed(value: float, unit: str) -> str:
    if unit == "×" and value >= 1:
        return f"{value:,.2f}".rstrip("0").rstrip(".")
    return f"{value:,.0f}" if value == round(value) else f"{value:,.6g}"


def measured(row: Row) -> str:
    """The median, or the number."""
    return with_unit(row.figure, row.unit)


def is_marked(row: Row) -> bool:
    """Whether it has a figure, and others used the machine meanwhile."""
    return row.is_contended and row.figure is not None


def spread(row: Row) -> str:
    """Half the 95 % interval of the mean, in percent of it."""
    found = row.measured
    if not isinstance(found, Stats) or found.ci_high is None or not found.mean:
        return ""
    share = 100 * abs((found.ci_high - found.mean) / found.mean)
    return f"±{number(share, 2)}%" if share < 1000 else "±>999%"


def tail(row: Row) -> str:
    """P95."""
    return number(row.measured.p95) if isinstance(row.measured, Stats) and row.measured.n > 1 else ""


def times(ratio: float | None) -> str:
    """``1.02×``, ``19.6×``, ``0.041×``; empty for none."""
    if ratio is None:
        return ""
    return f"{number(ratio)}×" if ratio < 0.1 or ratio >= 99.95 else f"{ratio:.{2 if ratio < 9.995 else 1}f}×"


def share(part: float, whole: float) -> str:
    """``65 %`` of a whole of the same run; empty where the part does not fit into it, so that it is none of it."""
    return f"{100 * part / whole:.0f} %" if 0 <= part <= whole and whole > 0 else ""


def little(found: Little | None) -> str:
    """``19.6 of 20``."""
    return "" if found is None else f"{number(found.mean_in_flight)} of {number(found.asked)}"


def statistics(row: Row) -> str:
    """All of a row's statistics in one line; empty for a bare number."""
    found = row.measured
    if not isinstance(found, Stats):
        return ""
    parts = [f"n {found.n}", f"mean {number(found.mean)}"]
    if found.sd is not None:
        parts.append(f"sd {number(found.sd)}")
        parts.append(f"95 % CI {number(found.ci_low)}–{number(found.ci_high)}")
    parts += [f"P99 {number(found.p99)}", f"min {number(found.min)}", f"max {number(found.max)}"]
    if found.first is not None:
        parts.append(f"first round {number(found.first)}")
    if found.foreign_cores is not None:
        parts.append(f"others used {found.foreign_cores:.2f} cores")
    if found.reruns:
        parts.append(f"run again {found.reruns}×")
    return " · ".join(parts)


def expected(row: Row) -> str:
    """What to expect at the size that ran, where it is not the document's."""
    if row.documented is None or row.scale == 1.0:
        return ""
    return f"at this size the document's figure is {with_unit(row.documented * row.scale, row.unit)}"


def placed(rows: Sequence[Row], told: Sequence[T]) -> tuple[dict[int, T], list[tuple[str, T]]]:
    """Where what is said of each row goes, so that nothing is said twice in a table; what is empty goes nowhere.

    First, by place, what stands under a row: it and the rows right above that share it. Second, with the names of
    its rows, what rows apart from each other share: it stands below the table.
    """
    ends: dict[T, list[int]] = {}
    for place, text in enumerate(told):
        if text and (place + 1 == len(told) or told[place + 1] != text):
            ends.setdefault(text, []).append(place)
    under = {places[0]: text for text, places in ends.items() if len(places) == 1}
    below = [
        (listed([row.label for row, own in zip(rows, told, strict=True) if own == text]), text)
        for text, places in ends.items()
        if len(places) > 1
    ]
    return under, below


def listed(labels: Sequence[str]) -> str:
    """The names of up to three rows, or of the first and the last."""
    return "; ".join(labels) if len(labels) <= 3 else f"{labels[0]} … {labels[-1]}"


def sentence(text: str) -> str:
    """With a capital letter, unless it begins with a name such as ``gc.collect``, and with a full stop."""
    first = text.split(" ", 1)[0]
    capital = text[:1].upper() if first.strip(",;:").isalpha() else text[:1]
    return capital + text[1:] + ("" if not text or text.endswith((".", "?", "!")) else ".")


def counted(verdict: Verdict, count: int) -> str:
    """A verdict after how many there are: "1 holds", "3 hold"."""
    return verdict if count == 1 else {"holds": "hold", "does not hold": "do not hold"}.get(verdict, verdict)
