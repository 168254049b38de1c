"""What a workload hands over: rows beside their documents, claims with verdicts, and the statistics they rest on.

Nothing here measures. Everything is plain data, so that results can be saved, loaded and compared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

Verdict = Literal["holds", "in shape", "does not hold", "cannot be told here"]
VERDICTS: tuple[Verdict, ...] = ("holds", "in shape", "does not hold", "cannot be told here")

Why = Callable[[], str]
"""A sentence that can be asked for once the readings are there. Raises: LaunchError before."""

Kind = Literal[
    "times", "figure", "up to", "same", "at most", "nothing", "free", "more", "limit", "at least", "exact", "straight"
]
"""What a claim says of a figure; :data:`mcp_probe.workloads.bench.grader.TOLERANCES` has what each kind allows."""

Load = Literal["up", "down", "both", "blurs", "not"]
"""What others' work can have done to a figure: raised it, lowered it, either, hidden a pattern that it cannot make, or
nothing (sturdy)."""

LITTLE_LOW, LITTLE_HIGH = 0.5, 1.1
"""A row's mean concurrency by Little's law must lie between these multiples of the concurrency it was asked for."""


@dataclass(frozen=True, slots=True)
class Stats:
    """Of ``n`` rounds, in the unit of the row they stand in; the first round is kept apart and in none of the others.

    ``sd`` is the sample's (n - 1), ``ci_low`` and ``ci_high`` bound the mean at 95 % by Student's t. With one round
    ``sd``, both bounds and ``halves`` are ``None``.
    """

    n: int
    median: float
    mean: float
    p95: float
    p99: float
    sd: float | None
    ci_low: float | None
    ci_high: float | None
    min: float
    max: float
    first: float | None = None
    foreign_cores: float | None = None  # mean of what others used of the machine meanwhile; None: not known here
    contended: bool = False  # more than FOREIGN_LIMIT of it, also after the re-runs
    reruns: int = 0  # runs that were thrown away as contended
    halves: float | None = None  # A/A of its own: medians of every other round and of the rest, greater over smaller


@dataclass(frozen=True, slots=True)
class Little:
    """L = throughput x mean latency, beside the concurrency that was asked for.

    Source: J. D. C. Little (1961), Operations Research 9, 383.
    """

    mean_in_flight: float
    asked: float
    excused: str = ""  # why it may be off: "12 calls were cancelled at the end", a drain

    @property
    def fits(self) -> bool:
        """Whether the row's own figures agree with each other."""
        return bool(self.excused) or LITTLE_LOW * self.asked <= self.mean_in_flight <= LITTLE_HIGH * self.asked


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of a document's table, or one condition the document hid, beside what was measured here.

    ``table`` names the place as the page shows it: ``"001 §4"``; rows of conditions end in ``conditions``:
    ``"001 conditions"``. ``series`` and ``x`` say where the row stands in a chart of its table.
    """

    table: str
    label: str
    unit: str  # of both figures: ms, s, µs, 1/s, ×, KiB, MB, %, ...
    measured: Stats | float | None  # None: not measured; ``note`` says why
    documented: float | None = None  # as printed, None: the document has no such row
    scale: float = 1.0  # documented x scale is what to expect at the size that ran (half the delay: 0.5)
    metric: str = "time"  # rows of one table with different metrics go into different charts
    series: str = ""
    x: float | str | None = None
    floor: float | None = None  # A/A of a control that ran beside it; without one, see ``noise_floor``
    little: Little | None = None
    contended: bool = False  # also set where the statistics say so
    why: str = ""  # one sentence from the probe's readings
    protocol: str = ""  # what the document hid: "legacy handshake", "HTTP/1.1", "2026-07-28"
    note: str = ""  # condition, or why there is no figure

    @property
    def name(self) -> str:
        """Its label, with the protocol where it says one."""
        return f"{self.label} ({self.protocol})" if self.protocol else self.label

    @property
    def figure(self) -> float | None:
        """What is compared: the median of statistics, or the number itself."""
        return self.measured.median if isinstance(self.measured, Stats) else self.measured

    @property
    def ratio(self) -> float | None:
        """Measured over documented at this size; ``None`` where either is missing, or below 0 like a difference."""
        if self.figure is None or self.figure < 0 or not self.documented or self.documented < 0:
            return None
        return self.figure / (self.documented * self.scale)

    @property
    def noise_floor(self) -> float | None:
        """A/A, at least 1: two runs of the same thing beside it, or the halves of its own rounds.

        ``None`` for what was measured once, or only counted.
        """
        if self.floor is None and isinstance(self.measured, Stats):
            return self.measured.halves
        return self.floor

    @property
    def is_contended(self) -> bool:
        """Whether others used the machine while it was measured."""
        return self.contended or (isinstance(self.measured, Stats) and self.measured.contended)


@dataclass(frozen=True, slots=True)
class Asked:
    """One thing that a claim says. ``documented``: the figure, or both ends of a range; empty: none is printed."""

    kind: Kind
    documented: tuple[float, ...] = ()
    load: Load = "both"
    what: str = ""  # names it where a claim says several


@dataclass(frozen=True, slots=True)
class Measured:
    """What was found of it, with all that is known of its noise. Counted figures have a floor of 1."""

    value: float
    low: float | None = None  # 95 % interval, or both ends of a range
    high: float | None = None
    floor: float | None = None  # A/A, at least 1; None with no interval: measured once
    contended: bool = False


@dataclass(frozen=True, slots=True)
class Part:
    """What was asked and what was found."""

    asked: Asked
    measured: Measured


@dataclass(frozen=True, slots=True)
class Claim:
    """One claim as its document makes it. A reason that fits one verdict only is printed with no other."""

    claim: str  # "001-3"
    sentence: str
    documented: str  # "208 / 313 / 521 ms"
    asked: tuple[Asked, ...] = ()  # empty: nothing here can decide it
    how: str = ""  # what is compared: "quickest rounds"
    why: str = ""  # true whatever comes out
    why_holds: str = ""  # with *holds* and *in shape*
    why_shape: str = ""  # with *in shape* alone
    why_not: str = ""  # with *does not hold*

    @staticmethod
    def by_id(*claims: Claim) -> Mapping[str, Claim]:
        """A document's claims, by their numbers."""
        return {each.claim: each for each in claims}

    def of(self, kind: str) -> Claim:
        """Its twin on a library or a protocol: ``004-1 (httpx2)``; twins count once."""
        return replace(self, claim=f"{self.claim} ({kind})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One claim of a document and what became of it. All texts are for people; ``parts`` are what was graded."""

    claim: str  # "001-3"
    sentence: str  # the claim in one line
    documented: str  # "208 / 313 / 521 ms"; empty: no document says anything of it
    measured: str  # "209 / 316 / 530 ms: 1.98, 2.99, 5.01 waves"
    tolerance: str  # "round(t(N)/t(4)) = ceil(N/4)"
    verdict: Verdict
    why: str = ""  # evidence; of what cannot be told: why not
    value: float | None = None
    contended: bool = False
    parts: tuple[Part, ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one workload found. ``missing``: libraries it would have used, with what was left out for that."""

    rows: tuple[Row, ...] = ()
    checks: tuple[Check, ...] = ()
    notes: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    complete: bool = True  # False: interrupted or failed half-way; ``notes`` say how
    advice: str = ""  # the one recommendation of a run on a user's own server, or why there is none


@dataclass(frozen=True, slots=True)
class Workload:
    """One entry of the registry. ``place`` is ``"module:function"``, a coroutine function of a :class:`Bench`."""

    name: str
    documents: tuple[str, ...]  # "000" … "004"
    about: str
    place: str
    limit_quick_s: float  # bound on a quick run, machine five times slower than quiet: nothing hangs
    limit_full_s: float
    patience_quick_s: float = 3.0  # for measuring again what others' work on the machine spoilt
    patience_full_s: float = 40.0


@dataclass(frozen=True, slots=True)
class Result:
    """One workload's run, as it is saved."""

    name: str
    documents: tuple[str, ...]
    about: str
    outcome: Outcome
    seconds: float
    error: str | None = None  # why it is not complete; INTERRUPTED: Ctrl-C


INTERRUPTED = "interrupted"

OWN = "own-server"
"""Name of the workload that is a user's own server."""


@dataclass(frozen=True, slots=True)
class Results:
    """What a run of ``mcp-probe bench`` leaves."""

    machine: dict[str, Any]
    size: Literal["quick", "full"]
    results: tuple[Result, ...]
