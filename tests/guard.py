"""What must hold around every test: nothing of the probe is attached to this process, and none of its threads runs."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import Protocol


class Detachable(Protocol):
    """The part of a probe that the guard needs."""

    def detach(self) -> None: ...


def attached_now() -> Sequence[Detachable]:
    """Probes attached in this process. One that never loaded the session can have none, and is not made to load it."""
    if "mcp_probe.session" not in sys.modules:
        return ()
    from mcp_probe.session import attached

    return attached()


def detach_leaks(leaks: Sequence[Detachable]) -> str | None:
    """Detaches what should not be there, so that only one test fails for it; returns the sentence to fail with."""
    if not leaks:
        return None
    names = ", ".join(repr(leak) for leak in leaks)
    for leak in leaks:
        leak.detach()
    return f"{len(leaks)} probe(s) still attached: {names}. Call detach(), or use a fixture that does."


def threads_now() -> int:
    """Threads of the probe in this process."""
    worker = sys.modules.get("mcp_probe.capture.worker")
    return 0 if worker is None else worker.workers_alive()


def threads_that_stay(alive: Callable[[], int] = threads_now, patience_s: float = 20.0) -> str | None:
    """Waits until the threads of probes that left have ended; returns the sentence to fail with where they do not.

    A detach does not wait for them without limit. One that is still about would meet what the next test has patched.
    """
    deadline = time.monotonic() + patience_s
    while count := alive():
        if time.monotonic() >= deadline:
            return f"{count} thread(s) of a probe still run {patience_s:g} s after it was detached."
        time.sleep(0.001)
    return None
