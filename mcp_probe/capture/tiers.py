"""How much is measured: as much as the most demanding attached session wants."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Generic, TypeVar

T = TypeVar("T", bound=str)


class Tiered(ABC, Generic[T]):
    """Something that measures by tiers, on behalf of the whole process. Any thread.

    Args:
        tiers: from nothing to everything.
    """

    def __init__(self, tiers: Sequence[T]) -> None:
        self._tiers = tiers
        self._wants: dict[int, T] = {}
        self._lock = threading.RLock()

    def want(self, who: object, tier: T) -> None:
        """``who`` wants at least ``tier`` from now on."""
        with self._lock:
            self._wants[id(who)] = tier
            self._settle()

    def forget(self, who: object) -> None:
        """``who`` has gone."""
        with self._lock:
            self._wants.pop(id(who), None)
            self._settle()

    def close(self) -> list[str]:
        """Nobody is attached any more. Returns sentences for what could not be put back."""
        with self._lock:
            self._wants.clear()
            return self._settle()

    def abandon(self) -> None:
        """This is a forked child, where the thread that held the lock may not exist."""
        self._lock = threading.RLock()
        self.close()

    def _wanted(self) -> T:
        return max(self._wants.values(), key=self._tiers.index, default=self._tiers[0])

    @abstractmethod
    def _settle(self) -> list[str]:
        """Put in force what is wanted; called with the lock held. Returns sentences as :meth:`close` does."""
