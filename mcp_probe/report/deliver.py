"""Writes the last output of a process to a stream that perhaps nobody reads."""

from __future__ import annotations

import os
import select
import time

_CHUNK = getattr(select, "PIPE_BUF", 512)
"""A pipe that polls as writable takes this much without blocking. Source: poll(2), pipe(7)."""


def deliver(text: str, fd: int, seconds: float) -> bool:
    """Writes ``text`` to ``fd`` as UTF-8; False where it is not all taken within ``seconds``.

    Goes past Python's own buffer of that stream, which a blocked write would keep locked through the
    interpreter's exit. The descriptor is not made non-blocking: that would hold for everybody who shares it.
    No thread is started: CPython 3.12 starts none at exit.
    """
    deadline = time.monotonic() + seconds
    rest = memoryview(text.encode("utf-8", "replace"))
    try:
        while rest:
            if not _is_writable(fd, deadline):
                return False
            rest = rest[os.write(fd, rest[:_CHUNK]) :]
    except OSError:
        return False  # closed, or the disk is full: nobody is left to be told
    return True


def _is_writable(fd: int, deadline: float) -> bool:
    if not (hasattr(select, "poll") and hasattr(select, "POLLOUT")):  # Windows, where only sockets can be asked
        return True
    waiter = select.poll()
    waiter.register(fd, select.POLLOUT)
    return bool(waiter.poll(max(0.0, deadline - time.monotonic()) * 1e3))
