"""From measured blocks to what an instrumentation costs; pure functions, no clock and no process.

A *cycle* lasts a second or two, in which all variants take turns in short bursts; a *block* is all of one variant's
calls in one cycle. Differences are taken inside a cycle, so that a machine that gets slower meanwhile drops out. Each
*generation* has processes of its own, because where an interpreter happens to place its objects makes one process
1-3 % faster than its twin for life; no number of further blocks would average that out.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import mean, median
from typing import Literal

Figure = Literal["p50_us", "mean_us", "cpu_us"]
State = Literal["met", "missed", "cannot be told here"]

FIGURES: tuple[Figure, ...] = ("p50_us", "mean_us", "cpu_us")
BARE = ("bare", "bare again")
RESAMPLES = 2000
ENOUGH_CYCLES = 5


@dataclass(frozen=True, slots=True)
class Block:
    """``p50_us`` and ``mean_us``: wall time of a call at the client; ``cpu_us``: the server process, all threads."""

    row: str
    variant: str
    generation: int
    cycle: int
    calls: int
    p50_us: float
    mean_us: float
    cpu_us: float
    foreign_cores: float  # what others burned meanwhile
    reruns: int = 0  # blocks before this one that were thrown away as contended
    contended: bool = False  # still contended when the bound on re-runs was reached


@dataclass(frozen=True, slots=True)
class Estimate:
    """A median difference in microseconds with its 95 % bootstrap interval."""

    us: float
    low: float
    high: float

    def relative_to(self, base_us: float) -> Estimate:
        """The same in percent of ``base_us``."""
        return Estimate(*(100 * value / base_us for value in (self.us, self.low, self.high)))

    def text(self, places: int, unit: str = "") -> str:
        """With its interval: ``+1.2 µs (+0.8 … +1.6)``."""
        us, low, high = (f"{value:+.{places}f}" for value in (self.us, self.low, self.high))
        return f"{us} {unit}".rstrip() + f" ({low} … {high})"


@dataclass(frozen=True, slots=True)
class Verdict:
    """One target and what was found; ``estimate`` is in ``unit``, and ``limit`` is what it must not exceed."""

    row: str
    what: str
    estimate: Estimate
    limit: float
    unit: str
    state: State


def per_call(row: str, variant: str, place: tuple[int, int], taken_ns: Sequence[int], cpu_ns: int, paid: int) -> Block:
    """A block from the wall time of each call; ``cpu_ns`` was spent on ``paid`` calls, warm-up included."""
    return Block(
        row,
        variant,
        *place,
        calls=len(taken_ns),
        p50_us=round(median(taken_ns) / 1e3, 3),
        mean_us=round(mean(taken_ns) / 1e3, 3),
        cpu_us=round(cpu_ns / paid / 1e3, 3),
        foreign_cores=0.0,
    )


def undisturbed(blocks: Sequence[Block]) -> list[Block]:
    """Without the cycles that have a contended block; all of them where fewer than ``ENOUGH_CYCLES`` would be left."""
    bad = {(block.generation, block.cycle) for block in blocks if block.contended}
    kept = [block for block in blocks if (block.generation, block.cycle) not in bad]
    cycles = {(block.generation, block.cycle) for block in kept}
    return kept if len(cycles) >= ENOUGH_CYCLES else list(blocks)


def level(blocks: Iterable[Block], variants: Sequence[str], figure: Figure) -> float:
    """Median of the block figures of ``variants``."""
    figures: list[float] = [getattr(block, figure) for block in blocks if block.variant in variants]
    return median(figures)


def differences(blocks: Iterable[Block], variant: str, base: Sequence[str], figure: Figure) -> list[list[float]]:
    """``variant`` minus the mean of ``base``, cycle by cycle, a list per generation; leaves out incomplete cycles."""
    cycles: dict[tuple[int, int], dict[str, float]] = {}
    for block in blocks:
        cycles.setdefault((block.generation, block.cycle), {})[block.variant] = getattr(block, figure)
    groups: dict[int, list[float]] = {}
    for (generation, _), found in sorted(cycles.items()):
        if variant in found and all(name in found for name in base):
            groups.setdefault(generation, []).append(found[variant] - mean(found[name] for name in base))
    return list(groups.values())


def estimate(groups: Sequence[Sequence[float]], *, resamples: int = RESAMPLES, seed: int = 0) -> Estimate:
    """Median of all differences; its interval resamples generations first and cycles within them second.

    Source: A. C. Davison, D. V. Hinkley, Bootstrap Methods and their Application (1997), section 3.8.

    Raises: ValueError without a single difference.
    """
    if not any(groups):
        raise ValueError("There is no complete cycle to take a difference in.")
    dice = random.Random(seed)
    medians = sorted(
        median(value for group in dice.choices(groups, k=len(groups)) for value in dice.choices(group, k=len(group)))
        for _ in range(resamples)
    )
    edge = round(0.025 * (resamples - 1))
    return Estimate(median(value for group in groups for value in group), medians[edge], medians[-1 - edge])


def added(blocks: Sequence[Block], variant: str, figure: Figure) -> Estimate:
    """What ``variant`` adds to a call: for ``bare again`` the floor (A/A), else over both bare processes together."""
    base = BARE[:1] if variant == BARE[1] else BARE
    return estimate(differences(blocks, variant, base, figure))


def judge(row: str, what: str, found: Estimate, limit: float, unit: str) -> Verdict:
    """Met where the whole interval keeps to ``limit``, missed where none of it does, else it cannot be told here."""
    state: State = "met" if found.high <= limit else "missed" if found.low > limit else "cannot be told here"
    return Verdict(row, what, found, limit, unit, state)


SPAN = "sdk-otel"
"""What everything is held against: the span that the SDK's own middleware opens, in the same run."""

MEMORY_TARGET_US = 25.0
SPAN_FACTORS: dict[str, float] = {"memory": 0.5}
"""How much of what the span adds the probe may add; else as much."""
TELEMETRY_FACTOR = 1.5
PURE_FACTOR = 2.0
IDLE_TARGETS_MS = {"http": 3.0, "http-lean": 3.0}
IDLE_TARGET_MS, PURE_IDLE_TARGET_MS = 1.0, 10.0
BOTH_FIGURES: tuple[tuple[Figure, str], ...] = (("p50_us", "wall time (p50)"), ("cpu_us", "CPU, all threads"))
UNJUDGED = ("http-lean",)
"""Rows that show what a share is at most; targets are of the SDK's client as it is."""


def verdicts(row: str, blocks: Sequence[Block]) -> list[Verdict]:
    """The targets of one row that the blocks can speak to. Source: docs/performance.md."""
    if row in UNJUDGED:
        return []
    found = []
    factor = SPAN_FACTORS.get(row, 1.0)
    figures = BOTH_FIGURES[:1] if row == "memory" else BOTH_FIGURES
    measured = {block.variant for block in blocks}
    for variant, times, said in (("probe", 1.0, ""), ("probe, pure Python", PURE_FACTOR, "without its accelerator: ")):
        if variant not in measured:
            continue
        if row == "memory":
            wall = added(blocks, variant, "p50_us")
            found.append(judge(row, f"{said}added wall time (p50)", wall, times * MEMORY_TARGET_US, "µs"))
        for figure, name in figures:
            found += _beside_span(row, blocks, variant, BARE, figure, times * factor, f"{said}{name}")
    for figure, name in BOTH_FIGURES:
        what = f"{name} of telemetry on top of the SDK's spans"
        found += _beside_span(row, blocks, f"{SPAN} and probe", (SPAN,), figure, TELEMETRY_FACTOR, what)
    return found


def _beside_span(
    row: str, blocks: Sequence[Block], variant: str, base: Sequence[str], figure: Figure, factor: float, what: str
) -> list[Verdict]:
    """What ``variant`` adds to ``base`` less ``factor`` times what the SDK's span adds to bare, cycle by cycle."""
    ours, theirs = differences(blocks, variant, base, figure), differences(blocks, SPAN, BARE, figure)
    if not any(ours) or [len(group) for group in ours] != [len(group) for group in theirs]:
        return []
    apart = [
        [mine - factor * other for mine, other in zip(group, others, strict=True)]
        for group, others in zip(ours, theirs, strict=True)
    ]
    own, span = (median(value for group in groups for value in group) for groups in (ours, theirs))
    times = "" if factor == 1 else f"{factor:g} times "
    share = f" ({own:+.1f} µs, the span {span:+.1f})"
    return [judge(row, f"{what}, over {times}what the span adds{share}", estimate(apart), 0.0, "µs")]


def idle_verdicts(row: str, told: Sequence[dict[str, float]]) -> list[Verdict]:
    """CPU while nobody calls, ms a second more than bare. ``told``: of each generation, by variant."""
    if row in UNJUDGED or not told:
        return []
    limits = {"probe": IDLE_TARGETS_MS.get(row, IDLE_TARGET_MS), "probe, pure Python": PURE_IDLE_TARGET_MS}
    return [
        judge(
            row,
            f"{'' if variant == 'probe' else 'without its accelerator: '}CPU while idle, a second",
            estimate([[rates[variant] - mean(rates[name] for name in BARE)] for rates in told]),
            limit,
            "ms",
        )
        for variant, limit in limits.items()
        if all(variant in rates for rates in told)
    ]


def is_settled(blocks: Sequence[Block]) -> bool:
    """Whether the floor (A/A) is known to a third of what the SDK's span adds, so that a verdict means something."""
    for figure, _ in BOTH_FIGURES:
        floor, span = added(blocks, BARE[1], figure), added(blocks, SPAN, figure)
        if floor.high - floor.low >= span.us / 3:
            return False
    return True


def own_share(blocks: Sequence[Block]) -> float:
    """The part of the probed process's CPU that the bare one does not use: what the probe's own figure should be."""
    return added(blocks, "probe", "cpu_us").us / level(blocks, ("probe",), "cpu_us")
