"""A recording as a folder of Parquet files, one view a folder; made once, and kept beside the recording.

Read in pieces that end at a line, so memory does not grow with the recording. A last line that was cut off is left
out, as everywhere. A folder is put in place whole, and is good for one size and time of change of its recording.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from mcp_probe.aggregate.summary import NO_END, cut_sentence, missing_sentence
from mcp_probe.errors import MissingExtraError, OptionError, RecordingError
from mcp_probe.model import End, Header, Part, RequestRecord
from mcp_probe.query.blame import BlameRows
from mcp_probe.query.views import BLOCKED_BY, NAMES, VIEWS, View
from mcp_probe.record.damage import fault_of
from mcp_probe.record.file import FORMAT_NAME, FORMAT_VERSION, NO_FRAME, LineDecoder, encode_json

FORMAT = "mcp_probe.parquet/2"
PIECE_BYTES = 24 << 20
MEMORY = "320MB"
_FIELD = re.compile(r"\{(\w+)((?:\.\d+)*)\}")
_LONGEST_LINE = 64 << 20
_SPILLED = "spilled"

Show = Callable[[float], None]
"""Told which share of a recording is done."""


def connection() -> Any:
    """A database in memory that fetches nothing. Raises: MissingExtraError."""
    try:
        import duckdb
    except ImportError as exc:
        raise MissingExtraError(
            'Queries are answered by DuckDB, which is not installed: pip install "mcp-probe-profiler[look]".'
        ) from exc
    return duckdb.connect(
        config={
            "memory_limit": MEMORY,
            "threads": min(2, os.cpu_count() or 1),
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
        }
    )


def kept_folder(recording: Path) -> Path:
    """Where the Parquet files of ``recording`` are kept."""
    return recording.with_name(f"{recording.name}.parquet")


def is_current(folder: Path, recording: Path) -> bool:
    """Whether ``folder`` was made of ``recording`` as it is now, by this format."""
    try:
        return bool(json.loads((folder / "source.json").read_text("utf-8")) == _source(recording))
    except (OSError, ValueError):
        return False


def said_of(name: str, folders: Sequence[Path]) -> Iterator[str]:
    """What is missing from the recording called ``name``, whose files are in ``folders``."""
    edges = [json.loads((folder / "edges.json").read_text("utf-8")) for folder in folders]
    if edges[0]["cut"]:
        yield f"{name}: {cut_sentence(*edges[0]['cut'])}"
    if missing := sum(edge["missing"] for edge in edges):
        yield f"{name}: {missing_sentence(missing)}"
    if edges[-1]["continues"]:
        yield f"{name} goes on in another file."
    elif not edges[-1]["ended"]:
        yield f"{name}: {NO_END}"


def convert(recording: Path, folder: Path, show: Show) -> None:
    """Makes ``folder`` of ``recording``. Raises: RecordingError, OptionError where it cannot be written."""
    partly = folder.with_name(f"{folder.name}.{os.getpid()}")
    try:
        source = _source(recording)
        try:
            partly.mkdir(mode=0o700)
            for name in NAMES:
                (partly / name).mkdir()
        except OSError as exc:
            raise OptionError(
                f"Cannot write {partly}: {exc.strerror}. The Parquet files are kept beside the recording; "
                "--no-cache makes them in the folder for temporary files."
            ) from exc
        edges = _Conversion(recording, partly, show).run()
        shutil.rmtree(partly / _SPILLED, ignore_errors=True)
        (partly / "edges.json").write_text(json.dumps(edges), "utf-8")
        (partly / "source.json").write_text(json.dumps(source), "utf-8")
        shutil.rmtree(folder, ignore_errors=True)
        partly.rename(folder)
    finally:
        shutil.rmtree(partly, ignore_errors=True)


def _source(recording: Path) -> dict[str, Any]:
    try:
        found = recording.stat()
    except OSError as exc:
        raise RecordingError(
            f"Cannot read the recording {recording}: {exc.strerror}. "
            "Expected a file written by `mcp-probe run --record FILE`."
        ) from exc
    return {"format": FORMAT, "bytes": found.st_size, "mtime_ns": found.st_mtime_ns}


class _Conversion:
    """One recording on its way."""

    def __init__(self, recording: Path, folder: Path, show: Show) -> None:
        self._recording = recording
        self._folder = folder
        self._show = show
        self._decoder = LineDecoder(str(recording))
        self._blame = BlameRows()
        self._start = (0, 0.0)
        self._pieces = 0
        self._edges: dict[str, Any] = {"cut": None, "continues": False, "ended": False, "missing": 0}
        self._frames = 0
        self._told: int | None = None  # frames, by the last End
        self._is_end_last = False
        self._database = connection()
        # What does not fit into its memory goes there; by default that would be a folder of the working directory.
        self._database.execute(f"SET temp_directory = {_text(str(folder / _SPILLED))}")

    def run(self) -> dict[str, Any]:
        """Returns how it begins and ends."""
        with self._database:
            lines = 0
            for piece, first in _pieces(self._recording, self._folder, self._decoder, self._show):
                if self._pieces == 0:
                    self._begin(first)
                lines = self._take(piece, lines)
                self._pieces += 1
            self._blame.fold.settle()
            self._keep_blame()
            if not lines:
                raise RecordingError(NO_FRAME.format(self._recording))
        if self._is_end_last and self._told is not None:
            self._edges["missing"] = self._told + 1 - self._frames
        return self._edges

    def _begin(self, first: bytes) -> None:
        """The clock of the recording, which its first frame knows."""
        frame = self._decoder_again().feed(first) if first else None
        if isinstance(frame, Header):
            self._start = (frame.start_ns, frame.start_unix)

    def _take(self, piece: Path, lines_before: int) -> int:
        """One piece into all views; returns how many lines there were up to its end."""
        import duckdb

        execute = self._database.execute
        try:
            execute(
                "CREATE OR REPLACE TEMP TABLE lines AS SELECT json->>'$[0]' AS kind, json FROM read_ndjson_objects("
                f"{_text(str(piece))}, format = 'newline_delimited', maximum_object_size = {_LONGEST_LINE})"
            )
            self._check_lengths(piece, lines_before)
            for name, view in VIEWS.items():
                self._copy(name, self._select(view))
            self._feed_blame()
        except duckdb.OutOfMemoryException as exc:
            raise RecordingError(f"{self._recording} has lines too long for the memory of {MEMORY}: {exc}") from exc
        except duckdb.Error as exc:
            self._find_damage(piece, lines_before)
            raise RecordingError(f"{self._recording} cannot be read: {exc}") from exc
        counted = "SELECT count(*), count(*) FILTER (kind NOT IN ('header', 'part')) FROM lines"
        count, frames = execute(counted).fetchone()
        self._frames += frames
        self._is_end_last = _last_line(piece).startswith(b'["end"')
        return lines_before + int(count)

    def _check_lengths(self, piece: Path, lines_before: int) -> None:
        sizes = {kind: len(names) + 1 for kind, names in self._decoder.fields.items()}
        wrong = [f"(kind = {_text(kind)} AND json_array_length(json) <> {size})" for kind, size in sizes.items()]
        sql = f"SELECT count(*) FROM lines WHERE {' OR '.join(['kind IS NULL', *wrong])}"
        (count,) = self._database.execute(sql).fetchone()
        if count:
            self._find_damage(piece, lines_before)

    def _decoder_again(self) -> LineDecoder:
        """One that stands behind the preamble, and looks at every value."""
        decoder = LineDecoder(str(self._recording), fault_of)
        decoder.feed(encode_json({"format": FORMAT_NAME, "version": FORMAT_VERSION, "fields": self._decoder.fields}))
        return decoder

    def _find_damage(self, piece: Path, lines_before: int) -> None:
        """Raises what reading line by line says of the first damaged line, if it says anything."""
        decoder = self._decoder_again()
        decoder.skip(lines_before)
        with piece.open("rb") as stream:
            for line in stream:
                decoder.feed(line)

    def _select(self, view: View) -> str:
        fields = self._decoder.fields.get(view.kind, [])
        places = {name: f"$[{at}]" for at, name in enumerate(fields, 1)}
        paths: dict[str, str] = {}

        def of_line(match: re.Match[str]) -> str:
            name, inner = match[1], "".join(f"[{at}]" for at in match[2].split(".")[1:])
            if name == "start":
                return str(self._start[0])
            if name == "unix":
                return repr(self._start[1])
            if name == "one":
                return f"(one->>'${inner}')" if inner else "one"
            if name not in places:
                return "NULL"
            path = places[name] + inner
            at = list(paths).index(path) + 1 if path in paths else len(paths) + 1
            paths[path] = path
            return f"v[{at}]"

        columns = ", ".join(f"{_FIELD.sub(of_line, text)} AS {_name(name)}" for name, text in view.columns.items())
        where = _FIELD.sub(of_line, view.where)
        each = ""
        if view.each is not None:
            path = places.get(view.each)
            source = f"from_json(json_extract(json, {_text(path)}), '[\"JSON\"]')" if path else "CAST([] AS JSON[])"
            each = f", unnest({source}) AS one"
        listed = ", ".join(map(_text, paths)) or "'$[0]'"
        inner_select = (
            f"SELECT json_extract_string(json, [{listed}]) AS v{each} FROM lines WHERE kind = {_text(view.kind)}"
        )
        return f"SELECT {columns} FROM ({inner_select}) WHERE {where}"

    def _copy(self, name: str, select: str) -> None:
        """A file more, unless it would be empty; the first one says which columns there are."""
        target = self._folder / name / f"{self._pieces:05}.parquet"
        copied = f"COPY ({select}) TO {_text(str(target))} (FORMAT parquet, COMPRESSION zstd)"
        (count,) = self._database.execute(copied).fetchone()
        if not count and self._pieces:
            target.unlink()

    def _feed_blame(self) -> None:
        """Only what blame rests on: steps, samples of loops, and requests that waited."""
        waits = self._decoder.fields.get("request", [])
        at = waits.index("waits") + 1 if "waits" in waits else 0
        found = self._database.execute(
            "SELECT json FROM lines WHERE kind IN ('header', 'step', 'loop', 'part', 'end') OR "
            f"(kind = 'request' AND json_array_length(json, '$[{at}]') > 0)"
        )
        while rows := found.fetchmany(2000):
            for (line,) in rows:
                frame = self._decoder.feed(line.encode())
                if isinstance(frame, (Part, End)):
                    self._note(frame)
                elif frame is not None:
                    self._blame.fold.add(_without_awaits(frame))
        self._keep_blame()

    def _note(self, edge: Part | End) -> None:
        if isinstance(edge, End):
            self._edges["ended"] = True
            self._told = edge.frames
        elif edge.ends:
            self._edges["continues"] = True
        else:
            self._frames += edge.frames_before
            self._edges["cut"] = [edge.requests_before, edge.limit_bytes]

    def _keep_blame(self) -> None:
        rows = self._blame.take()
        if not rows and self._pieces:
            return
        piece = self._folder / "rows.jsonl"
        piece.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
        columns = ", ".join(f"{name}: {_text(kind)}" for name, kind in BLOCKED_BY.items())
        source = f"read_json({_text(str(piece))}, format = 'newline_delimited', columns = {{{columns}}})"
        self._copy("blocked_by", f"SELECT * FROM {source}")
        piece.unlink()


def _without_awaits(frame: Any) -> Any:
    """What requests awaited is another matter, and would be kept in the fold's memory."""
    return replace(frame, awaits=None) if isinstance(frame, RequestRecord) and frame.awaits else frame


def _pieces(recording: Path, folder: Path, decoder: LineDecoder, show: Show) -> Iterator[tuple[Path, bytes]]:
    """(file with the next lines, the first of them); the preamble goes to ``decoder``, and a cut-off line nowhere."""
    piece = folder / "lines.jsonl"
    with recording.open("rb") as stream:
        size = max(1, os.fstat(stream.fileno()).st_size)
        preamble = stream.readline()
        if not preamble:
            raise RecordingError(
                f"{recording} is empty. Expected a file written by `mcp-probe run --record FILE`; "
                "a server that never started leaves no recording."
            )
        decoder.feed(preamble)
        rest, is_first = b"", True
        while True:
            block = stream.read(PIECE_BYTES)
            end = block.rfind(b"\n") + 1
            if block and not end:
                rest += block
                if len(rest) > _LONGEST_LINE:
                    raise RecordingError(
                        f"{recording} has a line of more than {_LONGEST_LINE >> 20} MiB. Expected one frame a line, as "
                        "`mcp-probe run --record FILE` writes them."
                    )
                continue
            if block or is_first:
                with piece.open("wb") as target:
                    target.write(rest)
                    target.write(block[:end])
                yield piece, (rest + block[:end]).split(b"\n", 1)[0] if is_first else b""
                is_first = False
            show(stream.tell() / size)
            if not block:
                break
            rest = block[end:]
    piece.unlink(missing_ok=True)


def _last_line(piece: Path) -> bytes:
    """Enough of it to know its kind; lines may be longer than what is looked at."""
    with piece.open("rb") as stream:
        stream.seek(max(0, os.fstat(stream.fileno()).st_size - 4096))
        return stream.read().rstrip(b"\n").rsplit(b"\n", 1)[-1]


def _text(value: str) -> str:
    """An SQL string."""
    return "'" + value.replace("'", "''") + "'"


def _name(value: str) -> str:
    return f'"{value}"'


def create_views(database: Any, folders: list[tuple[str, Path]]) -> None:
    """The views over all ``folders``; the first column says which recording a row is of."""
    for name in NAMES:
        selects = [
            f"SELECT {_text(recording)} AS recording, * FROM read_parquet({_text(f'{_glob(folder)}/{name}/*.parquet')})"
            for recording, folder in folders
        ]
        database.execute(f"CREATE VIEW {name} AS {' UNION ALL BY NAME '.join(selects)}")


def _glob(folder: Path) -> str:
    return re.sub(r"([*?\[])", r"[\1]", str(folder))
