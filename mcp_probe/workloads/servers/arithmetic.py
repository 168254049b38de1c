"""The computation of document 000, wherever it runs."""

from __future__ import annotations


def computed(item: int) -> int:
    """``item`` plus the first 1 to 100 squares, 50.5 on average: some 2 microseconds."""
    return item + sum(number * number for number in range(item % 100 + 1))
