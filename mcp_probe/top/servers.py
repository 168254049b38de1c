"""The live servers of this user: found by their sockets, and asked over them."""

from __future__ import annotations

import os
import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mcp_probe.errors import LiveError
from mcp_probe.live import wire
from mcp_probe.live.folder import candidates, complaint_about, sockets, uid_of_peer
from mcp_probe.now import Detail, Snapshot

HELLO_S = 2.0
"""A server that computes gives its thread the GIL every 5 ms: it answers well within this, unless it hangs."""
_CHUNK = 1 << 16


@dataclass(frozen=True, slots=True)
class Found:
    """Sockets of live servers, the longest running first, and why some folders were not looked into."""

    paths: tuple[Path, ...]
    looked: tuple[Path, ...]
    problems: tuple[str, ...]


def find() -> Found:
    """Every live server of this user. Removes sockets that processes have left behind."""
    paths: list[Path] = []
    problems, looked = [], []
    for folder in candidates():
        if not os.path.lexists(folder):
            looked.append(folder)
            continue
        problem = complaint_about(folder)
        if problem is not None:
            problems.append(f"{problem}: it is not looked into.")
            continue
        looked.append(folder)
        paths += sockets(folder)
    return Found(tuple(paths), tuple(looked), tuple(problems))


class Gone(LiveError):
    """The server has ended, or hung up."""


class Connection:
    """A conversation with one server. Blocks; one thread at a time, but any may ``say`` and ``close``.

    Raises: LiveError where nobody of ours answers, or in another version; Gone once it has ended.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._buffer = b""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.settimeout(HELLO_S)
            self._socket.connect(str(path))
            if uid_of_peer(self._socket) not in (None, os.geteuid()):
                raise LiveError(f"{path} is another user's socket. Nothing was asked of it.")
            key, hello = self.read(HELLO_S) or ("", None)
            if hello is None:
                raise LiveError(f"{who_is(path)} does not answer: {why_silent(pid_of(path))}")
            wire.check_hello(hello if key == "hello" else None)
        except OSError as exc:
            self.close()
            raise Gone(f"{path} does not answer ({exc.strerror or exc}).") from exc
        except BaseException:
            self.close()
            raise
        self.pid = int(hello["pid"])
        self.name = str(hello["name"])

    def say(self, key: str, **content: Any) -> None:
        """Ask for something. Raises: Gone."""
        try:
            self._socket.sendall(wire.encoded(key, {"version": wire.VERSION, **content}))
        except OSError as exc:
            raise Gone(f"{self.name} (process {self.pid}) has ended.") from exc

    def read(self, timeout_s: float) -> tuple[str, Any] | None:
        """(what it is, its content) of the next line; ``None`` where none came in time. Raises: Gone, LiveError."""
        deadline = time.monotonic() + timeout_s
        while b"\n" not in self._buffer:
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            self._socket.settimeout(left)
            try:
                came = self._socket.recv(_CHUNK)
            except TimeoutError:
                return None
            except OSError:
                came = b""
            if not came:
                raise Gone("it ended without a word (killed, or crashed)")
            self._buffer += came
            if len(self._buffer) > wire.LONGEST_ANSWER:
                raise LiveError("The server sends a line that does not end. Nothing more is read from it.")
        line, _, self._buffer = self._buffer.partition(b"\n")
        key, content = wire.decoded(line)
        if key == "bye":
            raise Gone(str(content))
        if key == "snapshot":
            return key, wire.built(Snapshot, content)
        return key, wire.built(Detail, content) if key == "detail" else content

    def close(self) -> None:
        """Hang up."""
        self._socket.close()


def pid_of(path: Path) -> int | None:
    """The process that a socket is of, by its name."""
    number = path.stem.partition("-")[0]
    return int(number) if number.isdecimal() else None


def who_is(path: Path) -> str:
    """How a server is called of which only the socket is known."""
    pid = pid_of(path)
    return f"The server at {path}" if pid is None else f"Process {pid}"


_STATES = {
    "T": "it is stopped (SIGSTOP, or a debugger); `kill -CONT {pid}` lets it go on.",
    "D": "it waits in the kernel, for a disk or a network file system perhaps.",
    "Z": "it has ended, and whoever started it has not noticed.",
    "R": "it computes, in a call that does not give up Python's lock (GIL), or it gets too little CPU.",
}
_UNKNOWN_STATE = "a call holds Python's lock (GIL) and does not return, perhaps. `py-spy dump --pid {pid}` shows where."


def why_silent(pid: int | None) -> str:
    """Why a process whose thread of ours does not answer does not, as far as the system tells."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        state = ""
    return _STATES.get(state, _UNKNOWN_STATE).format(pid=pid)


NOBODY = (
    "No live server of this user was found. Start one with `mcp-probe run --live -- python server.py`, with "
    "`mcp_probe.attach(server, live=True)`, or with MCP_PROBE_LIVE=1 in its environment."
)


def nobody(found: Found) -> str:
    """What to do where no server is live, and where was looked."""
    where = ", ".join(str(path) for path in found.looked)
    return " ".join([f"{NOBODY} (Looked in {where}.)" if where else NOBODY, *found.problems])
