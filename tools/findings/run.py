"""One run of the fault matrix: serves a cell, calls it, and judges what the probe found."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.adapters.asgi_client import META
from tests.adapters.raw_clients import HttpClient, RawClient, StdioClient
from tests.ports import port_for_now
from tools.findings.cells import Cell, Load
from tools.findings.matrix import OTHERS_SHARE, Run, wrong_of
from tools.findings.warm import Warm
from tools.interpreters import ROOT

SERVER = Path(__file__).with_name("server.py")
LEAST_S = 1.2
"""A load goes on until then: below a second no statistical check is made."""

_VERBS = ("find", "make", "draw", "send", "read", "sort", "join", "list", "move", "scan")
_NOUNS = ("tickets", "photos", "orders", "pages", "routes", "notes", "tracks", "bills", "maps", "users")


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What runs of one process share: addresses of a ``quick`` and a ``slow`` backend, and warm processes."""

    quick: str
    slow: str
    warm: WarmOnes


class WarmOnes(ExitStack):
    """A warm process of each interpreter that was asked for."""

    def __init__(self) -> None:
        super().__init__()
        self._of: dict[str, Warm] = {}

    def of(self, python: str) -> Warm:
        if python not in self._of:
            self._of[python] = self.enter_context(Warm(python))
        return self._of[python]


def run_cell(
    cell: Cell, around: Surroundings, calling: AbstractContextManager[Any], commit: str, *, is_forked: bool
) -> Run:
    """Serves ``cell`` once, calls it, and judges the findings. What goes wrong on the way is a wrong run, too.

    The server is a fork of a warm process, or a fresh interpreter. ``calling`` is held from its start until all of its
    calls are answered, and not while it ends.
    """
    # The first four letters differ from run to run, too; no name says what its tool does.
    tool = f"{random.choice(_VERBS)}_{random.choice(_NOUNS)}_{random.randrange(100, 1000)}"
    with tempfile.TemporaryDirectory() as folder, ExitStack() as called:
        called.enter_context(calling)
        began, others = time.monotonic(), called.enter_context(_Others())
        try:
            summary = _summary(cell, tool, around, Path(folder), called, is_forked=is_forked)
            is_busy = cell.beside == "hog" or others.share > OTHERS_SHARE
            wrong = wrong_of(cell, tool, summary, is_busy=is_busy)
        except (AssertionError, OSError, ValueError, subprocess.SubprocessError) as exc:
            wrong = f"the run failed: {type(exc).__name__}: {exc}"
    return Run(wrong, round(time.monotonic() - began, 1), round(others.share, 2), commit, is_forked)


class _Others:
    """Of a CPU, what processes but this and its descendants used while it was entered.

    The load average would not do: it is of the last minute, so a run after one beside a hog has that one's load.
    """

    share = 0.0

    def __enter__(self) -> _Others:
        self._began, self._used = time.monotonic(), _all_ticks() - _ticks_of(os.getpid())
        return self

    def __exit__(self, *exc: object) -> None:
        ticks = _all_ticks() - _ticks_of(os.getpid()) - self._used
        self.share = ticks / os.sysconf("SC_CLK_TCK") / (time.monotonic() - self._began)


def _all_ticks() -> int:
    user, nice, system, _, _, irq, soft_irq, steal, *_ = map(
        int, Path("/proc/stat").read_text().split("\n")[0].split()[1:]
    )
    return user + nice + system + irq + soft_irq + steal


def _ticks_of(pid: int) -> int:
    """Of a process, its descendants, and their children that have ended. Source: proc_pid_stat(5)."""
    try:
        ticks = sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:15]))
        below = [one for task in Path(f"/proc/{pid}/task").iterdir() for one in (task / "children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):  # it has ended, so its parent has its time
        return 0
    return ticks + sum(_ticks_of(int(one)) for one in below)


def _summary(
    cell: Cell, tool: str, around: Surroundings, folder: Path, called: ExitStack, *, is_forked: bool
) -> Mapping[str, Any]:
    with port_for_now() as port:
        client = _client_of(cell, tool, around, folder, port, is_forked=is_forked)
        with client:
            later = [
                asked
                for number, load in enumerate(cell.workload.loads[cell.form])
                for asked in _send(client, load, tool, number)
            ]
            client.wait_for(*later)
            called.close()
    failed = [answer for _, answer in client.answers.values() if "error" in answer or answer["result"].get("isError")]
    if failed and not cell.workload.has_errors:
        raise ValueError(f"{len(failed)} calls failed, such as {json.dumps(failed[0])[:300]}")
    return client.summary


def _client_of(cell: Cell, tool: str, around: Surroundings, folder: Path, port: int, *, is_forked: bool) -> RawClient:
    """Of its server, which is started."""
    python = sys.executable if cell.sdk == "mcp2" else str(ROOT / ".envs" / cell.sdk / "bin" / "python")
    command = [python, str(SERVER), cell.workload.name, cell.form, tool, cell.transport, str(port)]
    command += [around.quick, around.slow]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("MCP_PROBE_")}
    environment |= {"PYTHONPATH": str(ROOT) if cell.sdk == "mcp2" else "", **cell.workload.environment}
    start = around.warm.of(python).start if is_forked else None
    if cell.transport == "stdio":
        return _Answering(command, folder, environment, start=start)
    made = _Stateless if cell.workload.is_stateless else HttpClient
    return made(command, folder, environment, port, "/mcp", start=start)


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
