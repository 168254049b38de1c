"""Descriptors of ours inside a program that may close any number, and open files of its own under it."""

from __future__ import annotations

import os
import socket

try:
    from fcntl import F_DUPFD_CLOEXEC, fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

Identity = tuple[int, int]


def identity_of(fd: int) -> Identity | None:
    """Which file ``fd`` is of; ``None`` where it is closed."""
    try:
        status = os.fstat(fd)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def close_own(connection: socket.socket, identity: Identity | None) -> None:
    """Close it, unless a program that closes all descriptors (a daemon) has given its number to a file of its own."""
    if identity_of(connection.fileno()) == identity:
        connection.close()
    else:
        connection.detach()


def above_standard_streams(connection: socket.socket) -> socket.socket:
    """``connection``, under a number that no standard stream has. Raises: OSError.

    The program may have closed one: whatever it opens next must still get that number.
    """
    if fcntl is None or connection.fileno() >= 3:
        return connection
    moved = fcntl(connection.fileno(), F_DUPFD_CLOEXEC, 3)
    connection.close()
    return socket.socket(connection.family, connection.type, fileno=moved)
