"""Loopback ports for servers that must be told theirs."""

from __future__ import annotations

import fcntl
import random
import socket
import tempfile
from pathlib import Path
from typing import IO

_held: list[IO[str]] = []
_CHOICE = random.SystemRandom()  # not the seeded one: runs of this suite may stand side by side


def free_port() -> int:
    """A loopback port on which nobody listens.

    Below those that systems hand out by themselves (from 32768 on Linux, 49152 elsewhere): until the server has it, no
    connection of anybody gets it for its own end. Nor does another process of tests, until this one ends.
    """
    for _ in range(1000):
        port = _CHOICE.randrange(20_000, 32_000)
        lock = (Path(tempfile.gettempdir()) / f"mcp-probe-tests-port-{port}").open("a")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:  # of this process, too: the file is opened anew
            lock.close()
            continue
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                lock.close()
                continue
        _held.append(lock)
        return port
    raise AssertionError("no port is free")
