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

FOREIGN_LIMIT = 0.25
"""Cores of others' work above which a measurement is contended."""

PACKAGES = ("mcp", "anyio", "pydantic", "uvicorn", "httpx2", "httpx", "aiohttp", "requests")
_PROC = Path("/proc")
_PROCESS_CLOCK = 2
_TICK_NS = 1_000_000_000 // (os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100)


def busy_ns() -> int | None:
    """Time that all cores together were not idle, stolen time included, in clock ticks; ``None`` off Linux."""
    try:
        with open("/proc/stat", "rb") as stat:
            user, nice, system, _idle, _iowait, irq, softirq, steal, *_ = map(int, stat.readline().split()[1:])
    except (OSError, ValueError):
        return None
    return (user + nice + system + irq + softirq + steal) * _TICK_NS


def tree_ns(root: int | None = None) -> int:
    """CPU time of a process and all below it, ended ones that were waited for included; in clock ticks. Linux only.

    Source: proc_pid_stat(5), fields 4 and 14-17.
    """
    root = os.getpid() if root is None else root
    parents: dict[int, int] = {}
    spent: dict[int, int] = {}
    for entry in os.listdir(_PROC):
        if entry.isdigit():
            try:
                text = (_PROC / entry / "stat").read_bytes()
            except OSError:
                continue  # it ended meanwhile; what it burned is its parent's from then on
            fields = text[text.rindex(b")") + 2 :].split()
            parents[int(entry)] = int(fields[1])
            spent[int(entry)] = sum(map(int, fields[11:15]))
    return _TICK_NS * sum(ticks for pid, ticks in spent.items() if _descends(pid, root, parents))


def process_ns(pid: int) -> int | None:
    """CPU time of one process and its threads, as the kernel counts it; ``None`` off Linux, or if there is none.

    Source: the clock of a process as clock_getcpuclockid(3) makes it, which Python does not offer.
    """
    if sys.platform != "linux":
        return None
    try:
        return time.clock_gettime_ns(~pid << 3 | _PROCESS_CLOCK)
    except OSError:
        return None


def _descends(pid: int, root: int, parents: dict[int, int]) -> bool:
    while pid != root:
        if pid not in parents:
            return False
        pid = parents[pid]
    return True


class ForeignLoad:
    """Cores that anything but this process and its descendants used since this was made."""

    def __init__(self) -> None:
        self._busy = busy_ns()
        self._own = 0 if self._busy is None else tree_ns()
        self._began = time.perf_counter_ns()

    def cores(self) -> float | None:
        """So far; about ± 0.05 for a second, since the kernel counts in ticks. ``None`` where nobody counts."""
        busy = busy_ns()
        if busy is None or self._busy is None:
            return None
        span = max(1, time.perf_counter_ns() - self._began)
        return max(0.0, ((busy - self._busy) - (tree_ns() - self._own)) / span)


def is_contended(cores: float | None) -> bool:
    """Whether others used so much of the machine that a figure says more of them than of us."""
    return cores is not None and cores > FOREIGN_LIMIT


def describe_machine(packages: Iterable[str] = PACKAGES) -> dict[str, object]:
    """What to know before comparing numbers; names no host and no path."""
    return {
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "gil": not hasattr(sys, "_is_gil_enabled") or sys._is_gil_enabled(),
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "system": f"{platform.system()} {platform.release().split('-')[0]}",
        "load_average_1min": round(os.getloadavg()[0], 2),
        "packages": {name: version(name) for name in packages},
        "commit": _commit(),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }


def version(package: str) -> str | None:
    """What is installed of ``package``, ``None``: nothing."""
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
    """The commit that was measured, with a plus where the package differs; ``None`` outside its own repository."""
    root = Path(__file__).resolve().parents[3]
    if not (root / ".git").exists():
        return None
    try:
        head = _git(root, "rev-parse", "--short", "HEAD")
        return head + ("+" if _git(root, "status", "--porcelain", "mcp_probe") else "")
    except (OSError, subprocess.SubprocessError):
        return None


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=True, timeout=20)
    return done.stdout.strip()
