"""How long sessions lasted, for ``mcp.server.session.duration``.

A session begins with the first request seen of it. Over stdio there is one, which ends with the transport. Over HTTP
it is told by its id and ends, as a server without state of ours can see it, with its last request: it counts once none
has come for :data:`IDLE_NS`, or when the probe ends. Requests of no session (stateless HTTP, in-process) count nothing.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass

from mcp_probe.model import RequestRecord

IDLE_NS = 30 * 60 * 1_000_000_000
MAX_SESSIONS = 10_000


@dataclass(slots=True)
class Session:
    """One session, as far as its requests tell."""

    transport: str
    start_ns: int
    end_ns: int
    protocol_version: str | None = None


class Sessions:
    """Requests in, ended sessions out. Not thread-safe."""

    def __init__(self) -> None:
        self._stdio: Session | None = None
        self._by_id: OrderedDict[str, Session] = OrderedDict()  # the longest idle first

    def add(self, record: RequestRecord) -> Iterator[Session]:
        """Take one request in; yields sessions that are over by now."""
        if record.kind == "function":
            return iter(())
        seen = Session(record.transport, record.arrival_ns, record.end_ns, record.protocol_version)
        return self.extend(record.session_id, seen)

    def extend(self, session_id: str | None, seen: Session) -> Iterator[Session]:
        """Take requests of one session in, from ``seen.start_ns`` to ``seen.end_ns``; yields sessions that are over."""
        if session_id is not None:
            session = self._by_id.setdefault(session_id, seen)
            self._by_id.move_to_end(session_id)
        elif seen.transport == "stdio":
            session = self._stdio = self._stdio or seen
        else:
            return
        session.start_ns = min(session.start_ns, seen.start_ns)
        session.end_ns = max(session.end_ns, seen.end_ns)
        session.protocol_version = seen.protocol_version or session.protocol_version
        while self._by_id and self._is_over(next(iter(self._by_id.values())), seen.end_ns):
            yield self._by_id.popitem(last=False)[1]

    def _is_over(self, longest_idle: Session, now_ns: int) -> bool:
        return len(self._by_id) > MAX_SESSIONS or longest_idle.end_ns + IDLE_NS <= now_ns

    def end(self, at_ns: int, *, everything: bool = True) -> Iterator[Session]:
        """The probe ends; or, without ``everything``, one transport has closed: HTTP sessions have one each."""
        while everything and self._by_id:
            yield self._by_id.popitem(last=False)[1]
        session, self._stdio = self._stdio, None
        if session is not None:
            session.end_ns = max(session.end_ns, at_ns)
            yield session
