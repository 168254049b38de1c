"""Look-ups of names by the socket module. The loop's own ``getaddrinfo`` runs them in a thread pool (not uvloop's)."""

from __future__ import annotations

import socket

from mcp_probe.adapters.hook import Hook
from mcp_probe.capture.hub import Hub
from mcp_probe.capture.measuring import Add
from mcp_probe.clock import now_ns

HOOK = "measure (DNS)"
LOOKUPS = ("getaddrinfo", "gethostbyname", "gethostbyname_ex", "gethostbyaddr", "getnameinfo")


class NameLookups:
    """Reads ``dns_wait``."""

    def __init__(self, hub: Hub, add: Add) -> None:
        self._hub = hub
        self._add = add
        self._hook = Hook(hub, HOOK)
        for name in LOOKUPS:
            self._hook.wrap(socket, name, before=self._begin, after=self._end)

    def _begin(self, *args: object, **kwargs: object) -> int:
        return now_ns()

    def _end(self, began_ns: int, result: object, error: BaseException | None) -> None:
        self._add("dns_wait", now_ns() - began_ns)

    def is_complete(self) -> bool:
        """uvloop asks libuv, which nobody sees."""
        return "uvloop" not in self._hub.loop_names

    def restore(self) -> list[str]:
        """Undo it."""
        return self._hook.restore()
