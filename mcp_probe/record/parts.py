"""Recordings of a limited size: files of which the oldest are deleted, and all that are left read as one.

The newest frames are in ``FILE``. When it has its share of the limit, it is renamed to ``FILE.part-00001``, the next
time to ``FILE.part-00002``, and so on. Every file begins with the first line, the header and, from the second on, a
:class:`~mcp_probe.model.Part`. So each can be read by itself, and whoever reads knows how many requests came before.

Invariants: all files together stay within the limit, unless a single line is longer than a file's share; no frame is
in two files, apart from headers; a kill at any instant leaves files that can be read.
"""

from __future__ import annotations

import errno
import json
import os
import re
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from io import FileIO
from pathlib import Path

from mcp_probe.errors import OptionError, RecordingError
from mcp_probe.model import Frame, Header, Part
from mcp_probe.record.file import encode, preamble, read_recording
from mcp_probe.record.private_file import create_alone

SHARES = 8
"""Files in the limit. At least seven of the eight are full, once the first has been."""

LEAST_BYTES = 1_000_000
_LAST_LINE_BYTES = len(encode(Part(10**6, 10**15, 10**15, 10**18, ends=True)))
"""What a file's last line takes at most, which says that the next one goes on."""
_PART = re.compile(r"(.+)\.part-(\d{5,})", re.DOTALL)
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(B|kB|MB|GB|TB)?", re.ASCII | re.IGNORECASE)
_UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}

Show = Callable[[float], None]
"""Told which share of what is to be read has been read."""


def bytes_of(limit: int | str) -> int:
    """The bytes that ``limit`` names, such as 500_000_000 or ``"500MB"``. Raises: OptionError."""
    found = _SIZE.fullmatch(limit.strip()) if isinstance(limit, str) else None
    size = limit if isinstance(limit, int) and not isinstance(limit, bool) else 0
    if found is not None:
        size = round(float(found[1]) * _UNITS[(found[2] or "").lower()])
    if not LEAST_BYTES <= size <= 10**18:
        raise OptionError(f"record_limit is {limit!r}; expected a size of at least 1MB, such as 500MB or 2GB.")
    return size


# --- writing --------------------------------------------------------------------------------------


class RecordingFile:
    """Lines of one recording, the first line first, appended to ``stream`` and flushed to the kernel.

    Args:
        stream: ``path``, open for writing without a buffer.
        limit_bytes: keep the newest lines within so much; ``None``: keep all, in one file.
        reopen: makes ``path`` anew, after it has been renamed.

    Raises: OSError where ``stream`` has a limit and is no regular file.
    """

    def __init__(
        self, stream: FileIO, path: str, limit_bytes: int | None = None, *, reopen: Callable[[], FileIO]
    ) -> None:
        self._stream = stream
        self._path = path
        self._limit = limit_bytes
        self._reopen = reopen
        self._written = 0  # bytes of this file
        self._head = 0  # of them, what each file begins with
        self._number = 1
        self._requests = 0
        self._frames = 0
        self._preamble = self._header = b""
        self._count_at = 0  # where a group has its number of requests
        self._full: list[tuple[str, int]] = []  # (name, bytes) of those that are left, oldest first
        is_file = stat.S_ISREG(os.fstat(stream.fileno()).st_mode)
        if limit_bytes is not None and not is_file:
            raise OSError(errno.EINVAL, "it is no regular file, so its size cannot be limited", path)
        if is_file:
            remove_parts(path)

    def write(self, lines: Sequence[bytes]) -> None:
        """Append ``lines``, each with its newline. Raises: OSError."""
        if self._limit is None:
            return self._put(lines)
        first = 0
        size = 0
        most = self._limit // SHARES - _LAST_LINE_BYTES
        for at, line in enumerate(lines):
            if self._written + size + len(line) > most and self._written + size > self._head:
                self._put(lines[first:at])
                self._turn()
                first, size = at, 0
            self._note(line)
            size += len(line)
        return self._put(lines[first:])

    def close(self) -> None:
        """No more lines will come."""
        self._stream.close()

    def _put(self, lines: Sequence[bytes]) -> None:
        rest = memoryview(b"".join(lines))
        self._written += len(rest)
        while rest:
            rest = rest[self._stream.write(rest) or 0 :]

    def _note(self, line: bytes) -> None:
        """What the next file has to say."""
        if not self._preamble:
            self._preamble = line
            self._count_at = json.loads(line)["fields"]["group"].index("count") + 1
        elif line.startswith(b'["header"'):
            self._header = line
        else:
            self._frames += 1
            if line.startswith(b'["request"'):
                self._requests += 1
            elif line.startswith(b'["group"'):
                self._requests += json.loads(line)[self._count_at]

    def _turn(self) -> None:
        """Put this file aside, delete the oldest, and begin the next."""
        assert self._limit is not None
        self._put([encode(self._part(self._number + 1, ends=True))])
        self._put_aside()
        self._stream.close()
        self._number += 1
        while sum(size for _, size in self._full) > self._limit // SHARES * (SHARES - 1):
            with suppress(FileNotFoundError):
                os.unlink(self._full.pop(0)[0])
        self._stream = self._reopen()
        self._written = 0
        self._put([self._preamble, self._header, encode(self._part(self._number))])
        self._head = self._written

    def _part(self, number: int, *, ends: bool = False) -> Part:
        return Part(number, self._requests, self._frames, self._limit or 0, ends)

    def _put_aside(self) -> None:
        """A file that somebody else has moved away or deleted is let go."""
        aside = f"{self._path}.part-{self._number:05}"
        try:
            found = os.lstat(self._path)
        except FileNotFoundError:
            return
        own = os.fstat(self._stream.fileno())
        if (found.st_dev, found.st_ino) != (own.st_dev, own.st_ino):
            raise OSError(errno.EEXIST, "another file has taken its place", self._path)
        os.rename(self._path, aside)
        self._full.append((aside, self._written))


class RecordingWriter:
    """A :class:`~mcp_probe.record.file.FrameSink` that writes a recording of this process.

    Flushed bytes survive a SIGKILL of this process, not a power cut. Unbuffered: a forked child would
    inherit a half-written buffer and write it again, or a lock that no thread of its own releases.

    Attributes:
        path: The file that is written: ``PATH.2`` where somebody else is writing to ``PATH``, and so on.
    """

    def __init__(self, path: str | os.PathLike[str], limit_bytes: int | None = None) -> None:
        stream, self.path = create_alone(path)
        self._file = RecordingFile(stream, self.path, limit_bytes, reopen=self._create)
        self.write([preamble()])

    def _create(self) -> FileIO:
        stream, path = create_alone(self.path)
        if path != self.path:
            stream.close()
            raise OSError(errno.EEXIST, "another process has begun to write to it", self.path)
        return stream

    def write(self, lines: list[bytes]) -> None:
        """Append ``lines``. Raises: OSError."""
        self._file.write(lines)

    def close(self) -> None:
        """No more lines will come."""
        self._file.close()


def remove_parts(path: str | os.PathLike[str]) -> None:
    """Delete what an earlier recording at ``path`` has left beside it. Raises: OSError."""
    for part in _beside(Path(path)):
        part.unlink(missing_ok=True)


def _beside(path: Path) -> list[Path]:
    """The parts of ``path``, oldest first."""
    found = []
    with suppress(FileNotFoundError, NotADirectoryError):
        for name in os.listdir(path.parent):
            match = _PART.fullmatch(name)
            if match is not None and match[1] == path.name:
                found.append((int(match[2]), path.parent / name))
    return [part for _, part in sorted(found)]


# --- reading --------------------------------------------------------------------------------------


def is_part(path: Path) -> bool:
    """Whether its name says that ``path`` is an older file of a recording of limited size."""
    return _PART.fullmatch(path.name) is not None


def files_of(path: Path) -> list[Path]:
    """The files of the recording at ``path``, oldest first; a part that is named is read by itself."""
    if is_part(path):
        return [path]
    parts = _beside(path)
    if not parts:
        return [path]
    own = _identity_of(path)
    if own is not None:
        parts = [part for part in parts if _identity_of(part) in (own, None)]
    return [*parts, path] if path.exists() else parts


def _identity_of(path: Path) -> tuple[object, ...] | None:
    """Whose recording it is; ``None`` where that cannot be told."""
    with suppress(RecordingError):
        frame = next(read_recording(path), None)
        if isinstance(frame, Header):
            return frame.pid, frame.start_ns, frame.start_unix
    return None


def read_parts(path: str | os.PathLike[str], show: Show | None = None) -> Iterator[Frame]:
    """Frames of the recording at ``path``, of all its files, oldest first.

    A :class:`Part` comes where something is missing before it, or after it. Raises: as :func:`read_recording`.
    """
    files = files_of(Path(path))
    sizes = [file.stat().st_size if file.exists() else 0 for file in files]
    whole, done = max(1, sum(sizes)), 0
    follows: Part | None = None
    for file, size in zip(files, sizes, strict=True):
        before = done
        told = None if show is None else lambda share, at=before, of=size: show((at + share * of) / whole)
        for frame in read_recording(file, told):
            if isinstance(frame, Part):
                if frame.ends:
                    follows = frame
                elif follows is None or follows.number != frame.number:
                    yield frame
                else:
                    follows = None
            else:
                yield frame
        done += size
    if follows is not None:
        yield follows
