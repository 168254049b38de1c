"""The arguments of ``mcp-probe query``; loads nothing but argparse."""

from __future__ import annotations

import argparse
from pathlib import Path

FORMS = ("table", "csv", "json")
EXAMPLES = """\
views: requests, groups, steps, awaits, blocked_by, pools, memory, process (docs/query.md has their columns)

examples:
  mcp-probe query "SELECT operation, count(*), quantile_cont(total_ms, 0.99) FROM requests GROUP BY 1" calls.jsonl
  mcp-probe query "SELECT blocker, sum(lo_ms) AS ms FROM blocked_by GROUP BY 1 ORDER BY 2 DESC" *.jsonl --format csv
  mcp-probe query "DESCRIBE requests" calls.jsonl
"""


def add_query(parser: argparse.ArgumentParser) -> None:
    """Declares what ``mcp-probe query`` takes."""
    parser.add_argument("sql", metavar="SQL", help="one statement, as DuckDB understands it")
    parser.add_argument("files", metavar="FILE", nargs="+", type=Path, help="recordings")
    parser.add_argument("--format", choices=FORMS, default="table", help="how rows are written (default: table)")
    parser.add_argument(
        "--no-cache",
        action="store_true",
        help="make the Parquet files of a recording in the folder for temporary files, and keep none",
    )
