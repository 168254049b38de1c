"""Who held what for whom, from what the callers themselves noted: the truth that awaits are compared with."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from mcp_probe.model import Await

MS = 1_000_000


@dataclass
class Turn:
    """One call: when it asked, got what it asked for, and gave it back. 0: not noted.

    It has asked, at the latest, at ``waits``, and given it back at ``left``: instants of another task, and of its own.
    """

    name: str
    asked: int = 0
    got: int = 0
    gave_back: int = 0
    waits: int = 0
    left: int = 0

    @property
    def unsure_ms(self) -> float:
        """How far the probe's stamps may be from these: the thread may have been stopped between the two."""
        return (max(0, self.waits - self.asked) + max(0, self.left - self.gave_back)) / MS


def held_for(turns: Iterable[Turn], places: int) -> dict[str, dict[str, float]]:
    """victim -> holder -> ms: with so many places and first come, first served; n at once each count one part in n."""
    turns = sorted(turns, key=lambda turn: turn.got)
    given_back = sorted(turn.gave_back for turn in turns)
    since = {}
    for number, turn in enumerate(turns):
        freed = given_back[number - places] if number >= places else 0
        since[turn.name] = max(turn.asked, freed)
    truth: dict[str, dict[str, float]] = defaultdict(dict)
    for victim in turns:
        until = since[victim.name]  # it could go on from then
        for holder in turns:
            if holder is not victim:
                shared = min(until, holder.gave_back) - max(victim.asked, since[holder.name])
                if shared > 0:
                    truth[victim.name][holder.name] = shared / places / MS
    return truth


def held_in(awaits: Iterable[Await]) -> Counter[str]:
    """holder -> ms, as the awaits say."""
    found: Counter[str] = Counter()
    for one in awaits:
        for part in one.holders:
            found[part.operation] += (part.to_ns - part.from_ns) / part.among / MS  # type: ignore[assignment]
    return found
