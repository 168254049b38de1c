"""Context switches of the calling thread, as Linux counts them (``getrusage(2)``, ``RUSAGE_THREAD``)."""

from __future__ import annotations

try:
    from resource import RUSAGE_THREAD, getrusage
except ImportError:  # only Linux counts them for a thread
    RUSAGE_THREAD = None  # type: ignore[misc, assignment]

Switches = tuple[int, int]
"""(voluntary, involuntary) of a thread: how often it gave its CPU away, and how often others took it."""

NOT_COUNTED: Switches = (0, 0)
"""A thread that runs Python has had some."""

GIL_NS = 6_250_000
"""Who waits for the GIL wakes at least as often as that: 5 ms (``sys.setswitchinterval``), and some time to wake up."""


def switches_so_far() -> Switches:
    """Of the calling thread; ``NOT_COUNTED`` where the system does not say."""
    if RUSAGE_THREAD is None:
        return NOT_COUNTED
    used = getrusage(RUSAGE_THREAD)
    return used.ru_nvcsw, used.ru_nivcsw


def woken_since(before: Switches, after: Switches, began_ns: int, now_ns: int) -> int | None:
    """When a thread that slept was woken at the earliest; ``None`` where it may have waited for a CPU or the GIL only.

    Each time it has slept but one may have been for the GIL. Where the system does not count, it is taken to have just
    been woken.
    """
    if after == NOT_COUNTED:
        return now_ns
    sleeps = after[0] - before[0]
    if after[1] != before[1] or not 0 < sleeps * GIL_NS < now_ns - began_ns:
        return None
    return now_ns - (sleeps - 1) * GIL_NS


class ContextSwitches:
    """Reads ``context_switches_voluntary`` and ``context_switches_involuntary``. Raises: OSError on other systems."""

    def __init__(self) -> None:
        if RUSAGE_THREAD is None:
            raise OSError("this system does not count a thread's context switches")

    def read(self) -> Switches:
        """(voluntary, involuntary) so far."""
        return switches_so_far()
