"""`make field`: real servers from PyPI, unmodified, under `mcp-probe run`: the report beside what a client saw.

Each row of the table is one server on one transport. Calls that occupy the server are under way while quick calls and
pings come in. What could not be run is listed with the reason. Fills docs/compatibility.md.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.ports import free_port
from tools.compatibility import table, write
from tools.field.client import Client, Http, Silent, Sse, Stateless, Stdio
from tools.field.judge import ALONE, HOLDING, PING, QUICK, QUIET, Judgement, judge
from tools.field.servers import ROWS, Ask, Row, Setting
from tools.field.witness import Witness
from tools.interpreters import ROOT

KEPT = ROOT / ".cache" / "field"
ROUNDS = 5
ALONE_CALLS = 2
QUIET_CALLS = 20
QUICK_CALLS = 12
HEAD_START_S = 0.03
HELD_S = 0.4
"""For this long a round holds the loop of a server that blocks: while all quick calls come in, on any machine. What a
client waits on a loop that is held for less is mostly the hops of pipes and threads, and the quick calls' own time."""
MOST_HOLDING = 16


@dataclass(frozen=True, slots=True)
class Outcome:
    row: Row
    judgement: Judgement | None = None
    absent: str = ""
    seconds: float = 0.0


def run(row: Row) -> Outcome:
    began = time.monotonic()
    try:
        return Outcome(row, measure(row), seconds=time.monotonic() - began)
    except Silent as reason:
        return Outcome(row, absent=str(reason), seconds=time.monotonic() - began)


def measure(row: Row) -> Judgement:
    """Starts the server, asks it, ends it, and reads the report.

    Raises:
        Silent: The server cannot be asked here; the message says why.
    """
    kept = KEPT / row.name.replace(" ", "-")
    client, witness = drive(row, ROOT / ".envs", kept, converse)
    failures = {f"{one.operation}: {one.failure[:200]}" for one in client.exchanges if one.failure}
    if failures:
        raise Silent(f"calls fail: {'; '.join(sorted(failures))}")
    return judge(client.exchanges, read_report(kept / "report.json"), blocks=row.blocks, held_ms=witness.held_ms)


def drive(
    row: Row, environments: Path, kept: Path, converse: Callable[[Client, Row, Setting], None]
) -> tuple[Client, Witness]:
    """Runs the server under `mcp-probe run` while ``converse`` asks it; report, recording and stderr go to ``kept``.

    Raises:
        Silent: The server cannot be asked here; the message says why.
    """
    program = environments / row.lock / "bin" / row.program
    if not program.exists():
        raise Silent(f"{row.lock} is not installed: `make field` does it")
    shutil.rmtree(kept, ignore_errors=True)
    kept.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        port = free_port()
        with row.set_up(row.transport, port, folder) as setting, (kept / "stderr").open("wb") as stderr:
            probe: list[str | Path] = [
                sys.executable,
                "-m",
                "mcp_probe",
                "run",
                "--json",
                kept / "report.json",
                "--record",
                kept / "recording",
            ]
            process = subprocess.Popen(
                [*probe, "--", program, *setting.arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE if row.transport == "stdio" else stderr,
                stderr=stderr,
                cwd=folder,
                env=environment(setting, folder),
            )
            try:
                client = connect(process, row, port, setting)
                client.start()
                with Witness(process.pid) as witness:
                    converse(client, row, setting)
                client.end()
            finally:
                if process.poll() is None:
                    process.terminate()
                    process.wait(30)
    (kept / "exchanges.json").write_text(json.dumps([asdict(one) for one in client.exchanges], indent=0), "utf-8")
    return client, witness


def environment(setting: Setting, folder: Path) -> dict[str, str]:
    """As a user's shell would have it; nothing on PYTHONPATH that the server could find mcp_probe through."""
    dropped = ("PYTHON", "MCP_PROBE", "OTEL_", "CELL_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    nowhere = {"NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1", "HOME": str(folder), "NO_COLOR": "1"}
    return {**kept, **nowhere, "PYTHONPATH": "", **setting.environment}


def connect(process: subprocess.Popen[bytes], row: Row, port: int, setting: Setting) -> Client:
    if row.transport == "stdio":
        return Stdio(process)
    over_http = {"HTTP": Http, "stateless HTTP": Stateless, "SSE": Sse}[row.transport]
    return over_http(process, port, setting.path, setting.headers)


def converse(client: Client, row: Row, setting: Setting) -> None:
    """First one call at a time on the idle server, then rounds in which holding calls are under way."""

    def ask(what: Ask, label: str) -> Any:
        return client.call(what.tool, what.arguments, label=label)

    client.wait([client.request("tools/list")])
    client.wait([ask(setting.quick, "first")])
    client.wait([ask(setting.holding, "first")])
    for _ in range(ALONE_CALLS):
        client.wait([alone := ask(setting.holding, ALONE)])
    times = min(MOST_HOLDING, math.ceil(HELD_S * 1e3 / alone.ms)) if row.blocks else 1
    for number in range(QUIET_CALLS):
        client.wait([ask(setting.quick, QUIET)])
        if number % 2:
            client.wait([client.request("ping", label=QUIET)])
    for _ in range(ROUNDS):
        asked = [ask(setting.holding, HOLDING) for _ in range(times)]
        time.sleep(HEAD_START_S)
        for number in range(QUICK_CALLS):
            asked.append(ask(setting.quick, QUICK))
            if number % 3 == 0:
                asked.append(client.request("ping", label=PING))
            time.sleep(row.every_s)
        client.wait(asked)
        time.sleep(0.05)
    time.sleep(0.5)  # what a server still writes belongs to the last round


def read_report(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as fault:
        raise Silent(f"no report: {fault}") from None
    return found


ABOUT = """\
Each row is a server that nobody here wrote, installed from PyPI and run unmodified under `mcp-probe run`. The client is
`tools/field/client.py`: JSON-RPC by hand in a process of its own with its own clock, and without the SDK. Quick calls
and pings are sent while a call that takes long is under way, after some on the idle server. Their p50 and p95 are
*the client's* / *the report's*, in milliseconds; two figures with a dash are the report's bounds. The client's time
ends when the answer is in its pipe or socket, whenever it then gets a CPU to read it.

*Wait* is what these calls and pings took beyond the median of the same on the idle server, in seconds over all.
*Blamed* is what `blocked_by` says, at least, that they waited for: other calls, the loop itself, many
small steps. A server that blocks is asked for as many holding calls at once as hold its loop for 0.4 s.
`tools/field/witness.py` looks from outside, each 2 ms, whether the loop's thread is in its poll. Nobody can be to blame
for more than the time in which it was not, however long a backend takes.

A row has a fault where

- a percentile is more than 10 % (or 3 ms) off the client's, or its bounds do not hold it, or lie further apart than
  20 ms or 10 %,
- a call was sent and not counted, or counted and not sent,
- less than 90 % of the wait for a blocked loop is blamed, or more than 110 %,
- more is blamed than 110 % of the time in which the loop was seen outside its poll.""".splitlines()
HEADS = [
    "server",
    "SDK",
    "transport",
    "works on",
    "calls, p50",
    "calls, p95",
    "pings, p50",
    "pings, p95",
    "wait",
    "blamed",
    "sent = counted",
    "verdict",
    "faults",
]


def cells(outcome: Outcome) -> list[object]:
    row, found = outcome.row, outcome.judgement
    assert found is not None
    figures = [f"{one.client:.0f} / {one}" for one in found.percentiles.values()]
    blamed = f"{found.blamed_low / 1e3:.1f}"
    if row.blocks and found.waited:
        blamed += f" ({found.blamed_low / found.waited:.0%})"
    same = sum(found.sent.values()) if found.sent == found.counted else "**no**"
    verdict = found.verdict.partition(":")[0]
    return [
        row.package,
        found.sdk,
        row.transport,
        row.backend,
        *figures,
        f"{found.waited / 1e3:.1f}",
        blamed,
        same,
        verdict,
        len(found.faults) or "none",
    ]


def _priority() -> str:
    """How the run was kept apart from what else this machine did; it passes on to servers and clients."""
    real_time = hasattr(os, "sched_getscheduler") and os.sched_getscheduler(0) in (os.SCHED_RR, os.SCHED_FIFO)
    return ", at real-time priority (`chrt -r 5 make field`): the machine had other work" if real_time else ""


def section(outcomes: list[Outcome]) -> list[str]:
    ran = [one for one in outcomes if one.judgement]
    clean = [one for one in ran if one.judgement and not one.judgement.faults]
    lines = [
        f"{len(ran)} rows ran, {len(clean)} of them without a fault{_priority()}.",
        "",
        *ABOUT,
        "",
        *table(HEADS, map(cells, ran)),
    ]
    faults = [(one.row.name, fault) for one in ran if one.judgement for fault in one.judgement.faults]
    if faults:
        lines += ["", "What was found wrong:", "", *table(["row", "fault"], faults)]
    absent = [(one.row.name, one.absent) for one in outcomes if one.absent]
    return [*lines, "", "Not run here:", "", *table(["row", "reason"], absent)] if absent else lines


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.field", description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="run only rows whose name contains this; the page is left alone")
    chosen = parser.parse_args()
    outcomes = []
    for row in ROWS:
        if chosen.only not in row.name:
            continue
        outcomes.append(one := run(row))
        print(f"{row.name:60} {one.seconds:4.0f} s  {told(one)}", flush=True)
    if not chosen.only:
        write("field", section(outcomes))
    return int(any(one.judgement and one.judgement.faults for one in outcomes))


def told(outcome: Outcome) -> str:
    found = outcome.judgement
    if found is None:
        return f"not run: {outcome.absent}"
    figures = ", ".join(f"{name} {one.client:.0f} / {one}" for (_, name), one in found.percentiles.items())
    share = found.blamed_low / found.waited if found.waited else 0.0
    blamed = f"blamed {found.blamed_low:.0f}–{found.blamed_high:.0f} ({share:.0%})"
    held = "?" if found.held is None else f"{found.held:.0f}"
    head = f"{found.sdk}; {figures}; waited {found.waited:.0f}, held {held}, {blamed}"
    return "\n      ".join([head, found.verdict, *(f"FAULT {fault}" for fault in found.faults)])


if __name__ == "__main__":
    sys.exit(main())
