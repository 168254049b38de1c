"""The folder of flight recordings: what they are called, and how many there may be."""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Sequence
from contextlib import suppress
from io import BufferedWriter
from pathlib import Path

from mcp_probe.errors import OptionError
from mcp_probe.live.folder import own_uid
from mcp_probe.record.private_file import create

MAX_FILES = 20
MAX_BYTES = 80 << 20
"""Of all recordings in a folder together; the oldest go first, whichever process wrote them."""
_OURS = re.compile(r"flight-\d{8}T\d{6}Z-\d+-[\w.-]+\.jsonl", re.ASCII)
_NOT_IN_NAMES = re.compile(r"[^\w.-]+", re.ASCII)
_LONGEST_WORD = 40


def folder_of(path: str | os.PathLike[str]) -> str:
    """``path`` as an absolute path of a folder one can write to, made if it is not there. Raises: OptionError."""
    folder = os.path.abspath(path)
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
    except OSError as exc:
        raise OptionError(
            f"flight={os.fspath(path)!r}: the folder cannot be made ({exc.strerror}). "
            "Give one that you may write to, or one whose parent exists."
        ) from exc
    if not os.access(folder, os.W_OK | os.X_OK):
        raise OptionError(f"flight={os.fspath(path)!r}: you may not write to this folder. Give one of your own.")
    return folder


def name_of(word: str, unix: float, pid: int) -> str:
    """What a recording is called: when, by which process, why."""
    short = _NOT_IN_NAMES.sub("-", word).strip("-.")[:_LONGEST_WORD] or "asked"
    return f"flight-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime(unix))}-{pid}-{short}.jsonl"


def write(folder: str, name: str, lines: Sequence[bytes]) -> str:
    """Puts ``lines`` into a file that appears whole; returns its path. Raises: OSError."""
    path = Path(folder) / name
    for number in range(2, MAX_FILES + 2):
        if not path.exists():
            break
        path = Path(folder) / f"{name.removesuffix('.jsonl')}-{number}.jsonl"
    part = path.with_name(f".{path.name}.part")
    try:
        with BufferedWriter(create(part)) as stream:
            stream.writelines(lines)
        part.rename(path)
    except BaseException:
        with suppress(OSError):
            part.unlink()
        raise
    return str(path)


def prune(folder: str, keep: int = MAX_FILES, most_bytes: int = MAX_BYTES) -> None:
    """Removes the oldest recordings beyond so many, or so many bytes; touches nothing that is called otherwise."""
    found = []
    for entry in os.scandir(folder):
        if _OURS.fullmatch(entry.name):
            with suppress(OSError):  # another process was faster
                status = entry.stat(follow_symlinks=False)
                if stat.S_ISREG(status.st_mode) and status.st_uid == own_uid():
                    found.append((status.st_mtime_ns, entry.name, status.st_size))
    total = 0
    for number, (_, name, size) in enumerate(sorted(found, reverse=True), 1):
        total += size
        if number > keep or total > most_bytes:
            with suppress(OSError):
                os.unlink(os.path.join(folder, name))
