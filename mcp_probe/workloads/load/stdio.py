"""A stdio server as a child process: one line out per request, one line in per answer, whatever their order."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import IO

from mcp_probe.clock import now_ns
from mcp_probe.errors import LaunchError, OptionError
from mcp_probe.record.private_file import create
from mcp_probe.workloads.load import wire
from mcp_probe.workloads.load.handshake import Say, shake_hands
from mcp_probe.workloads.load.peer import Peer, Target
from mcp_probe.workloads.load.wire import Order, Reply

_CLOSING_S = 10.0
"""For a server to end once its stdin is closed; under ``mcp-probe run`` its report is made in that time."""

_KILLING_S = 2.0

LAST_ANSWERS_S = 0.5
"""After the server's end its last answers are read; a child of its own may hold the pipe open for longer."""

ENDED = "the server ended"
"""The cause of a failure: what happened to the other requests of that server as well."""


class StdioPeer(Peer, asyncio.SubprocessProtocol):
    """The child's pipes. Made by :func:`stdio_peer`."""

    def __init__(self) -> None:
        self._first_noise = ""  # on its stdout, of what is no JSON-RPC
        self._numbers = 0
        self._waiting: dict[int, tuple[asyncio.Future[Reply], int]] = {}
        self._rest: list[bytes] = []
        self._stdin: asyncio.WriteTransport | None = None
        self._process: asyncio.SubprocessTransport | None = None
        self.ended = asyncio.get_running_loop().create_future()
        self._gone = ""
        self._exited = ""
        self._stderr: IO[bytes] | None = None

    # --- asyncio's side ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.SubprocessTransport)
        self._process = transport
        self.pid = transport.get_pid()
        stdin = transport.get_pipe_transport(0)
        assert isinstance(stdin, asyncio.WriteTransport)
        self._stdin = stdin

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        now = now_ns()
        *lines, rest = data.split(b"\n")
        if lines:
            lines[0] = b"".join((*self._rest, lines[0]))
            self._rest = []
        if rest:
            self._rest.append(rest)
        for line in lines:
            if line.strip():
                self._line(line, now)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        if fd == 1:
            self._lost(self._exited or "the server closed its stdout")

    def process_exited(self) -> None:
        code = None if self._process is None else self._process.get_returncode()
        is_signal = (code or 0) < 0
        self._exited = f"signal {-(code or 0)} ended it" if is_signal else f"the server ended with exit code {code}"
        if self._gone:  # its stdout has been read to the end
            self._lost(self._exited)
        else:
            asyncio.get_running_loop().call_later(LAST_ANSWERS_S, self._lost, self._exited)
        if not self.ended.done():
            self.ended.set_result(code)

    # --- the generator's side ---

    def post(self, order: Order, *, stamped: bool = False) -> asyncio.Future[Reply]:
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._numbers += 1
        number = self._numbers
        now = now_ns()
        if self._gone or self._stdin is None:
            future.set_result(Reply(now, now, "transport error", self._gone, cause=ENDED))
            return future
        self._waiting[number] = (future, now)
        future.add_done_callback(lambda done: self._given_up(number) if done.cancelled() else None)
        line = wire.encode(number, order, modern=self.modern, sent_ns=now if stamped else None)
        self._stdin.write(line + b"\n")
        return future

    def notify(self, order: Order) -> asyncio.Future[Reply]:
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        now = now_ns()
        if self._stdin is not None and not self._gone:
            self._stdin.write(wire.encode(None, order, modern=self.modern) + b"\n")
        future.set_result(Reply(now, now, "ok"))
        return future

    def gone(self) -> str:
        """Ends with the last that was heard of the server."""
        if not self._gone:
            return ""
        last = self.heard()
        noise = f"; its stdout began with: {self._first_noise}" if self._first_noise else ""
        return self._gone + noise + (f"; on stderr it said last: {last}" if last else "")

    async def last_words(self) -> str:
        if self._gone:
            await self._ends_within(_KILLING_S)
        return self.gone()

    # --- inside ---

    def _line(self, line: bytes, now: int) -> None:
        try:
            message = json.loads(line)
            number = message.get("id")
        except (ValueError, AttributeError):
            self._first_noise = self._first_noise or wire.one_line(line[:400].decode(errors="replace"))
            return
        if "method" in message:
            if number is not None and self._stdin is not None:
                self._stdin.write(wire.answer_to_server(message) + b"\n")
            return
        waiting = self._waiting.pop(number, None) if isinstance(number, int) else None
        if waiting is not None and not waiting[0].done():
            waiting[0].set_result(wire.read(message, waiting[1], now))

    def _given_up(self, number: int) -> None:
        if self._waiting.pop(number, None) is not None and not self._gone and self._stdin is not None:
            order = Order("notifications/cancelled", {"requestId": number, "reason": "end of the load"})
            self._stdin.write(wire.encode(None, order, modern=self.modern) + b"\n")

    def _lost(self, why: str) -> None:
        if self._gone and "ended" not in why:
            return
        self._gone = why
        now = now_ns()
        waiting, self._waiting = self._waiting, {}
        for future, sent_ns in waiting.values():
            if not future.done():
                future.set_result(Reply(sent_ns, now, "transport error", why, cause=ENDED))

    def heard(self) -> str:
        """What the server wrote last to its stderr, on one line."""
        if self._stderr is None:
            return ""
        with suppress(OSError, ValueError):
            size = os.fstat(self._stderr.fileno()).st_size
            text = os.pread(self._stderr.fileno(), 4_000, max(0, size - 4_000)).decode(errors="replace")
            return wire.one_line(" | ".join([line.strip() for line in text.splitlines() if line.strip()][-3:]))
        return ""

    async def stop(self) -> None:
        """Closes stdin, as the protocol says, and sees to it that no process is left."""
        if self._stdin is not None:
            self._stdin.close()
        try:
            for number, patience in ((signal.SIGTERM, _CLOSING_S), (signal.SIGKILL, _KILLING_S)):
                if await self._ends_within(patience):
                    return
                self._signal(number)
        finally:
            self._signal(signal.SIGKILL)  # what it has started and left behind, too
            await self._ends_within(_KILLING_S)
            if self._process is not None:
                self._process.close()

    async def _ends_within(self, seconds: float) -> bool:
        await asyncio.wait((self.ended,), timeout=seconds)
        return self.ended.done()

    def _signal(self, number: signal.Signals) -> None:
        """To the whole session of the child: a shell or `uv run` passes nothing on."""
        if self.pid:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)


@asynccontextmanager
async def stdio_peer(target: Target, say: Say | None = None) -> AsyncIterator[StdioPeer]:
    """Starts the target's command; see :func:`mcp_probe.workloads.load.connecting.connect`."""
    loop = asyncio.get_running_loop()
    with _stderr_of(target) as stderr:
        try:
            # A session of its own: a Ctrl-C at the terminal ends the load, not the server in the middle of it.
            _, peer = await loop.subprocess_exec(
                StdioPeer,
                *target.command,
                stderr=stderr,
                start_new_session=True,
                env={**os.environ, **target.environment},
            )
        except OSError as exc:
            raise LaunchError(f"The server {target.name} does not start: {exc.strerror or exc}.") from exc
        peer._stderr = stderr
        try:
            await shake_hands(peer, target, say)
            yield peer
        finally:
            await asyncio.shield(peer.stop())


def _stderr_of(target: Target) -> IO[bytes]:
    if target.stderr is None:
        return tempfile.TemporaryFile(prefix="mcp-probe-")
    try:
        return create(target.stderr, readable=True)
    except OSError as exc:
        raise OptionError(f"Cannot write {target.stderr}: {exc.strerror}.") from exc
