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

GIL_NS = 5_000_000
"""Who waits for the GIL wakes as often as that: ``sys.setswitchinterval``, as it is unless somebody changes it."""


def switches_so_far() -> Switches:
    """Of the calling thread; ``NOT_COUNTED`` where the system does not say."""
    if RUSAGE_THREAD is None:
        return NOT_COUNTED
    used = getrusage(RUSAGE_THREAD)
    return used.ru_nvcsw, used.ru_nivcsw


def has_slept(before: Switches, after: Switches, length_ns: int) -> bool:
    """Whether it slept for most of ``length_ns`` to be woken, and did not wait for a CPU or for the GIL.

    Where the system does not count, it is taken to have slept.
    """
    if after == NOT_COUNTED:
        return True
    return 0 < (after[0] - before[0]) * GIL_NS < length_ns and after[1] == before[1]


class ContextSwitches:
    """Reads ``context_switches_voluntary`` and ``context_switches_involuntary``. Raises: OSError on other systems."""

    def __init__(self) -> None:
        if RUSAGE_THREAD is None:
            raise OSError("this system does not count a thread's context switches")

    def read(self) -> Switches:
        """(voluntary, involuntary) so far."""
        return switches_so_far()
