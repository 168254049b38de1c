"""The flight recorder: the last seconds of a server, written when something goes wrong.

The collector's thread puts frames into the ring and looks for slow requests among them. A thread of ours writes; no
event loop does, nor waits for it. A file is an ordinary recording that begins where the ring does, and ends with what
is in flight.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from queue import Empty, SimpleQueue
from threading import Lock
from typing import Protocol

from mcp_probe.capture.drain import record_of, running_mark
from mcp_probe.capture.guard import Fail, Guard
from mcp_probe.capture.hub import Hub
from mcp_probe.capture.worker import Worker
from mcp_probe.clock import now_ns
from mcp_probe.live.flight_files import name_of, prune, write
from mcp_probe.live.triggers import Trigger, Triggers
from mcp_probe.model import End, Finding, Frame, Header, ProcessSample, RequestRecord
from mcp_probe.record.file import encode, preamble
from mcp_probe.record.raw import RawRequest
from mcp_probe.record.ring import Ring

HOOK = "flight recorder"
FINDINGS_EVERY_S = 10.0
MOST_SHARE = 0.005
"""Of a core, for looking whether a finding is raised."""
LONGEST_PAUSE_S = 120.0
GAP_S = 5.0
"""Between two files that nobody asked for: what fires meanwhile is one reason more for the next."""
MAX_UNFINISHED = 500
MAX_LOOKED_AT = 200
"""Requests in flight that are looked at for one that hangs, the oldest."""
STOP_S = 0.5


class Watched(Protocol):
    """The session whose frames are kept."""

    def live(self) -> list[RawRequest]:
        """Requests that have not ended."""

    def findings(self) -> Sequence[Finding]:
        """What is raised now. Blocks; never a loop's thread."""


class FlightRecorder:
    """See the module's text.

    Args:
        folder: where files go.
        catch_up: has everything drained that was seen by now. Blocks.
    """

    def __init__(
        self,
        folder: str,
        seconds: float,
        triggers: Triggers,
        hub: Hub,
        session: Watched,
        catch_up: Callable[[], None],
        fail: Fail,
    ) -> None:
        self.folder = folder
        self._hub = hub
        self._session = session
        self._catch_up = catch_up
        self._triggers = triggers
        self._ring = Ring(seconds)
        self._header: Header | None = None
        self._lock = Lock()  # for the ring and the header
        self._writing = Lock()
        self._guard = Guard(HOOK, fail, self._forget)
        self._wakes: SimpleQueue[Trigger | None] = SimpleQueue()  # a signal's handler puts, in the middle of anything
        self._pending: list[Trigger] = []
        self._worker: Worker | None = None
        self._stop = False
        self._fresh = False  # frames have come since findings were last asked for
        self.written = 0

    # --- frames: the collector's thread ---

    def take(self, frames: Sequence[Frame], lines: Sequence[bytes]) -> None:
        """The next frames, and the same encoded."""
        if not self._guard.active or self._stop:
            return
        self._guard.call(self._take, frames, lines)

    def _take(self, frames: Sequence[Frame], lines: Sequence[bytes]) -> None:
        now = now_ns()
        kept = [line for frame, line in zip(frames, lines, strict=True) if not isinstance(frame, Header)]
        with self._lock:
            for frame in frames:
                if isinstance(frame, Header):
                    self._header = frame
            self._ring.add(now, kept)
        self._fresh = True
        fired = self._triggers.of_frames(frames, now)
        if any(isinstance(frame, ProcessSample) for frame in frames):  # about once a second
            fired += self._triggers.of_live(islice(self._session.live(), MAX_LOOKED_AT), now)
        for trigger in fired:
            self._wakes.put(trigger)
        if self._worker is None and not self._stop:
            self._worker = Worker("mcp-probe-flight", lambda: self._guard.call(self._run))
            self._worker.start()

    # --- asked for ---

    def ask(self, why: str) -> None:
        """Have it written soon. Any thread, and the handler of a signal; waits for nothing."""
        self._wakes.put(Trigger("", "asked", why))

    def write_now(self, why: str) -> str:
        """Write it; returns the path. Blocks; not on a loop's thread. Raises: OSError."""
        return self._write([Trigger("", "asked", f"{why}.")])

    def close(self, *, waits: bool) -> None:
        """Write what has fired, and end."""
        self._stop = True
        self._wakes.put(None)
        if waits and self._worker is not None:
            self._worker.join(STOP_S)

    def abandon(self) -> None:
        """This is a forked child: what was kept is its parent's."""
        self._stop = True
        self._worker = None
        self._lock, self._writing = Lock(), Lock()
        self._forget()

    def _forget(self) -> None:
        self._ring = Ring(0.0, 0)

    # --- the thread ---

    def _run(self) -> None:
        last, pause_s = time.monotonic() - GAP_S, FINDINGS_EVERY_S
        asked = time.monotonic()
        while not self._stop:
            due_s = GAP_S - (time.monotonic() - last) if self._pending else pause_s
            with suppress(Empty):
                trigger = self._wakes.get(timeout=max(0.0, due_s))
                if trigger is not None:
                    self._pending.append(trigger)
            if self._fresh and time.monotonic() - asked >= pause_s:
                pause_s = self._ask_findings()
                asked = time.monotonic()
            if self._pending and time.monotonic() - last >= GAP_S:
                self._write_pending()
                last = time.monotonic()
        while not self._wakes.empty():
            trigger = self._wakes.get()
            self._pending += [] if trigger is None else [trigger]
        self._write_pending()

    def _ask_findings(self) -> float:
        """Returns the seconds until it may be asked again."""
        self._fresh = False
        before = time.thread_time()
        self._pending += self._triggers.of_findings(self._session.findings(), now_ns())
        took_s = time.thread_time() - before
        return min(LONGEST_PAUSE_S, max(FINDINGS_EVERY_S, took_s / MOST_SHARE))

    def _write_pending(self) -> None:
        pending, self._pending = self._pending, []
        if pending:
            try:
                self._write(pending)
            except OSError as exc:  # the disk may have room again later
                self._hub.missing(HOOK, f"a recording could not be written in {self.folder}: {exc.strerror}")

    def _write(self, why: Sequence[Trigger]) -> str:
        with self._writing:
            if not self._stop:
                self._catch_up()
            with self._lock:
                header, (first, lines) = self._header, self._ring.lines()
            now = now_ns()
            said = [] if header is None else [encode(_cut(header, first, now, why, self._ring.seconds))]
            name = name_of(why[0].word, time.time(), os.getpid())
            path = write(self.folder, name, [preamble(), *said, *lines, *self._unfinished(now), encode(End(now, HOOK))])
            prune(self.folder)
            self.written += 1
            return path

    def _unfinished(self, now: int) -> list[bytes]:
        """What is in flight, as it stands."""
        records: list[RequestRecord] = []
        for raw in self._session.live()[:MAX_UNFINISHED]:
            if not raw.ended:
                found = record_of(self._hub, raw, now, running_mark(self._hub, raw, now))
                records.append(replace(found, outcome="unfinished"))
        return [encode(record) for record in records]


def _cut(header: Header, first: int | None, now: int, why: Sequence[Trigger], seconds: float) -> Header:
    """``header`` as if the probe had been attached at ``first``, with a note that says why this was written."""
    since = header.start_ns if first is None else first
    span_s = (now - since) / 1e9
    reasons = " ".join(dict.fromkeys(trigger.sentence for trigger in why[:5]))
    more = f" And {len(why) - 5} reasons more." if len(why) > 5 else ""
    short = f", not {seconds:.0f}: more did not fit" if first is not None and seconds - span_s > 5 else ""
    note = f"Flight recording: the last {span_s:.1f} s{short}. Written because: {reasons}{more}"
    start_unix = header.start_unix + (since - header.start_ns) / 1e9
    return replace(header, start_unix=start_unix, start_ns=since, notes=(*header.notes, note))
