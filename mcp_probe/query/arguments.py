"""The arguments of ``mcp-probe query``; loads nothing but argparse."""

from __future__ import annotations

import argparse
from pathlib import Path

from mcp_probe.arguments import Declared

FORMS = ("table", "csv", "json")
_EXAMPLES = """\
views: requests, groups, steps, awaits, blocked_by, pools, memory, process (docs/query.md has their columns)

examples:
  mcp-probe query "SELECT operation, count(*), quantile_cont(total_ms, 0.99) FROM requests GROUP BY 1" calls.jsonl
  mcp-probe query "SELECT blocker, sum(lo_ms) AS ms FROM blocked_by GROUP BY 1 ORDER BY 2 DESC" *.jsonl --format csv
  mcp-probe query "DESCRIBE requests" calls.jsonl
"""


def _add_query(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("sql", metavar="SQL", help="one statement, as DuckDB understands it")
    parser.add_argument("files", metavar="FILE", nargs="+", type=Path, help="recordings")
    parser.add_argument("--format", choices=FORMS, default="table", help="how rows are written (default: table)")
    parser.add_argument(
        "--no-cache",
        action="store_true",
        help="make the Parquet files of a recording in the folder for temporary files, and keep none",
    )


QUERY = Declared(
    help="ask recordings in SQL",
    description="Answers a query of DuckDB's SQL over recordings. Their Parquet files are made once and kept "
    "beside them, in FILE.parquet.",
    options=_add_query,
    examples=_EXAMPLES,
)
