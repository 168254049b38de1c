"""Puts a page into its file: at once, or by a process of its own where nobody may be kept waiting for the drawing."""

from __future__ import annotations

import os
import select
import signal
import time
import warnings
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from mcp_probe.errors import ProbeError
from mcp_probe.model import Summary
from mcp_probe.record.private_file import opened
from mcp_probe.report.page.compose import render
from mcp_probe.report.page.window import Window
from mcp_probe.report.places import working_directory

PATIENCE_S = 0.25
"""How much later `mcp-probe run` ends for its page at most; a page of some thousand requests is there by then."""

MOST_DESCRIPTORS = 65_536


def write_page(processes: Sequence[tuple[Summary, Window]], path: Path) -> None:
    """Draws and writes the page of ``processes``. Raises: OptionError where ``path`` cannot be written."""
    page = render(*processes, cwd=working_directory())
    with opened(path) as stream:
        stream.write(page)


class PageWriter:
    """Writes a page without being waited for. POSIX only; main thread only.

    The drawing process is a fork, so it costs this one no copy. It is in a session of its own and holds none of our
    files: a client that ends our process group, or reads our stderr to its end, neither ends it nor waits for it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._drawing: int | None = None

    def start(self, processes: Sequence[tuple[Summary, Window]], patience_s: float = PATIENCE_S) -> str | None:
        """Begins anew, gives up an earlier page that is not ready, and waits for at most ``patience_s``.

        Returns: a sentence where the page could not be written, or is not ready yet; ``None`` where it is there.
        """
        self.give_up()
        ready, told = os.pipe()
        with warnings.catch_warnings():  # other threads of ours only sleep, or have ended
            warnings.simplefilter("ignore", DeprecationWarning)
            self._drawing = os.fork()
        if not self._drawing:
            _draw(processes, self._path, told)
        os.close(told)
        try:
            return self._wait(ready, time.monotonic() + patience_s)
        finally:
            os.close(ready)

    def _wait(self, ready: int, deadline: float) -> str | None:
        found, _, _ = select.select([ready], [], [], max(0.0, deadline - time.monotonic()))
        if not found:
            return f"The page is still being written, by process {self._drawing}: {self._path}."
        sentence = os.read(ready, 4096).decode("utf-8", "replace")
        assert self._drawing is not None
        os.waitpid(self._drawing, 0)
        self._drawing = None
        return sentence.removeprefix("done") or None

    def give_up(self) -> None:
        """Ends the drawing that is under way, if any."""
        if self._drawing is not None:
            with suppress(OSError):
                os.kill(self._drawing, signal.SIGKILL)
                os.waitpid(self._drawing, 0)
        self._drawing = None


def _draw(processes: Sequence[tuple[Summary, Window]], path: Path, told: int) -> NoReturn:
    """In the fork: nothing of what it inherited runs again, whatever happens."""
    try:
        _let_go(told)
        try:
            write_page(processes, path)
            sentence = "done"
        except ProbeError as exc:
            sentence = str(exc)
        except Exception as exc:  # noqa: BLE001 - a process of its own; the command has its exit code
            sentence = f"The page could not be made ({type(exc).__name__}: {exc}); please report this."
        with suppress(OSError):  # nobody waits any more
            os.write(told, sentence.encode()[:4096])
    finally:
        os._exit(0)


def _let_go(kept: int) -> None:
    """Of our process group, signals and files, but ``kept``."""
    os.setsid()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nothing, standard)
    os.closerange(3, kept)
    os.closerange(kept + 1, min(os.sysconf("SC_OPEN_MAX"), MOST_DESCRIPTORS))
