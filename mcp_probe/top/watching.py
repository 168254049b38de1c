"""The servers that somebody watches: one thread for each reads what it sends. Knows no screen."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from mcp_probe.errors import LiveError
from mcp_probe.now import Detail, Snapshot
from mcp_probe.top.servers import Connection, Found, Gone, find, pid_of, why_silent

FIND_EVERY_S = 2.0
SILENT_FACTOR = 2.5
"""Snapshots may be late by so many of their intervals before a server is said to be silent."""
MAX_ENDED = 8
"""Servers that have ended and are still shown."""
_PATIENCE_S = 0.5


class Watching:
    """One server. Its fields are written by its thread, and read by the screen."""

    def __init__(self, connection: Connection) -> None:
        self.path = connection.path
        self.pid = connection.pid
        self.name = connection.name
        self.snapshot: Snapshot | None = None
        self.detail: Detail | None = None
        self.detail_gone = False  # the request that was opened has ended
        self.ended: str | None = None
        self.message = ""
        self.changes = 0
        self._opened: int | None = None
        self._connection = connection
        self._heard = time.monotonic()
        self._thread = threading.Thread(target=self._run, name=f"mcp-probe-top-{self.pid}", daemon=True)
        self._thread.start()

    @property
    def silent_s(self) -> float | None:
        """For how long nothing has come that should have; ``None``: all is well."""
        every_s = 1.0 if self.snapshot is None else self.snapshot.every_s
        late_s = time.monotonic() - self._heard
        return late_s if self.ended is None and late_s > SILENT_FACTOR * every_s else None

    @property
    def silent_why(self) -> str:
        """Why, as far as the system tells."""
        return why_silent(self.pid)

    def open(self, number: int | None) -> None:
        """Ask for this request's stacks with each snapshot; ``None``: for none any more."""
        self._opened, self.detail, self.detail_gone = number, None, False
        self._ask_detail()

    def dump(self) -> None:
        """Have its flight recording written; ``message`` says where."""
        self.message = "asking for the flight recording …"
        with suppress(LiveError):
            self._connection.say("dump")

    def close(self) -> None:
        """Hang up."""
        self._connection.close()

    def _run(self) -> None:
        try:
            self._connection.say("watch")
            while True:
                said = self._connection.read(_PATIENCE_S)
                if said is not None:
                    self._hear(*said)
        except Gone as exc:
            self.ended = str(exc)
        except (LiveError, OSError, ValueError) as exc:  # closed by us, or damaged
            self.ended = str(exc)
        self.changes += 1

    def _hear(self, key: str, content: Any) -> None:
        self._heard = time.monotonic()
        if key == "snapshot":
            self.snapshot = content
            self._ask_detail()
        elif key == "detail":
            if content is not None:
                self.detail = content
            self.detail_gone = content is None
        elif key == "dumped":
            self.message = f"written: {content['path']}"
        elif key == "refused":
            self.message = str(content)
        self.changes += 1

    def _ask_detail(self) -> None:
        if self._opened is not None and not self.detail_gone:
            with suppress(LiveError):
                self._connection.say("detail", id=self._opened)


class Fleet:
    """All servers of this user, or the one with this ``pid``. ``refresh`` blocks: not for a screen's own thread."""

    def __init__(self, pid: int | None = None, look: Callable[[], Found] = find) -> None:
        self._pid = pid
        self._look = look
        self.servers: tuple[Watching, ...] = ()
        self.found: Found | None = None
        self.problems: dict[Path, str] = {}

    def refresh(self) -> None:
        """Take in servers that have come; those that have ended stay, the latest of them."""
        self.found = self._look()
        paths = [path for path in self.found.paths if self._pid is None or pid_of(path) == self._pid]
        known = {one.path for one in self.servers if one.ended is None}
        self.problems = {path: why for path, why in self.problems.items() if path in paths}
        fresh = []
        for path in paths:
            if path not in known and path not in self.problems:
                try:
                    fresh.append(Watching(Connection(path)))
                except Gone:
                    continue
                except LiveError as exc:
                    self.problems[path] = str(exc)
        ended = [one for one in self.servers if one.ended is not None]
        surplus = ended[: max(0, len(ended) - MAX_ENDED)]
        self.servers = tuple([*(one for one in self.servers if one not in surplus), *fresh])

    def close(self) -> None:
        """Hang up on all."""
        for one in self.servers:
            one.close()
