"""What must hold around every test: nothing of the probe is attached to this process."""

from __future__ import annotations

import sys
from collections.abc import Sequence
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
