"""What the kernel says of a process's threads: names, CPU time, what they wait in. Works for any program."""

from __future__ import annotations

import os
import platform
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_CALLS = {
    "x86_64": {
        "epoll_wait": (232, 281, 441),
        "poll": (7, 271),
        "select": (23, 270),
        "futex": (202,),
        "sleep": (35, 230),
        "read": (0, 17, 19, 45, 47),
        "write": (1, 18, 20, 44, 46),
        "wait for a process": (61, 247),
        "connect": (42,),
        "accept": (43, 288),
    },
    "aarch64": {
        "epoll_wait": (22, 441),
        "poll": (73,),
        "select": (72,),
        "futex": (98,),
        "sleep": (101, 115),
        "read": (63, 65, 67, 207, 212),
        "write": (64, 66, 68, 206, 211),
        "wait for a process": (95, 260),
        "connect": (203,),
        "accept": (202, 242),
    },
}
"""Source: Linux, arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h."""

_WORDS = {
    "epoll_wait": "waits for events (epoll_wait)",
    "poll": "waits for events (poll)",
    "select": "waits for events (select)",
    "futex": "waits for a lock (futex)",
    "sleep": "sleeps",
    "read": "reads, and waits for data",
    "write": "writes, and waits for room",
    "wait for a process": "waits for a child process",
    "connect": "connects, and waits for the other side",
    "accept": "waits for a connection",
}


@dataclass(frozen=True, slots=True)
class KernelThread:
    """``cpu_s`` is what it has used since it began."""

    id: int
    name: str
    cpu_s: float | None
    doing: str | None


def threads(pid: int, proc: Path = Path("/proc")) -> dict[int, KernelThread]:
    """Every thread of ``pid`` that is readable; none where the process is gone."""
    found: dict[int, KernelThread] = {}
    with suppress(OSError):
        for folder in (proc / str(pid) / "task").iterdir():
            thread = _thread(folder)
            if thread is not None:
                found[thread.id] = thread
    return found


def _thread(folder: Path) -> KernelThread | None:
    try:
        name, _, rest = (folder / "stat").read_text("utf-8", "replace").partition("(")[2].rpartition(")")
    except OSError:
        return None
    fields = rest.split()
    try:
        cpu_s: float | None = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except (ValueError, IndexError):
        cpu_s = None
    return KernelThread(int(folder.name), name, cpu_s, _doing(folder, fields[0] if fields else ""))


def _doing(folder: Path, state: str) -> str | None:
    """Only who may trace the process is told the number of its system call."""
    if state == "R":
        return "runs, or waits for a CPU"
    if state in ("T", "t"):
        return "is stopped by a signal or a debugger"
    try:
        word = (folder / "syscall").read_text().split()[0]
    except (OSError, IndexError):
        return "waits" if state in ("S", "D", "I") else None
    for name, numbers in _CALLS.get(platform.machine(), {}).items():
        if word.isdigit() and int(word) in numbers:
            return _WORDS[name]
    return "runs, or waits for a CPU" if word == "running" else "waits in the kernel"
