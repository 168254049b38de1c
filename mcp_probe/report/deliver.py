"""Writing the last words of a process to a stream that perhaps nobody reads."""

from __future__ import annotations

import os
import threading


def deliver(text: str, fd: int, seconds: float) -> bool:
    """Writes ``text`` to ``fd`` as UTF-8; False where it is not all taken within ``seconds``.

    Goes past Python's own buffer of that stream, which a blocked write would keep locked through the
    interpreter's exit. The descriptor is not made non-blocking: that would hold for everybody who shares it.
    """
    written = threading.Event()

    def write() -> None:
        rest = memoryview(text.encode("utf-8", "replace"))
        try:
            while rest:
                rest = rest[os.write(fd, rest) :]
        except OSError:
            return  # closed, or the disk is full: nobody is left to be told
        written.set()

    writer = threading.Thread(target=write, name="mcp-probe-writer", daemon=True)
    writer.start()
    writer.join(seconds)
    return written.is_set()
