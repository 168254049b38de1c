"""Every request that is alive, and those that have ended and wait for the collector."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable
from typing import Any

from mcp_probe.model import ALL_SEEN, Outcome, RequestGroup, RequestKind
from mcp_probe.record.raw import RawRequest, give_up
from mcp_probe.record.sampling import Groups

MAX_NAME = 128
MAX_LIVE = 100_000


class LiveRequests:
    """Every live request of the process, and the gauges that follow from it."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self.live: dict[int, RawRequest] = {}
        self.peak = 0
        self.unwritten = 0
        self.unwritten_peak = 0
        self.unclaimed = 0
        self.overflow = 0
        self.unstepped_show = ALL_SEEN  # what can be seen of a request before its first step, bits of model.py
        self.closed = False  # the last probe has gone: nothing is followed any more
        self.looks: Any = None  # a capture.await_looks.AwaitLooks, which sleeps while there are none
        self.sizer: Any = None  # a capture.sizing.Sizer, where arguments and results are sized
        self.notifications: Any = None  # a capture.notifications.Notifications, where they are measured

    def open(self, kind: RequestKind, method: str, name: str | None, transport: str) -> RawRequest:
        """A message was seen; nobody has claimed it yet."""
        raw = RawRequest(next(self._numbers), kind, method[:MAX_NAME], name, transport)
        if self.unstepped_show != ALL_SEEN:
            raw.seen = self.unstepped_show
        if len(self.live) < MAX_LIVE:
            self.live[raw.id] = raw
            if self.looks is not None and self.looks.asleep:
                self.looks.wake()
        else:
            self.overflow += 1
        return raw

    def note_peak(self, unread: int) -> None:
        """Outstanding now: live requests and ``unread`` lines behind them."""
        outstanding = len(self.live) + unread
        if outstanding > self.peak:
            self.peak = outstanding

    def finished(self, raw: RawRequest, now: int) -> None:
        """The result of ``raw`` is ready; it is not written yet."""
        if raw.result_ns is None:
            raw.result_ns = now
            if raw.write_seen:
                self.unwritten += 1
                if self.unwritten > self.unwritten_peak:
                    self.unwritten_peak = self.unwritten

    def lose_write(self, raw: RawRequest) -> None:
        """From now on it cannot be seen when the answer of ``raw`` is written."""
        if raw.write_seen and raw.result_ns is not None and not raw.ended:
            self.unwritten -= 1
        raw.write_seen = False

    def end(self, raw: RawRequest, now: int, outcome: Outcome | None = None) -> None:
        """``raw`` has ended; what it still runs is detached. Safe from any thread, and more than once."""
        if not raw.end_at(now):
            return
        if outcome is not None:
            raw.outcome = outcome
        if raw.jobs and raw.outcome != "ok":
            give_up(raw.jobs, now if raw.result_ns is None else raw.result_ns)
        if raw.result_ns is None:
            if raw.channel is not None:
                raw.channel.forget(raw)
        elif raw.write_seen:
            self.unwritten -= 1
        self.live.pop(raw.id, None)
        if raw.session is not None:
            raw.session.finish(raw)
        else:
            self.unclaimed += 1

    def settle(self, raw: RawRequest, now: int) -> None:
        """The handler task of ``raw`` is over and nothing was answered."""
        self.end(raw, now, "ok" if raw.kind == "notification" else "cancelled")


class _Unprofiled:
    """Whose requests are nobody's: no report has them."""

    def finish(self, raw: RawRequest) -> None:
        """One of them has ended."""


UNPROFILED = _Unprofiled()
"""The ``session`` of a request that is the probe's own matter."""


class Finished:
    """Requests that have ended and wait for the collector.

    Any thread may put one, and never waits; the collector takes them. The thread that fills half of the room calls
    ``wake``.
    """

    def __init__(self, most: int, wake: Callable[[], None]) -> None:
        self._most = most
        self._wake = wake
        self._waiting: deque[RawRequest] = deque()
        self._closed = self._woken = False
        self._groups = Groups()

    def put(self, raw: RawRequest) -> None:
        """One more request has ended. If there is no room, it is only counted and gets no record.

        One that was reported as open is always kept: only its record says that it has ended.
        """
        if self._closed:
            return
        if len(self._waiting) >= self._most and not raw.seen_open:
            self._groups.add(raw)
            return
        self._waiting.append(raw)
        if not self._woken and self._is_half_full():
            self._woken = True
            self._wake()

    def take(self) -> list[RawRequest]:
        """All that wait, oldest first."""
        waiting = self._waiting
        taken = [waiting.popleft() for _ in range(len(waiting))]
        self._woken = self._is_half_full()
        return taken

    def take_groups(self) -> list[RequestGroup]:
        """Those for which there was no room, since the last call."""
        return self._groups.take()

    def close(self) -> None:
        """Take none from now on. Those that wait are left to a drain that may be under way."""
        self._closed = True

    def forget(self) -> None:
        """Nobody takes those that wait any more."""
        self._closed = True
        self._waiting = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def _is_half_full(self) -> bool:
        return 2 * len(self._waiting) >= self._most
