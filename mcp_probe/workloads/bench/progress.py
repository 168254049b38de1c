"""Progress of a run on stderr: bars where there is a terminal, one line per workload where there is none."""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, TextIO

from mcp_probe.workloads.bench.shapes import Result, Workload

if TYPE_CHECKING:
    from rich.progress import Progress as Bars
    from rich.progress import TaskID


class Progress:
    """A bar over all workloads and a line that says what the present one is at. Draws with rich, if it is there."""

    def __init__(self, stream: TextIO, names: Sequence[str]) -> None:
        self._stream = stream
        self._count = len(names)
        self._width = max(map(len, names), default=0)
        self._began = time.monotonic()
        self._ended = 0
        self._bars: Bars | None = None
        self._all: TaskID | None = None

    def __enter__(self) -> Progress:
        if self._stream.isatty():
            self._bars = _bars(self._stream)
        if self._bars is not None:
            self._bars.start()
            self._all = self._bars.add_task("starting", total=self._count)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._bars is not None:
            self._bars.stop()

    def show(self, workload: Workload, what: str) -> None:
        """``workload`` is at ``what`` now."""
        if self._bars is not None and self._all is not None:
            self._bars.update(self._all, description=f"[bold]{workload.name}[/bold]  {_plain(what)}")

    def done(self, result: Result) -> None:
        """One more workload has ended."""
        self._ended += 1
        ending = "" if result.error is None else f"  {result.error}"
        if self._bars is not None and self._all is not None:
            self._bars.update(self._all, completed=self._ended)
            style, sign = ("red", "✗") if result.error else ("green", "✓")
            self._bars.console.print(
                f"[{style}]{sign}[/{style}] {result.name:<{self._width}} {result.seconds:6.1f} s{_plain(ending)}",
                highlight=False,
                soft_wrap=True,
            )
        else:
            place = f"[{self._ended}/{self._count}]"
            self._stream.write(f"{place} {result.name:<{self._width}} {result.seconds:6.1f} s{ending}\n")
            self._stream.flush()


def _bars(stream: TextIO) -> Bars | None:
    try:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
    except ImportError:
        return None
    from rich.table import Column

    return Progress(
        SpinnerColumn(),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}", table_column=Column(no_wrap=True, overflow="ellipsis", ratio=1)),
        console=Console(file=stream, stderr=False),
        transient=True,
        expand=True,
    )


def _plain(text: str) -> str:
    """Square brackets mean styles to rich."""
    return text.replace("[", r"\[")
