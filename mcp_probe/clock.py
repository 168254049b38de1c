"""The one clock: monotonic nanoseconds, and where they stand on the wall.

Invariant: every ``*_ns`` instant in a frame is a value of :func:`now_ns` in the profiled process.
On Linux ``time.monotonic`` and asyncio's ``loop.time()`` read the same clock (CLOCK_MONOTONIC), so a
timer's deadline compares with our stamps without conversion.
"""

from __future__ import annotations

import time

now_ns = time.monotonic_ns

_PAIRS = 3


def resolution_ns() -> int:
    """Resolution of :func:`now_ns` as the platform states it, at least 1."""
    return max(1, round(time.get_clock_info("monotonic").resolution * 1e9))


def wall_anchor() -> tuple[float, int]:
    """(seconds since the epoch, :func:`now_ns`) read together; error below a few microseconds.

    A thread may be stopped between two readings, so the closest of a few pairs counts.
    """
    _, unix, at_ns = min(_pair() for _ in range(_PAIRS))
    return unix, at_ns


def _pair() -> tuple[int, float, int]:
    """(ns within which both were read, seconds since the epoch, :func:`now_ns`)."""
    before = now_ns()
    unix = time.time()
    after = now_ns()
    return after - before, unix, (before + after) // 2
