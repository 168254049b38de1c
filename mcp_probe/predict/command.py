"""What ``mcp-probe what-if`` takes and does; the command line only chooses the exit code."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from mcp_probe.errors import OptionError
from mcp_probe.predict import jsonfile
from mcp_probe.predict.page import page
from mcp_probe.predict.what_if import answer, window_of
from mcp_probe.record import private_file
from mcp_probe.record.parts import read_parts
from mcp_probe.report.console import draw


def what_if(options: argparse.Namespace) -> None:
    """Answers on stdout.

    Raises:
        OptionError: a name is not known in the recording.
        RecordingError: the file cannot be read, or is none of ours.
        CannotPredictError: the window cannot be run again, or does not give what was measured.
    """
    if options.json not in (None, "-"):
        if Path(options.json).resolve() == options.file.resolve():
            raise OptionError(f"--json {options.json} is the recording itself. Name another file.")
        private_file.check(Path(options.json))
    found = answer(window_of(read_parts(options.file), options.arrivals), options.changes)
    if options.json == "-":
        jsonfile.write(found, sys.stdout)
    else:
        color = False if options.no_color else None
        sys.stdout.write(draw(page(found), sys.stdout, width=options.width, color=color))
    sys.stdout.flush()
    if options.json not in (None, "-"):
        with private_file.opened(Path(options.json)) as stream:
            jsonfile.write(found, stream)
