"""A serving process ends where `mcp-probe run` was killed, whatever stands between the two.

The parent-death signal reaches the command alone (see parent.py). The command may be a shell, `uv run` or a supervisor
that starts Python as a child of its own. So the parent holds a lock on a file of the run's folder for as long as it
lives, and a thread of each serving process waits for that lock. A parent that ends by itself removes the folder first:
its servers are left alone, as without us.
"""

from __future__ import annotations

import fcntl
import os
import signal
from contextlib import suppress
from io import FileIO

from mcp_probe.capture.worker import Worker

_NAME = "alive"


def hold(run: str) -> FileIO | None:
    """Lock the file. Keep what is returned open while this process lives; ``None`` where there are no such locks."""
    with suppress(OSError):
        held = FileIO(os.path.join(run, _NAME), "w")
        try:
            fcntl.flock(held, fcntl.LOCK_EX)
        except OSError:
            held.close()
            raise
        return held
    return None


def end_with_parent(run: str) -> None:
    """Start the thread. Does not block; without the file or a thread nothing is done. Never raises."""
    with suppress(OSError, RuntimeError):
        waiting = FileIO(os.path.join(run, _NAME))
        Worker("mcp-probe-lifeline", lambda: _wait(run, waiting)).start()


def _wait(run: str, waiting: FileIO) -> None:
    with suppress(OSError), waiting:
        fcntl.flock(waiting, fcntl.LOCK_SH)
        if os.path.exists(os.path.join(run, _NAME)):
            os.kill(os.getpid(), signal.SIGKILL)
