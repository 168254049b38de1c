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
State = Literal["met", "met, not certain", "missed, not certain", "missed"]

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
    """Whether ``found`` keeps to ``limit``; not certain where the interval has the limit inside."""
    state: State
    if found.us <= limit:
        state = "met" if found.high <= limit else "met, not certain"
    else:
        state = "missed" if found.low > limit else "missed, not certain"
    return Verdict(row, what, found, limit, unit, state)


MEMORY_TARGET_US = 15.0
WALL_TARGET_PERCENT = 2.0
CPU_TARGET_PERCENT = 4.0
BOTH_FIGURES: tuple[tuple[Figure, str], ...] = (("p50_us", "wall time (p50)"), ("cpu_us", "CPU, all threads"))


LIGHT = (("probe, memory off", "without memory figures: "), ("probe", "with memory figures, as by default: "))
"""The target is for what is measured without them, which have a budget of their own; both are held to it."""


def verdicts(row: str, blocks: Sequence[Block]) -> list[Verdict]:
    """The targets of one row that the blocks can speak to. Source: docs/performance.md."""
    if row == "memory":
        wall = added(blocks, "probe", "p50_us")
        found = [judge(row, "added wall time (p50)", wall, MEMORY_TARGET_US, "µs")]
        for figure, name in BOTH_FIGURES:
            apart = estimate(differences(blocks, "probe", ("sdk-otel",), figure))
            found.append(judge(row, f"{name} over the SDK's own span", apart, 0.0, "µs"))
    else:
        found = []
        measured = {block.variant for block in blocks}
        for variant, said in [one for one in LIGHT if one[0] in measured]:
            share = added(blocks, variant, "p50_us").relative_to(level(blocks, BARE, "p50_us"))
            found.append(judge(row, f"{said}added wall time (p50)", share, WALL_TARGET_PERCENT, "%"))
            share = added(blocks, variant, "cpu_us").relative_to(level(blocks, BARE, "cpu_us"))
            found.append(judge(row, f"{said}added server CPU", share, CPU_TARGET_PERCENT, "%"))
    return found + [
        verdict for figure, name in BOTH_FIGURES for verdict in _telemetry_verdicts(row, blocks, figure, name)
    ]


def _telemetry_verdicts(row: str, blocks: Sequence[Block], figure: Figure, name: str) -> list[Verdict]:
    """What telemetry adds to a server that traces already, over what tracing adds to a bare one."""
    ours = differences(blocks, "sdk-otel and probe", ("sdk-otel",), figure)
    theirs = differences(blocks, "sdk-otel", BARE, figure)
    if not any(ours) or [len(group) for group in ours] != [len(group) for group in theirs]:
        return []
    apart = [
        [mine - other for mine, other in zip(group, others, strict=True)]
        for group, others in zip(ours, theirs, strict=True)
    ]
    what = f"{name} of telemetry on top of the SDK's spans, over what these spans add to bare"
    return [judge(row, what, estimate(apart), 0.0, "µs")]


def own_share(blocks: Sequence[Block]) -> float:
    """The part of the probed process's CPU that the bare one does not use: what the probe's own figure should be."""
    return added(blocks, "probe", "cpu_us").us / level(blocks, ("probe",), "cpu_us")
