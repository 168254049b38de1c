"""Loopback ports for servers that must be told theirs."""

from __future__ import annotations

import random
import socket

_claims: list[socket.socket] = []
_CHOICE = random.SystemRandom()  # not the seeded one: runs of this suite may stand side by side


def free_port() -> int:
    """A loopback port on which nobody listens.

    Below those that systems hand out by themselves (from 32768 on Linux, 49152 elsewhere): until the server has it, no
    connection of anybody gets it for its own end. Nor does another process of tests, until this one ends.
    """
    for _ in range(1000):
        port = _CHOICE.randrange(20_000, 32_000)
        claim = socket.socket(type=socket.SOCK_DGRAM)  # on its namesake of UDP, which no server here listens on
        try:
            claim.bind(("127.0.0.1", port))
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", port))
        except OSError:
            claim.close()
            continue
        _claims.append(claim)
        return port
    raise AssertionError("no port is free")
