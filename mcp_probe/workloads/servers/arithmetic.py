"""The computation of document 000, wherever it runs."""

from __future__ import annotations

import time


def computed(item: int) -> int:
    """``item`` plus the first 1 to 100 squares, 50.5 on average: some 2 microseconds."""
    return item + sum(number * number for number in range(item % 100 + 1))


def burn(cpu_ms: float) -> int:
    """Computes until this thread has used ``cpu_ms`` of CPU, however long that takes beside others."""
    until = time.thread_time_ns() + round(cpu_ms * 1e6)
    turns = 0
    while time.thread_time_ns() < until:
        for number in range(200):
            turns += number & 1
    return turns
