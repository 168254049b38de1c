"""What ``mcp-probe query`` does: recordings to Parquet where that is to be done, then the query."""

from __future__ import annotations

import argparse
import csv
import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import chain, islice
from pathlib import Path
from typing import Any, TextIO

from mcp_probe.errors import OptionError, RecordingError
from mcp_probe.query.parquet import connection, convert, create_views, is_current, kept_folder, said_of
from mcp_probe.record.parts import files_of, is_part
from mcp_probe.report.blocks import Column, Grid, Paragraph, Span, Words
from mcp_probe.report.console import draw
from mcp_probe.workloads.status_line import StatusLine

MOST_ROWS = 1000
"""Rows of a table; beyond, its widths would take all rows into memory."""


def query(options: argparse.Namespace) -> list[str]:
    """Answers one query on stdout; returns what the reader must know besides.

    Raises:
        RecordingError: a file cannot be read, is none of ours, or is damaged.
        OptionError: the SQL is not understood, or the Parquet files cannot be written.
        MissingExtraError: DuckDB is not there.
    """
    with ExitStack() as stack:
        database = stack.enter_context(connection())
        folders = [(path.name, _folder(file, options.no_cache, stack)) for path, file in _files_of(options.files)]
        scratch = stack.enter_context(tempfile.TemporaryDirectory(prefix="mcp-probe-query-"))
        database.execute(f"SET temp_directory = '{scratch}'")
        create_views(database, folders)
        _answer(database, options)
        names = dict.fromkeys(name for name, _ in folders)
        told = [sentence for name in names for sentence in said_of(name, [one for its, one in folders if its == name])]
        has_requests = database.execute("SELECT 1 FROM requests LIMIT 1").fetchone() is not None
        return told if has_requests else [*told, f"No request is in {', '.join(names)}: each answer is of nothing."]


def _files_of(paths: list[Path]) -> Iterator[tuple[Path, Path]]:
    """(recording, each of its files); a part that is named besides its recording counts once."""
    seen: set[Path] = set()
    for path in sorted(paths, key=is_part):
        for file in files_of(path):
            if file.resolve() not in seen:
                seen.add(file.resolve())
                yield path, file


def _folder(recording: Path, is_passing: bool, stack: ExitStack) -> Path:
    kept = kept_folder(recording)
    if recording.is_dir():
        raise RecordingError(f"{recording} is a folder. Give the recording itself; its Parquet files are found.")
    if is_current(kept, recording):
        return kept
    if is_passing:
        kept = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mcp-probe-query-"))) / kept.name
    with StatusLine(sys.stderr, "query") as status:
        convert(recording, kept, lambda share: status.show(f"{recording.name} to Parquet, {100 * share:.0f}%"))
    return kept


def _answer(database: Any, options: argparse.Namespace) -> None:
    import duckdb

    try:
        found = database.execute(options.sql)
        names = [str(column[0]) for column in found.description or ()]
        rows = _rows(found)
        first = next(rows, None)
    except duckdb.Error as exc:
        raise OptionError(f"The query failed: {exc}") from exc
    every = chain(() if first is None else (first,), rows)
    write = {"table": _table, "csv": _csv, "json": _json}[options.format]
    try:
        write(names, every, options)
    except duckdb.Error as exc:
        raise OptionError(f"The query failed: {exc}") from exc
    sys.stdout.flush()


def _rows(found: Any) -> Iterator[tuple[Any, ...]]:
    while rows := found.fetchmany(1000):
        yield from rows


def _table(names: list[str], rows: Iterator[tuple[Any, ...]], options: argparse.Namespace) -> None:
    shown = list(islice(rows, MOST_ROWS))
    right = [all(isinstance(row[at], (int, float)) or row[at] is None for row in shown) for at in range(len(names))]
    columns = tuple(Column(name, right=is_right) for name, is_right in zip(names, right, strict=True))
    lines = tuple(tuple(Words((Span(_shown(value)),), "middle") for value in row) for row in shown)
    squeeze = tuple((at, 12) for at, is_right in enumerate(right) if not is_right)
    blocks: list[Grid | Paragraph] = [Grid(columns, lines, squeeze)]
    if next(rows, None) is not None:
        blocks.append(Paragraph((Span(f"… more than {MOST_ROWS} rows: add LIMIT, or take --format csv.", "dim"),)))
    sys.stdout.write(draw(blocks, sys.stdout, width=options.width, color=False if options.no_color else None))


def _shown(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:,.3f}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _csv(names: list[str], rows: Iterator[tuple[Any, ...]], options: argparse.Namespace) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(names)
    writer.writerows(rows)


def _json(names: list[str], rows: Iterator[tuple[Any, ...]], options: argparse.Namespace) -> None:
    """One array, an object a row, a row a line."""
    out: TextIO = sys.stdout
    separator = "[\n"
    for row in rows:
        out.write(separator + json.dumps(dict(zip(names, row, strict=True)), default=str))
        separator = ",\n"
    out.write("[]\n" if separator == "[\n" else "\n]\n")
