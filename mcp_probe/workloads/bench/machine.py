"""The machine the numbers come from: who else is using it, what it is, and what a process has burned so far."""

from __future__ import annotations

import os
import platform
import socket
import subprocess
import sys
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from urllib.parse import urlsplit

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


def tree_ns(*more: int) -> int:
    """CPU time of this process, of ``more`` and of all below them, in clock ticks. Linux only.

    Ended ones count if they were waited for. Source: proc_pid_stat(5), fields 4 and 14-17.
    """
    roots = {os.getpid(), *more}
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
    return _TICK_NS * sum(ticks for pid, ticks in spent.items() if _descends(pid, roots, parents))


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


def _descends(pid: int, roots: Collection[int], parents: dict[int, int]) -> bool:
    while pid not in roots:
        if pid not in parents:
            return False
        pid = parents[pid]
    return True


def serving(url: str) -> frozenset[int]:
    """Processes of this machine that listen at the port of ``url``.

    Empty without a URL, if its host is another machine, or if they are another user's. Linux only.
    """
    address = urlsplit(url)
    port = address.port or (443 if address.scheme == "https" else 80)
    if not address.hostname or not _PROC.is_dir() or not _is_here(address.hostname):
        return frozenset()
    sockets = {f"socket:[{inode}]" for inode in _listening(port)}
    return frozenset(pid for pid in map(int, filter(str.isdigit, os.listdir(_PROC))) if _holds(pid, sockets))


def _is_here(host: str) -> bool:
    """Whether one of the host's addresses is this machine's own: others cannot be bound to."""
    try:
        for family, kind, _, _, (address, *_) in socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM):
            with socket.socket(family, kind) as one:
                one.bind((address, 0))
                return True
    except OSError:
        return False
    return False


def _listening(port: int) -> Iterator[str]:
    """Inodes of the sockets that listen there. Source: proc_pid_net(5), tcp: local address, state 0A, inode."""
    for name in ("tcp", "tcp6"):
        try:
            lines = (_PROC / "net" / name).read_text().splitlines()[1:]
        except OSError:
            continue
        for fields in map(str.split, lines):
            if fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port:
                yield fields[9]


def _holds(pid: int, sockets: Collection[str]) -> bool:
    try:
        files = list((_PROC / str(pid) / "fd").iterdir())
    except OSError:
        return False  # it ended meanwhile, or is not ours to look into
    for file in files:
        with suppress(OSError):  # closed meanwhile
            if os.readlink(file) in sockets:
                return True
    return False


class ForeignLoad:
    """Cores that anything but this process, those of ``ours`` and their descendants used since this was made."""

    def __init__(self, ours: Collection[int] = ()) -> None:
        self._ours = ours
        self._busy = busy_ns()
        self._own = 0 if self._busy is None else tree_ns(*ours)
        self._began = time.perf_counter_ns()

    def cores(self) -> float | None:
        """So far; about ± 0.05 for a second, since the kernel counts in ticks. ``None`` where nobody counts."""
        busy = busy_ns()
        if busy is None or self._busy is None:
            return None
        span = max(1, time.perf_counter_ns() - self._began)
        return max(0.0, ((busy - self._busy) - (tree_ns(*self._ours) - self._own)) / span)


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
