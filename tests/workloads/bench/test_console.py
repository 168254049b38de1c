"""Pages as text: what stands where, at every width, and nothing invented."""

from __future__ import annotations

import re

import pytest

from mcp_probe.workloads.bench import figures
from mcp_probe.workloads.bench.console import Look, listing, page
from mcp_probe.workloads.bench.registry import GROUPS, WORKLOADS
from mcp_probe.workloads.bench.shapes import Little, Row
from tests.workloads.bench.made import check, full, result, results, row, stats

PLAIN = Look(width=100, color=False)


def line_of(text: str, label: str) -> str:
    return next(line for line in text.splitlines() if label in line)


def test_a_row_stands_beside_its_document() -> None:
    line = line_of(page(full(), look=PLAIN), "20 calls")
    assert re.findall(r"\S+", line)[2:] == [
        "521",
        "ms",
        "265",
        "ms",
        "±4.0%",
        "292",
        "1.02×",
        "1.02×",
        "18.40",
        "of",
        "20",
    ]


def test_the_documents_figure_is_scaled_to_the_size_that_ran() -> None:
    text = page(full(), look=PLAIN)
    assert "at this size the document's figure is 260.5 ms" in text or "document's figure is 260" in text
    assert row(measured=260.5).ratio == pytest.approx(1.0)


def test_reasons_and_conditions_stand_below_the_last_row_that_shares_them() -> None:
    rows = [row("5 calls", why="The pool."), row("10 calls", why="The pool."), row("20 calls", why="Another.")]
    text = page(results(result(*rows)), look=PLAIN)
    assert text.count("The pool.") == 1
    assert text.index("10 calls") < text.index("The pool.") < text.index("20 calls") < text.index("Another.")


def test_rows_of_one_table_stand_together_and_conditions_last() -> None:
    rows = [
        row("a", table="001 conditions"),
        row("b", table="001 §4"),
        row("c", table="001 §1"),
        row("d", table="001 §4"),
    ]
    text = page(results(result(*rows)), look=PLAIN)
    places = [text.index(f"    {label} ") for label in "bdca"]
    assert places == sorted(places)


def test_a_missing_figure_is_a_dash_with_its_reason() -> None:
    text = page(full(), look=PLAIN)
    assert "–" in line_of(text, "over HTTP/2")
    assert "httpx is not installed" in text


def test_contended_rows_are_marked_and_counted() -> None:
    text = page(results(result(row(measured=stats(5.0, contended=True)), row("calm"))), look=PLAIN)
    assert "5 ms!" in line_of(text, "20 calls")
    assert "!" not in line_of(text, "calm")
    assert "1 of 2 rows are contended" in text


def test_a_row_that_contradicts_itself_is_marked() -> None:
    text = page(results(result(row(little=Little(2.0, 20.0)))), look=PLAIN)
    assert "2 of 20 !" in line_of(text, "20 calls")
    assert "1 row contradicts itself" in text


def test_claims_show_verdict_evidence_and_what_was_asked() -> None:
    text = page(full(), look=PLAIN)
    assert re.search(r"holds +001-3 +a pool of 4", text)
    assert re.search(r"does not hold +001-4", text)
    assert "asked: round(t(N)/t(4)) = ceil(N/4)" in text
    assert "2 claims: 1 holds, 1 does not hold." in text


def test_details_have_every_statistic() -> None:
    told = figures.statistics(row(measured=stats(100.0, reruns=2)))
    for part in ("n 10", "mean 100", "sd 5", "95 % CI 96–104", "P99", "min 90", "max", "first round", "run again 2×"):
        assert part in told
    shown = page(results(result(row(measured=stats(100.0)))), details=True, look=PLAIN)
    assert "95 % CI 96–104" in shown


def test_an_error_is_said_at_its_workload() -> None:
    text = page(results(result(row(), error="took longer than 60 s and was stopped")), look=PLAIN)
    assert "Not complete: took longer than 60 s and was stopped." in text


def test_what_no_document_says_has_no_column_and_no_words() -> None:
    own = row(table="now results", documented=None, x=None)
    text = page(results(result(own, checks=(check("now-1", documented=""),), documents=("now",))), look=PLAIN)
    assert "265 ms" in text
    assert "documented" not in text


@pytest.mark.parametrize("width", [60, 80, 100, 120])
def test_no_line_is_wider_than_asked(width: int) -> None:
    look = Look(width=width, color=False)
    long = row("a label " * 20, measured=stats(1e9), documented=1e9, why="why " * 60, protocol="2026-07-28")
    for text in (
        page(results(result(long), *full().results), details=True, look=look),
        listing(WORKLOADS, GROUPS, look=look),
    ):
        assert max(map(len, text.splitlines())) <= width


def test_the_listing_has_every_workload_and_document() -> None:
    text = listing(WORKLOADS, GROUPS, look=Look(width=120, color=False))
    assert all(workload.name in text and workload.about in text for workload in WORKLOADS)
    assert all(number in text for number in GROUPS)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (None, "–"),
        (1234567, "1,234,567"),
        (0.00883, "0.00883"),
        (19.57, "19.57"),
        (265.4, "265"),
        (5.012, "5.01"),
    ],
)
def test_numbers_have_three_digits_or_four(value: float | None, text: str) -> None:
    assert figures.number(value) == text


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (10255.9, "ms", "10,255.9 ms"),
        (9.785046, "×", "9.79×"),
        (51258766, "bytes", "51,258,766 bytes"),
        (0.245, "ms", "0.245 ms"),
    ],
)
def test_documented_figures_keep_the_digits_they_were_printed_with(value: float, unit: str, text: str) -> None:
    assert figures.documented(Row(table="t", label="l", unit=unit, measured=1.0, documented=value)) == text


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", ""),
        ("calls of 50 ms", "Calls of 50 ms."),
        ("gc.collect is inside.", "gc.collect is inside."),
        ("no reason, yet?", "No reason, yet?"),
    ],
)
def test_notes_become_sentences_and_names_keep_their_letters(text: str, told: str) -> None:
    assert figures.sentence(text) == told
