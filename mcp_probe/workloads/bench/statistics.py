"""Statistics of a few rounds, with the standard library only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import exp, hypot, pi, sqrt
from statistics import fmean, median, stdev

from mcp_probe.workloads.bench.machine import is_contended
from mcp_probe.workloads.bench.shapes import Little, Measured, Stats

# Two-sided 95 % quantiles of Student's t for 1 … 30 degrees of freedom.
# Source: W. H. Beyer, CRC Standard Mathematical Tables, 27th ed. (1984), p. 536.
_T95 = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)


def t95(freedom: int) -> float:
    """Two-sided 95 % quantile of Student's t; beyond the table by its expansion, good to 0.0005 there.

    Source: Abramowitz and Stegun, 26.7.5, first terms.
    """
    if freedom <= len(_T95):
        return _T95[freedom - 1]
    z = 1.959964
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)


def percentile(ordered: Sequence[float], share: float) -> float:
    """Linear between neighbours, as numpy's default. ``ordered`` must be sorted and not empty."""
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def turn_order(names: Sequence[str], turn: int) -> list[str]:
    """Who goes when in a round. Each name follows each other one equally often, over as many rounds as there are names;
    over twice as many where their number is odd.

    A turn right after one of the same process finds its caches warm, and the first of a round runs earlier than the
    last: over a whole square (two of them, the second back to front), neither favours anybody.

    Source: E. J. Williams (1949), Australian Journal of Scientific Research 2, 149.
    """
    count = len(names)
    first = [place // 2 + place % 2 if place % 2 else (count - place // 2) % count for place in range(count)]
    order = [names[(place + turn) % count] for place in first]
    return order[::-1] if count % 2 and turn // count % 2 else order


def describe(
    values: Sequence[float],
    *,
    first_apart: bool = True,
    foreign_cores: float | None = None,
    contended: bool = False,
    reruns: int = 0,
) -> Stats:
    """Statistics of ``values`` in the order they were taken.

    The first is kept apart where there is another one. They are ``contended`` as well where ``foreign_cores`` says so.

    Raises: ValueError without a value.
    """
    if not values:
        raise ValueError("There is no value to describe.")
    apart = first_apart and len(values) > 1
    kept = list(values[1:] if apart else values)
    ordered, mean = sorted(kept), fmean(kept)
    sd = stdev(kept) if len(kept) > 1 else None
    half = None if sd is None else t95(len(kept) - 1) * sd / sqrt(len(kept))
    return Stats(
        n=len(kept),
        median=median(kept),
        mean=mean,
        p95=percentile(ordered, 0.95),
        p99=percentile(ordered, 0.99),
        sd=sd,
        ci_low=None if half is None else mean - half,
        ci_high=None if half is None else mean + half,
        min=ordered[0],
        max=ordered[-1],
        first=values[0] if apart else None,
        foreign_cores=foreign_cores,
        contended=contended or is_contended(foreign_cores),
        reruns=reruns,
        halves=halves_floor(kept),
    )


def halves_floor(values: Sequence[float]) -> float | None:
    """A/A of one thing's own rounds: every other one against the rest, so that a drift is in both.

    ``None`` with fewer than two of them, or where a median is not above 0.
    """
    if len(values) < 2 or min(median(values[::2]), median(values[1::2])) <= 0:
        return None
    return ratio_floor(values[::2], values[1::2])


def floor_of(*parts: Stats | float | None) -> float | None:
    """A/A of a figure that is made of others: that of the part which repeats worst; ``None`` where none is known."""
    known = [part.halves if isinstance(part, Stats) else part for part in parts]
    return max((floor for floor in known if floor is not None), default=None)


def ratio_floor(one: Sequence[float], other: Sequence[float]) -> float:
    """A/A: median over median of two runs of the same thing, the greater over the smaller, so at least 1."""
    first, second = median(one), median(other)
    return max(first, second) / min(first, second)


def little(calls: int, wall_s: float, mean_latency_s: float, asked: float, excused: str = "") -> Little:
    """L of ``calls`` answered calls in ``wall_s`` seconds of ``mean_latency_s`` each."""
    return Little(calls / wall_s * mean_latency_s, asked, excused)


def line_fit(points: Sequence[tuple[float, float]]) -> tuple[float, float, float]:
    """Least squares: intercept, slope and R² of y over x.

    Raises: ValueError with fewer than two different x.
    """
    xs, ys = [x for x, _ in points], [y for _, y in points]
    mean_x, mean_y = fmean(xs), fmean(ys)
    spread = sum((x - mean_x) ** 2 for x in xs)
    if not spread:
        raise ValueError("A line needs points at two different places.")
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / spread
    intercept = mean_y - slope * mean_x
    total = sum((y - mean_y) ** 2 for y in ys)
    rest = sum((y - intercept - slope * x) ** 2 for x, y in points)
    return intercept, slope, 1.0 if not total else 1 - rest / total


# --- figures of claims, with all that is known of their noise ---


MEDIAN_OVER_MEAN = sqrt(pi / 2)
"""How much wider the interval of a median is than that of the mean.

Source: asymptotic, of normal rounds: M. G. Kendall and A. Stuart, The Advanced Theory of Statistics, 10.10.
"""


def counted(value: float, *, contended: bool = False) -> Measured:
    """What was counted, and does not vary."""
    return Measured(value, floor=1.0, contended=contended)


def measured(stats: Stats, floor: float | None = None) -> Measured:
    """The median and its interval at 95 %. ``floor``: in place of the halves of its rounds."""
    part = _half(stats)
    low, high = (None, None) if part is None else (stats.median * (1 - part), stats.median * (1 + part))
    return Measured(stats.median, low, high, floor if floor is not None else stats.halves, stats.contended)


def ratio_of(over: Stats, under: Stats, floor: float | None = None) -> Measured:
    """Median over median, with the errors of both. ``floor``: in place of the halves of their rounds."""
    value, parts = over.median / under.median, (_half(over), _half(under))
    known = [part for part in parts if part is not None]
    factor = exp(min(hypot(*known), 50.0)) if len(known) == len(parts) else None
    low, high = (None, None) if factor is None else (value / factor, value * factor)
    contended = over.contended or under.contended
    return Measured(value, low, high, floor if floor is not None else floor_of(over, under), contended)


def _half(stats: Stats) -> float | None:
    """Half the width of a median's interval, as a share of it."""
    if stats.ci_low is None or stats.ci_high is None or not stats.median:
        return None
    return MEDIAN_OVER_MEAN * (stats.ci_high - stats.ci_low) / 2 / abs(stats.median)


def quickest(
    over: Sequence[float], under: Sequence[float] = (1.0, 1.0), *, floor: float | None = None, contended: bool = False
) -> Measured:
    """Quickest round over quickest round, or over 1.

    The A/A is of quickest rounds as well: of every other one, and of the rest. ``floor`` is for a single round.
    """
    halves = [_quickest_floor(values) for values in (over, under) if len(values) > 1]
    return Measured(min(over) / min(under), floor=max(halves) if len(halves) == 2 else floor, contended=contended)


def _quickest_floor(values: Sequence[float]) -> float:
    one, other = sorted((min(values[::2]), min(values[1::2])))
    return other / one


def scaled(found: Measured, factor: float) -> Measured:
    """The same in another unit."""
    low, high = (None if end is None else end * factor for end in (found.low, found.high))
    return replace(found, value=found.value * factor, low=low, high=high)
