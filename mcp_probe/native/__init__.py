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
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from types import FrameType

    from mcp_probe.native import _core, _memory

MAX_CLOCK_GAP_NS = 1_000_000_000


class Core(Protocol):
    """What the package takes from ``_core``. A module that lacks any of it is not loaded."""

    PipeLooker: type[_core.PipeLooker]
    PipeLooks: type[_core.PipeLooks]
    Poll: type[_core.Poll]
    Readings: type[_core.Readings]
    Request: type[_core.Request]
    Steps: type[_core.Steps]

    def now_ns(self) -> int: ...
    def configure(self, current: _core._Current, step: type, wakeup: type, task: type, function: type, /) -> None: ...
    def handle_class(self, base: type, metaclass: type[type], /) -> type[Any]: ...
    def follow(self, steps: _core._AnySteps, /) -> None: ...
    def unfollow(self, steps: _core._AnySteps | None, /) -> None: ...
    def park(
        self,
        watched: tuple[_core._AnyReadings, ...],
        limit_ns: int,
        wait_ns: int,
        most_ns: int,
        looker: _core._AnyPipeLooker,
        /,
    ) -> bool: ...
    def wake(self) -> None: ...
    def frame_of(self, thread_id: int, /) -> FrameType | None: ...
    def measure_memory(self, hooks: object, /) -> None: ...


class Memory(Protocol):
    """What the package takes from ``_memory``."""

    hooks: object

    def install(self, mode: _memory._Mode, /) -> None: ...
    def uninstall(self) -> None: ...
    def state(self) -> dict[str, Any]: ...
    def blocks(self, requests: _core._Requests, most: int, /) -> list[tuple[int, int, int]]: ...
    def charge(self, request: _core._AnyRequest | None, /) -> Any: ...


if TYPE_CHECKING:  # the stubs say the same
    _CORE: Core = _core
    _MEMORY: Memory = _memory


def _load() -> tuple[Core | None, str]:
    """(module or None, why not). Never raises: a binary of another version or machine may lie there."""
    if os.environ.get("MCP_PROBE_NATIVE", "").strip().lower() in ("0", "false", "off", "no"):
        return None, "switched off by MCP_PROBE_NATIVE"
    if sys.implementation.name != "cpython":
        return None, f"not known to fit {sys.implementation.name}"
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        return None, "not known to fit a free-threaded interpreter"
    module: Core | None
    module, why = _import("mcp_probe.native._core", Core)
    if module is not None and abs(module.now_ns() - time.monotonic_ns()) > MAX_CLOCK_GAP_NS:
        return None, "its clock is not the one that Python reads"
    return module, why


def _load_memory() -> tuple[Memory | None, str]:
    """As :func:`_load`, for the hooks in the allocator, which the accelerator calls."""
    if core is None:
        return None, absence
    module: Memory | None
    module, why = _import("mcp_probe.native._memory", Memory)
    if module is not None:
        core.measure_memory(module.hooks)
    return module, why


def _import(name: str, needed: type) -> tuple[Any, str]:
    try:
        module = import_module(name)
    except ModuleNotFoundError:
        return None, "not built here"
    except Exception as exc:  # noqa: BLE001 - the server must start all the same
        return None, f"cannot be loaded ({type(exc).__name__}: {str(exc).rsplit('/', 1)[-1]})"
    missing = [each for each in names_of(needed) if not hasattr(module, each)]
    return (None, f"what was built is of another version (no {missing[0]})") if missing else (module, "")


def names_of(protocol: type) -> list[str]:
    """What a module must have to be of this type."""
    return sorted(name for name in {**protocol.__annotations__, **vars(protocol)} if not name.startswith("_"))


core, absence = _load()
memory, memory_absence = _load_memory()


def state() -> str:
    """``"active"``, or why there is no accelerator."""
    return absence or "active"
