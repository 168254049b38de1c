"""Context switches of the calling thread, as Linux counts them (``getrusage(2)``, ``RUSAGE_THREAD``)."""

from __future__ import annotations

try:
    from resource import RUSAGE_THREAD, getrusage
except ImportError:  # only Linux counts them for a thread
    RUSAGE_THREAD = None  # type: ignore[misc, assignment]


class ContextSwitches:
    """Reads ``context_switches_voluntary`` and ``context_switches_involuntary``. Raises: OSError on other systems."""

    def __init__(self) -> None:
        if RUSAGE_THREAD is None:
            raise OSError("this system does not count a thread's context switches")

    def read(self) -> tuple[int, int]:
        """(voluntary, involuntary) so far."""
        used = getrusage(RUSAGE_THREAD)
        return used.ru_nvcsw, used.ru_nivcsw
