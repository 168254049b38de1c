"""Files that only their owner may read: what they say of a server is nobody else's."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from io import BufferedWriter, FileIO, TextIOWrapper
from itertools import count
from pathlib import Path
from typing import TextIO

from mcp_probe.errors import OptionError

try:
    from fcntl import LOCK_EX, LOCK_NB, flock
except ImportError:  # Windows
    flock = None  # type: ignore[assignment]

_OF_THE_SYSTEM = ("/dev", "/dev/fd", "/proc/self/fd")
"""Links there, as /dev/stdout, are the kernel's or root's; nobody else can plant one."""


def create(path: str | os.PathLike[str], *, readable: bool = False, empty: bool = True) -> FileIO:
    """``path``, empty and with mode 0600, whatever it was before. A link in its place is not followed.

    Unbuffered. ``empty=False`` leaves what is in it. Raises: OSError where it cannot be written, or is a symbolic link.
    """
    flags = (os.O_RDWR if readable else os.O_WRONLY) | os.O_CREAT | getattr(os, "O_CLOEXEC", 0)
    if empty:
        flags |= os.O_TRUNC
    if os.path.dirname(os.path.abspath(path)) not in _OF_THE_SYSTEM:
        flags |= getattr(os, "O_NOFOLLOW", 0)
    try:
        descriptor = os.open(path, flags, 0o600)
    except OSError as exc:
        if exc.errno == errno.ELOOP and os.path.islink(path):
            raise OSError(exc.errno, "it is a symbolic link, which is not followed", os.fspath(path)) from None
        raise
    if stat.S_ISREG(os.fstat(descriptor).st_mode) and hasattr(os, "fchmod"):
        with suppress(PermissionError):  # another user's file that we may write to
            os.fchmod(descriptor, 0o600)
    return FileIO(descriptor, "rb+" if readable else "wb")


def create_alone(path: str | os.PathLike[str]) -> tuple[FileIO, str]:
    """As :func:`create`, but a file that another process or probe is writing to stays as it is.

    ``PATH.2`` is created then, or ``PATH.3``. Returns also what was created. Raises: OSError.
    """
    wanted = os.fspath(path)
    for number in count(1):
        name = wanted if number == 1 else f"{wanted}.{number}"
        stream = create(name, empty=False)
        if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
            return stream, name
        if _is_ours(stream):
            stream.truncate(0)
            return stream, name
        stream.close()
    raise AssertionError("unreachable")


def _is_ours(stream: FileIO) -> bool:
    """Whether nobody else writes to it, from now on as long as it is open. The kernel forgets it with the process."""
    if flock is None:
        return True
    try:
        flock(stream, LOCK_EX | LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        pass
    return True


def write(path: str | os.PathLike[str], content: str | bytes) -> None:
    """Puts all of ``content`` into the file that :func:`create` makes. Raises: OSError."""
    with BufferedWriter(create(path)) as stream:
        stream.write(content.encode() if isinstance(content, str) else content)


def opened(path: Path) -> TextIO:
    """The file that a user named, for text. Raises: OptionError where it cannot be written."""
    try:
        return TextIOWrapper(BufferedWriter(create(path)), encoding="utf-8")
    except OSError as exc:
        raise _not_writable(path, exc) from exc


def check(path: Path) -> None:
    """Makes the file that a user named, and leaves what is in it. Raises: OptionError where it cannot be written."""
    try:
        create(path, empty=False).close()
    except OSError as exc:
        raise _not_writable(path, exc) from exc


def _not_writable(path: Path, exc: OSError) -> OptionError:
    return OptionError(f"Cannot write {path}: {exc.strerror}. Expected a file in a folder one can write to.")
