"""`python -m tools.field.awaits [WORD …]`: how much of what real servers await has a name: rows of docs/awaits.md.

Runs the rows of `make field` whose environment contains one of the words. A server whose tools run on the loop or on
worker threads awaits nothing.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from typing import Any

from tools.field import __main__ as field
from tools.field.servers import ROWS


def row_of(name: str, summary: dict[str, Any]) -> str:
    """Server, SDK, awaiting in ms, the share of it that is named, and the longest names."""
    named: Counter[str] = Counter()
    unnamed_ms = 0.0
    for operation in summary["operations"]:
        unnamed_ms += operation["awaits_unnamed_ms"] or 0.0
        for one in operation["awaits"]:
            if one["stage"] == "awaiting":
                named[f"{one['kind']} {one['object']}"] += one["total_ms"]
    awaiting_ms = named.total() + unnamed_ms
    share = f"{named.total() / awaiting_ms:.1%}" if awaiting_ms >= 1 else "–"
    longest = ", ".join(f"{what} {ms:.0f} ms" for what, ms in named.most_common(2) if ms >= 1)
    return f"| {name} | {summary['server']['sdk_version']} | {awaiting_ms:.0f} ms | {share} | {longest or '–'} |"


def main(words: list[str]) -> None:
    for row in ROWS:
        if words and not any(word in row.lock for word in words):
            continue
        outcome = field.run(row)
        report = field.KEPT / row.name.replace(" ", "-") / "report.json"
        found = row_of(row.name, json.loads(report.read_text("utf-8"))) if report.exists() else outcome.absent
        print(found, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
