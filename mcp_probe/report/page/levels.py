"""Levels over time, in bounded memory: how many requests were in flight, which share of the loop an operation had.

A level is a sum of spans, each of which counts for ``weight`` while it lasts. Of each bin its mean is kept. Where the
window outgrows :data:`MOST_BINS`, two neighbours become one, so adding a span takes the same time however long it is.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

MOST_BINS = 2048
FIRST_BIN_NS = 1_000_000


class Bins:
    """The bins that levels share. Instants before ``start_ns`` count as in the first bin."""

    def __init__(self, start_ns: int) -> None:
        self.start_ns = start_ns
        self.end_ns = start_ns
        self.bin_ns = FIRST_BIN_NS

    def saw(self, instant_ns: int) -> None:
        """Widens the window to ``instant_ns``."""
        if instant_ns > self.end_ns:
            self.end_ns = instant_ns
            while instant_ns - self.start_ns >= MOST_BINS * self.bin_ns:
                self.bin_ns *= 2

    @property
    def count(self) -> int:
        """How many of them the window has, at least one."""
        return (self.end_ns - self.start_ns) // self.bin_ns + 1


class Level:
    """One level. Not thread-safe."""

    __slots__ = ("_areas", "_bin_ns", "_jumps", "_shared")

    def __init__(self, bins: Bins) -> None:
        self._shared = bins
        self._bin_ns = bins.bin_ns
        self._jumps = array("d", bytes(8 * MOST_BINS))  # by how much the level changes within the bin
        self._areas = array("d", bytes(8 * MOST_BINS))  # what these changes add to the bin's own integral

    def add(self, start_ns: int, end_ns: int, weight: float = 1.0) -> None:
        """A span that counts for ``weight`` in [start_ns, end_ns)."""
        if end_ns <= start_ns:
            return
        self._shared.saw(end_ns)
        self._jump(start_ns, weight)
        self._jump(end_ns, -weight)

    def _jump(self, instant_ns: int, weight: float) -> None:
        while self._bin_ns < self._shared.bin_ns:
            self._double()
        offset = max(0, instant_ns - self._shared.start_ns)
        index, inside = divmod(offset, self._bin_ns)
        self._jumps[index] += weight
        self._areas[index] += weight * (self._bin_ns - inside)

    def _double(self) -> None:
        jumps, areas = array("d", bytes(8 * MOST_BINS)), array("d", bytes(8 * MOST_BINS))
        for index in range(MOST_BINS // 2):
            left, right = 2 * index, 2 * index + 1
            jumps[index] = self._jumps[left] + self._jumps[right]
            areas[index] = self._areas[left] + self._jumps[left] * self._bin_ns + self._areas[right]
        self._jumps, self._areas = jumps, areas
        self._bin_ns *= 2

    def means(self) -> Sequence[float]:
        """The mean of each bin of the window, in their order; the last bin may reach beyond the window."""
        while self._bin_ns < self._shared.bin_ns:
            self._double()
        found, level = [], 0.0
        for index in range(self._shared.count):
            found.append(max(0.0, level + self._areas[index] / self._bin_ns))
            level += self._jumps[index]
        return found
