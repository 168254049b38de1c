"""The live channel of a server: a thread of ours that tells viewers what the server does.

Invariants: no event loop is needed or waited for; nothing is computed while nobody watches, or while no watcher has
taken the last snapshot; what waits for a viewer is at most one snapshot and a few answers; a viewer of another user is
hung up on; the socket's name is gone when the probe is.
"""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from mcp_probe.capture.guard import Fail, Guard
from mcp_probe.capture.worker import Worker
from mcp_probe.errors import LiveError
from mcp_probe.live import wire
from mcp_probe.live.folder import listen, make, own_uid, uid_of_peer
from mcp_probe.now import Detail, Snapshot
from mcp_probe.record.descriptors import Identity, above_standard_streams, close_own, identity_of

HOOK = "live channel"
EVERY_S = 1.0
LONGEST_EVERY_S = 10.0
SOONEST_S = 0.1
"""After a snapshot there may be another one, if somebody asks for it."""
MOST_SHARE = 0.01
"""Of a core. A snapshot that took long is followed by a longer pause."""
MAX_VIEWERS = 8
STOP_S = 0.5
_NO_SIGPIPE = getattr(socket, "MSG_NOSIGNAL", 0)  # a server may have restored SIGPIPE's default


class Source(Protocol):
    """What a channel tells of. Called on its thread only."""

    def hello(self) -> dict[str, object]:
        """Who this is."""

    def begin(self) -> None:
        """Somebody watches from now on."""

    def stop(self) -> None:
        """Nobody watches any more."""

    def snapshot(self, every_s: float, took_ms: float | None) -> Snapshot:
        """The server now."""

    def detail(self, number: int) -> Detail | None:
        """One request in flight."""

    def dump(self) -> dict[str, object]:
        """Write a flight recording. Raises: LiveError with a sentence for the viewer."""


class LiveChannel:
    """See the module's text. ``open``, ``close`` and ``abandon`` may be called on any thread."""

    def __init__(self, source: Source, fail: Fail, told: Callable[[str | None], None]) -> None:
        self._source = source
        self._told = told  # None where it works, else why it does not
        self._guard = Guard(HOOK, fail)
        self._worker: Worker | None = None
        self._parts: list[tuple[socket.socket, Identity | None]] = []  # every socket of ours
        self._wake: socket.socket | None = None
        self._closing: str | None = None
        self._viewers: list[_Viewer] = []
        self._path: Path | None = None
        self._asked = False  # somebody wants the next snapshot now
        self.watched = False  # somebody is watching

    @property
    def path(self) -> Path | None:
        """The socket, once it listens."""
        return self._path

    def open(self) -> None:
        """Listen from now on. Idempotent; waits for nothing."""
        if self._worker is None and self._closing is None:
            self._worker = Worker("mcp-probe-live", lambda: self._guard.call(self._run))
            self._worker.start()

    def close(self, reason: str, *, waits: bool) -> None:
        """Tell viewers why it ends, and stop. Waits at most :data:`STOP_S`, if it may."""
        if self._closing is None:
            self._closing = reason
            self._rouse()
        if waits and self._worker is not None:
            self._worker.join(STOP_S)

    def abandon(self) -> None:
        """This is a forked child: the sockets, and the name, are its parent's."""
        self._closing = "forked"
        self._path = self._wake = None
        for connection, identity in self._parts:
            close_own(connection, identity)
        self._parts, self._viewers, self._worker, self.watched = [], [], None, False

    # --- the thread ---

    def _run(self) -> None:
        try:
            listener, path = listen(make())
            listener = self._own(listener)
        except (LiveError, OSError) as exc:
            return self._told(str(exc))
        self._path = path
        self._told(None)
        try:
            self._serve(listener)
        finally:
            self._end(path)

    def _own(self, connection: socket.socket) -> socket.socket:
        connection = above_standard_streams(connection)
        connection.setblocking(False)
        self._parts.append((connection, identity_of(connection.fileno())))
        return connection

    def _rouse(self) -> None:
        wake = self._wake
        if wake is not None:
            with suppress(OSError):
                wake.send(b"\0", _NO_SIGPIPE)

    def _serve(self, listener: socket.socket) -> None:
        woken, wake = (self._own(one) for one in socket.socketpair())
        self._wake = wake
        due, last, every_s, took_s = 0.0, 0.0, EVERY_S, None
        while self._closing is None:
            selector = selectors.PollSelector() if hasattr(selectors, "PollSelector") else selectors.SelectSelector()
            selector.register(listener, selectors.EVENT_READ)
            selector.register(woken, selectors.EVENT_READ)
            for viewer in self._viewers:
                write = selectors.EVENT_WRITE if viewer.pending else 0
                selector.register(viewer.connection, selectors.EVENT_READ | write, viewer)
            wants = any(viewer.is_ready for viewer in self._viewers)
            ready = selector.select(max(0.0, due - time.monotonic()) if wants else None)
            if identity_of(listener.fileno()) != self._parts[0][1]:
                return  # a daemon has closed all descriptors
            for key, events in ready:
                if key.fileobj is listener:
                    self._accept(listener)
                elif key.data is not None:
                    self._hear(key.data, events)
            self._note_watchers()
            if self._asked:
                due, self._asked = min(due, last + SOONEST_S), False
            if not self.watched:
                due, took_s = 0.0, None
            elif time.monotonic() >= due and any(viewer.is_ready for viewer in self._viewers):
                took_s = self._push(every_s, took_s)
                every_s = every_after(took_s)
                last = time.monotonic()
                due = last + every_s

    def _note_watchers(self) -> None:
        watched = any(viewer.watches for viewer in self._viewers)
        if watched != self.watched:
            self.watched = watched
            if watched:
                self._source.begin()
            else:
                self._source.stop()

    def _accept(self, listener: socket.socket) -> None:
        try:
            connection, _ = listener.accept()
        except OSError:  # it has gone, or there are too many descriptors
            time.sleep(0.05)
            return
        connection = self._own(connection)
        if uid_of_peer(connection) not in (None, own_uid()):
            return self._drop(connection)
        viewer = _Viewer(connection)
        self._viewers.append(viewer)
        viewer.say("hello", {"format": wire.FORMAT, "version": wire.VERSION, **self._source.hello()})
        if len(self._viewers) > MAX_VIEWERS:
            viewer.say("refused", f"{MAX_VIEWERS} viewers watch this server already. Close one of them.")
            viewer.send()
            self._hang_up(viewer)
        elif not viewer.send():
            self._hang_up(viewer)

    def _hear(self, viewer: _Viewer, events: int) -> None:
        questions = viewer.read() if events & selectors.EVENT_READ else []
        if questions is None:
            return self._hang_up(viewer)
        for line in questions:
            if not self._answer(viewer, line):
                viewer.send()
                return self._hang_up(viewer)
        if not viewer.send():
            self._hang_up(viewer)

    def _answer(self, viewer: _Viewer, line: bytes) -> bool:
        """False: it is not one that we can talk with."""
        try:
            key, content = wire.decoded(line)
        except LiveError:
            return False
        complaint = wire.complaint_about(content)
        if complaint is not None:
            viewer.say("refused", complaint)
            return False
        if key == "watch":
            viewer.watches = True
            self._asked = True
        elif key == "detail":
            found = self._source.detail(content.get("id"))
            viewer.say("detail", found)
        elif key == "dump":
            try:
                viewer.say("dumped", self._source.dump())
            except LiveError as exc:
                viewer.say("refused", str(exc))
        return viewer.is_sane()

    def _push(self, every_s: float, took_s: float | None) -> float:
        """One snapshot for all who have taken the last one; returns the CPU seconds that it took."""
        before = time.thread_time()
        snapshot = self._source.snapshot(every_s, None if took_s is None else took_s * 1e3)
        line = wire.encoded("snapshot", snapshot)
        for viewer in [viewer for viewer in self._viewers if viewer.watches]:
            if viewer.pending:
                viewer.dropped += 1
            else:
                viewer.pending = wire.with_dropped(line, viewer.dropped)
                if not viewer.send():
                    self._hang_up(viewer)
        return time.thread_time() - before

    def _hang_up(self, viewer: _Viewer) -> None:
        if viewer in self._viewers:
            self._viewers.remove(viewer)
            self._drop(viewer.connection)

    def _drop(self, connection: socket.socket) -> None:
        for part in [part for part in self._parts if part[0] is connection]:
            self._parts.remove(part)
            close_own(*part)

    def _end(self, path: Path) -> None:
        with suppress(OSError):
            path.unlink()
        for viewer in self._viewers:
            viewer.say("bye", self._closing or "its probe has failed")
            viewer.send()
        self.watched = False
        self._source.stop()
        self._wake = None
        parts, self._parts = self._parts, []
        for part in parts:
            close_own(*part)


class _Viewer:
    """One connection. ``pending`` is what it has not taken yet."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.watches = False
        self.pending = b""
        self.dropped = 0
        self._heard = b""

    @property
    def is_ready(self) -> bool:
        """It watches, and has taken what it was sent."""
        return self.watches and not self.pending

    def say(self, key: str, content: Any) -> None:
        """One more line for it."""
        self.pending += wire.encoded(key, content)

    def is_sane(self) -> bool:
        """It takes what it asks for."""
        return len(self.pending) <= wire.LONGEST_ANSWER

    def send(self) -> bool:
        """Send what it takes now; False: it has gone."""
        while self.pending:
            try:
                sent = self.connection.send(self.pending, _NO_SIGPIPE)
            except BlockingIOError:
                break
            except OSError:
                return False
            self.pending = self.pending[sent:]
        return True

    def read(self) -> list[bytes] | None:
        """Whole lines that have come; ``None``: it has gone, or says too much."""
        try:
            came = self.connection.recv(wire.LONGEST_QUESTION)
        except BlockingIOError:
            return []
        except OSError:
            return None
        *lines, self._heard = (self._heard + came).split(b"\n")
        return lines if came and len(self._heard) <= wire.LONGEST_QUESTION else None


def every_after(took_s: float) -> float:
    """Seconds from one snapshot to the next, after one that used so much CPU."""
    return min(LONGEST_EVERY_S, max(EVERY_S, took_s / MOST_SHARE))
