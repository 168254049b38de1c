"""Counts what was delivered and what was not, per signal; losses are logged once."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from urllib.parse import urlsplit

from mcp_probe.errors import MissingExtraError
from mcp_probe.model import Delivery, Signal, Summary

logger = logging.getLogger("mcp_probe")

AT_EXIT = "no answer by the time the process ended"

_LONGEST_REASON = 300
_NOISY = ("opentelemetry.", "urllib3", "grpc", "requests")


class Tally:
    """Counts of one signal to one destination. Any thread; ``overflowed`` neither logs nor waits."""

    def __init__(self, signal: Signal, destination: str, say: Callable[[Tally], None]) -> None:
        self.signal = signal
        self.destination = destination
        self._say = say
        self.forget()

    def forget(self) -> None:
        """Start at 0: this is a forked child, and the counts are its parent's."""
        self._lock = threading.Lock()
        self._delivered = self._lost = self._overflowed = 0
        self.reason: str | None = None

    def delivered(self, count: int) -> None:
        """``count`` items were taken by the backend."""
        with self._lock:
            self._delivered += count

    def overflowed(self) -> None:
        """One item was not even queued."""
        with self._lock:
            self._overflowed += 1

    def lost(self, count: int, reason: str) -> None:
        """``count`` items will never arrive. The first such reason is kept and logged."""
        if not count:
            return
        with self._lock:
            self._lost += count
            first = self.reason is None
            if first:
                self.reason = " ".join(reason.split())[:_LONGEST_REASON]
        if first:
            self._say(self)

    def pending(self, reason: str) -> None:
        """Items have no answer and may never get one. This is logged like a loss, and counted when it becomes one."""
        with self._lock:
            first, self.reason = self.reason is None, self.reason or " ".join(reason.split())[:_LONGEST_REASON]
        if first:
            self._say(self)

    def value(self, overflow_reason: str) -> Delivery:
        """The counts so far."""
        with self._lock:
            reason = self.reason or (overflow_reason if self._overflowed else None)
            return Delivery(self.signal, self.destination, self._delivered, self._lost + self._overflowed, reason)


class Once:
    """Says, once for all signals together, that something could not be delivered. On an export worker's thread."""

    def __init__(self) -> None:
        self._said = False

    def __call__(self, tally: Tally) -> None:
        if self._said:
            return
        self._said = True
        logger.warning(
            "mcp_probe: telemetry for %s cannot be delivered (%s). The server is not affected. The report counts what "
            "is lost. This warning is not repeated.",
            tally.destination,
            tally.reason,
        )


def sentence_of(delivery: Delivery) -> str | None:
    """The report's sentence on ``delivery``, or ``None`` where nothing was lost."""
    if not delivery.undelivered:
        return None
    what = delivery.signal.removesuffix("s") if delivery.undelivered == 1 else delivery.signal
    return (
        f"telemetry: {delivery.undelivered} {what} could not be delivered to {delivery.destination} "
        f"({delivery.reason}); {delivery.delivered} delivered"
    )


def with_deliveries(summary: Summary, deliveries: tuple[Delivery, ...]) -> Summary:
    """``summary`` with what this process delivered, and a sentence on what it could not."""
    sentences = tuple(sentence for delivery in deliveries if (sentence := sentence_of(delivery)) is not None)
    probe = replace(summary.probe, telemetry=deliveries, notes=(*summary.probe.notes, *sentences))
    return replace(summary, probe=probe)


def missing_extra(exc: ImportError) -> MissingExtraError:
    """What to say where a package of the extra ``otel`` cannot be imported."""
    return MissingExtraError(
        f"otlp needs the OpenTelemetry SDK and its OTLP exporters ({exc}). Install them where the server lives with "
        "`pip install 'mcp-probe-profiler[otel]'`, or let `mcp-probe run --otlp` export from outside the server."
    )


def shown(endpoint: str) -> str:
    """``endpoint`` without what may be secret in it: user, password, query."""
    parts = urlsplit(endpoint)
    if not parts.hostname:
        return endpoint
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    port = f":{parts.port}" if parts.port else ""
    return f"{parts.scheme}://{host}{port}{parts.path}"


class Overheard(logging.Filter):
    """Keeps what exporters log on the export workers' threads out of the server's log, and remembers it as the reason.

    The exporters log every attempt; on other threads they are the application's own and pass as they would without
    us, also where an application that logs less is made to let warnings come as far as this filter.
    """

    def __init__(self) -> None:
        super().__init__()
        self.forget()

    def forget(self) -> None:
        """Start again: after a fork the threads are the parent's, and the lock may be held for ever."""
        for known, level in getattr(self, "_levels", {}).items():
            known.removeFilter(self)
            known.setLevel(level)
        self._lock = threading.Lock()
        self._last: dict[int, str | None] = {}
        self._levels: dict[logging.Logger, int] = {}

    def listen(self) -> None:
        """Listen on every logger of the exporters that exists by now. On an export worker's thread."""
        with self._lock:
            self._last.setdefault(threading.get_ident(), None)
            for name, known in logging.root.manager.loggerDict.copy().items():
                if not name.startswith(_NOISY) or not isinstance(known, logging.Logger) or known in self._levels:
                    continue
                self._levels[known] = known.level
                known.addFilter(self)
                if known.getEffectiveLevel() > logging.WARNING:
                    known.setLevel(logging.WARNING)

    def leave_thread(self) -> None:
        """The calling thread ends; the last one takes the filters off again."""
        with self._lock:
            self._last.pop(threading.get_ident(), None)
            if self._last:
                return
            for known, level in self._levels.items():
                known.removeFilter(self)
                known.setLevel(level)
            self._levels.clear()

    def take_reason(self) -> str | None:
        """What was last logged at warning or above on this thread, forgotten with this call."""
        me = threading.get_ident()
        reason = self._last.get(me)
        self._last[me] = None
        return reason

    def unanswered(self, thread: int | None) -> str:
        """Why the call that ``thread`` is still in has had no answer, as far as it has been said."""
        said = self._last.get(thread) if thread is not None else None
        return f"{AT_EXIT}: {said}" if said else AT_EXIT

    def filter(self, record: logging.LogRecord) -> bool:
        if record.thread not in self._last:
            return record.levelno >= self._level_of(logging.getLogger(record.name))
        if record.levelno >= logging.WARNING:
            try:
                self._last[record.thread] = record.getMessage()
            except Exception:  # noqa: BLE001 - a message that cannot be put together is nobody's loss
                self._last[record.thread] = record.msg
        return False

    def _level_of(self, known: logging.Logger | None) -> int:
        """The effective level of ``known`` as it would be without us."""
        while known is not None:
            level = self._levels.get(known, known.level)
            if level:
                return level
            known = known.parent
        return logging.NOTSET


OVERHEARD = Overheard()
"""One for the process: loggers are the process's."""
