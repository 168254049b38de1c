"""Measures steps and jobs with jemalloc's own counters, if it was preloaded and there is no accelerator."""

from __future__ import annotations

import ctypes
import threading
from typing import Any, NamedTuple

from mcp_probe.capture.meters import ESTIMATES, UNKNOWN, Metered, Row, metered_up_from
from mcp_probe.model import MemoryMethod, MemoryUse
from mcp_probe.record.raw import RawRequest


class ThreadReading(NamedTuple):
    """A thread's counters as its step or job begins."""

    allocated: int
    freed: int


class JemallocMeter:
    """jemalloc's counters of the calling thread: all that goes through ``malloc``, native libraries included.

    Blocks of up to 512 bytes are not counted (CPython's own allocator gets arenas by ``mmap``). Sizes are jemalloc's
    size classes: at most a quarter above what was asked for.

    Source: jemalloc(3), 5.3: ``thread.allocatedp``, ``thread.deallocatedp``, ``thread.peak.reset`` and ``.read``.
    """

    method: MemoryMethod = "jemalloc"
    scope = "malloc: blocks > 512 B, native libraries"

    def __init__(self) -> None:
        """Raises: OSError or AttributeError where jemalloc is not the allocator of this process."""
        self._mallctl = _mallctl()
        self._local = threading.local()
        self._lock = threading.Lock()
        self._counters()

    def _counters(self) -> tuple[Any, Any, Any, Any]:
        """(allocated, freed, a place for the peak, its size) of the calling thread."""
        local = self._local
        found: tuple[Any, Any, Any, Any] | None = getattr(local, "counters", None)
        if found is None:
            addresses = [self._pointer(name) for name in (b"thread.allocatedp", b"thread.deallocatedp")]
            self._control(b"thread.peak.reset")
            place = ctypes.c_uint64()
            found = local.counters = (
                *map(ctypes.c_uint64.from_address, addresses),
                place,
                ctypes.c_size_t(ctypes.sizeof(place)),
            )
        return found

    def _pointer(self, name: bytes) -> int:
        place, size = ctypes.c_void_p(), ctypes.c_size_t(ctypes.sizeof(ctypes.c_void_p))
        if self._mallctl(name, ctypes.byref(place), ctypes.byref(size), None, 0) or not place.value:
            raise OSError(f"jemalloc does not know {name.decode()}")
        return place.value

    def _control(self, name: bytes) -> None:
        if self._mallctl(name, None, None, None, 0):
            raise OSError(f"jemalloc does not know {name.decode()}")

    def begin(self) -> ThreadReading:
        allocated, freed, _, _ = self._counters()
        self._control(b"thread.peak.reset")
        return ThreadReading(allocated.value, freed.value)

    def end(self, reading: ThreadReading, owner: RawRequest) -> None:
        allocated, freed, place, size = self._counters()
        requested = allocated.value - reading.allocated
        net = requested - (freed.value - reading.freed)
        self._mallctl(b"thread.peak.read", ctypes.byref(place), ctypes.byref(size), None, 0)
        rise = max(place.value, net, 0)
        with self._lock:
            for metered in metered_up_from(owner):
                metered.add(requested, net, rise)

    def enter(self, raw: RawRequest | None) -> tuple[ThreadReading, RawRequest] | None:
        return None if raw is None or raw.ended else (self.begin(), raw)

    def leave(self, token: tuple[ThreadReading, RawRequest] | None) -> None:
        if token is not None:
            self.end(*token)

    def use_of(self, raw: RawRequest) -> MemoryUse | None:
        found: Metered | None = raw.metered
        if found is None:
            return None
        rows: tuple[Row, ...] = (("requested", "upper", None, found.requested), UNKNOWN[1], *ESTIMATES)
        return MemoryUse(self.method, self.scope, found.requested, None, found.peak, found.held, rows)


def has_jemalloc() -> bool:
    """Whether jemalloc serves this process's ``malloc`` and tells what a thread has allocated."""
    try:
        with open("/proc/self/maps", "rb") as maps:
            if b"jemalloc" not in maps.read():
                return False
        JemallocMeter()
    except Exception:  # noqa: BLE001 - a foreign interpreter may lack ctypes, a symbol, or the right to load
        return False
    return True


def _mallctl() -> Any:
    function = ctypes.CDLL(None).mallctl
    function.argtypes = (ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
    function.restype = ctypes.c_int
    return function
