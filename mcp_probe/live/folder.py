"""The folder with the sockets of this user's live servers.

Only its owner may enter it. Where it belongs to somebody else, is a link, or lets others in, nothing is put there. A
server that a desktop client started often knows less of its environment than a shell does, so whoever looks for servers
looks in every place where one may be.
"""

from __future__ import annotations

import os
import socket
import stat
import struct
import tempfile
from contextlib import suppress
from itertools import count
from pathlib import Path
from threading import Lock
from typing import Any

from mcp_probe.errors import LiveError

own_uid = getattr(os, "geteuid", lambda: 0)
"""Number of this process's user; 0 on Windows, where every file belongs to that one."""
_UNIX: Any = getattr(socket, "AF_UNIX", None)
NAME = "mcp-probe"
SUFFIX = ".sock"
_LONGEST_SOCKET_NAME = 100
"""Linux allows 107 bytes and macOS 103 for the name of a socket."""
_ROOM_FOR_NAME = 24
_NO_UID = -1
_naming = Lock()
"""Probes of one process name their sockets one after the other: the names are made of the process's number."""


def _renew_lock() -> None:
    """In a forked child: the thread that had it may be its parent's."""
    global _naming
    _naming = Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)


def candidates() -> list[Path]:
    """Folders in which servers of this user may be, the preferred one first."""
    uid = own_uid()
    found = []
    for runtime in (os.environ.get("XDG_RUNTIME_DIR"), f"/run/user/{uid}"):
        if runtime and _is_own_folder(Path(runtime)):
            found.append(Path(runtime) / NAME)
    for shared in (tempfile.gettempdir(), "/tmp"):
        found.append(Path(shared) / f"{NAME}-{uid}")
    fitting = [path for path in found if len(os.fsencode(path)) <= _LONGEST_SOCKET_NAME - _ROOM_FOR_NAME]
    return list(dict.fromkeys(fitting))


def _is_own_folder(path: Path) -> bool:
    try:
        status = path.stat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == own_uid() and os.access(path, os.W_OK)


def make() -> Path:
    """The first folder that can be used, made if it is not there. Raises: LiveError."""
    if _UNIX is None:
        raise LiveError("this system has no Unix sockets")
    problems = []
    for path in candidates():
        try:
            with suppress(FileExistsError):
                path.mkdir(mode=0o700)
        except OSError as exc:
            problems.append(f"{path} cannot be made ({exc.strerror})")
            continue
        problem = complaint_about(path)
        if problem is None:
            return path
        problems.append(problem)
    raise LiveError(
        f"There is no folder for the live socket: {'; '.join(problems) or 'the paths are too long for a socket'}. "
        "Expected a folder of your own with mode 0700; set XDG_RUNTIME_DIR to one that holds it."
    )


def complaint_about(path: Path) -> str | None:
    """Why sockets at ``path`` cannot be trusted; ``None``: it is a folder that only this user may enter."""
    try:
        status = path.lstat()
    except OSError as exc:
        return f"{path} cannot be read ({exc.strerror})"
    if not stat.S_ISDIR(status.st_mode):
        return f"{path} is no folder"
    if status.st_uid != own_uid():
        return f"{path} belongs to another user (uid {status.st_uid})"
    if stat.S_IMODE(status.st_mode) & 0o077:
        return f"{path} lets other users in (mode {stat.S_IMODE(status.st_mode):04o}; `chmod 700` it)"
    return None


def listen(folder: Path) -> tuple[socket.socket, Path]:
    """A listening socket of this process in ``folder``, and where it is. Raises: OSError.

    It gets its name only once it listens: a socket that refuses a connection is left over by a process that is gone.
    """
    with _naming:
        return _listen(folder)


def _listen(folder: Path) -> tuple[socket.socket, Path]:
    listener = socket.socket(_UNIX, socket.SOCK_STREAM)
    try:
        for number in count(1):
            name = f"{os.getpid()}" if number == 1 else f"{os.getpid()}-{number}"
            path, hidden = folder / f"{name}{SUFFIX}", folder / f".{name}"
            with suppress(FileNotFoundError):
                hidden.unlink()  # of a process that had this number before
            listener.bind(str(hidden))
            listener.listen(16)
            if path.exists() and is_answering(path):  # another probe of this process
                hidden.unlink()
                listener.close()
                listener = socket.socket(_UNIX, socket.SOCK_STREAM)
                continue
            hidden.rename(path)
            return listener, path
    except BaseException:
        listener.close()
        raise
    raise AssertionError("unreachable")


def sockets(folder: Path) -> list[Path]:
    """Sockets in ``folder``, the earliest first; those that nobody answers any more are removed."""
    try:
        found = [path for path in folder.iterdir() if path.suffix == SUFFIX]
    except OSError:
        return []
    living = []
    for path in found:
        with suppress(OSError):
            if is_answering(path):
                living.append((path.lstat().st_mtime_ns, len(path.name), path))
            else:
                path.unlink()
    return [path for _, _, path in sorted(living)]


def is_answering(path: Path) -> bool:
    """Whether some process listens at ``path``. Only a refusal says that none does."""
    with socket.socket(_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            return False
        except OSError:
            return path.exists()
    return True


def uid_of_peer(connection: socket.socket) -> int | None:
    """The user at the other end, as the kernel knows him; ``None`` where this system does not tell."""
    if hasattr(socket, "SO_PEERCRED"):  # Linux: struct ucred
        size = struct.calcsize("3i")
        _, uid, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
        return int(uid)
    try:  # macOS, FreeBSD: LOCAL_PEERCRED of SOL_LOCAL, struct xucred. Source: sys/un.h, sys/ucred.h
        version, uid = struct.unpack_from("II", connection.getsockopt(0, 1, 76))
    except (OSError, struct.error):
        return None
    return int(uid) if version == 0 else _NO_UID
