"""What ``mcp-probe compare`` takes and does; the command line only writes and chooses the exit code."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from mcp_probe.compare import jsonfile
from mcp_probe.compare.judge import compared
from mcp_probe.compare.page import page
from mcp_probe.compare.reading import check_kinds, read_side
from mcp_probe.compare.regression import Checked, checked
from mcp_probe.compare.shapes import Comparison
from mcp_probe.errors import OptionError
from mcp_probe.record import private_file
from mcp_probe.report.console import draw
from mcp_probe.workloads.status_line import StatusLine


def compare(options: argparse.Namespace) -> Checked:
    """Reads both sides, shows them, and holds them against --max-regression.

    Raises:
        OptionError: no two sides, or files of kinds that cannot be compared.
        RecordingError: a file cannot be read, or is none of ours.
        MissingExtraError: scipy is needed, and is not there.
    """
    before, after = _sides(options)
    _check_files(options, [*before, *after])
    with StatusLine(sys.stderr, "compare") as status:
        old, new = read_side(before, status), read_side(after, status)
    check_kinds([*old, *new])
    comparison = compared(old, new)
    limits = options.max_regression
    found = checked(comparison, limits) if limits else Checked()
    _show(comparison, found if limits else None, options)
    return found


def _check_files(options: argparse.Namespace, read: Sequence[Path]) -> None:
    """Before anything is read: what is written can be, and is nothing that will be read."""
    taken = {path.resolve() for path in read}
    for name, path in (("--json", options.json), ("--html", options.html)):
        if path is None or str(path) == "-":
            continue
        if Path(path).resolve() in taken:
            raise OptionError(f"{name} {path} is one of the other files of this comparison. Name another file.")
        taken.add(Path(path).resolve())
        private_file.check(Path(path))


def _sides(options: argparse.Namespace) -> tuple[list[Path], list[Path]]:
    if options.before or options.after:
        if options.files or not (options.before and options.after):
            raise OptionError(
                "Give two files, `mcp-probe compare A B`, or both sides: `--before FILE ... --after FILE ...`."
            )
        return options.before, options.after
    if len(options.files) != 2:
        raise OptionError(
            f"Expected two files, found {len(options.files)}. Give `mcp-probe compare A B`, or several a side: "
            "`--before FILE ... --after FILE ...`."
        )
    return [options.files[0]], [options.files[1]]


def _show(comparison: Comparison, found: Checked | None, options: argparse.Namespace) -> None:
    if options.json == "-":
        jsonfile.write(comparison, found, sys.stdout)
    else:
        blocks = page(comparison, every_row=options.every_row)
        color = False if options.no_color else None
        sys.stdout.write(draw(blocks, sys.stdout, width=options.width, color=color))
    sys.stdout.flush()
    if options.json not in (None, "-"):
        with private_file.opened(Path(options.json)) as stream:
            jsonfile.write(comparison, found, stream)
    if options.html is not None:
        from mcp_probe.compare.html import html

        private_file.write(options.html, html(comparison))
