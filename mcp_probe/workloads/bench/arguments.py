"""The arguments of ``mcp-probe bench``; loads nothing but argparse."""

from __future__ import annotations

import argparse
from pathlib import Path

from mcp_probe.arguments import Declared
from mcp_probe.workloads.load.arguments import add_target

_EXAMPLES = """\
examples:
  mcp-probe bench --list                              the workloads and their documents
  mcp-probe bench waves fanout --quick                two of them, small
  mcp-probe bench --document 001 --html report.html   all that a document says, with its charts
  mcp-probe bench --all --json now.json               everything (some 15 minutes; --quick: two)
  mcp-probe compare before.json now.json              what changed, and whether it is more than noise
  mcp-probe bench --quick --server 'python server.py'                         a server of your own
  mcp-probe bench --quick --server 'python server.py' --call 'search={"query": "tea"}'

Workloads start servers and processes of their own on this machine and nothing else; no network is used.
Ctrl-C ends a run early and keeps what is done.
"""


def _add_bench(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", metavar="NAME", nargs="*", help="workloads to run; `--list` names them")
    parser.add_argument("--list", action="store_true", help="say which workloads there are, and run none")
    parser.add_argument(
        "--document", metavar="NUMBER", action="append", default=[], help="every workload of this document, 000 … 004"
    )
    parser.add_argument("--all", action="store_true", help="every workload")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="small sizes, for a look")
    size.add_argument("--full", action="store_true", help="the documents' own sizes (default)")
    parser.add_argument(
        "--python",
        metavar="PATH",
        action="append",
        type=Path,
        default=[],
        help="an interpreter that has mcp, for the workload `pythons`; repeatable",
    )
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the results to FILE, for `mcp-probe compare`")
    parser.add_argument("--html", metavar="FILE", type=Path, help="write one page with every table and chart to FILE")
    parser.add_argument("--plots", metavar="FOLDER", type=Path, help="write the charts to FOLDER as SVG and PNG")
    parser.add_argument("--details", action="store_true", help="all statistics of every row")
    _add_own(parser)


def _add_own(parser: argparse.ArgumentParser) -> None:
    own = parser.add_argument_group(
        "the same comparisons on a server of your own",
        "Tools are called with arguments that their schemas propose: those that the server declares read-only at once, "
        "the others only if you say so. With both --server and --url, the two transports are compared as well.",
    )
    own.add_argument(
        "--call",
        metavar="TOOL='{…}'",
        action="append",
        default=[],
        help="call this tool, too, with these arguments; the first one is what everything is measured with",
    )
    own.add_argument("--yes", action="store_true", help="call every tool for which arguments can be proposed")
    own.add_argument("--tool", metavar="NAME", help="call this tool and no other, thousands of times")
    own.add_argument("--arguments", metavar="JSON", help="its arguments, an object")
    own.add_argument(
        "--no-probe", action="store_true", help="do not run --server under the probe: no reasons are given"
    )
    add_target(own)


BENCH = Declared(
    help="reproduce published comparisons, with the reasons",
    description="Runs bundled workloads, each of which reproduces tables of a published document, and prints "
    "every figure beside the documented one, with what the probe saw.",
    options=_add_bench,
    examples=_EXAMPLES,
)
