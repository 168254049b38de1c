"""What is read of a file, and what is said of two sides. Nothing here computes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from mcp_probe.model import Finding

FileKind = Literal["recording", "summary", "bench"]
Judgement = Literal[
    "more than noise", "within noise", "contended", "too few calls", "noise unknown", "only before", "only after"
]
"""``contended``: a side had not the CPU to itself, so the row shows nothing either way."""

Key = tuple[str, str, str]
"""(operation or workload, row, what tells rows of one name apart)."""

PROCESS = "process"
"""Stands in place of an operation for what is measured of the whole process."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of one file, in ``unit``.

    ``error`` is its standard error: of its logarithm, or of itself where it ``is_part`` (parts add up, and may be 0).
    ``None`` where the file does not say how much it varies; ``too_few`` then says that it holds too few calls for that.
    """

    value: float
    unit: str
    is_part: bool = False
    error: float | None = None
    freedom: float = 0.0  # degrees of freedom of ``error``
    calls: int = 0
    too_few: bool = False
    whole: float = 0.0  # what it is a part of; a difference below 1 % of that is none
    floor: float | None = None  # the factor by which two runs of the same thing differed
    contended: bool = False
    is_of_host: bool = True  # a busy machine changes it: times are, bytes are not


@dataclass(frozen=True, slots=True)
class Reading:
    """One file, read."""

    kind: FileKind
    name: str
    figures: Mapping[Key, Figure]
    findings: tuple[Finding, ...] = ()
    contended: str = ""  # why, as a sentence; empty: it had the machine to itself, as far as was seen
    settings: Mapping[str, str] = field(default_factory=dict)
    claims: Mapping[str, tuple[str, str]] = field(default_factory=dict)  # claim -> (sentence, verdict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Difference:
    """One row of both sides.

    ``change`` is after over before, or after minus before where it ``is_part``; ``low`` and ``high`` bound it at 95 %.
    ``visible`` is the smallest change that would have been called more than noise in 4 of 5 comparisons, alone.
    """

    key: Key
    unit: str
    is_part: bool
    before: float | None
    after: float | None
    judgement: Judgement
    change: float | None = None
    low: float | None = None
    high: float | None = None
    visible: float | None = None
    chance: float | None = None  # of such a difference among rows that are the same, by false-discovery control
    floor: float | None = None
    log_error: float | None = None  # of the difference, and its degrees of freedom: for --max-regression
    freedom: float = 0.0
    contended: bool = False
    is_nothing: bool = False  # a part too small on both sides to be looked at

    @property
    def operation(self) -> str:
        """Or the workload."""
        return self.key[0]

    @property
    def measure(self) -> str:
        """What the row is of."""
        return self.key[1]


@dataclass(frozen=True, slots=True)
class Turn:
    """A claim whose verdict is not the same on both sides."""

    claim: str
    sentence: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """All that is said of two sides."""

    kind: FileKind
    before: tuple[str, ...]
    after: tuple[str, ...]
    rows: tuple[Difference, ...]
    came: tuple[Finding, ...] = ()
    went: tuple[Finding, ...] = ()
    turns: tuple[Turn, ...] = ()
    not_the_same: tuple[str, ...] = ()  # "python 3.12 → 3.13"
    contended: tuple[str, ...] = ()  # sentences
    notes: tuple[str, ...] = ()
