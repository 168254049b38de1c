"""A command does not outlive the ``mcp-probe run`` that was killed, nor does a server that the command started."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.harm.running import CORES, ROOT, How, environment

PATIENCE_S = 20
PID = "import os, sys, time; open(sys.argv[1], 'a').write(f'{os.getpid()}\\n')\n"
COMMANDS = {
    "a server that waits for stdin": PID + "print('up', flush=True); sys.stdin.read()",
    "a server that never reads": PID + "print('up', flush=True); time.sleep(600)",
}
SERVER = f"""{PID}
import anyio
from mcp.server import MCPServer

server = MCPServer("deaf")

@server.tool()
async def add(a: int, b: int) -> int:
    return a + b

async def serve() -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(server.run_stdio_async)
        print("up", flush=True)
        await anyio.sleep(600)

anyio.run(serve)
"""
WRAPPERS = {
    "sh that becomes the server": "exec {server}",
    "env": "exec env -- {server}",
    "sh that starts it and waits": "echo $$ >> {pids}; {server}; true",
    "a shell below a shell": "echo $$ >> {pids}; sh -c 'echo $$ >> {pids}; {server}; true'; true",
    "Python that starts it, as a script's launcher does": "exec {launcher}",
}


@CORES
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child that its parent has died")
@pytest.mark.parametrize("what", COMMANDS)
def test_sigkill_of_the_run_leaves_no_orphan(core: How, what: str, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    assert outlived([sys.executable, "-c", COMMANDS[what], str(pids)], core, pids) == []


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child that its parent has died")
def test_sigkill_of_the_run_leaves_no_orphan_that_is_no_python(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    command = ["sh", "-c", f"echo $$ > {shlex.quote(str(pids))}; echo up; while :; do read -r line || sleep 1; done"]
    assert outlived(command, "native", pids) == []


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child that its parent has died")
@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_sigkill_of_the_run_ends_the_server_that_a_wrapper_started(wrapper: str, tmp_path: Path) -> None:
    pids, program, launcher = tmp_path / "pids", tmp_path / "server.py", tmp_path / "launcher.py"
    program.write_text(SERVER)
    server = [sys.executable, str(program), str(pids)]
    launcher.write_text(f"{PID}import subprocess; sys.exit(subprocess.run({server!r}).returncode)")
    line = WRAPPERS[wrapper].format(
        server=shlex.join(server),
        pids=shlex.quote(str(pids)),
        launcher=shlex.join([sys.executable, str(launcher), str(pids)]),
    )
    assert outlived(["sh", "-c", line], "native", pids) == []


def outlived(command: list[str], core: How, pids: Path) -> list[int]:
    """Start ``command`` by a run, kill the run once the command says ``up``: those of ``pids`` that live on."""
    read_end, write_end = os.pipe()  # stays open: the end of stdin must not be what ends the command
    started: list[int] = []
    try:
        run = subprocess.Popen(
            [sys.executable, "-m", "mcp_probe", "run", "--", *command],
            cwd=ROOT,
            env=environment(core),
            stdin=read_end,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert run.stdout is not None
        assert run.stdout.readline() == b"up\n"
        started = [int(pid) for pid in pids.read_text().split()]
        assert started
        os.kill(run.pid, signal.SIGKILL)
        run.wait(PATIENCE_S)
        run.stdout.close()
        until = time.monotonic() + PATIENCE_S
        while any(map(_is_alive, started)) and time.monotonic() < until:
            time.sleep(0.05)
        return [pid for pid in started if _is_alive(pid)]
    finally:
        for pid in started:
            if _is_alive(pid):
                os.kill(pid, signal.SIGKILL)
        os.close(read_end)
        os.close(write_end)


def _is_alive(pid: int) -> bool:
    """A zombie that nobody reaps is dead, too."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
