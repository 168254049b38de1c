"""How much figures vary: a bootstrap over blocks of time, since neighbours in time are not independent.

Items are cut, in the order of time, into blocks of as many items as the data ask for; whole blocks are drawn with
replacement. Only here and in ``judge`` is the statistics library loaded, on the reader's machine.

Source: H. R. Künsch (1989), Annals of Statistics 17, 1217 (block bootstrap); D. N. Politis, H. White (2004),
Econometric Reviews 23, 53, with A. Patton's correction (2009), 28, 372 (length of blocks).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, log10
from types import ModuleType
from typing import Any

from mcp_probe.errors import MissingExtraError

RESAMPLES = 800
"""The error of a standard error from so many is 2.5 %."""

FEWEST_BLOCKS = 8
"""Below, a standard error is mostly chance."""

MOST_BLOCKS = 400
MOST_BINS = 2048
_SEED = 20261125  # the same files give the same answer

Array = Any
"""A one-dimensional array of numpy."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure with its standard error: of its logarithm for quantiles and ratios, of itself for parts."""

    value: float
    error: float | None  # None: too few blocks
    freedom: float


def libraries() -> tuple[ModuleType, ModuleType]:
    """numpy and scipy.stats. Raises: MissingExtraError where they are not installed."""
    try:
        import numpy
        from scipy import stats  # type: ignore[import-untyped]
    except ImportError as exc:
        raise MissingExtraError(
            "Differences are told from noise with scipy, which is not installed: "
            'pip install "mcp-probe-profiler[look]".'
        ) from exc
    return numpy, stats


def block_items(values: Array) -> int:
    """How many neighbours belong together, by how long ``values`` remember; at least 1."""
    np, _ = libraries()
    count = len(values)
    if count < 16 or np.ptp(values) == 0:
        return 1
    centred = values - values.mean()
    window = max(5, ceil(log10(count)))
    most = min(count // 3, ceil(count**0.5) + window)
    covariances = np.array([(centred[: count - lag] * centred[lag:]).sum() / count for lag in range(most + 1)])
    seen = np.abs(covariances[1:] / covariances[0]) >= 2 * (log10(count) / count) ** 0.5
    memory = next((lag for lag in range(len(seen)) if not seen[lag : lag + window].any()), len(seen))
    lags = np.arange(-min(2 * memory, most), min(2 * memory, most) + 1)
    if len(lags) < 3:
        return 1
    scaled = np.abs(lags) / (2 * memory)
    taper = np.where(scaled <= 0.5, 1.0, np.maximum(0.0, 2 * (1 - scaled)))
    found = covariances[np.abs(lags)]
    spread, long_run = (taper * np.abs(lags) * found).sum(), (taper * found).sum()
    if long_run <= 0:
        return 1
    wanted = (2 * spread**2 / (4 / 3 * long_run**2)) ** (1 / 3) * count ** (1 / 3)
    return int(max(1, min(ceil(wanted), ceil(min(3 * count**0.5, count / 3)))))


def estimates(
    values: Sequence[float],
    weights: Sequence[float],
    quantiles: Mapping[str, float],
    means: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    parts: frozenset[str] = frozenset(),
) -> dict[str, Estimate]:
    """Quantiles of ``values`` and means of further numbers, of items in the order of time.

    Args:
        weights: how many calls each item stands for in quantiles.
        means: name -> (sums, counts) of each item; the mean is the quotient of what is drawn of both.
        parts: names of ``means`` whose errors are of themselves.
    """
    np, stats = libraries()
    taken, sizes = np.asarray(values, float), np.asarray(weights, float)
    count = len(taken)
    if not count:
        return {}
    blocks = min(MOST_BLOCKS, count // block_items(np.log(np.maximum(taken, 1e-9))))
    block_of = np.arange(count) * max(1, blocks) // count
    sums = {name: _by_block(np, block_of, each) for name, each in means.items()}
    levels, histogram = _histogram(np, taken, sizes, block_of)

    def figures(drawn: Array) -> Array:
        """All figures of each row of ``drawn``: how often each block was drawn."""
        running = np.cumsum(drawn @ histogram, axis=-1)
        found = [
            np.log(np.maximum(levels[_first(np, running >= share * running[..., -1:] - 1e-9)], 1e-9))
            for share in quantiles.values()
        ]
        for name, (above, below) in sums.items():
            mean = (drawn @ above) / np.maximum(drawn @ below, 1e-12)
            found.append(mean if name in parts else np.log(np.maximum(mean, 1e-9)))
        return np.array(found)

    middle = figures(np.ones((1, max(1, blocks))))[:, 0]
    errors = [None] * len(middle) if blocks < FEWEST_BLOCKS else _errors(np, stats, blocks, figures)
    names = [*quantiles, *means]
    return {
        name: Estimate(float(value if name in parts else np.exp(value)), error, blocks - 1)
        for name, value, error in zip(names, middle, errors, strict=True)
    }


def _errors(np: ModuleType, stats: ModuleType, blocks: int, figures: Any) -> list[float]:
    def statistic(drawn: Array, axis: int = -1) -> Array:
        rows = drawn.reshape(-1, blocks)
        counts = np.zeros((len(rows), blocks))
        np.add.at(counts, (np.arange(len(rows))[:, None], rows), 1.0)
        return figures(counts)

    found = stats.bootstrap(
        (np.arange(blocks),),
        statistic,
        n_resamples=RESAMPLES,
        batch=200,
        vectorized=True,
        method="percentile",
        rng=np.random.default_rng(_SEED),
    )
    # The blocks' own mean takes one degree of freedom, which drawing with replacement does not know.
    return [float(error) * (blocks / (blocks - 1)) ** 0.5 for error in np.atleast_1d(found.standard_error)]


def _by_block(np: ModuleType, block_of: Array, each: tuple[Sequence[float], Sequence[float]]) -> tuple[Array, Array]:
    above, below = (np.bincount(block_of, weights=np.asarray(numbers, float)) for numbers in each)
    return above, below


def _histogram(np: ModuleType, values: Array, weights: Array, block_of: Array) -> tuple[Array, Array]:
    """Levels, and how many calls of each block are at each: every value its own, or bins of equally many."""
    levels, at = np.unique(values, return_inverse=True)
    if len(levels) > MOST_BINS:
        edges = np.unique(np.quantile(values, np.linspace(0, 1, MOST_BINS + 1)[1:-1]))
        at = np.searchsorted(edges, values)
        total = np.bincount(at, weights=weights, minlength=len(edges) + 1)
        sums = np.bincount(at, weights=weights * values, minlength=len(edges) + 1)
        levels = np.where(total > 0, sums / np.maximum(total, 1e-12), 0.0)
    rows = int(block_of[-1]) + 1
    flat = np.bincount(block_of * len(levels) + at, weights=weights, minlength=rows * len(levels))
    return levels, flat.reshape(rows, len(levels))


def _first(np: ModuleType, reached: Array) -> Array:
    return np.argmax(reached, axis=-1)
