"""What the whole process grew by during a leak hunt, taken apart: owned by calls, by nobody, and of native code.

Python's memory that no ended call owns is nobody's: a background task, a thread that a queue feeds, or work after its
call has ended allocated it. What grew in the process and was not asked for through Python is native: C libraries,
``mmap``, and holes in the heap, which is why it is an estimate.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from typing import Literal

from mcp_probe.model import GrowthSample, ProcessGrowth, Quality, Remainder

MIN_CALLS = 50
MIN_LOOKS = 3
LATE = 0.4
"""Growth must go on after this share of the calls, so that a cache that a third of them filled is none."""

MAX_LOOKS = 64

NOBODY_BYTES = 4_096.0
"""Bytes a call. Workload: a clean tool of mcp 2.3. The probe's notes of its latest calls are 2 kB a call at most."""

NATIVE_BYTES = 4_096.0
"""Bytes a call. Workload: tools that leave holes in Python's heap: up to 2 kB a call come from new arenas."""

LEAST_BYTES = {"nobody": 1_000_000, "native": 6_000_000}
"""In all. RSS moves by some MB whatever the server does: libraries that are loaded one after the other have taken 5."""

OF_PYTHONS = 0.25
"""Native growth must also be this share of what Python asked for: its own allocator rounds up, and leaves holes."""

Look = tuple[int, int, int, int]
"""(calls so far, owned by calls, nobody's, native), bytes."""


class ProcessLooks:
    """The readings of one hunt, thinned out if there are many."""

    def __init__(self) -> None:
        self._looks: list[Look] = []
        self._apart = 0  # fewer calls are not kept between two looks

    def add(self, sample: GrowthSample) -> None:
        """Add one sample, if the process was read."""
        if sample.process is None:
            return
        resident, asked = sample.process
        calls, owned = sum(row[2] for row in sample.rows), sum(row[3] for row in sample.rows)
        look = (calls, owned, asked - owned, resident - asked)
        looks = self._looks
        if looks and (looks[-1][0] == calls or (len(looks) > 1 and calls - looks[-2][0] < self._apart)):
            looks[-1] = look
        else:
            looks.append(look)
        if len(looks) > MAX_LOOKS:
            self._looks = [*looks[:-1:2], look]
            self._apart = (calls - looks[0][0]) // (MAX_LOOKS // 2)

    def growth(self) -> ProcessGrowth | None:
        """From the first look to the last; ``None`` with fewer than two."""
        if len(self._looks) < 2:
            return None
        first, last = self._looks[0], self._looks[-1]
        _, owned, nobody, native = (after - before for before, after in zip(first, last, strict=True))
        return ProcessGrowth(
            calls=last[0] - first[0],
            resident_bytes=owned + nobody + native,
            owned_bytes=owned,
            remainders=(
                self._remainder("nobody", 2, NOBODY_BYTES, 0.0),
                self._remainder("native", 3, NATIVE_BYTES, OF_PYTHONS * (owned + nobody)),
            ),
        )

    def _remainder(self, kind: Literal["nobody", "native"], index: int, each: float, others: float) -> Remainder:
        looks = [(look[0], look[index]) for look in self._looks]
        calls, grown = looks[-1][0], looks[-1][1] - looks[0][1]
        late = [look for look in looks if look[0] >= LATE * calls]
        if calls < MIN_CALLS or len(looks) < MIN_LOOKS or late[-1][0] - late[0][0] < calls / 4:
            return Remainder(kind, "unknown", grown, None, Quality("unavailable"))
        rate = slope(late)
        grows = (
            rate >= max(each, slope(looks) / 2)
            and grown >= max(LEAST_BYTES[kind], others)
            and all(after > before for before, after in pairwise(_thirds(late)))
        )
        if grows:  # the mean of all, so that it fits what it is shown beside
            rate = grown / (calls - looks[0][0])
        return Remainder(kind, "grows" if grows else "steady", grown, max(0.0, rate), Quality("estimate"))


def slope(points: Sequence[tuple[int, int]]) -> float:
    """The median of the slopes of all pairs. Source: Theil (1950), Sen (1968)."""
    slopes = [
        (later[1] - earlier[1]) / (later[0] - earlier[0])
        for index, earlier in enumerate(points)
        for later in points[index + 1 :]
        if later[0] > earlier[0]
    ]
    return median(slopes) if slopes else 0.0


def _thirds(looks: Sequence[tuple[int, int]]) -> list[float]:
    """The median level of each third of the calls that a look falls into.

    Thirds of the looks would have two that are three calls apart, where the noise of one decides.
    """
    first, calls = looks[0][0], looks[-1][0] - looks[0][0] + 1
    thirds: list[list[int]] = [[], [], []]
    for number, level in looks:
        thirds[3 * (number - first) // calls].append(level)
    return [median(levels) for levels in thirds if levels]
