"""Loopback ports for servers that must be told theirs."""

from __future__ import annotations

import random
import socket

_given: set[int] = set()
_CHOICE = random.SystemRandom()  # not the seeded one: runs of this suite may stand side by side


def free_port() -> int:
    """A loopback port on which nobody listens.

    Below those that systems hand out by themselves (from 32768 on Linux, 49152 elsewhere): until the server has it, no
    connection of anybody gets it for its own end.
    """
    for _ in range(1000):
        port = _CHOICE.randrange(20_000, 32_000)
        if port in _given:
            continue
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        _given.add(port)
        return port
    raise AssertionError("no port is free")
