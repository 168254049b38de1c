"""Progress of a run on stderr: a line for each workload that has ended, and what the present one is doing."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TextIO

from mcp_probe.workloads.bench.shapes import Result, Workload
from mcp_probe.workloads.status_line import StatusLine


class Progress:
    """Counts the workloads that have ended."""

    def __init__(self, stream: TextIO, names: Sequence[str]) -> None:
        self._stream = stream
        self._count = len(names)
        self._width = max(map(len, names), default=0)
        self._ended = 0
        self._line = StatusLine(stream, "bench")

    def __enter__(self) -> Progress:
        self._line.show("starting")
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._line.__exit__(*exc_info)

    def show(self, workload: Workload, what: str) -> None:
        """``workload`` is at ``what`` now."""
        self._line.show(f"{self._ended}/{self._count} done, {workload.name}: {what}")

    def done(self, result: Result) -> None:
        """One more workload has ended."""
        self._ended += 1
        ending = "" if result.error is None else f"  {result.error}"
        place = f"[{self._ended}/{self._count}]"
        self._line.wipe()
        with suppress(OSError):  # the terminal has been closed
            self._stream.write(f"{place} {result.name:<{self._width}} {result.seconds:6.1f} s{ending}\n")
            self._stream.flush()
