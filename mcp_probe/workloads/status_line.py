"""One line on a terminal that says what a command is doing."""

from __future__ import annotations

from collections.abc import Callable
from typing import TextIO

from mcp_probe.report.console import choose_width

_WIPE = "\r\x1b[K"


class StatusLine:
    """Rewritten in place, never wider than the terminal, wiped at the end; silent where there is no terminal."""

    def __init__(self, stream: TextIO, command: str) -> None:
        self._command = command
        self._stream = stream if stream is not None and stream.isatty() else None

    def __enter__(self) -> StatusLine:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.wipe()

    def show(self, what: str) -> None:
        """``what`` is going on now."""
        if self._stream is not None:
            text = f"mcp-probe {self._command}: {what} …"
            self._write(_WIPE + text[: choose_width(self._stream) - 1])

    def share_of(self, name: str) -> Callable[[float], None] | None:
        """What shows how much of ``name`` has been read; ``None`` where nobody would see it."""
        if self._stream is None:
            return None
        return lambda share: self.show(f"{name}, {100 * share:.0f} %")

    def wipe(self) -> None:
        """Nothing is shown, until the next :meth:`show`."""
        self._write(_WIPE)

    def _write(self, text: str) -> None:
        if self._stream is not None:
            try:
                self._stream.write(text)
                self._stream.flush()
            except OSError:  # the terminal has been closed; what is done goes on
                self._stream = None
