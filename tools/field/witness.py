"""Whether a server's loop is held, seen from outside: the kernel says which system call its thread sleeps in.

Independent of the probe, which stamps inside the server. A loop that is idle sleeps in ``epoll_wait``; at any other
moment it runs something, or waits for something else than its events. Linux only.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

EVERY_S = 0.002
POLLS = {"232", "281", "441", "22"}
"""epoll_wait, epoll_pwait, epoll_pwait2 of x86-64; epoll_pwait of aarch64. Source: the kernel's syscall tables."""


class Witness:
    """Looks at the main thread of the child of ``launcher`` while the ``with`` block runs."""

    def __init__(self, launcher: int) -> None:
        self._launcher = launcher
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.looks: list[tuple[float, bool]] = []

    def __enter__(self) -> Witness:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def held_ms(self, from_s: float, to_s: float) -> float | None:
        """For how long in [from_s, to_s) the loop was not in its poll; ``None`` where nobody could see it."""
        return held_ms(self.looks, from_s, to_s)

    def _watch(self) -> None:
        launcher = Path(f"/proc/{self._launcher}/task/{self._launcher}")
        try:
            server = (launcher / "children").read_text().split()[0]
            with open(f"/proc/{server}/task/{server}/syscall") as file:
                while not self._ended.wait(EVERY_S):
                    file.seek(0)
                    self.looks.append((time.monotonic(), file.read().split()[0] in POLLS))
        except (OSError, IndexError):
            pass  # the server has ended, or this system does not tell


def held_ms(looks: Sequence[tuple[float, bool]], from_s: float, to_s: float) -> float | None:
    """Between two looks that differ it was held for half of the time. ``None`` unless looks lie around the stretch."""
    first = bisect_right(looks, from_s, key=lambda look: look[0]) - 1
    last = bisect_left(looks, to_s, key=lambda look: look[0])
    if first < 0 or last >= len(looks):
        return None
    total = 0.0
    for (before_s, idle_before), (after_s, idle_after) in pairwise(looks[first : last + 1]):
        inside_s = min(after_s, to_s) - max(before_s, from_s)
        total += max(0.0, inside_s) * (2 - idle_before - idle_after) / 2
    return total * 1e3
