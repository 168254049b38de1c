"""Literal results for the tests of what is made from them."""

from __future__ import annotations

from typing import Any

from mcp_probe.workloads.bench.shapes import Check, Little, Outcome, Result, Results, Row, Stats

MACHINE = {
    "python": "3.13.0",
    "implementation": "CPython",
    "cpu": "a processor",
    "cores": 2,
    "system": "Linux 6.1",
    "load_average_1min": 0.1,
    "packages": {"mcp": "2.3.0", "httpx": None},
    "commit": "abc1234",
    "date": "2026-01-01",
}


def stats(median: float, **given: Any) -> Stats:
    """Ten rounds that differ by a tenth."""
    values: dict[str, Any] = {
        "n": 10,
        "median": median,
        "mean": median,
        "p95": median * 1.1,
        "p99": median * 1.1,
        "sd": median * 0.05,
        "ci_low": median * 0.96,
        "ci_high": median * 1.04,
        "min": median * 0.9,
        "max": median * 1.1,
        "first": median * 1.5,
        "foreign_cores": 0.02,
    }
    return Stats(**{**values, **given})


def row(label: str = "20 calls", measured: Stats | float | None = 265.0, **given: Any) -> Row:
    """A line of a table that the document has a figure for."""
    values: dict[str, Any] = {"table": "001 §4", "unit": "ms", "documented": 521.0, "scale": 0.5, "x": 20}
    return Row(label=label, measured=measured, **{**values, **given})


def check(claim: str = "001-3", **given: Any) -> Check:
    values: dict[str, Any] = {
        "sentence": "a pool of 4 works in ceil(N/4) waves",
        "documented": "208 / 313 / 521 ms",
        "measured": "1.98 / 2.99 / 5.01 waves",
        "tolerance": "round(t(N)/t(4)) = ceil(N/4)",
        "verdict": "holds",
        "why": "The pool never ran more than 4.",
    }
    return Check(claim=claim, **{**values, **given})


def result(*rows: Row, checks: tuple[Check, ...] = (), name: str = "waves", **given: Any) -> Result:
    """One workload's."""
    outcome = Outcome(rows, checks, given.pop("notes", ()), given.pop("missing", ()))
    values: dict[str, Any] = {"documents": ("001",), "about": "waves at a pool", "seconds": 1.5}
    return Result(name=name, outcome=outcome, **{**values, **given})


def results(*found: Result, **machine: Any) -> Results:
    return Results({**MACHINE, **machine}, "quick", found)


def full() -> Results:
    """One of everything."""
    little = Little(18.4, 20.0)
    waves = [
        row(f"{count} calls", stats(value), documented=told, x=count, series="pool of 4", floor=1.02, little=little)
        for count, told, value in ((5, 208.0, 105.0), (10, 313.0, 158.0), (20, 521.0, 265.0))
    ]
    ratio = row("10 calls, ratio", 9.8, unit="×", documented=9.8, scale=1.0, metric="ratio", floor=1.03)
    hidden = row("39 calls", 121.0, table="001 conditions", documented=None, why="`nap` held all threads.")
    absent = row("over HTTP/2", None, documented=110.0, scale=1.0, note="httpx is not installed", x=None)
    return results(
        result(
            *waves,
            ratio,
            hidden,
            absent,
            checks=(check(), check("001-4", verdict="does not hold", contended=True)),
            notes=("Delays are halved.",),
            missing=("httpx is not installed: HTTP/2",),
        )
    )
