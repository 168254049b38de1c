"""Context switches of the calling thread, as Linux counts them (``getrusage(2)``, ``RUSAGE_THREAD``)."""

from __future__ import annotations

import resource


class ContextSwitches:
    """Reads ``context_switches_voluntary`` and ``context_switches_involuntary``. Raises: OSError on other systems."""

    def __init__(self) -> None:
        if not hasattr(resource, "RUSAGE_THREAD"):
            raise OSError("this system does not count a thread's context switches")

    def read(self) -> tuple[int, int]:
        """(voluntary, involuntary) so far."""
        used = resource.getrusage(resource.RUSAGE_THREAD)
        return used.ru_nvcsw, used.ru_nivcsw
