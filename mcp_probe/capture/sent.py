"""When a client on this machine sent a request, if it says so in ``params._meta``.

While the server does not read, bytes pile up in the pipe. The server only knows when it read them. A client that
reads the same clock can say when it wrote them; the difference is the wait in the pipe.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

KEY = "mcp-probe/sent"
"""In ``_meta``; its value is ``{"ns": <now_ns>, "clock": <clock>}``. Source for the form of the key: MCP, ``_meta``."""

_LONGEST_NS = 86_400_000_000_000


def clock_identity() -> str | None:
    """Which clock :func:`mcp_probe.clock.now_ns` reads here; ``None`` if two processes' clocks cannot be compared.

    CLOCK_MONOTONIC is one per boot and time namespace. Source: clock_gettime(2), time_namespaces(7). Linux only.
    """
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as boot:
            identity = boot.read().strip()
        namespace = re.sub(r"\D", "", os.readlink("/proc/self/ns/time"))
    except (OSError, UnicodeDecodeError):
        return None
    return f"{identity}/{namespace}"


CLOCK = clock_identity()


def stamp(ns: int) -> dict[str, Any] | None:
    """What to send under :data:`KEY` for a request written at ``ns``; ``None`` where nobody could use it."""
    return None if CLOCK is None else {"ns": ns, "clock": CLOCK}


def sent_ns(meta: Mapping[str, Any], taken_ns: int) -> int | None:
    """When the request with this ``_meta`` was written, on this process's clock; ``None`` where that is not known.

    A stamp from another machine, from the future, or older than a day is ignored.
    """
    value = meta.get(KEY)
    if not isinstance(value, Mapping) or CLOCK is None or value.get("clock") != CLOCK:
        return None
    ns = value.get("ns")
    return ns if type(ns) is int and taken_ns - _LONGEST_NS <= ns <= taken_ns else None
