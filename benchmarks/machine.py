"""The machine the numbers come from: who else is using it, what it is, and what a process has burned so far."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable

from mcp_probe.workloads.bench import machine

PACKAGES = ("mcp", "anyio", "pydantic", "uvicorn", "opentelemetry-sdk")


def cpu_ns(pid: int) -> int:
    """CPU time of a process of ours, all its threads, nanoseconds. Linux only.

    Source: clock_getcpuclockid(3); include/linux/posix-timers.h, MAKE_PROCESS_CPUCLOCK(pid, CPUCLOCK_SCHED).
    """
    return time.clock_gettime_ns((~pid << 3) | 2)


class ForeignLoad:
    """Cores that anything but ``pids`` and this process used since this was made."""

    def __init__(self, pids: Iterable[int]) -> None:
        self._pids = list(pids)
        self._began = time.perf_counter_ns()
        self._own = self._own_ns()
        self._busy = _busy_ns()

    def cores(self) -> float:
        """So far; about ± 0.05 for a block of 0.3 s, since the kernel counts in ticks."""
        busy, own = _busy_ns() - self._busy, self._own_ns() - self._own
        return max(0.0, (busy - own) / (time.perf_counter_ns() - self._began))

    def _own_ns(self) -> int:
        return time.process_time_ns() + sum(cpu_ns(pid) for pid in self._pids)


def _busy_ns() -> int:
    busy = machine.busy_ns()
    if busy is None:
        raise OSError("Nobody counts what the cores do here; this benchmark needs Linux.")
    return busy


def describe_machine() -> dict[str, object]:
    """What to know before comparing numbers; names no host and no path."""
    return machine.describe_machine(PACKAGES)


def python_tag() -> str:
    """For a file name: "3.13"."""
    return ".".join(map(str, sys.version_info[:2]))
