"""The report's section of measures."""

from __future__ import annotations

import re

from mcp_probe.aggregate.fold import Fold
from mcp_probe.measures import MEASURES
from mcp_probe.model import Tag
from mcp_probe.report.console import render
from tests.frames import make_end, make_header, make_request

MS = 1_000_000
Row = tuple[str, int | None, Tag]


def shown(*calls: tuple[str, tuple[Row, ...]], width: int = 110) -> str:
    fold = Fold()
    fold.add(make_header())
    for number, (name, rows) in enumerate(calls, 1):
        fold.add(make_request(number, name, measures=rows))
    fold.add(make_end())
    return render(fold.summary(), width=width, color=False, ascii_only=False, whole=True)


def section(text: str) -> str:
    return text.split("Measures", 1)[1].split("Event loop", 1)[0]


def test_a_measure_has_its_rows_its_sentence_and_only_operations_that_have_some() -> None:
    switches: Row = ("context_switches_voluntary", 0, "exact")
    text = section(
        shown(
            ("looks", (("dns_wait", 4 * MS, "exact"), switches)),
            ("looks", (("dns_wait", 40 * MS, "exact"), switches)),
            ("other", (("dns_wait", 0, "exact"), switches)),
        )
    )
    assert re.search(r"looks +DNS +22 ms +40 ms\n", text) and "look-ups of names" in text
    assert "other" not in text and "switches" not in text


def test_nothing_is_said_where_every_call_has_none() -> None:
    assert "Measures" not in shown(("other", (("dns_wait", 0, "exact"),)))


def test_marks_and_missing_figures_are_as_everywhere() -> None:
    text = shown(
        ("looks", (("dns_wait", 12 * MS, "lower"), ("context_switches_voluntary", 0, "exact"))),
        ("switched", (("dns_wait", None, "unavailable"), ("context_switches_voluntary", 7, "exact"))),
    )
    assert "≥12 ms" in section(text)
    assert "DNS of switched (it could not be read of these calls)" in text


def test_no_measure_is_cut_off_in_a_narrow_terminal() -> None:
    rows: list[Row] = [(measure.name, 17 * MS if measure.unit == "ns" else 17, "exact") for measure in MEASURES]
    text = section(shown(("all", tuple(rows)), ("none", (("dns_wait", 0, "exact"),)), width=72))
    for measure in MEASURES:
        value = "17 ms" if measure.unit == "ns" else "17"
        assert re.search(rf"(all| ) +{measure.label} +{value} +{value}\n", text), measure.label
    assert "none" not in text
