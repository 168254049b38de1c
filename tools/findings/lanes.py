"""Several runs of the fault matrix at once, each in a process of its own that goes on from cell to cell.

Beside a hog all of them are called at once: that is harder for the probe than a hog alone. Where a cell is to be alone
one is called at a time, while the others end: the report of a run is made when its calls are over.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager, nullcontext
from multiprocessing.util import Finalize
from types import TracebackType
from typing import Any

from tests.adapters.waits.backend import serving
from tools.findings.cells import Cell
from tools.findings.matrix import Run
from tools.findings.run import Surroundings, WarmOnes, run_cell


class Lanes:
    """So many processes. Leaving it awaits what runs."""

    def __init__(self, count: int, commit: str) -> None:
        context = multiprocessing.get_context("spawn")
        self._count = count
        self._pool = ProcessPoolExecutor(count, context, _enter, (context.Lock(), commit))
        self._running: dict[Future[Run], Cell] = {}

    def __enter__(self) -> Lanes:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._pool.shutdown(cancel_futures=True)

    @property
    def running(self) -> list[Cell]:
        """What is being run."""
        return list(self._running.values())

    @property
    def is_full(self) -> bool:
        """Whether another one would wait."""
        return len(self._running) >= self._count

    def begin(self, cell: Cell, *, is_forked: bool) -> None:
        """Begin a run of a cell. ``is_forked``: not in a fresh interpreter."""
        self._running[self._pool.submit(_run, cell, is_forked)] = cell

    def ended(self) -> Iterator[tuple[Cell, Run]]:
        """What has ended, at least one if any runs."""
        for one in wait(self._running, return_when=FIRST_COMPLETED).done:
            yield self._running.pop(one), one.result()


# --- in a lane's process ------------------------------------------------------------------------------

_lane: tuple[Surroundings, AbstractContextManager[Any], str]


def _enter(calling: AbstractContextManager[Any], commit: str) -> None:
    global _lane
    around = _surroundings()
    _lane = around.__enter__(), calling, commit
    Finalize(None, around.__exit__, (None, None, None), exitpriority=1)


@contextmanager
def _surroundings() -> Iterator[Surroundings]:
    with serving(first_byte=0.02) as quick, serving(first_byte=0.4) as slow, WarmOnes() as warm:
        yield Surroundings(quick.address, slow.address, warm)


def _run(cell: Cell, is_forked: bool) -> Run:
    around, calling, commit = _lane
    return run_cell(cell, around, calling if cell.beside == "alone" else nullcontext(), commit, is_forked=is_forked)
