"""Which line comes first of all that allocated what a tool's ended calls still hold, and what a look is worth.

A leak's line allocates for older calls and for newer ones. An import in the middle of a run, or what only some calls
set up, may hold a hundred times as much, and is at its lines for one share of the calls only.

A look may be cut short. So it looks at the blocks of some calls, evenly chosen, before those of the others, and tells
of the calls whose blocks it has all seen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from mcp_probe.capture.places import is_plumbing, is_users

SHARES = 2
"""Equal shares of the calls, oldest first, that must each hold memory of a line that grows."""

USERS_SHARE = 0.05
"""A line of the user's own code comes first if it grew by this share of what the tool's largest line did."""

SAMPLE = 32
"""Calls of an operation whose blocks are looked at first."""

FIRST, REST = STAGES = range(2)
"""Of a look: the sample, and the other calls."""

LATE = 2
"""An earlier look is worth no more than one that has seen nothing whole once there are so many times the calls."""

MOST = 5
"""Lines told of one operation, and of the process."""

Line = tuple[str, str, int]
"""(operation or "", file, line)"""


@dataclass(slots=True)
class Held:
    """What one line allocated: bytes for each share of the calls, and blocks of all."""

    shares: list[int] = field(default_factory=lambda: [0] * SHARES)
    blocks: int = 0

    @property
    def bytes(self) -> int:
        """For all calls."""
        return sum(self.shares)

    @property
    def grown_bytes(self) -> int:
        """What it would be for all calls if each share held as little as the one that holds least."""
        return SHARES * min(self.shares)


Lines = dict[Line, Held]


class Block(NamedTuple):
    """One that a call holds: the share of the operation's calls that it is in, and the stage of the look."""

    operation: str
    size: int
    share: int
    stage: int


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a look is to see of one operation: the calls there are, and those in the sample and in both stages."""

    calls: int
    sampled: int
    whole: int


@dataclass(frozen=True, slots=True)
class Look:
    """What a look has found of one operation: lines of ``seen`` calls; 0: of some blocks of calls that it had begun."""

    calls: int
    seen: int
    lines: Lines


def look_of(wanted: Wanted, found: Mapping[int, Lines], missed: Iterable[int]) -> Look:
    """From the lines of each stage, and the stages that are not whole."""
    whole = [stage for stage in STAGES if stage not in missed]
    if FIRST not in whole:
        return Look(wanted.calls, 0, _sum_of(found.values()))
    if REST not in whole:
        return Look(wanted.calls, wanted.sampled, found.get(FIRST, {}))
    return Look(wanted.calls, wanted.whole, _sum_of(found.values()))


def latest_of(before: Look | None, now: Look) -> Look:
    """Which of two looks at one operation to tell of: the later one, unless it has seen nothing whole."""
    if before is None or now.seen or before.calls * LATE < now.calls:
        return now
    return before


def _sum_of(found: Iterable[Lines]) -> Lines:
    lines: Lines = {}
    for some in found:
        for line, held in some.items():
            for share, size in enumerate(held.shares):
                count_line(lines, line, size, 0, share)
            lines[line].blocks += held.blocks
    return lines


def count_line(lines: Lines, line: Line, size: int, blocks: int, share: int | None = None) -> None:
    """Add what ``line`` allocated; ``share`` is ``None`` where the order of the calls is not known."""
    held = lines.setdefault(line, Held())
    held.blocks += blocks
    if share is not None:
        held.shares[share] += size
    else:  # so that they add up
        held.shares = [known + (size + index) // SHARES for index, known in enumerate(held.shares)]


def top_lines(lines: Mapping[Line, Held]) -> Iterator[tuple[Line, Held]]:
    """What grew most first; but a line of the user's own code before libraries below it, and these before plumbing.

    A client's own line is in few of the traces of what it makes, because most of these are deeper than the frames that
    are kept of a trace.
    """
    most: Counter[str] = Counter()
    for (operation, _, _), held in lines.items():
        most[operation] = max(most[operation], held.grown_bytes)

    def rank(row: tuple[Line, Held]) -> tuple[bool, bool, bool, int, int]:
        (operation, file, _), held = row
        is_cause = is_users(file) and held.grown_bytes >= max(1, USERS_SHARE * most[operation])
        return not is_cause, held.grown_bytes <= 0, is_plumbing(file), -held.grown_bytes, -held.bytes

    told: Counter[str] = Counter()
    for line, held in sorted(lines.items(), key=rank):
        if held.bytes > 0 and told[line[0]] < MOST:
            told[line[0]] += 1
            yield line, held
