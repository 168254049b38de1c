"""Starts the server of a case, bare or under `mcp-probe run`, lets clients ask it, and ends it whatever it does.

Clients are those of `tools/field/client.py`, which share no code with the SDK. A server that hangs is killed with all
its children when its time is over, so no run is longer than ``LIMIT_S``.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.ports import free_port
from tools.field.client import Client, Exchange, Silent, Stdio

LIMIT_S = 90.0
SIGTERM_S = 8.0
"""How long a server may take after SIGTERM: `mcp-probe run` writes its report then."""
_DROPPED = ("PYTHON", "MCP_PROBE", "OTEL_")


@dataclass(frozen=True, slots=True)
class Start:
    """How a server is started: ``[*prefix, python, server, …]``. Its stderr goes to a file in ``folder``.

    A brief run is the shortest that shows the fault; it ends the server at once, and no report is written.
    """

    python: Path
    server: Path
    folder: Path
    prefix: tuple[str, ...] = ()
    is_brief: bool = False


@contextmanager
def launched(
    start: Start, *arguments: str, before: Sequence[str] = (), speaks: bool = True
) -> Iterator[subprocess.Popen[bytes]]:
    """The process that ``start`` names, with pipes if it ``speaks``; after the block it and its children are gone."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_DROPPED)}
    # As a user's shell would have it: nothing on PYTHONPATH that the server could find mcp_probe through.
    environment = {**kept, "PYTHONPATH": "", "NO_COLOR": "1", "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
    with (start.folder / "stderr").open("wb") as errors:
        process = subprocess.Popen(
            [*before, *start.prefix, str(start.python), str(start.server), *arguments],
            stdin=subprocess.PIPE if speaks else subprocess.DEVNULL,
            stdout=subprocess.PIPE if speaks else errors,
            stderr=errors,
            cwd=start.folder,
            env=environment,
            start_new_session=True,
        )
        limit = threading.Timer(LIMIT_S, kill, [process])
        limit.start()
        try:
            yield process
        finally:
            limit.cancel()
            kill(process)
            process.wait()


def kill(process: subprocess.Popen[bytes]) -> None:
    """Ends the process and everything in its session."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


@contextmanager
def stdio(
    start: Start, *arguments: str, patience_s: float = 10.0, before: Sequence[str] = (), greets: bool = True
) -> Iterator[Stdio]:
    """A client of the server over stdio, past its handshake if it ``greets``. Afterwards stdin is closed."""
    with launched(start, *arguments, before=before) as process:
        client = Stdio(process)
        try:
            if greets:
                client.start()
            yield client
        finally:
            close_stdin(client)
            if not start.is_brief:
                end(process, patience_s)
            kill(process)
            client.release()


def close_stdin(client: Stdio) -> None:
    with suppress(OSError):  # the server may have gone first
        client.close()


def end(process: subprocess.Popen[bytes], patience_s: float) -> bool:
    """Waits for the process as clients do, then sends SIGTERM. Returns whether it ended without a signal."""
    try:
        process.wait(patience_s)
        return True
    except subprocess.TimeoutExpired:
        process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(SIGTERM_S)
    return False


@contextmanager
def http_port(start: Start, *arguments: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """The server's process and the port that it was given as its first argument; SIGINT ends it."""
    port = free_port()
    with launched(start, str(port), *arguments, speaks=False) as process:
        try:
            yield process, port
        finally:
            if not start.is_brief:
                process.send_signal(signal.SIGINT)
                end(process, 10.0)


def call(client: Client, tool: str, **arguments: Any) -> Exchange:
    """Sends a call without waiting for its answer."""
    return client.call(tool, arguments, label="case")


def ask(client: Client, tool: str, seconds: float = 20.0, **arguments: Any) -> Exchange:
    """A call and its answer, as far as it comes within ``seconds``."""
    exchange = call(client, tool, **arguments)
    answered(client, [exchange], seconds)
    return exchange


def answered(client: Client, exchanges: Sequence[Exchange], seconds: float) -> int:
    """Waits for the answers for at most ``seconds``; returns how many have come."""
    with suppress(Silent):
        client.wait(exchanges, seconds)
    return sum(exchange.answered_s is not None for exchange in exchanges)


def took_s(exchanges: Sequence[Exchange]) -> list[float]:
    """Seconds of each exchange that was answered."""
    return [exchange.ms / 1e3 for exchange in exchanges if exchange.answered_s is not None]


def warm_up(client: Client, tool: str, argument: str, times: int) -> None:
    """Quick calls, one after the other."""
    for number in range(times):
        answered(client, [client.call(tool, {argument: "x" * number}, label="warm")], 20.0)


def wanted_cpu_s(pid: int) -> float:
    """Seconds so far in which the main thread had a CPU or waited for one: load of others does not change it."""
    return sum(map(int, Path(f"/proc/{pid}/schedstat").read_text().split()[:2])) / 1e9


def is_alive(pid: int) -> bool:
    """Whether the process exists and is no zombie. Linux only."""
    try:
        return _stat(pid)[0] != "Z"
    except FileNotFoundError:
        return False


def _stat(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()


def busy_ratio(pid: int, seconds: float) -> float:
    """The share of the next ``seconds`` in which the main thread has a CPU or waits for one."""
    before, began = wanted_cpu_s(pid), time.monotonic()
    time.sleep(seconds)
    return (wanted_cpu_s(pid) - before) / (time.monotonic() - began)


def server_pid(start: Start, process: subprocess.Popen[bytes]) -> int:
    """The server's own process, below `mcp-probe run` where that started it. Linux only."""
    if not start.prefix:
        return process.pid
    return int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()[0])


def facts(**values: float) -> Mapping[str, float]:
    return values
