"""The optional accelerator: the hot path in C, where it was built and fits this interpreter.

``core`` is the compiled module, or ``None``: then the Python twins do the same, slower, and ``absence`` says why.
Switched off with ``MCP_PROBE_NATIVE=0``. One binary serves CPython 3.10-3.15; nothing but the package's own folder is
needed to load it.
"""

from __future__ import annotations

import os
import sys
import sysconfig
import time
from importlib import import_module
from typing import Any

MAX_CLOCK_GAP_NS = 1_000_000_000
NEEDED = (
    "Channel",
    "Claims",
    "Desk",
    "Entrance",
    "Exchange",
    "Finished",
    "KnownSpan",
    "LineStamps",
    "Poll",
    "Readings",
    "Request",
    "Row",
    "Schedule",
    "Send",
    "SocketReady",
    "Spans",
    "StampedBuffer",
    "Steps",
    "Sums",
    "Sweep",
    "Timers",
    "TransportCall",
    "Turn",
    "Uses",
    "charge",
    "configure",
    "doze",
    "exchange_of",
    "http",
    "lots",
    "memory_blocks",
    "memory_install",
    "memory_state",
    "memory_uninstall",
    "messages",
    "note_small_steps",
    "rouse",
    "shapes",
    "sum_up",
    "transport_levels",
)


def _load() -> tuple[Any, str]:
    """(module or None, why not). Never raises: a binary of another version or machine may lie there."""
    if os.environ.get("MCP_PROBE_NATIVE", "").strip().lower() in ("0", "false", "off", "no"):
        return None, "switched off by MCP_PROBE_NATIVE"
    if sys.implementation.name != "cpython" or not (3, 10) <= sys.version_info[:2] <= (3, 15):
        return None, f"not known to fit {sys.implementation.name} {sys.version_info[0]}.{sys.version_info[1]}"
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        return None, "not known to fit a free-threaded interpreter"
    try:
        module = import_module("mcp_probe.native._core")
        missing = [name for name in NEEDED if not hasattr(module, name)]
        if missing:
            return None, f"what was built is of another version (no {missing[0]})"
        if abs(module.now_ns() - time.monotonic_ns()) > MAX_CLOCK_GAP_NS:
            return None, "its clock is not the one that Python reads"
    except ModuleNotFoundError:
        return None, "not built here"
    except Exception as exc:  # noqa: BLE001 - the server must start all the same
        return None, f"cannot be loaded ({type(exc).__name__}: {str(exc).rsplit('/', 1)[-1]})"
    return module, ""


core, absence = _load()


def state() -> str:
    """``"active"``, or why there is no accelerator."""
    return absence or "active"
