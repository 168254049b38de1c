"""``python -m tools.findings``: how often each finding is right. Runs the fault matrix and fills docs/findings.md.

Each run is a process of its own, with tools of new names; the first of a cell in a fresh interpreter, the others in a
fork of one that has imported the SDK (1.5 s less). The state file has every run, so that a later call goes on
where this one ends: cells that failed first. Ends with 1 where a cell that was run now was wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, get_args

from benchmarks.machine import describe_machine
from benchmarks.page import filled
from mcp_probe import __version__
from tests.adapters.asgi_client import META
from tests.adapters.raw_clients import HttpClient, RawClient, StdioClient
from tests.adapters.waits.backend import serving
from tests.hogs import hogs
from tests.ports import free_port
from tools.findings.cells import MOST_RUNS, WORKLOADS, Beside, Cell, Load, Sdk, Transport, cells_of
from tools.findings.matrix import Run, State, from_json, is_done, next_of, section, to_json, totals, wrong_of
from tools.findings.warm import Warm
from tools.interpreters import ROOT

PAGE = ROOT / "docs" / "findings.md"
SERVER = Path(__file__).with_name("server.py")
OTHERS_SHARE = 0.25
"""Of a CPU: if other programs took more during a run, it was not alone. A quiet machine's take a twentieth."""
LEAST_S = 1.5
"""A load goes on until then: below a second no statistical check is made."""

_VERBS = ("find", "make", "draw", "send", "read", "sort", "join", "list", "move", "scan")
_NOUNS = ("tickets", "photos", "orders", "pages", "routes", "notes", "tracks", "bills", "maps", "users")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs cells until each has its runs, or the time is over."""
    options = _parser().parse_args(argv)
    state = from_json(json.loads(options.state.read_text("utf-8"))) if options.state.exists() else {}
    wanted = tuple(one for one in WORKLOADS if not options.only or one.name in options.only or one.code in options.only)
    cells = list(cells_of(wanted, options.transports, options.sdks, options.beside))
    until, wrong = time.monotonic() + options.minutes * 60, 0
    with ExitStack() as stack:
        quick = stack.enter_context(serving(first_byte=0.02)).address
        slow = stack.enter_context(serving(first_byte=0.4)).address
        warm = stack.enter_context(_Warmed())
        while time.monotonic() < until and (cell := next_of(cells, state, options.runs)) is not None:
            run = run_cell(cell, quick, slow, warm if state.get(cell.key) else None)
            state.setdefault(cell.key, []).append(run)
            _keep(options.state, state)
            wrong += run.wrong is not None
            print(f"{cell.key}: {run.wrong or 'right'} ({run.seconds:.1f} s)", flush=True)
    right, runs = totals(state)
    left = sum(not is_done(cell, state, options.runs) for cell in cells)
    print(f"{right} of {runs} runs right; {left} of {len(cells)} cells are to be run again.")
    if options.write:
        write_page(state)
    return 1 if wrong else 0


def write_page(state: State) -> None:
    """Put the tables of ``state`` into docs/findings.md."""
    machine = describe_machine()
    about = f"{machine['cores']} CPUs ({machine['cpu']}), Python {machine['python']}, {machine['date']}"
    part = "\n".join(section(state, about))
    PAGE.write_text(filled(PAGE.read_text("utf-8"), {"matrix": part}), "utf-8")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tools.findings", description=__doc__)
    parser.add_argument(
        "--runs", type=int, default=MOST_RUNS, help="of a cell at most: 20 where a clock judges, else 3"
    )
    parser.add_argument("--minutes", type=float, default=30.0, help="no run begins after this (default: 30)")
    parser.add_argument("--state", type=Path, default=ROOT / ".cache" / "findings.json", help="the state file")
    parser.add_argument("--only", nargs="*", default=[], help="codes, or names of workloads")
    parser.add_argument("--transports", type=_several(Transport), default=("stdio", "http"), help="stdio,http")
    parser.add_argument("--sdks", type=_several(Sdk), default=("mcp2", "mcp1"), help="mcp2,mcp1")
    parser.add_argument("--beside", type=_several(Beside), default=("alone", "hog"), help="alone,hog")
    parser.add_argument("--write", action="store_true", help="put the table into docs/findings.md")
    return parser


def _several(of: Any) -> Any:
    def parse(text: str) -> tuple[str, ...]:
        found = tuple(text.split(","))
        if not set(found) <= set(get_args(of)):
            raise argparse.ArgumentTypeError(f"{text!r}: expected some of {', '.join(get_args(of))}.")
        return found

    return parse


def _keep(path: Path, state: State) -> None:
    """All of it or what was there: a run that is killed loses nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f"{path.name}.new")
    beside.write_text(json.dumps(to_json(state, {"probe_version": __version__}), indent=1), "utf-8")
    beside.replace(path)


# --- one run ------------------------------------------------------------------------------------------


class _Warmed(ExitStack):
    """A warm process of each interpreter that was asked for."""

    def __init__(self) -> None:
        super().__init__()
        self._of: dict[str, Warm] = {}

    def of(self, python: str) -> Warm:
        if python not in self._of:
            self._of[python] = self.enter_context(Warm(python))
        return self._of[python]


def run_cell(cell: Cell, quick: str, slow: str, warm: _Warmed | None = None) -> Run:
    """Serves ``cell`` once, calls it, and judges the findings. What goes wrong on the way is a wrong run, too.

    The server is a fork of a process that is ``warm``; without one, a fresh interpreter.
    """
    began, busy, others_s = time.monotonic(), os.getloadavg()[0], _others_cpu_s()
    # The first four letters differ from run to run, too; no name says what its tool does.
    tool = f"{random.choice(_VERBS)}_{random.choice(_NOUNS)}_{random.randrange(100, 1000)}"
    try:
        with tempfile.TemporaryDirectory() as folder, hogs((os.cpu_count() or 1) if cell.beside == "hog" else 0):
            summary = _summary(cell, tool, quick, slow, Path(folder), warm)
        others_share = (_others_cpu_s() - others_s) / (time.monotonic() - began)
        wrong = wrong_of(cell, tool, summary, is_busy=cell.beside == "hog" or others_share > OTHERS_SHARE)
    except (AssertionError, OSError, ValueError, subprocess.SubprocessError) as exc:
        wrong = f"the run failed: {type(exc).__name__}: {exc}"
    commit = str(describe_machine()["commit"])
    return Run(wrong, round(time.monotonic() - began, 1), round(busy, 1), commit, is_forked=warm is not None)


def _others_cpu_s() -> float:
    """CPU time of the machine so far, without that of this process and of its children that have ended.

    The load average would not do: it is of the last minute, so a run after one beside a hog has that one's load.
    """
    user, nice, system, _, _, irq, soft_irq, steal, *_ = map(
        int, Path("/proc/stat").read_text().split("\n")[0].split()[1:]
    )
    used = (user + nice + system + irq + soft_irq + steal) / os.sysconf("SC_CLK_TCK")
    return used - sum(os.times()[:4])


def _summary(cell: Cell, tool: str, quick: str, slow: str, folder: Path, warm: _Warmed | None) -> Mapping[str, Any]:
    port = free_port()
    python = sys.executable if cell.sdk == "mcp2" else str(ROOT / ".envs" / cell.sdk / "bin" / "python")
    command = [python, str(SERVER), cell.workload.name, cell.form, tool, cell.transport, str(port), quick, slow]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("MCP_PROBE_")}
    environment |= {"PYTHONPATH": str(ROOT) if cell.sdk == "mcp2" else "", **cell.workload.environment}
    start = None if warm is None else warm.of(python).start
    client: RawClient
    if cell.transport == "stdio":
        client = _Answering(command, folder, environment, start=start)
    else:
        made = _Stateless if cell.workload.is_stateless else HttpClient
        client = made(command, folder, environment, port, "/mcp", start=start)
    with client:
        later = [
            asked
            for number, load in enumerate(cell.workload.loads[cell.form])
            for asked in _send(client, load, tool, number)
        ]
        client.wait_for(*later)
    failed = [answer for _, answer in client.answers.values() if "error" in answer or answer["result"].get("isError")]
    if failed and not cell.workload.has_errors:
        raise ValueError(f"{len(failed)} calls failed, such as {json.dumps(failed[0])[:300]}")
    return client.summary


def _send(client: RawClient, load: Load, tool: str, number: int) -> Iterator[str]:
    """Sends one load. Yields what is to be answered in the end."""
    begun, burst = time.monotonic(), 0
    if isinstance(client, _Answering):
        client.reads_for_s = load.reads_for_s
    while burst < load.bursts or (load.bursts > 1 and time.monotonic() - begun < LEAST_S):
        asked = [
            client.call(f"{number} {burst} {suffix} {each}", tool + suffix)
            for suffix, calls in load.calls
            for each in range(calls)
        ]
        if load.cancels_after_s is not None:
            time.sleep(load.cancels_after_s)
            for id in asked:
                client.post({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}})
        elif load.waits_for == "each burst":
            client.wait_for(*asked)
        elif load.waits_for == "all in the end":
            yield from asked
        time.sleep(load.pause_s)
        burst += 1


class _Answering(StdioClient):
    """Answers a server that samples, and may take its time between two answers."""

    reads_for_s = 0.0

    def note(self, line: bytes) -> None:
        if not line.startswith(b"{"):
            return  # what a server printed
        time.sleep(self.reads_for_s)
        message: Mapping[str, Any] = json.loads(line)
        if message.get("method") == "sampling/createMessage":
            content = {"type": "text", "text": "well"}
            result = {"role": "assistant", "content": content, "model": "none", "stopReason": "endTurn"}
            self.post({"jsonrpc": "2.0", "id": message["id"], "result": result})
        super().note(line)


class _Stateless(HttpClient):
    """Of 2026-07-28: once the server has answered ``initialize``, each request says of itself what a session would."""

    def headers_of(self, message: Mapping[str, Any]) -> dict[str, str]:
        headers = super().headers_of(message)
        if message["method"] != "tools/call":
            return headers
        version = META["io.modelcontextprotocol/protocolVersion"]
        named = {"mcp-method": message["method"], "mcp-name": message["params"]["name"]}
        return {**headers, "mcp-protocol-version": version, **named}

    def call(self, id: str, tool: str, **arguments: Any) -> str:
        """The SDK looks the schema up only for calls that have arguments."""
        return self.ask(id, "tools/call", name=tool, arguments={"text": "well", **arguments}, _meta=META)


if __name__ == "__main__":
    raise SystemExit(main())
