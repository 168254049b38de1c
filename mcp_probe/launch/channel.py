"""The child's end of the channel: a sink that writes frames to the parent's socket and never holds up the server.

Invariants: a batch costs the collector at most ``PATIENCE_S``; what waits for a slow parent is bounded, and what
is dropped is counted in the next ``ProcessSample``; a parent that did not read at all is not waited for again
until it has read; the socket has one writing process; when the parent is gone the sink goes quiet and stays so.
"""

from __future__ import annotations

import json
import os
import select
import socket
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from threading import Lock
from weakref import WeakSet

from mcp_probe.errors import ProbeError
from mcp_probe.model import Header, ProcessSample
from mcp_probe.record.descriptors import above_standard_streams, close_own, identity_of
from mcp_probe.record.file import LineDecoder, encode, encode_json, preamble

PATIENCE_S = 0.25
PENDING_LIMIT_BYTES = 8 << 20
ANSWER_S = 30.0
ASK = "ask"
"""A connection whose first line is an object with this key asks a question, and sends no frames."""

# A server may have restored SIGPIPE's default; macOS lacks the flag.
_NO_SIGPIPE = getattr(socket, "MSG_NOSIGNAL", 0)

# Few and small, and a recording without them misleads: only a buffer twice over its limit drops these.
_VITAL = (b'["header"', b'["process"', b'["end"')


class ChannelSink:
    """A :class:`mcp_probe.record.file.FrameSink` on a UNIX stream socket. Connects on the first write.

    Args:
        path: the parent's socket.
        on_first_write: called once in each process that writes, before it connects; must not block or raise.
        pending_limit_bytes: how much may wait for a parent that does not read.
    """

    def __init__(
        self,
        path: str,
        *,
        pending_limit_bytes: int = PENDING_LIMIT_BYTES,
        on_first_write: Callable[[], None] = lambda: None,
    ) -> None:
        self._path = path
        self._on_first_write = on_first_write
        self._limit = pending_limit_bytes
        self._header: bytes | None = None
        self._begin()
        _sinks.add(self)

    def _begin(self) -> None:
        self._lock = Lock()
        self._socket: socket.socket | None = None
        self._identity: tuple[int, int] | None = None
        self._stopped = False
        self._patience_s = PATIENCE_S
        self._pending: deque[bytes] = deque()
        self._pending_bytes = 0
        self._lost = 0

    def _begin_in_forked_child(self) -> None:
        # Only the copy of the descriptor is closed: the forking process goes on writing to its own.
        inherited, identity = self._socket, self._identity
        self._begin()
        if inherited is None:
            return
        close_own(inherited, identity)

    def write(self, lines: list[bytes]) -> None:
        """Sends what the parent takes now and keeps the rest for the next batch. Never raises."""
        with self._lock:
            if self._stopped or not lines:
                return
            if self._socket is None and not self._connect(lines[0]):
                return
            self._enqueue(lines)
            self._send()

    def ask(self, question: str) -> str:
        """What the parent answers to ``question`` about this process; blocks for up to ``ANSWER_S``.

        On a connection of its own. Raises: ProbeError if the parent does not answer.
        """
        try:
            with connected(self._path) as connection:
                connection.settimeout(ANSWER_S)
                connection.sendall(encode_json({ASK: question, "pid": os.getpid()}))
                parts = iter(lambda: connection.recv(1 << 16), b"")
                answer = json.loads(b"".join(parts) or "null")
        except (OSError, ValueError) as exc:
            raise ProbeError(f"`mcp-probe run` did not answer ({type(exc).__name__}).") from exc
        if not isinstance(answer, dict) or "text" not in answer:
            raise ProbeError(str((answer or {}).get("error", "`mcp-probe run` is about to end.")))
        return str(answer["text"])

    def close(self) -> None:
        """Sends what still waits, for at most ``PATIENCE_S``, and hangs up."""
        with self._lock:
            if self._socket is not None:
                self._send()
            self._stop()

    def _connect(self, first_line: bytes) -> bool:
        self._on_first_write()
        try:
            self._socket = connected(self._path)
        except OSError:
            self._stopped = True
            return False
        self._identity = identity_of(self._socket.fileno())
        self._push(preamble())
        if self._header is not None and not first_line.startswith(_VITAL[0]):
            self._push(_header_of_this_process(self._header))
        return True

    def _enqueue(self, lines: list[bytes]) -> None:
        for line in lines:
            vital = line.startswith(_VITAL)
            if self._pending_bytes + len(line) > (2 * self._limit if vital else self._limit):
                self._lost += 1
                continue
            if vital and line.startswith(b'["header"'):
                self._header = line
            if self._lost and line.startswith(b'["process"'):
                line = _with_lost(line, self._lost)
                self._lost = 0
            self._push(line)

    def _push(self, line: bytes) -> None:
        self._pending.append(line)
        self._pending_bytes += len(line)

    def _send(self) -> None:
        deadline = time.monotonic() + self._patience_s
        connection = self._socket
        # A program that closes all descriptors (a daemon) may have given our number to a file of its own.
        if connection is None or identity_of(connection.fileno()) != self._identity:
            self._stop()
            return
        while self._pending:
            chunk = self._next_chunk()
            try:
                sent = connection.send(chunk, _NO_SIGPIPE)
            except BlockingIOError:
                sent = 0
            except OSError:
                self._stop()
                return
            self._pending_bytes -= sent
            if sent:
                self._patience_s = PATIENCE_S
            if sent < len(chunk):
                self._pending.appendleft(chunk[sent:])
                if not _writable(connection, deadline):
                    self._patience_s = 0.0
                    return

    def _next_chunk(self) -> bytes:
        """Up to 64 KiB of what waits: one system call for many lines."""
        parts, size = [], 0
        while self._pending and size < 65536:
            parts.append(self._pending.popleft())
            size += len(parts[-1])
        return b"".join(parts)

    def _stop(self) -> None:
        self._stopped = True
        self._pending.clear()
        connection, self._socket = self._socket, None
        if connection is None:
            return
        close_own(connection, self._identity)


_sinks: WeakSet[ChannelSink] = WeakSet()


def _begin_in_forked_child() -> None:
    for sink in list(_sinks):
        sink._begin_in_forked_child()


# Once for all sinks: what is registered stays for good, and a server may be attached to many times.
os.register_at_fork(after_in_child=_begin_in_forked_child)


def connected(path: str) -> socket.socket:
    """A connection to the socket at ``path``, without blocking from now on. Raises: OSError."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection = above_standard_streams(connection)
        connection.settimeout(PATIENCE_S)
        connection.connect(path)
        connection.setblocking(False)
    except OSError:
        connection.close()
        raise
    return connection


def _writable(connection: socket.socket, deadline: float) -> bool:
    left = deadline - time.monotonic()
    if left <= 0:
        return False
    waiter = select.poll()
    waiter.register(connection, select.POLLOUT)
    return bool(waiter.poll(left * 1e3))


def _with_lost(line: bytes, lost: int) -> bytes:
    """The same ProcessSample, with the frames the channel dropped among its ``dropped``."""
    decoder = LineDecoder("channel")
    decoder.feed(preamble())
    sample = decoder.feed(line)
    if not isinstance(sample, ProcessSample):
        return line
    return encode(replace(sample, dropped=(*sample.dropped, ("channel", lost))))


def _header_of_this_process(line: bytes) -> bytes:
    """A forked process's own header: the one its parent sent, under its own pid."""
    decoder = LineDecoder("channel")
    decoder.feed(preamble())
    header = decoder.feed(line)
    return encode(replace(header, pid=os.getpid())) if isinstance(header, Header) else line
