"""The process's memory during a leak hunt: resident, asked for by Python, and what the probe itself holds of both.

What the server's process grows by is owned by calls, or is Python's and nobody's, or was taken by native code. The
parts only add up if the probe's own memory is left out, which grows with the calls that the hunt remembers. Pages of
files (a library that is loaded late) and what ``malloc`` has free (holes in the heap) are nobody's growth either.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from mcp_probe import native
from mcp_probe.capture.peak_lines import held_by
from mcp_probe.capture.proc_files import private_bytes
from mcp_probe.capture.tracemalloc_sites import tracing_state
from mcp_probe.record.raw import RawRequest

WORDS_SHARE = 0.25
"""The accelerator notes the owner of each 16 bytes of small objects in 4: at most this share of what Python holds."""

Reading = tuple[int, int]
"""(resident, asked for by Python), bytes, both without what is the probe's: see ``GrowthSample``."""


def free_in_heap() -> Callable[[], int]:
    """A function that says how many bytes ``malloc`` has free; one that says 0 where that cannot be asked."""
    return _of_heap("fordblks")


def used_in_heap() -> Callable[[], int]:
    """The same of what ``malloc`` has handed out, by whomever it was asked."""
    return _of_heap("uordblks", "hblkhd")


def _of_heap(*wanted: str) -> Callable[[], int]:
    """Source: ``mallinfo2``, glibc 2.33, malloc/malloc.h."""
    import ctypes  # only a hunt needs it

    names = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"

    class MallInfo(ctypes.Structure):
        _fields_ = [(name, ctypes.c_size_t) for name in names.split()]

    try:
        mallinfo = ctypes.CDLL(None).mallinfo2
    except (OSError, AttributeError, TypeError):  # not glibc, or older than 2.33
        return lambda: 0
    mallinfo.restype = MallInfo

    def read() -> int:
        info = mallinfo()
        return sum(int(getattr(info, name)) for name in wanted)

    return read


class ProcessMemory:
    """See the module's text. Needs the accelerator's hooks, and tracemalloc."""

    def __init__(self) -> None:
        self._own = RawRequest(0, "function", "", "mcp_probe", "memory")
        self._epoch: int | None = None  # the hooks that know the account of this request
        self._free = free_in_heap()
        self._used = used_in_heap()
        self._holes = 0  # that our looks left in the heap

    @contextmanager
    def on_own_account(self) -> Iterator[None]:
        """What the calling thread allocates meanwhile is the probe's."""
        if native.memory is None:
            yield
            return
        epoch = native.memory.state()["epoch"]
        if epoch != self._epoch:
            self._epoch, self._own = epoch, RawRequest(0, "function", "", "mcp_probe", "memory")
        before = native.memory.charge(self._own)
        try:
            yield
        finally:
            native.memory.charge(before)

    def read(self) -> Reading | None:
        """How things stand; ``None`` where that cannot be known here."""
        resident = private_bytes()
        if resident is None or native.memory is None or not tracing_state():
            return None
        own = held_by(self._own)
        asked = tracemalloc.get_traced_memory()[0]
        tables: int = native.memory.state()["table_bytes"] + tracemalloc.get_tracemalloc_memory()
        resident -= own + tables + round(WORDS_SHARE * asked) + self._free() + self._holes
        return resident, asked - own

    @contextmanager
    def leaving_holes(self) -> Iterator[None]:
        """What native memory seems to grow by meanwhile are arenas that the caller fills, and leaves with holes.

        The server goes on meanwhile. What ``malloc`` handed out then, and Python did not ask for, is no hole: arenas
        are not malloc's.
        """
        before, handed_out = self.read(), self._handed_out()
        try:
            yield
        finally:
            after = self.read()
            if before is not None and after is not None:
                grown = (after[0] - after[1]) - (before[0] - before[1])
                taken = self._handed_out() - handed_out - (after[1] - before[1])
                self._holes += max(0, grown - max(0, taken))

    def _handed_out(self) -> int:
        """By ``malloc``, without what is the probe's; ``read`` has said that there are hooks."""
        if native.memory is None:
            return 0
        return self._used() - held_by(self._own) - tracemalloc.get_tracemalloc_memory()
