"""Calls of backends: what each waits for now, until it waits for something else.

A hook around a library's call (adapters/waits) says when the call begins, when it turns to its next phase (a connection
is opened, the request is on its way), and when it is over. Each phase is one await. Names are scheme, host and port:
what else a library tells its hooks is not looked at. Calls outside a request are not noted.

Invariant: only the outermost call that waits counts. What a call of a backend awaits inside (a lock of its pool,
another library's call) is no wait of its own; so a hook may be put around every layer of a library.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any
from weakref import ref

from mcp_probe.capture.awaits import OPEN, Awaited, Awaits, Open, note, note_of, where_now
from mcp_probe.capture.current import CURRENT
from mcp_probe.clock import now_ns
from mcp_probe.model import AwaitKind, AwaitPhase
from mcp_probe.record.raw import AwaitMark, RawRequest

logger = logging.getLogger("mcp_probe")

Redact = Callable[[str, Any], Any]
"""(kind, name) -> what may be shown of it; kinds are ``host`` and ``program``."""

DEFAULT_PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443}
NOT_ASKED = "not asked"
"""Where a call is made, if nobody has looked at the stack yet."""

TOGETHER_NS = 1_000_000
"""Reads of one body that follow each other within this time are one wait: a request keeps so many marks only."""

READ_NS = 20_000
"""A read of a body that returns within this time found it there."""

MAX_OPEN = 16_384
"""Calls that are remembered while they wait."""

MAX_BACKENDS = 1_024
"""Names that are remembered; further ones are ``other hosts``."""

OTHER_HOSTS = "other hosts"
REDACTED = "redacted"
"""What stands for a name that a user's ``redact`` withholds."""


def address(scheme: str, host: str, port: int | None) -> str:
    """``scheme://host:port``, without the port that the scheme has anyway.

    Some libraries have a path where there is no host (``http+unix``): it is left out.
    """
    if "/" in host or "%2f" in host.lower():
        return f"{scheme}://(a socket)"
    return located(scheme, host.rpartition("@")[2], port)


def located(scheme: str, host: str, port: object) -> str:
    """``scheme://host:port`` of parts that hold nothing else."""
    host = f"[{host}]" if ":" in host else host
    return f"{scheme}://{host}" if port is None or port == DEFAULT_PORTS.get(scheme) else f"{scheme}://{host}:{port}"


class Call(Open):
    """One call of a backend, and the phase that it is in."""

    __slots__ = ("calls", "kind", "library", "name", "opened", "outer", "phase", "where")

    raw: RawRequest

    def __init__(self, raw: RawRequest, outer: Open | None, kind: AwaitKind, name: str) -> None:
        super().__init__(None, now_ns(), raw)
        self.outer = outer
        self.kind: AwaitKind = kind
        self.name = name
        self.phase: AwaitPhase | None = None
        self.calls = 0  # sent in this phase
        self.opened = 0  # connections opened in this phase
        self.where: str | None = NOT_ASKED
        self.library: str | None = None  # whose call keeps its thread until it returns


class Outbound:
    """See the module's text. Its methods are called on the thread that calls the library, and may raise."""

    def __init__(self, awaits: Awaits) -> None:
        self._awaits = awaits
        self._known: dict[tuple[AwaitKind, str], Awaited] = {}
        self._redact: dict[int, Redact] = {}
        self._open: dict[int, ref[Call]] = {}  # by id; a call that is dropped never ends
        self._told = False

    def redact_with(self, who: object, redact: Redact | None) -> None:
        """From now on ``redact`` of ``who`` decides what is said of a backend, as do those of others; any thread."""
        if redact is not None:
            self._redact = {**self._redact, id(who): redact}
            self.clear()

    def forget(self, who: object) -> None:
        """``who`` has gone."""
        self._redact = {key: redact for key, redact in self._redact.items() if key != id(who)}
        self.clear()

    def shown(self, kind: AwaitKind, name: str) -> str:
        """``name`` of a backend, or of a program that is started, as users let it be seen. Any thread; calls them."""
        for redact in self._redact.values():
            try:
                found = redact("program" if kind == "subprocess" else "host", name)
            except Exception as exc:  # noqa: BLE001 - the server's call goes on; the name stays home
                if not self._told:
                    self._told = True
                    logger.warning("mcp_probe: redact raised %s; names of backends are left out", type(exc).__name__)
                return REDACTED
            if not isinstance(found, str):
                return REDACTED
            name = found
        return name

    def begin(
        self,
        kind: AwaitKind,
        name: str,
        phase: AwaitPhase | None = None,
        *,
        calls: int = 0,
        where: str | None = NOT_ASKED,
        library: str | None = None,
    ) -> Call | None:
        """A call of the backend ``name`` begins; ``None`` if no request makes it, or a call around it is noted.

        Args:
            kind: what it waits for at first.
            name: ``scheme://host:port`` of a backend, or the name of a program.
            phase: of it, where the library shows phases.
            calls: 1 if what is sent first is the request itself.
            where: ``file:line`` of the user's code, if its caller knows; ``None``: no code of the user's calls.
            library: whose call keeps its thread until it returns; ``None``: its task is suspended meanwhile.
        """
        raw = CURRENT.get()
        outer = OPEN.get()
        if raw is None or (outer is not None and not outer.over):
            return None
        call = Call(raw, outer, kind, name)
        call.phase = phase
        call.calls = calls
        call.where = where
        call.library = library
        OPEN.set(call)
        if len(self._open) >= MAX_OPEN:
            self._open = {key: known for key, known in self._open.copy().items() if known() is not None}
        if len(self._open) < MAX_OPEN:
            self._open[id(call)] = ref(call)
        return call

    def turn(self, call: Call | None, kind: AwaitKind, phase: AwaitPhase | None = None, *, calls: int = 0) -> None:
        """From now on ``call`` waits for this, in which ``calls`` requests are sent."""
        if call is None or call.over:
            return
        if call.where is NOT_ASKED:
            call.where = where_now()
        now = now_ns()
        self._note(call, now)
        call.began_ns = now
        call.kind, call.phase, call.calls, call.opened = kind, phase, calls, 0

    def end(self, call: Call | None) -> None:
        """``call`` is over: it has returned, raised, or was cancelled."""
        if call is None or call.over:
            return
        call.over = True
        self._open.pop(id(call), None)
        if OPEN.get() is call:
            OPEN.set(call.outer)
        now = now_ns()
        if call.phase == "body" and now - call.began_ns < READ_NS:
            return
        if call.where is NOT_ASKED:
            call.where = where_now()
        self._note(call, now)

    def waiting(self) -> list[Call]:
        """Calls that wait now. Any thread."""
        return [call for known in list(self._open.values()) if (call := known()) is not None and not call.over]

    def clear(self) -> None:
        """Forget all names."""
        self._known.clear()

    def _note(self, call: Call, now: int) -> None:
        raw = call.raw
        if now - call.began_ns < 1 and not call.calls and not call.opened:
            return
        thing = self.thing(call.kind, call.name)
        job = self._awaits.is_job(raw)
        mark = AwaitMark(
            *(call.began_ns, now, thing, call.where, (), job, call.phase, call.calls, call.opened),
            library=call.library,
        )
        if call.phase == "body":
            _note_read(raw, mark)
        else:
            note(raw, mark)

    def thing(self, kind: AwaitKind, name: str) -> Awaited:
        """The backend ``name``, as it may be shown. Any thread."""
        known = self._known.get((kind, name))
        if known is None:
            if len(self._known) >= MAX_BACKENDS:
                return self._known.setdefault((kind, OTHER_HOSTS), Awaited(kind, OTHER_HOSTS))
            known = self._known.setdefault((kind, name), Awaited(kind, self.shown(kind, name)))
        return known


def _note_read(raw: RawRequest | None, mark: AwaitMark) -> None:
    """As :func:`note`, of a read of a body; one that follows the last read at once is added to that."""
    while raw is not None:
        marks = raw.awaits
        last = marks[-1] if isinstance(marks, list) and marks and not raw.ended else None
        if last is not None and _continues(last, mark):
            marks[-1] = last._replace(from_ns=min(last.from_ns, mark.from_ns), to_ns=mark.to_ns)  # type: ignore[index]
        else:
            note_of(raw, mark)
        raw = raw.parent


def _continues(last: AwaitMark, mark: AwaitMark) -> bool:
    same = (last.thing, last.where, last.in_job, last.phase) == (mark.thing, mark.where, mark.in_job, mark.phase)
    if mark.library is not None and not mark.in_job:
        return False  # between two reads its caller works on the loop
    return same and last.to_ns is not None and mark.from_ns - last.to_ns <= TOGETHER_NS
