"""The stdio transport's own calls, each a job on a worker thread: ``readline``, ``write``, ``flush``.

A :class:`TransportCall` stands in for the method of the transport's text stream. It notes when the job got
its thread and when it was done (the transport holds tokens of the same limiter as the tools do), and what
that says about the answer being written.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mcp_probe.capture.current import WORKER
from mcp_probe.capture.executor import TRANSPORT_FINISH, TRANSPORT_JOB, TRANSPORT_START
from mcp_probe.clock import now_ns

READ, WRITE, FLUSH = range(3)
CALLS = {"readline": READ, "write": WRITE, "flush": FLUSH}


class PythonTransportCall:
    """Calls ``original`` and tells ``channel``; twin of ``TransportCall`` in native/transport.h.

    ``fail`` is told of a fault of ours, once; from then on it only calls.
    """

    def __init__(
        self, kind: int, original: Callable[..., Any], channel: Any, fail: Callable[[Exception], None]
    ) -> None:
        self.kind = kind
        self.original = original
        self.channel = channel
        self.alive = True
        self.pool: Any = None
        self.append: Callable[[Any], None] | None = None  # of the pools' transitions, set with ``pool``
        self.submitted_ns = 0
        self.fail = fail

    def submit(self) -> None:
        """The transport hands the call to the executor. Loop's thread; never raises."""
        if not self.alive:
            return
        try:
            self.submitted_ns = now = now_ns()
            raw = self.channel.writing if self.kind == WRITE else None
            if raw is not None and raw.encode_ns is None and raw.write_taken_ns is not None:
                raw.encode_ns = now - raw.write_taken_ns
        except Exception as exc:  # noqa: BLE001 - a fault of ours never reaches the server
            self._broken(exc)

    def __call__(self, *args: Any) -> Any:
        """Worker thread."""
        if not self.alive:
            return self.original(*args)
        submitted, self.submitted_ns = self.submitted_ns, 0
        start = self._began(submitted)
        try:
            result = self.original(*args)
        finally:
            if submitted and self.alive:
                self._ended(start, start - submitted)
        if self.alive:
            self._returned(result)
        return result

    def _began(self, submitted: int) -> int:
        try:
            now = now_ns()
            if submitted and self.kind == READ and self.append is not None:  # it may wait for ever
                self.append((now, TRANSPORT_START, self.pool, now - submitted))
            return now
        except Exception as exc:  # noqa: BLE001
            self._broken(exc)
            return 0

    def _ended(self, start: int, wait: int) -> None:
        try:
            WORKER.transport = True
            now = now_ns()
            if self.append is None:
                return
            if self.kind == READ:
                self.append((now, TRANSPORT_FINISH, self.pool, 0))
            else:
                self.append((now, TRANSPORT_JOB, self.pool, (start, wait)))
        except Exception as exc:  # noqa: BLE001
            self._broken(exc)

    def _returned(self, result: Any) -> None:
        try:
            if self.kind == WRITE and self.channel.writing is not None:
                self.channel.writing.response_bytes = result
            elif self.kind == FLUSH:
                self.channel.flushed()
        except Exception as exc:  # noqa: BLE001
            self._broken(exc)

    def _broken(self, exc: Exception) -> None:
        self.alive = False
        self.fail(exc)


if TYPE_CHECKING:
    TransportCall = PythonTransportCall
else:
    TransportCall = PythonTransportCall
