"""Small files of `/proc` and `/sys`, read as cheaply as possible."""

from __future__ import annotations

import os
import threading

_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
_READ_ONLY = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0)

native_id = getattr(threading, "get_native_id", lambda: 0)
"""The system's number of the calling thread; 0 where Python does not know it."""


def rss_bytes() -> int | None:
    """What of this process is resident; ``None`` where that cannot be read."""
    try:
        return int(read("/proc/self/statm").split()[1]) * _PAGE
    except (OSError, ValueError, IndexError):
        return None


def private_bytes() -> int | None:
    """The same without pages of files: libraries that are loaded, files that are mapped. Only Linux says it."""
    try:
        rows = dict(line.split(b":", 1) for line in read("/proc/self/status").splitlines() if b":" in line)
        return (int(rows[b"VmRSS"].split()[0]) - int(rows[b"RssFile"].split()[0])) * 1024
    except (OSError, ValueError, LookupError):
        return None


def open_task(thread: int, name: str) -> int | None:
    """A descriptor of a file of one thread of this process; ``None`` where there is none. Whoever asks closes it."""
    try:
        return os.open(f"/proc/self/task/{thread}/{name}", _READ_ONLY)
    except OSError:
        return None


def read(path: str) -> bytes:
    """Only three system calls: each releases the GIL and gets it back only when a computing thread yields."""
    descriptor = os.open(path, _READ_ONLY)
    try:
        return os.read(descriptor, 4096)
    finally:
        os.close(descriptor)
