"""Forks that stand for fresh servers (`tools.findings.warm`): they serve, are reported of, and end as those do."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.adapters.raw_clients import StdioClient
from tools.findings.warm import Warm

SERVER = """
import os, sys, threading, time
from mcp.server import MCPServer

server = MCPServer("forked")

@server.tool()
def compute(ms: int) -> str:
    until = time.thread_time() + ms / 1e3
    while time.thread_time() < until:
        pass
    return f"{__name__} {sys.argv[1]} {os.environ['GIVEN']} {os.getpid()} {'mcp.server' in sys.modules}"

@server.tool()
def leave(code: int) -> str:
    os._exit(code)

if __name__ == "__main__":
    server.run("stdio")
    print("served", file=sys.stderr)
    threading.Thread(target=lambda: (time.sleep(0.2), print("joined", file=sys.stderr))).start()
    sys.exit(7)
"""


@pytest.fixture(scope="module")
def warm() -> Iterator[Warm]:
    with Warm(sys.executable) as started:
        yield started


def forked(warm: Warm, folder: Path) -> StdioClient:
    (folder / "server.py").write_text(SERVER)
    environment: Mapping[str, str] = {**os.environ, "GIVEN": folder.name}
    command = [sys.executable, str(folder / "server.py"), "argument"]
    return StdioClient(command, folder, environment, start=warm.start)


def text_of(client: StdioClient, id: str) -> str:
    answer: Any = client.answers[id][1]["result"]["content"][0]["text"]
    return str(answer)


def cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_forks_serve_and_end_as_programs_and_their_cpu_time_is_of_our_children(warm: Warm, tmp_path: Path) -> None:
    pids = set()
    for number in range(2):
        folder = tmp_path / str(number)
        folder.mkdir()
        before = cpu_of_children()
        with forked(warm, folder) as client:
            client.wait_for(client.call("one", "compute", ms=300), client.call("two", "compute", ms=1))
        name, argument, given, pid, _ = text_of(client, "one").split()
        assert (name, argument, given) == ("__main__", "argument", str(number))
        pids.add(pid)
        assert client.process.returncode == 7
        assert "served\njoined\n" in client.stderr
        assert [one["count"] for one in client.summary["operations"] if one["name"] == "compute"] == [2]
        assert cpu_of_children() - before >= 0.3
    assert len(pids) == 2


def test_a_fork_that_crashes_is_told_as_crashed(warm: Warm, tmp_path: Path) -> None:
    with forked(warm, tmp_path) as client:
        client.wait_for(client.call("one", "compute", ms=1))
        client.call("last", "leave", code=3)
        assert client.process.wait(60) == 3
    assert client.summary["verdict"]["code"] == "crashed"


def test_who_waits_in_vain_is_told_and_a_signal_ends_it(warm: Warm, tmp_path: Path) -> None:
    with forked(warm, tmp_path) as client:
        assert client.process.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            client.process.wait(0.01)
        client.process.terminate()
        assert client.process.wait(60) != 0
    assert json.dumps(client.summary)
