"""A probe whose frames stay in memory, for tests that read what was recorded."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from mcp_probe.model import Frame, Header, RequestRecord, StepRecord
from mcp_probe.record.file import LineDecoder, preamble
from mcp_probe.session import Probe, attach


class Kept:
    """A frame sink that decodes what it is given, as a reader of the recording would."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self.lines: list[bytes] = []
        self._decoder = LineDecoder("kept frames")
        self._decoder.feed(preamble())

    def write(self, lines: list[bytes]) -> None:
        self.lines += lines
        self.frames += [frame for line in lines if (frame := self._decoder.feed(line)) is not None]

    def close(self) -> None:
        pass

    def requests(self, operation: str | None = None, *, kind: str = "request") -> list[RequestRecord]:
        """Records of one kind, oldest first; ``operation`` is a tool or prompt, else a method."""
        records = [frame for frame in self.frames if isinstance(frame, RequestRecord) and frame.kind == kind]
        return [record for record in records if operation in (None, record.name or record.method)]

    def only(self, operation: str) -> RequestRecord:
        """The one record of ``operation``."""
        [record] = self.requests(operation)
        return record

    def steps(self) -> list[StepRecord]:
        """Steps of at least 0.5 ms that have ended."""
        return [frame for frame in self.frames if isinstance(frame, StepRecord) and not frame.running]

    def header(self) -> Header:
        """The last header."""
        return [frame for frame in self.frames if isinstance(frame, Header)][-1]


class Listening:
    """A listener that keeps what it hears; raises where told to."""

    def __init__(self, *, deaf: bool = False, stuck: bool = False) -> None:
        self.heard: list[Frame] = []
        self.closed: list[float] = []
        self._deaf = deaf
        self._stuck = stuck

    def take(self, frames: Sequence[Frame]) -> None:
        if self._deaf:
            raise ValueError("deaf")
        self.heard += frames

    def close(self, timeout_s: float) -> None:
        self.closed.append(timeout_s)
        if self._stuck:
            raise OSError("stuck")


def keep(probe: Probe) -> Kept:
    """From now on the frames of ``probe`` are kept; all of them are there once it is detached."""
    kept = Kept()
    probe.add_sink(kept)
    return kept


@contextmanager
def probed(server: Any, **options: Any) -> Iterator[Kept]:
    """``server`` with a probe attached; what was recorded is complete when the block has been left."""
    probe = attach(server, **options)
    kept = keep(probe)
    try:
        yield kept
    finally:
        probe.detach()


def unavailable(record: RequestRecord) -> set[str]:
    """The fields that ``record`` says could not be seen."""
    return {field for field, tag, _, _ in record.quality if tag == "unavailable"}


class Log(logging.Handler):
    """What was logged on the ``mcp_probe`` logger."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())
