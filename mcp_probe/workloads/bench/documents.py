"""Results arranged as a reader of the documents looks for them: document by document, table by table."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mcp_probe.report.figures import plural
from mcp_probe.workloads.bench import figures
from mcp_probe.workloads.bench.registry import GROUPS
from mcp_probe.workloads.bench.shapes import VERDICTS, Check, Results, Row, Verdict

CONDITIONS = "conditions"


@dataclass(frozen=True, slots=True)
class DocumentPage:
    """What a run says about one document."""

    number: str
    title: str
    tables: dict[str, list[Row]]  # conditions last
    checks: tuple[Check, ...]
    notes: tuple[str, ...]  # of the workloads that have to do with it, each once


def by_table(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Rows of one table together, tables in the order in which they came; conditions last."""
    tables: dict[str, list[Row]] = {}
    for row in sorted(rows, key=lambda row: row.table.endswith(CONDITIONS)):
        tables.setdefault(row.table, []).append(row)
    return tables


def by_document(results: Results) -> list[DocumentPage]:
    """One page per document that a row or a claim speaks of, in the order of their numbers."""
    rows = [row for result in results.results for row in result.outcome.rows]
    checks = [check for result in results.results for check in result.outcome.checks]
    numbers = sorted({row.table[:3] for row in rows} | {check.claim[:3] for check in checks})
    pages = []
    for number in numbers:
        notes = [
            f"{result.name}: {note}"
            for result in results.results
            if number in result.documents
            for note in (*result.outcome.missing, *result.outcome.notes, *_incomplete(result.error))
        ]
        pages.append(
            DocumentPage(
                number,
                GROUPS.get(number, "rows of no document"),
                by_table([row for row in rows if row.table[:3] == number]),
                tuple(
                    sorted(
                        (check for check in checks if check.claim[:3] == number), key=lambda check: _order(check.claim)
                    )
                ),
                tuple(dict.fromkeys(notes)),
            )
        )
    return pages


def verdicts_of(checks: Iterable[Check]) -> Counter[Verdict]:
    """How many claims came out how. Twins of one claim count once: the document's own library, or the first."""
    first: dict[str, Check] = {}
    for check in checks:
        name, _, twin = check.claim.partition(" (")
        if name not in first or not twin:
            first[name] = check
    return Counter(check.verdict for check in first.values())


def claims_told(checks: Iterable[Check]) -> str:
    """``3 claims: 2 hold, 1 cannot be told here.``"""
    counts = verdicts_of(checks)
    told = ", ".join(
        f"{counts[verdict]} {figures.counted(verdict, counts[verdict])}" for verdict in VERDICTS if counts[verdict]
    )
    return f"{plural(counts.total(), 'claim')}: {told}."


def _incomplete(error: str | None) -> tuple[str, ...]:
    return () if error is None else (f"not complete: {error}.",)


def _order(claim: str) -> tuple[int, str]:
    """``004-1a`` after ``004-1`` and before ``004-10``."""
    rest = claim[4:]
    digits = re.match(r"\d+", rest)
    return (int(digits[0]) if digits else 1000, rest)
