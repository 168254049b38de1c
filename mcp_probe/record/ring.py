"""The last seconds of a stream of frames, as encoded lines, in bounded memory.

Lines are bytes, which the garbage collector does not look at; where frames are sent or written anyway, they are the
same objects. Not thread-safe.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

MOST_BYTES = 4 << 20
OVERHEAD = 144
"""Bytes that one line costs beside its text, on 64 bits: the object's head (33), its place in time and in the ring."""


class Ring:
    """Keeps lines for ``seconds``, and at most ``most_bytes`` of them, all that they cost included."""

    def __init__(self, seconds: float, most_bytes: int = MOST_BYTES) -> None:
        self.seconds = seconds
        self._most = most_bytes
        self._batches: deque[tuple[int, list[bytes], int]] = deque()  # (at_ns, lines, what they cost)
        self.bytes = 0
        self._since: int | None = None  # when the last batch came that was forgotten

    def add(self, at_ns: int, lines: Sequence[bytes]) -> None:
        """One more batch. What is too old, or has no room, is forgotten: the oldest batch first."""
        kept: list[bytes] = []
        cost = 0
        for line in reversed(lines):  # of one batch that is too large, its end
            cost += len(line) + OVERHEAD
            if cost > self._most:
                cost -= len(line) + OVERHEAD
                break
            kept.append(line)
        kept.reverse()
        self._batches.append((at_ns, kept, cost))
        self.bytes += cost
        first = at_ns - round(self.seconds * 1e9)
        while self.bytes > self._most or self._batches[0][0] < first:
            self._since, _, lost = self._batches.popleft()
            self.bytes -= lost

    def lines(self) -> tuple[int | None, list[bytes]]:
        """(since when they are complete, every line, oldest first); ``None``: nothing has been forgotten."""
        return self._since, [line for _, lines, _ in self._batches for line in lines]
