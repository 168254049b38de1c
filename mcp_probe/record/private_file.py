"""Files that only their owner may read: what they say of a server is nobody else's."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from io import FileIO

_OF_THE_SYSTEM = ("/dev", "/dev/fd", "/proc/self/fd")
"""Links there, as /dev/stdout, are the kernel's or root's; nobody else can plant one."""


def create(path: str | os.PathLike[str]) -> FileIO:
    """``path``, empty and with mode 0600, whatever it was before. A link in its place is not followed.

    Unbuffered. Raises: OSError where it cannot be written, or is a symbolic link.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_CLOEXEC", 0)
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
    return FileIO(descriptor, "wb")
