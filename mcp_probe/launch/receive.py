"""The parent's end of the channel: records and folds frames as they arrive.

Every process that serves MCP has a connection of its own. Reading and recording come before folding, so that a
burst costs the server nothing and the recording has it all. Work is done while the server runs, so that what is
left at its end is small; :meth:`Receiver.finish` bounds it all the same.
"""

from __future__ import annotations

import json
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mcp_probe.aggregate.fold import Fold
from mcp_probe.errors import RecordingError
from mcp_probe.export.delivery import with_deliveries
from mcp_probe.export.exporters import TelemetrySettings
from mcp_probe.export.telemetry import Relay
from mcp_probe.launch.channel import ANSWER_S, ASK
from mcp_probe.model import End, Frame, Header, RequestGroup, RequestRecord, Summary
from mcp_probe.record.file import LineDecoder, encode_json
from mcp_probe.record.listeners import Listeners
from mcp_probe.record.parts import RecordingFile

if TYPE_CHECKING:
    from mcp_probe.report.page.window import Window

_CHUNK_BYTES = 1 << 18
# Between two looks at the sockets: some 10 ms of folding, in which their buffers cannot fill up.
_SLICE_LINES = 100
# Beyond this the server drops frames, and counts them.
_BACKLOG_BYTES = 64 << 20
_QUESTION = encode_json({ASK: 0})[:-3]

_OpenRecord = Callable[[], RecordingFile]


@dataclass(frozen=True, slots=True)
class Served:
    """What one serving process has sent so far. ``pid`` is ``None`` until its header came."""

    pid: int | None
    summary: Summary
    requests: int
    ended: bool  # its End frame came: nothing is missing
    connected: bool  # it may still send
    problem: str | None  # why its recording or its report holds less than it sent
    ends_early: bool = False  # it is the summary that holds less
    window: Window | None = None  # of the same frames as the summary; may still take more in


class Receiver:
    """Reads what connects to ``listener``, which it closes in the end.

    Args:
        open_record: makes the file that gets the next serving process's lines; ``None`` for no recordings.
        slow_step_ms: as in :class:`Fold`.
        relay: where telemetry of each serving process goes; ``None`` for nowhere. Adds ``exit_s`` to :meth:`finish`.
        window: makes what takes each serving process's frames in for its page; ``None`` for no page.
    """

    def __init__(
        self,
        listener: socket.socket,
        *,
        open_record: _OpenRecord | None,
        slow_step_ms: float,
        relay: TelemetrySettings | None = None,
        window: Callable[[], Window] | None = None,
    ) -> None:
        self._open_record = open_record
        self._relay = relay
        self._window = window
        self._slow_step_ms = slow_step_ms
        self._lock = threading.Lock()
        self._connections: list[_Connection] = []
        self._asked: list[_Connection] = []  # questions that have not been answered
        self._deadline: float | None = None
        self._done = threading.Event()
        self._listener = listener
        self._listener.setblocking(False)
        self._wake_read, self._wake_write = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._wake_read, selectors.EVENT_READ)

    def finish(self, seconds: float) -> None:
        """Lets :meth:`receive` take what has been sent by now and return; blocks for at most about ``seconds``.

        Telemetry gets its own ``exit_s`` after that, and no more than it needs.
        """
        self._deadline = time.monotonic() + seconds
        self._wake_write.send(b"\0")
        self._done.wait(seconds + 0.1 + (self._relay.exit_s if self._relay is not None else 0.0))

    def served(self) -> tuple[Served, ...]:
        """Every process that has sent a frame, in the order in which they connected. Safe from any thread."""
        with self._lock:
            return tuple(connection.served() for connection in self._connections if connection.frames)

    def has_all(self) -> bool:
        """Whether there are serving processes, and all have sent their end. Safe from any thread, and quick."""
        with self._lock:
            served = [connection for connection in self._connections if connection.frames]
            return bool(served) and all(connection.has_ended for connection in served)

    def receive(self) -> None:
        """Reads until :meth:`finish`; runs on a thread of its own."""
        finishing = False
        while True:
            folding = any(connection.lines for connection in self._connections)
            ready = self._selector.select(0 if finishing or folding or self._asked else None)
            if finishing and (not (ready or folding) or time.monotonic() > (self._deadline or 0)):
                break
            for key, _ in ready:
                if key.fileobj is self._listener:
                    self._accept()
                elif key.fileobj is self._wake_read:
                    self._selector.unregister(self._wake_read)
                    finishing = True
                else:
                    self._read(key.data)
            with self._lock:
                for connection in self._connections:
                    connection.fold(_SLICE_LINES)
            if self._asked and not ready:
                self._answer()
        self._close()
        self._close_relays()
        self._done.set()

    def _accept(self) -> None:
        try:
            peer, _ = self._listener.accept()
        except OSError:
            return
        peer.setblocking(False)
        with self._lock:
            connection = _Connection(peer, self._slow_step_ms, self._relay, self._window)
            self._connections.append(connection)
        self._selector.register(peer, selectors.EVENT_READ, connection)

    def _read(self, connection: _Connection) -> None:
        if connection.backlog > _BACKLOG_BYTES:
            return
        try:
            chunk = connection.peer.recv(_CHUNK_BYTES)
        except BlockingIOError:
            return
        except OSError:
            chunk = b""
        with self._lock:
            if chunk and connection.asks(chunk):
                self._connections.remove(connection)
                self._selector.unregister(connection.peer)
                connection.end_telemetry()
                self._asked.append(connection)
                return
            if chunk:
                connection.take(chunk, self._open_record)
                return
            connection.connected = False
            self._selector.unregister(connection.peer)
            connection.close()

    def _answer(self) -> None:
        """All that was sent before the questions has been folded. A thread of its own says what follows from it."""
        with self._lock:
            if any(connection.lines for connection in self._connections):
                return
            asked, self._asked = self._asked, []
            for one in asked:
                about = [each for each in self._connections if each.pid == one.pid]
                summary = about[-1].summary_so_far() if about else None
                threading.Thread(target=_reply, args=(one.peer, one.question, summary), daemon=True).start()

    def _close(self) -> None:
        self._selector.close()
        for resource in (self._listener, self._wake_read, self._wake_write):
            resource.close()
        with self._lock:
            for connection in (*self._connections, *self._asked):
                connection.close()

    def _close_relays(self) -> None:
        """All deliver at the same time, so together they take no longer than one may."""
        if self._relay is None:
            return
        with self._lock:
            connections = list(self._connections)
        deadline = time.monotonic() + self._relay.exit_s
        for connection in connections:
            connection.end_telemetry()
        for connection in connections:
            connection.telemetry.close(max(0.0, deadline - time.monotonic()))


def _reply(peer: socket.socket, question: str, summary: Summary | None) -> None:
    """Answers, and hangs up. Whoever asked may be gone."""
    try:
        from mcp_probe.report.resources import TEXTS

        if summary is None or question not in TEXTS:
            answer = {"error": "`mcp-probe run` has seen no request of this process yet."}
        else:
            answer = {"text": TEXTS[question](summary)}
    except Exception as exc:  # noqa: BLE001 - the server's client is told, and the run goes on
        answer = {"error": f"The report could not be made ({type(exc).__name__}: {exc}); please report this."}
    with peer, suppress(OSError):
        peer.settimeout(ANSWER_S)
        peer.sendall(encode_json(answer))


class _Connection:
    """One serving process: its bytes go to the recording as they are, its frames into a fold and to the relay."""

    def __init__(
        self,
        peer: socket.socket,
        slow_step_ms: float,
        relay: TelemetrySettings | None,
        window: Callable[[], Window] | None,
    ) -> None:
        self.peer = peer
        self.connected = True
        self.recording: RecordingFile | None = None
        self.frames = 0
        self.lines: deque[bytes] = deque()  # recorded and not yet folded
        self.backlog = 0  # their bytes
        self._started = False
        self._requests = 0
        self.pid: int | None = None
        self.question = ""
        self._ended = False
        self._problem: str | None = None
        self._rest = b""
        self._decoder: LineDecoder | None = LineDecoder("the server's channel")
        self._fold = Fold(slow_step_ms=slow_step_ms)
        self._window = None if window is None else window()
        self.telemetry = Listeners(self._telemetry_failed)
        self._relay = Relay(relay, self._telemetry_failed) if relay is not None else None
        if self._relay is not None:
            self.telemetry.add(self._relay)

    def asks(self, chunk: bytes) -> bool:
        """Whether it begins with a question, which is one short line, and not with frames."""
        if self._started or not chunk.startswith(_QUESTION):
            return False
        with suppress(ValueError, TypeError):
            asked = json.loads(chunk)
            self.question, self.pid = str(asked[ASK]), int(asked["pid"])
        return True

    def take(self, chunk: bytes, open_record: _OpenRecord | None) -> None:
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        if not lines:
            return
        if not self._started:
            self._started = True
            self._start_recording(open_record)
        self._write(lines)
        self.lines.extend(lines)
        self.backlog += sum(map(len, lines))

    def fold(self, most: int) -> None:
        """Takes up to ``most`` lines from the backlog into the summary, and tells the relay."""
        frames = []
        for _ in range(min(most, len(self.lines))):
            line = self.lines.popleft()
            self.backlog -= len(line)
            frame = self._feed(line + b"\n")
            if frame is not None:
                frames.append(frame)
        if frames and self.telemetry:
            self.telemetry.take(frames)
        if not self.connected and not self.lines:
            self.end_telemetry()

    def end_telemetry(self) -> None:
        """The process has sent everything: begin the last delivery, so that a restarted one leaves no threads."""
        if self._relay is not None:
            self._relay.ask_to_close()

    def _telemetry_failed(self, exc: Exception) -> None:
        self._problem = self._problem or f"its telemetry is incomplete ({type(exc).__name__}: {exc})"

    def _start_recording(self, open_record: _OpenRecord | None) -> None:
        try:
            self.recording = None if open_record is None else open_record()
        except OSError as exc:
            self._problem = f"its recording could not be opened ({exc.strerror})"

    def _write(self, lines: list[bytes]) -> None:
        if self.recording is None:
            return
        try:
            self.recording.write([line + b"\n" for line in lines])
        except (OSError, ValueError, LookupError) as exc:  # the latter two: the first line is not one of ours
            why = exc.strerror if isinstance(exc, OSError) else f"{type(exc).__name__}: {exc}"
            self._problem = f"its recording stopped early ({why})"
            self.recording.close()
            self.recording = None

    def _feed(self, line: bytes) -> Frame | None:
        if self._decoder is None:
            return None
        try:
            frame = self._decoder.feed(line)
            if frame is None:
                return None
            self.frames += 1
            self._fold.add(frame)
            if self._window is not None:
                self._window.add(frame)
        except Exception as exc:  # noqa: BLE001 - the recording still gets every byte, the command its exit code
            self._decoder = None
            what = str(exc) if isinstance(exc, RecordingError) else f"{type(exc).__name__}: {exc}"
            self._problem = f"its report ends early, at a frame that could not be read ({what})"
            return None
        if isinstance(frame, Header):
            self.pid = frame.pid
        elif isinstance(frame, RequestRecord):
            self._requests += 1
        elif isinstance(frame, RequestGroup):
            self._requests += frame.count
        elif isinstance(frame, End):
            self._ended = True
        return frame

    def summary_so_far(self) -> Summary:
        """Of a process that still serves."""
        return self._fold.summary(live=True)

    @property
    def has_ended(self) -> bool:
        """Whether its End frame has been taken in, and what came behind it."""
        return self._ended and not self.lines

    def served(self) -> Served:
        problem, ends_early = self._problem, self._decoder is None
        if self.lines and not self.connected:
            ends_early = True
            problem = f"the last {len(self.lines)} frames came too late for the report (a recording has them)"
        summary = self._fold.summary()
        if self._relay is not None:
            summary = with_deliveries(summary, self._relay.deliveries())
        return Served(self.pid, summary, self._requests, self._ended, self.connected, problem, ends_early, self._window)

    def close(self) -> None:
        self.peer.close()
        if self.recording is not None:
            self.recording.close()
