"""The machine the numbers come from: who else is using it, what it is, and what a process has burned so far."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

PACKAGES = ("mcp", "anyio", "pydantic", "uvicorn", "opentelemetry-sdk")


def cpu_ns(pid: int) -> int:
    """CPU time of a process of ours, all its threads, nanoseconds. Linux only.

    Source: clock_getcpuclockid(3); include/linux/posix-timers.h, MAKE_PROCESS_CPUCLOCK(pid, CPUCLOCK_SCHED).
    """
    return time.clock_gettime_ns((~pid << 3) | 2)


def busy_ns() -> int:
    """Time that all cores together were not idle, stolen time included; in steps of a clock tick."""
    with open("/proc/stat", "rb") as stat:
        user, nice, system, _idle, _iowait, irq, softirq, steal, *_ = map(int, stat.readline().split()[1:])
    return (user + nice + system + irq + softirq + steal) * 1_000_000_000 // os.sysconf("SC_CLK_TCK")


class ForeignLoad:
    """Cores that anything but ``pids`` and this process used since this was made."""

    def __init__(self, pids: Iterable[int]) -> None:
        self._pids = list(pids)
        self._began = time.perf_counter_ns()
        self._own = self._own_ns()
        self._busy = busy_ns()

    def cores(self) -> float:
        """So far; about ± 0.05 for a block of 0.3 s, since the kernel counts in ticks."""
        busy, own = busy_ns() - self._busy, self._own_ns() - self._own
        return max(0.0, (busy - own) / (time.perf_counter_ns() - self._began))

    def _own_ns(self) -> int:
        return time.process_time_ns() + sum(cpu_ns(pid) for pid in self._pids)


def describe_machine() -> dict[str, object]:
    """What to know before comparing numbers; names no host and no path."""
    return {
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "system": f"{platform.system()} {platform.release().split('-')[0]}",
        "load_average_1min": round(os.getloadavg()[0], 2),
        "packages": {name: _version(name) for name in PACKAGES},
        "commit": _commit(),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }


def python_tag() -> str:
    """For a file name: "3.13"."""
    return ".".join(map(str, sys.version_info[:2]))


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.machine()


def _commit() -> str | None:
    """The commit that was measured, with a plus where the package differs from it; ``None`` outside a repository."""
    root = Path(__file__).resolve().parent.parent
    try:
        head = _git(root, "rev-parse", "--short", "HEAD")
        return head + ("+" if _git(root, "status", "--porcelain", "mcp_probe") else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=True)
    return done.stdout.strip()
