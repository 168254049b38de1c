"""The arguments of ``mcp-probe compare``; loads nothing but argparse until they are parsed."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from mcp_probe.arguments import Declared
from mcp_probe.errors import OptionError

if TYPE_CHECKING:
    from mcp_probe.compare.regression import Limit

_EXAMPLES = """\
examples:
  mcp-probe compare before.jsonl after.jsonl            two recordings
  mcp-probe compare --before a1.jsonl a2.jsonl a3.jsonl --after b1.jsonl b2.jsonl b3.jsonl
  mcp-probe compare main.jsonl branch.jsonl --max-regression 'search.p95=10%,*.requested=20%'
  mcp-probe compare before.json now.json                two results of `mcp-probe bench --json`
"""


def _add_compare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", metavar="FILE", nargs="*", type=Path, help="what was before, and what is now")
    parser.add_argument("--before", metavar="FILE", nargs="+", type=Path, default=[], help="several files of one side")
    parser.add_argument("--after", metavar="FILE", nargs="+", type=Path, default=[], help="and of the other")
    parser.add_argument("--all", action="store_true", dest="every_row", help="rows without a difference, too")
    parser.add_argument("--json", metavar="FILE", help="write the comparison to FILE as JSON, too; `-` = only that")
    parser.add_argument("--html", metavar="FILE", type=Path, help="write one page with every row to FILE, too")
    parser.add_argument(
        "--max-regression",
        metavar="ITEM[,ITEM…]",
        type=_limits,
        default=(),
        help="exit with 1 unless each row is shown to be no worse than this: OPERATION.MEASURE=LIMIT, such as "
        "'search.p95=10%%', 'search.mean=5ms' or '*.p50=10%%'",
    )


def _limits(text: str) -> tuple[Limit, ...]:
    from mcp_probe.compare.regression import parse_limits

    try:
        return parse_limits(text)
    except OptionError as exc:
        raise argparse.ArgumentTypeError(str(exc)) from None


COMPARE = Declared(
    help="say what differs between two runs, and whether it is more than noise",
    description="Compares recordings, JSON reports, or results of `mcp-probe bench --json`: each difference with "
    "an interval, what is noise, which part of the budget moved, and findings that came and went.",
    options=_add_compare,
    usage="mcp-probe compare (BEFORE AFTER | --before FILE ... --after FILE ...) [options]",
    examples=_EXAMPLES,
)
