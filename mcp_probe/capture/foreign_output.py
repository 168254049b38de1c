"""What is written to stdout beside the transport's messages."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable


class ForeignOutput:
    """Sizes of such writes until the collector takes them, and the line of the first. Any thread writes."""

    def __init__(self) -> None:
        self.is_wire = False  # they get between the messages
        self.where: str | None = None  # file:line of the first that the user's own code made
        self._sizes: deque[int] = deque()

    def written(self, size: int, where: Callable[[], str | None]) -> None:
        """``size`` bytes were written; ``where`` says by which line."""
        self._sizes.append(size)
        if self.where is None:
            self.where = where()

    def take(self) -> int:
        """Bytes since the last time. Collector's thread."""
        return sum(self._sizes.popleft() for _ in range(len(self._sizes)))
