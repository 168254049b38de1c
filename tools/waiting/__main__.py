"""`make waiting`: what clients measured that they waited, beside what the report says that they waited.

Fills docs/compatibility.md.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mcp_probe.report.figures import duration
from tools.compatibility import table, write
from tools.field.__main__ import drive, read_report
from tools.field.client import Client, Exchange, Silent
from tools.field.servers import Row, Setting
from tools.interpreters import ROOT
from tools.waiting.shapes import SDKS, TRANSPORTS, Cell, cells

KEPT = ROOT / ".cache" / "waiting"
REST_S = 0.3
"""What a server still writes behind its last answer, such as the end of a chunked body."""
SAID = re.compile(r"clients waited ([^\n]*?) in all")


@dataclass(frozen=True, slots=True)
class Measured:
    """Milliseconds. ``by_tool``: (clients, report) of each operation that clients asked for."""

    clients_ms: float
    report_ms: float
    tag: str
    printed: str
    by_tool: dict[str, tuple[float, float]]
    calls: dict[str, int]
    sdk: str

    @property
    def share(self) -> float:
        return self.report_ms / self.clients_ms

    @property
    def agrees(self) -> bool:
        """Whether the printed sum is the one of the JSON."""
        return self.printed.lstrip("≥≤~<>=") == duration(self.report_ms)

    @property
    def later_share(self) -> float:
        """The same without the client's first request, for which a server on stdio starts."""
        first = self.by_tool.get("initialize", (0.0, 0.0))
        return (self.report_ms - first[1]) / (self.clients_ms - first[0])


def measure(cell: Cell, environments: Path = ROOT / ".envs", kept: Path = KEPT) -> Measured:
    """Run the server of ``cell`` under `mcp-probe run`, ask it, and read the report.

    Raises:
        Silent: The server cannot be asked here; the message says why.
    """

    def converse(client: Client, row: Row, setting: Setting) -> None:
        cell.shape.converse(client, setting)
        time.sleep(REST_S)

    folder = kept / cell.name.replace(" ", "-")
    client, _ = drive(cell.row, environments, folder, converse)
    failures = {f"{one.operation}: {one.failure[:200]}" for one in client.exchanges if one.failure}
    if failures:
        raise Silent(f"calls fail: {'; '.join(sorted(failures))}")
    said = SAID.search((folder / "stderr").read_text("utf-8", "replace"))
    return compared(client.exchanges, read_report(folder / "report.json"), "" if said is None else said[1])


def compared(exchanges: list[Exchange], report: dict[str, Any], printed: str) -> Measured:
    """What clients measured beside the report's JSON and the sum that it ``printed``."""
    waited: defaultdict[str, float] = defaultdict(float)
    calls: defaultdict[str, int] = defaultdict(int)
    for one in exchanges:
        waited[one.operation] += one.ms
        calls[one.operation] += 1
    rows = {row["name"] or row["method"]: row for row in report["operations"] if row["kind"] == "request"}
    by_tool = {name: (ms, rows[name]["all_calls_ms"] if name in rows else 0.0) for name, ms in waited.items()}
    server = report["server"]
    return Measured(
        clients_ms=sum(waited.values()),
        report_ms=report["clients_waited_ms"] or 0.0,
        tag=report["clients_waited_quality"]["tag"],
        printed=printed,
        by_tool=by_tool,
        calls=dict(calls),
        sdk=f"{server['sdk']} {server['sdk_version']}",
    )


ABOUT = """\
Each cell is one server under `mcp-probe run`. First what its client measured that it waited for all requests together,
then what the report says that clients waited, the share, and the share without the client's first request, for which a
server on stdio starts. The client is `tools/field/client.py`, which has its own
process and clock, and stamps each event of a stream. A request begins as its first byte is written, and ends as its
answer is in the client's pipe or socket. The report's sum is of lower bounds, so a share above 100 % is a fault,
but for the time in which a server's thread that has written an answer waits to note it.

These are not in the report yet: the start of a server on stdio, and requests to other routes of an HTTP app
(*others behind a block*).""".splitlines()


def section(found: dict[tuple[str, str, str], Measured], absent: dict[str, str]) -> list[str]:
    heads = ["server", *(f"{sdk}, {transport}" for sdk in SDKS for transport in TRANSPORTS)]
    shapes = dict.fromkeys(shape for shape, _, _ in found)
    rows = [
        [shape, *(_figure(found.get((shape, sdk, transport))) for sdk in SDKS for transport in TRANSPORTS)]
        for shape in shapes
    ]
    lines = [*ABOUT, "", *table(heads, rows)]
    return [*lines, "", "Not run here:", "", *table(["server", "reason"], absent.items())] if absent else lines


def _figure(found: Measured | None) -> str:
    if found is None:
        return "–"
    return f"{duration(found.clients_ms)} / {found.printed}: {found.share:.0%}, {found.later_share:.0%}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.waiting", description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="run only cells whose name contains this; the page is left alone")
    chosen = parser.parse_args()
    found: dict[tuple[str, str, str], Measured] = {}
    absent: dict[str, str] = {}
    disagree = []
    for cell in cells():
        if chosen.only not in cell.name:
            continue
        began = time.monotonic()
        try:
            one = measure(cell)
        except Silent as reason:
            absent[cell.name] = str(reason)
            print(f"{cell.name:48} not run: {reason}", flush=True)
            continue
        sdk = "mcp 2.3" if one.sdk.removeprefix("fast").startswith("mcp 2") else "mcp 1.30"
        found[cell.shape.name, cell.row.package if cell.row.package in SDKS else sdk, cell.row.transport] = one
        if not one.agrees:
            disagree.append(cell.name)
        print(f"{cell.name:48} {time.monotonic() - began:4.0f} s  {_figure(one)}  {one.tag} {one.sdk}", flush=True)
    if not chosen.only:
        write("waiting", section(found, absent))
    for name in disagree:
        print(f"{name}: the report's first line and its JSON disagree", file=sys.stderr)
    return int(bool(disagree))


if __name__ == "__main__":
    sys.exit(main())
