"""The command line of ``mcp-probe report``."""

from __future__ import annotations

import argparse
from pathlib import Path

from mcp_probe.arguments import Declared, add_fail_on, add_slow_step, file, seconds


def _add_report(report: argparse.ArgumentParser) -> None:
    report.add_argument("files", metavar="FILE", nargs="+", type=Path, help="recordings; each has a report of its own")
    report.add_argument("--json", metavar="FILE", help="write the summary to FILE as JSON, too; `-` = print only that")
    report.add_argument("--trace", metavar="FILE", type=file, help="write a trace for Perfetto to FILE, too")
    report.add_argument("--speedscope", metavar="FILE", type=file, help="write a profile for speedscope to FILE, too")
    report.add_argument(
        "--from", dest="since", metavar="S", type=seconds(0), help="the trace begins S seconds after the recording"
    )
    report.add_argument("--to", dest="until", metavar="S", type=seconds(0), help="and ends S seconds after its start")
    report.add_argument("--html", metavar="FILE", type=file, help="write one page of all to FILE instead of printing")
    add_fail_on(report, "exit with 1 if one of these findings is raised, or if nothing was measured")
    add_slow_step(report)


REPORT = Declared(
    help="print the report of a recording",
    description="Prints the report of a recording made by `mcp-probe run --record FILE`.",
    options=_add_report,
)
