"""Recordings: frames as JSON lines, the same bytes in a file and on the channel of ``mcp-probe run``.

The first line names the format and the order of each frame's fields; every other line is
``[kind, value, ...]``. A reader fills fields that an older writer did not know with their defaults
and ignores fields that a newer minor version added; it refuses other major versions by name.
A line that was cut off (the writer was killed) ends the recording: what came before it is kept.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import MISSING, fields, replace
from operator import attrgetter
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from mcp_probe.errors import RecordingError
from mcp_probe.model import (
    Await,
    Budget,
    End,
    Frame,
    GrowthSample,
    GrowthSites,
    Header,
    HolderPart,
    JobRun,
    JobTimes,
    LockHold,
    LoopSample,
    MemoryUse,
    OpenRequest,
    Part,
    PoolSample,
    ProcessSample,
    RequestGroup,
    RequestRecord,
    StepRecord,
    StepRun,
    Timeline,
    Wait,
)

# 1: first version (2026-11). Added later: `memory` at the end of requests and of the header; `weight`, `seen` and
# `awaits` at the end of requests, and frames of the kind `group` (requests without a record). An older reader skips
# groups, so it counts too few requests if there were too many to make a record of each. Groups got `closes`: a reader
# that does not know it takes those requests for unfinished ones as well. Frames of the kind `timeline` (`full`), which
# an older reader skips, and `holds`, `streams` and `new_connection` at their end. Frames of the kind `part` (a limited
# size), which an older reader skips; `frames` and `missing` at the end of `end`.
FORMAT_NAME = "mcp_probe.recording"
FORMAT_VERSION = 1

_KINDS: dict[str, type] = {
    "header": Header,
    "request": RequestRecord,
    "timeline": Timeline,
    "group": RequestGroup,
    "open": OpenRequest,
    "step": StepRecord,
    "loop": LoopSample,
    "pool": PoolSample,
    "process": ProcessSample,
    "growth": GrowthSample,
    "sites": GrowthSites,
    "part": Part,
    "end": End,
}
LONGEST_LINE = 64 << 20
NO_FRAME = (
    "{} holds no frame: it ends after its first line. The server was killed before it had sent any, "
    "or the file was cut."
)
_SHOW_BYTES = 4 << 20
_NO_RECORDING = "is not an mcp_probe recording:"
_EXPECTED = "Expected a file written by `mcp-probe run --record FILE`."
_OF_REPORTS = " A report written by `--json FILE` is for programs and for `mcp-probe compare`."
_NAMES = {cls: name for name, cls in _KINDS.items()}
_FIELDS = {name: tuple(f.name for f in fields(cls)) for name, cls in _KINDS.items()}
_GETTERS: dict[type, Callable[[Any], tuple[Any, ...]]] = {
    cls: attrgetter(*_FIELDS[name]) for name, cls in _KINDS.items()
}
_BUDGET_VALUES = attrgetter(*(f.name for f in fields(Budget)))
_MEMORY_FIELDS = tuple(f.name for f in fields(MemoryUse))
_MEMORY_VALUES = attrgetter(*_MEMORY_FIELDS)
_AWAIT_FIELDS = tuple(f.name for f in fields(Await))
_AWAIT_VALUES = attrgetter(*_AWAIT_FIELDS)
_HOLDER_FIELDS = len(HolderPart._fields)
Check = Callable[[Frame], str]
"""Of a frame: which of its values is none, and why; empty where all may be."""

_PLAIN: dict[type, Callable[[Any], tuple[Any, ...]]] = {
    Budget: _BUDGET_VALUES,
    JobTimes: attrgetter(*(f.name for f in fields(JobTimes))),
    MemoryUse: _MEMORY_VALUES,
    Await: _AWAIT_VALUES,
}


def _plain(value: object) -> object:
    values_of = _PLAIN.get(type(value))
    if values_of is None:
        raise TypeError(f"a frame holds a {type(value).__name__}, which the recording format does not know")
    return values_of(value)


_encoder = json.JSONEncoder(separators=(",", ":"), check_circular=False, ensure_ascii=True, default=_plain)


class FrameSink(Protocol):
    """Where a session's frames go, as encoded lines. Called on the collector's thread only."""

    def write(self, lines: list[bytes]) -> None:
        """Take these lines, each ending in a newline. Raises: OSError if it cannot; the session then drops the sink."""

    def close(self) -> None:
        """No more lines will come."""


def preamble() -> bytes:
    """The first line of every recording and channel."""
    return encode_json({"format": FORMAT_NAME, "version": FORMAT_VERSION, "fields": _FIELDS})


def encode_json(value: object) -> bytes:
    """One compact JSON line with its newline."""
    return _encoder.encode(value).encode() + b"\n"


def encode(frame: Frame) -> bytes:
    """One frame as one line."""
    cls = type(frame)
    return encode_json((_NAMES[cls], *_GETTERS[cls](frame)))


def _tuples(value: Any) -> Any:
    if type(value) is not list:
        return value
    return tuple([_tuples(one) if type(one) is list else one for one in value])  # a record has dozens of short ones


class LineDecoder:
    """Turns lines back into frames. Feed the preamble first.

    ``check`` says of a frame which of its values is none, as :func:`mcp_probe.record.damage.fault_of` does. Without
    it, which is much faster, values are taken as they are.

    Raises: RecordingError on a first line that is not a preamble of a version we read, or on a damaged line.
    """

    def __init__(self, source: str = "recording", check: Check | None = None) -> None:
        self._source = source
        self._check = check
        self._fields: dict[str, list[str]] | None = None
        self._as_ours: set[str] = set()  # kinds with the same fields as in this version
        self._lines = 0
        self._frames = 0  # but headers and parts

    @property
    def fields(self) -> dict[str, list[str]]:
        """Kind of frame -> the names of its fields, in the order of this recording; empty before the preamble."""
        return self._fields or {}

    def checked(self, edge: End | Part) -> End | Part:
        """``edge``, the latest frame, with what is missing of the frames that were fed."""
        if isinstance(edge, Part) and not edge.ends:
            self._frames = edge.frames_before
            return edge
        told = edge.frames_before if isinstance(edge, Part) else edge.frames
        return edge if told is None else replace(edge, missing=told - self._frames + isinstance(edge, End))

    def skip(self, lines: int) -> None:
        """So many lines were read elsewhere, and count where a damaged one is named."""
        self._lines += lines

    def feed(self, line: bytes) -> Frame | None:
        """The frame in ``line``, or ``None`` for the preamble and for kinds this version does not know."""
        self._lines += 1
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as exc:
            if self._fields is None:
                hint = _OF_REPORTS if line.strip() == b"{" else ""
                raise RecordingError(
                    f"{self._source} {_NO_RECORDING} its first line is not JSON ({exc}). {_EXPECTED}{hint}"
                ) from None
            raise RecordingError(
                f"{self._source}, line {self._lines}: damaged, not JSON ({exc}). "
                "Expected one frame a line; the file was edited or the disk was full."
            ) from None
        if self._fields is None:
            self._read_preamble(value)
            return None
        try:
            frame = self._frame(value)
        except (TypeError, ValueError, IndexError, KeyError) as exc:
            raise RecordingError(
                f"{self._source}, line {self._lines}: not a frame of this recording ({exc}). "
                "The file was edited, or written by a version with a defect."
            ) from exc
        fault = "" if self._check is None or frame is None else self._check(frame)
        if fault:
            raise RecordingError(
                f"{self._source}, line {self._lines}: damaged, {fault}. The file was edited, or its disk has a defect: "
                "make the recording again, or remove that line."
            )
        return frame

    def _read_preamble(self, value: Any) -> None:
        if not isinstance(value, dict) or value.get("format") != FORMAT_NAME:
            raise RecordingError(
                f"{self._source} {_NO_RECORDING} its first line does not name the format {FORMAT_NAME!r}. {_EXPECTED}"
            )
        if value.get("version") != FORMAT_VERSION:
            raise RecordingError(
                f"{self._source} has recording format version {value.get('version')!r}; this mcp_probe reads version "
                f"{FORMAT_VERSION}. Read it with the mcp_probe that wrote it, or upgrade."
            )
        names = value.get("fields")
        if not isinstance(names, dict) or not all(isinstance(row, list) for row in names.values()):
            raise RecordingError(
                f"{self._source} is a damaged mcp_probe recording: "
                "its first line does not list the fields of its frames."
            )
        self._fields = names
        self._as_ours = {kind for kind, ours in _FIELDS.items() if names.get(kind) == list(ours)}

    def _frame(self, value: Any) -> Frame | None:
        assert self._fields is not None
        if not isinstance(value, list):
            raise ValueError(f"expected a list, found a {type(value).__name__}")
        kind = value[0]
        if kind != "header" and kind != "part":
            self._frames += 1
        cls = _KINDS.get(kind)
        if cls is None:
            return None
        if kind in self._as_ours and len(value) == len(_FIELDS[kind]) + 1:
            return _make(cls, [_tuples(item) for item in value[1:]])
        values = dict(zip(self._fields[kind], value[1:], strict=True))
        known = {}
        for f in fields(cls):
            if f.name in values:
                known[f.name] = _tuples(values[f.name])
            elif f.default is MISSING:
                raise ValueError(f"{kind} frame lacks {f.name}")
        if cls is RequestRecord:
            known["budget"] = Budget(*known["budget"])
            known["waits"] = tuple(Wait(*w) for w in known["waits"])
            known["jobs"] = tuple(JobTimes(*job) for job in known.get("jobs", ()))
            known["memory"] = _memory_use(known.get("memory"))
            known["awaits"] = _awaits(known.get("awaits"))
        elif cls is Timeline:
            known["steps"] = tuple(StepRun(*step) for step in known["steps"])
            known["jobs"] = tuple(JobRun(*job) for job in known["jobs"])
            known["awaits"] = _awaits(known["awaits"])
            known["holds"] = tuple(LockHold(*hold) for hold in known.get("holds", ()))
        frame: Frame = cls(**known)
        return frame


_BUDGET_AT = _FIELDS["request"].index("budget")
_WAITS_AT = _FIELDS["request"].index("waits")
_JOBS_AT = _FIELDS["request"].index("jobs")
_MEMORY_AT = _FIELDS["request"].index("memory")
_AWAITS_AT = _FIELDS["request"].index("awaits")
_RUNS_AT, _RUN_JOBS_AT, _RUN_AWAITS_AT, _HOLDS_AT = (
    _FIELDS["timeline"].index(name) for name in ("steps", "jobs", "awaits", "holds")
)


def _make(cls: type, values: list[Any]) -> Frame:
    """A frame from the values of all its fields, in order."""
    if cls is RequestRecord:
        values[_BUDGET_AT] = Budget(*values[_BUDGET_AT])
        values[_WAITS_AT] = tuple(map(Wait._make, values[_WAITS_AT]))
        values[_JOBS_AT] = tuple(JobTimes(*job) for job in values[_JOBS_AT])
        values[_MEMORY_AT] = _memory_use(values[_MEMORY_AT])
        values[_AWAITS_AT] = _awaits(values[_AWAITS_AT])
    elif cls is Timeline:
        values[_RUNS_AT] = tuple(StepRun(*step) for step in values[_RUNS_AT])
        values[_RUN_JOBS_AT] = tuple(JobRun(*job) for job in values[_RUN_JOBS_AT])
        values[_RUN_AWAITS_AT] = _awaits(values[_RUN_AWAITS_AT])
        values[_HOLDS_AT] = tuple(LockHold(*hold) for hold in values[_HOLDS_AT])
    frame: Frame = cls(*values)
    return frame


def _memory_use(values: tuple[Any, ...] | None) -> MemoryUse | None:
    """Fields that a newer version may have added at the end are left out."""
    return None if values is None else MemoryUse(*values[: len(_MEMORY_FIELDS)])


def _awaits(rows: tuple[Any, ...] | None) -> tuple[Await, ...] | None:
    """As with memory: fields that a newer version may have added at the end are left out."""
    if rows is None:
        return None
    at = _AWAIT_FIELDS.index("holders")
    awaits = []
    for row in rows:
        values = list(row[: len(_AWAIT_FIELDS)])
        values[at] = tuple([HolderPart(*part[:_HOLDER_FIELDS]) for part in values[at]])
        awaits.append(Await(*values))
    return tuple(awaits)


def read_recording(
    path: str | os.PathLike[str], show: Callable[[float], None] | None = None, check: Check | None = None
) -> Iterator[Frame]:
    """Frames of the file at ``path``, oldest first; a last line without its newline is left out.

    ``show`` is told now and then which share of it has been read; ``check`` as in :class:`LineDecoder`.

    Raises: RecordingError when the file is missing, not ours, of another version, or damaged.
    """
    try:
        stream = Path(path).open("rb")  # noqa: SIM115 - opened here for its error, closed below
    except OSError as exc:
        raise RecordingError(
            f"Cannot read the recording {os.fspath(path)}: {exc.strerror}. "
            "Expected a file written by `mcp-probe run --record FILE`."
        ) from exc
    with stream:
        try:
            yield from decode_lines(_lines_of(stream, show), os.fspath(path), check)
        except OSError as exc:
            raise RecordingError(f"Cannot read the recording {os.fspath(path)}: {exc.strerror}.") from exc


def _lines_of(stream: BinaryIO, show: Callable[[float], None] | None) -> Iterator[bytes]:
    size, done, told = max(1, os.fstat(stream.fileno()).st_size), 0, 0
    while line := stream.readline(LONGEST_LINE + 1):
        yield line
        done += len(line)
        if show is not None and done - told >= _SHOW_BYTES:
            told = done
            show(min(1.0, done / size))


def decode_lines(lines: Iterable[bytes], source: str, check: Check | None = None) -> Iterator[Frame]:
    """Frames of ``lines`` (each with its newline; a cut-off last line is left out)."""
    decoder = LineDecoder(source, check)
    said = empty = True
    for line in lines:
        empty = False
        if not line.endswith(b"\n"):
            if len(line) > LONGEST_LINE:
                raise RecordingError(
                    f"{source} has a line of more than {LONGEST_LINE >> 20} MiB. Expected one frame a line, as "
                    "`mcp-probe run --record FILE` writes them."
                )
            if not decoder.fields:
                raise RecordingError(f"{source} {_NO_RECORDING} its first line does not end. {_EXPECTED}")
            break
        frame = decoder.feed(line)
        if frame is not None:
            said = False
            yield frame if type(frame) is not End and type(frame) is not Part else decoder.checked(frame)
    if empty:
        raise RecordingError(
            f"{source} is empty. Expected a file written by `mcp-probe run --record FILE`; "
            "a server that never started leaves no recording."
        )
    if said:
        raise RecordingError(NO_FRAME.format(source))
