"""Loopback ports for servers that must be told theirs."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator
from contextlib import contextmanager

_claims: dict[int, socket.socket] = {}
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
        _claims[port] = claim
        return port
    raise AssertionError("no port is free")


@contextmanager
def port_for_now() -> Iterator[int]:
    """Such a port, which others may have after the block: a process that asks for hundreds has no more descriptors."""
    port = free_port()
    try:
        yield port
    finally:
        _claims.pop(port).close()
