"""Scenes of real time on a machine that others use too: played until they go as planned."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def slowdown() -> float:
    """How many times longer than on a machine of its own this process takes to compute, just now; at least 1."""
    wall, cpu = time.perf_counter(), time.thread_time()
    while time.thread_time() - cpu < 0.1:
        pass
    return max(1.0, (time.perf_counter() - wall) / (time.thread_time() - cpu))


def until_right(play: Callable[[], T], is_right: Callable[[T], bool], *, tries: int = 3) -> T:
    """The first round of ``play()`` that is right, or the last of ``tries``: for what a busy machine spoils."""
    found = play()
    for _ in range(tries - 1):
        if is_right(found):
            break
        found = play()
    return found


def least_disturbed(
    play: Callable[[], T], off_ms: Callable[[T], float], *, fine_ms: float, rounds: int = 3, tries: int = 9
) -> list[T]:
    """The ``rounds`` rounds of ``play()`` that came closest to their plan.

    ``off_ms`` says how far off a round was, by instants that the test noted itself and never by what the probe said of
    it. Rounds are played until enough are within ``fine_ms``, at most ``tries``: on a machine that is busy all the time
    what is left is the best there was, and the caller allows for how far off that is.
    """
    played: list[T] = []
    while len(played) < tries and sum(off_ms(one) <= fine_ms for one in played) < rounds:
        played.append(play())
    return sorted(played, key=off_ms)[:rounds]
