"""Spans in which the server answered nobody while something was outstanding, watched as requests come and go."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from itertools import islice

SILENCE_NS = 100_000_000
"""Shorter silences are not told from scheduling on a busy machine."""

_MOST = 10_000
_OLDEST = 64


@dataclass(frozen=True, slots=True)
class Silence:
    """From the last answer, or the first request after it, to the next answer."""

    start_ns: int
    end_ns: int
    waiting: int
    oldest: tuple[tuple[int, int], ...]  # (call, sent) of those that had waited longest
    over: bool  # False: it ended when requests were given up


class Silences:
    """Requests are told in any order that their own instants allow; memory is bounded by what is outstanding."""

    def __init__(self) -> None:
        self.found: list[Silence] = []
        self._waiting: dict[Hashable, tuple[int, int]] = {}
        self._since = 0

    def sent(self, request: Hashable, call: int, at_ns: int) -> None:
        """One more is outstanding."""
        if not self._waiting:
            self._since = at_ns
        self._waiting[request] = (call, at_ns)

    def ended(self, request: Hashable, at_ns: int, *, given_up: bool = False) -> None:
        """It has been answered, or it was given up."""
        if at_ns - self._since >= SILENCE_NS and len(self.found) < _MOST:
            oldest = tuple(islice(self._waiting.values(), _OLDEST))
            self.found.append(Silence(self._since, at_ns, len(self._waiting), oldest, not given_up))
        self._since = max(self._since, at_ns)
        del self._waiting[request]
