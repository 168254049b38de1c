"""The optional accelerator: what stamps, in C, where it was built for this interpreter.

``core`` is the compiled module, or ``None``: then the Python twins do the same, slower, and ``absence`` says why.
``memory`` holds the hooks in Python's allocator, or is ``None``: then memory per request is measured by other means.
Both are switched off with ``MCP_PROBE_NATIVE=0``. Nothing but the package's own folder is needed to load them.
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
    "Poll",
    "Readings",
    "Request",
    "Steps",
    "configure",
    "follow",
    "frame_of",
    "handle_class",
    "measure_memory",
    "park",
    "unfollow",
    "wake",
)
NEEDED_OF_MEMORY = ("blocks", "charge", "hooks", "install", "state", "uninstall")


def _load() -> tuple[Any, str]:
    """(module or None, why not). Never raises: a binary of another version or machine may lie there."""
    if os.environ.get("MCP_PROBE_NATIVE", "").strip().lower() in ("0", "false", "off", "no"):
        return None, "switched off by MCP_PROBE_NATIVE"
    if sys.implementation.name != "cpython":
        return None, f"not known to fit {sys.implementation.name}"
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        return None, "not known to fit a free-threaded interpreter"
    module, why = _import("mcp_probe.native._core", NEEDED)
    if module is not None and abs(module.now_ns() - time.monotonic_ns()) > MAX_CLOCK_GAP_NS:
        return None, "its clock is not the one that Python reads"
    return module, why


def _load_memory() -> tuple[Any, str]:
    """As :func:`_load`, for the hooks in the allocator, which the accelerator calls."""
    if core is None:
        return None, absence
    module, why = _import("mcp_probe.native._memory", NEEDED_OF_MEMORY)
    if module is not None:
        core.measure_memory(module.hooks)
    return module, why


def _import(name: str, needed: tuple[str, ...]) -> tuple[Any, str]:
    try:
        module = import_module(name)
    except ModuleNotFoundError:
        return None, "not built here"
    except Exception as exc:  # noqa: BLE001 - the server must start all the same
        return None, f"cannot be loaded ({type(exc).__name__}: {str(exc).rsplit('/', 1)[-1]})"
    missing = [each for each in needed if not hasattr(module, each)]
    return (None, f"what was built is of another version (no {missing[0]})") if missing else (module, "")


core, absence = _load()
memory, memory_absence = _load_memory()


def state() -> str:
    """``"active"``, or why there is no accelerator."""
    return absence or "active"
