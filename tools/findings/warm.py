"""Starts `mcp-probe run -- python server.py` in a tenth of a second: by forks of a process that has imported the SDK.

Two processes as always, the server below its parent; only that the server's is a fork instead of a fresh interpreter.
So its SDK was imported before the probe came, as where a program calls ``attach`` by itself.

As a program: ``python -m tools.findings.warm SOCKET_FD``. Each message on the socket is a JSON object of ``arguments``
(of the command line) and ``environment``, with stdin, stdout and stderr; its answer is the pid.
"""

from __future__ import annotations

import atexit
import ctypes
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
_LOADED = (
    *("anyio.to_thread", "anyio._backends._asyncio", "httpx", "httpcore", "uvicorn", "uvicorn.protocols.http.auto"),
    *("mcp.server", "mcp.server.fastmcp", "mcp.server.stdio", "mcp.server.streamable_http_manager", "fastmcp", "rich"),
    *("mcp_probe.cli", "mcp_probe.launch.parent", "mcp_probe.launch.outcome", "mcp_probe.launch.receive"),
    *("mcp_probe.report.console", "mcp_probe.session", "mcp_probe.launch.child", "mcp_probe.launch.channel"),
)
"""Where an SDK has a module: what a server of the matrix, and the parent that reports of it, would load."""
_LARGEST = 1 << 16
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36  # linux/prctl.h


# --- who asks -----------------------------------------------------------------------------------------


class Warm:
    """One such process, of one interpreter. Leaving it ends it.

    What it starts becomes a child of the process that asks, so that its CPU time is known as that of other children.
    """

    def __init__(self, python: str) -> None:
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)
        self._socket, others = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with others:
            self._process = subprocess.Popen(
                [python, "-m", "tools.findings.warm", str(others.fileno())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,  # as its forks': a stream asks only once whether it can seek
                pass_fds=[others.fileno()],
                cwd=ROOT,
                env={key: value for key, value in os.environ.items() if not key.startswith("MCP_PROBE_")},
            )

    def __enter__(self) -> Warm:
        return self

    def __exit__(self, *exc: object) -> None:
        self._socket.close()
        self._process.communicate()

    def start(self, arguments: Sequence[str], environment: Mapping[str, str], stderr: int) -> Started:
        """`mcp-probe ARGUMENTS`. Raises: OSError."""
        with ExitStack() as theirs:
            to_it, from_it = os.pipe(), os.pipe()
            for fd in (to_it[0], from_it[1]):
                theirs.callback(os.close, fd)
            message = json.dumps({"arguments": arguments, "environment": dict(environment)}).encode()
            socket.send_fds(self._socket, [message], [to_it[0], from_it[1], stderr])
            answer = self._socket.recv(_LARGEST)
            if not answer:
                raise OSError("the warm process has ended")
            return Started(int(answer), to_it[1], from_it[0])


class Started:
    """A child that another process has started, with what the clients use of ``subprocess.Popen``."""

    def __init__(self, pid: int, stdin: int, stdout: int) -> None:
        self.stdin, self.stdout = os.fdopen(stdin, "wb"), os.fdopen(stdout, "rb")
        self.returncode: int | None = None
        self._pid, self._fd = pid, os.pidfd_open(pid)

    def poll(self) -> int | None:
        """How it ended; ``None`` while it runs."""
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """How it ended. Raises: subprocess.TimeoutExpired."""
        if self.returncode is None:
            if not select.select([self._fd], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("mcp-probe run", timeout or 0.0)
            self.returncode = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
            os.close(self._fd)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Nothing where it has ended."""
        if self.returncode is None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._fd, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


# --- the warm process ---------------------------------------------------------------------------------


def main(fd: int) -> int:
    """Forks for each message, until whoever sends them hangs up. Returns 0, and in a fork what that ends with."""
    for name in _LOADED:
        with suppress(ImportError):
            importlib.import_module(name)
    assert threading.active_count() == 1, "a fork takes no thread with it"
    with socket.socket(fileno=fd) as asked:
        while True:
            message, fds, _, _ = socket.recv_fds(asked, _LARGEST, 3)
            if not message:
                return 0
            between = os.fork()
            if between:
                os.waitpid(between, 0)
                for one in fds:
                    os.close(one)
            elif (pid := os.fork()) == 0:
                break
            else:  # its end hands the other one to who asks
                asked.send(str(pid).encode())
                os._exit(0)
    return _run(fds, **json.loads(message))


def _run(fds: Sequence[int], arguments: list[str], environment: dict[str, str]) -> int:
    """The parent's part, in a process that has all of its own."""
    from mcp_probe import cli
    from mcp_probe.launch import parent

    for number, one in enumerate(fds):
        os.dup2(one, number)
        os.close(one)
    os.environ.clear()
    os.environ.update(environment)
    parent._spawn = _spawn
    return cli.main(arguments)


def _spawn(program: str, command: Sequence[str], environment: Mapping[str, str], source: Any) -> Any:
    """As the parent's own, without the exec."""
    ours = os.getpid()
    pid = os.fork()
    if pid:
        return SimpleNamespace(pid=pid, returncode=None)
    status = 1
    try:
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == ours:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, source.mask_before)
            os.environ.clear()
            os.environ.update(environment)
            status = _serve(command)
    except BaseException:  # noqa: BLE001 - nothing of this process may go on in the parent's code
        traceback.print_exc()
    finally:
        os._exit(status)


def _serve(command: Sequence[str]) -> int:
    """What ``python server.py …`` does, from the interpreter's start to its end."""
    sys.argv = list(command[1:])
    sys.path[0] = str(Path(sys.argv[0]).parent)
    site = Path(os.environ["MCP_PROBE_RUN"], "inject", "sitecustomize.py")
    runpy.run_path(str(site), run_name="sitecustomize_of_this_run")["enter"]()
    status = 0
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as exc:
        status = exc.code if isinstance(exc.code, int) else int(exc.code is not None)
    except BaseException:  # noqa: BLE001 - told, as the interpreter does
        sys.excepthook(*sys.exc_info())
        status = 1
    threading._shutdown()  # type: ignore[attr-defined]  # as multiprocessing ends its forks
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    return status


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    raise SystemExit(main(int(sys.argv[1])))
