"""How many calls to have in flight at most, from three readings that must agree.

1. *Throughput*: from which level on more in flight bring no more of it, with the interval of repeated measurements.
2. *Latency*: below X·R calls in flight none waits for another, where X is the highest throughput and R the time of a
   call alone. Source: J. D. C. Little (1961), Operations Research 9, 383; the crossing of the asymptotic bounds,
   Denning and Buzen (1978), ACM Computing Surveys 10, 225.
3. *Burst*: how many of the calls that are sent at once end together.

Pure functions of figures. Noise may widen a reading, and then nothing is recommended; it never moves one. What the
means of the repeats contradict is contradicted, however far the repeats differ: an interval that is wide enough agrees
with everything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import sqrt
from statistics import fmean, median, stdev
from typing import TypeVar

from mcp_probe.workloads.bench.own.waves import SHORT_MS, waves_of
from mcp_probe.workloads.bench.shapes import LITTLE_HIGH, LITTLE_LOW
from mcp_probe.workloads.bench.statistics import line_fit, percentile, t95

TOLERANCE = 0.15
"""Readings that differ by less agree."""

GROWN = 0.95
"""Of the highest throughput: a level that is surely below still grows."""

ENOUGH = 0.90
"""Of the highest throughput: a level that is surely above has enough."""

FINE = 1.35
"""The level that has enough over the one that still grows: more than this is too coarse to recommend from."""

STILL = 0.05
"""Of throughput: the least width of an interval, whatever the repeats say."""

TRIMMED_FROM = 4
"""Repeats of a level from which on the slowest of them is left out."""

LEAST_OF_A_ROUND = 4
"""Levels of one round that tell how quick the machine was in it."""

QUIET_ENOUGH = 2
"""Undisturbed repeats of a level that make the others needless: fewer have no interval."""

CLIENT_CORES = 0.85
"""Of one core: a generator that used more was itself what limits."""

OTHERS_WORK = "others used this machine"


@dataclass(frozen=True, slots=True)
class Level:
    """So many in flight for a while, once."""

    in_flight: int
    span_s: float
    times_ms: tuple[float, ...]  # of the calls that were answered well
    ends_ms: tuple[float, ...] = ()  # when these answers came, as long as so many were in flight
    failed: int = 0
    cancelled: int = 0
    client_cores: float = 0.0  # CPU that the generator used
    client_late_ms: float = 0.0  # how late the generator's own timers were, at the median
    contended: bool = False  # others used the machine meanwhile
    round: int | None = None  # levels of one round were measured one after the other
    speed: float = 1.0  # of the machine in that round, as its other levels show: usually 1

    @property
    def answered(self) -> int:
        """Calls answered well."""
        return len(self.times_ms)

    @property
    def per_s(self) -> float:
        """Calls answered well, a second, at the machine's usual speed: the slope of their number over time.

        So no edge counts: answers that come in waves make a staircase; counting between two instants is off by up to
        one wave.
        """
        ends = sorted(self.ends_ms)
        if len(ends) >= 4 and ends[-1] > ends[0]:
            return 1e3 * line_fit([(end, float(number)) for number, end in enumerate(ends)])[1] / self.speed
        return self.answered / self.span_s / self.speed if self.span_s > 0 else 0.0

    @property
    def median_ms(self) -> float:
        """Median latency at the machine's usual speed."""
        return median(self.times_ms) * self.speed

    @property
    def fits(self) -> bool:
        """Whether throughput times mean latency is about what was in flight, as it must be by Little's law."""
        if not self.times_ms:
            return False
        in_flight = self.per_s * fmean(self.times_ms) * self.speed / 1e3
        return LITTLE_LOW * self.in_flight <= in_flight <= LITTLE_HIGH * self.in_flight


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean of repeats and where it lies with 95 % probability."""

    low: float
    best: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Interval:
        """Of one repeat nothing is known but its value; never narrower than :data:`STILL`. There must be a value."""
        best = fmean(values)
        half = t95(len(values) - 1) * stdev(values) / sqrt(len(values)) if len(values) > 1 else best
        half = max(half, STILL / 2 * best)
        return cls(max(0.0, best - half), best, best + half)

    @property
    def without_error(self) -> Interval:
        """As if the repeats did not vary."""
        return Interval(self.best, self.best, self.best)

    @property
    def narrowest(self) -> Interval:
        """As if the repeats varied as little as is believed of any."""
        return Interval.of((self.best, self.best))


@dataclass(frozen=True, slots=True)
class Repeated:
    """One level, measured some times."""

    in_flight: int
    levels: tuple[Level, ...]

    @property
    def undisturbed(self) -> tuple[Level, ...]:
        """Repeats during which nobody else used the machine; all of them where those are too few."""
        return _undisturbed(self.levels)

    @property
    def contended(self) -> bool:
        """Whether others used the machine in repeats that count."""
        return any(level.contended for level in self.undisturbed)

    @property
    def sound(self) -> tuple[Level, ...]:
        """Repeats whose throughput, latency and number in flight agree; of four or more, all but the slowest.

        A client that stands still for a while gets answers in heaps, and then more seem to come in a second than the
        server gives. Anything else that happens on a machine takes throughput away.
        """
        fitting = sorted((level for level in self.undisturbed if level.fits), key=lambda level: level.per_s)
        return tuple(fitting[1:] if len(fitting) >= TRIMMED_FROM else fitting)

    @property
    def per_s(self) -> Interval:
        """Throughput."""
        return Interval.of([level.per_s for level in self.sound])

    @property
    def median_ms(self) -> Interval:
        """Median latency."""
        return Interval.of([level.median_ms for level in self.sound])

    @property
    def times_ms(self) -> list[float]:
        """Of all calls."""
        return [time for level in self.undisturbed for time in level.times_ms]

    @property
    def is_good(self) -> bool:
        """Whether every repeat has an answer and none a failure, and some of them can be believed."""
        return bool(self.sound) and all(level.answered and not level.failed for level in self.levels)


@dataclass(frozen=True, slots=True)
class Burst:
    """Calls that were sent at once: when each ended after the first was sent."""

    ends_ms: tuple[float, ...]
    contended: bool = False  # others used the machine meanwhile


_Disturbed = TypeVar("_Disturbed", Level, Burst)


def _undisturbed(repeats: Sequence[_Disturbed]) -> tuple[_Disturbed, ...]:
    quiet = tuple(each for each in repeats if not each.contended)
    return quiet if len(quiet) >= QUIET_ENOUGH else tuple(repeats)


@dataclass(frozen=True, slots=True)
class Reading:
    """One way to tell the knee. ``best`` is ``None`` where it tells nothing; ``low`` and ``high`` bound it."""

    name: str
    low: float
    best: float | None
    high: float | None  # None: no bound
    sentence: str

    @property
    def is_fine(self) -> bool:
        """Whether its bounds are close enough to recommend a number from them."""
        return self.high is not None and self.high <= max(FINE * self.low, self.low + 1)


@dataclass(frozen=True, slots=True)
class Knee:
    """``recommended``: how many calls to have in flight at most; ``None``: the readings do not tell."""

    recommended: int | None
    readings: tuple[Reading, ...]
    advice: str  # the recommendation, or why there is none
    measured: str
    why: str = ""  # there is no recommendation
    contended: bool = False  # others used the machine meanwhile


def knee_of(levels: Sequence[Repeated], bursts: Sequence[Burst]) -> Knee:
    """What three readings agree on. Repeats that others' work on the machine disturbed count only without others."""
    levels, bursts = at_usual_speed(levels), _undisturbed(bursts)
    contended = any(each.contended for each in levels) or any(each.contended for each in bursts)
    return replace(_told(levels, bursts, contended), contended=contended)


def at_usual_speed(levels: Sequence[Repeated]) -> list[Repeated]:
    """The same, without what a machine that is now quicker and now slower does to all levels of a round alike.

    Source: the randomized block design, R. A. Fisher (1935), The Design of Experiments; each round is a block. Medians,
    so that one level that something happened to does not touch the others of its round.
    """
    usual = {
        each.in_flight: median(level.per_s for level in each.levels)
        for each in levels
        if len(each.levels) > 1 and all(level.per_s > 0 for level in each.levels)
    }
    ratios: dict[int, list[float]] = {}
    for each in levels:
        for level in each.levels if each.in_flight in usual else ():
            if level.round is not None:
                ratios.setdefault(level.round, []).append(level.per_s / usual[each.in_flight])
    speeds: dict[int | None, float] = {
        number: median(found) for number, found in ratios.items() if len(found) >= LEAST_OF_A_ROUND
    }
    return [
        replace(each, levels=tuple(replace(level, speed=speeds.get(level.round, 1.0)) for level in each.levels))
        for each in levels
    ]


def _told(levels: Sequence[Repeated], bursts: Sequence[Burst], contended: bool) -> Knee:
    known = sorted((level for level in levels if level.is_good), key=lambda level: level.in_flight)
    if len(known) < 3 or known[0].in_flight != 1:
        return _untold((), "too few levels of the sweep were answered without failures", "")
    rates = {level.in_flight: level.per_s for level in known}
    plateau = _plateau({level.in_flight: level.per_s for level in known if len(level.sound) > 1} or rates)
    alone = known[0].median_ms
    curve = _curve(rates, plateau)
    latency = _latency(plateau, alone)
    burst, is_wave = _burst(bursts, alone.best)
    readings = (curve, latency, burst)
    last = known[-1]
    measured = (
        f"{known[0].per_s.best:,.0f}/s at 1 in flight, at most {plateau.best:,.0f}/s, {last.per_s.best:,.0f}/s at "
        f"{last.in_flight}"
    )
    if curve.best is None:
        return _untold(readings, curve.sentence, measured)
    if (late := _client(known, plateau, alone.best)) is not None:
        return _untold(readings, late, measured)
    found = _agreed(readings, is_wave, contended)
    means = _curve({n: rate.without_error for n, rate in rates.items()}, plateau)
    curves = [means, _still_growing(means, rates, plateau)] if is_wave else [means]
    every = [found, *(_agreed((each, latency, burst), is_wave, contended) for each in curves)]
    refused = [each for each in every if isinstance(each, str)]
    if refused or isinstance(found, str):
        return _untold(readings, refused[0], measured)
    return Knee(found, readings, _advice(found, known, plateau), measured)


# --- the readings ---------------------------------------------------------------------------------


def _plateau(rates: Mapping[int, Interval]) -> Interval:
    """The highest throughput: of the levels within a tenth of the best, since the best one alone is partly luck.

    A level that was measured only once is nothing but luck.
    """
    most = max(rate.best for rate in rates.values())
    top = [rate for rate in rates.values() if rate.best >= ENOUGH * most]
    return Interval(
        *(median(values) for values in zip(*((each.low, each.best, each.high) for each in top), strict=True))
    )


def _curve(rates: Mapping[int, Interval], plateau: Interval) -> Reading:
    """``rates``: of the numbers in flight, lowest first."""
    last = max(rates)
    half = [rate.best for n, rate in rates.items() if n <= 0.6 * last]
    if half and rates[last].best > 1.1 * max(half):
        sentence = f"throughput still grows at {last} in flight ({rates[last].best:,.0f}/s)"
        return Reading("throughput", last, None, None, sentence)
    enough = next((n for n, rate in rates.items() if rate.low >= ENOUGH * plateau.best), None)
    if enough is None:
        return Reading("throughput", 0, None, None, "the repeats of every level differ too much to see a curve")
    grows = max((n for n, rate in rates.items() if n < enough and rate.high < GROWN * plateau.best), default=0)
    best = next((n for n, rate in rates.items() if n > grows and rate.best >= GROWN * plateau.low), enough)
    sentence = (
        f"throughput grows up to {grows} in flight, and no more from {enough} on"
        if grows
        else f"{enough} in flight bring as much as more do"
    )
    return Reading("throughput", grows, min(best, enough), enough, sentence)


def _still_growing(means: Reading, rates: Mapping[int, Interval], plateau: Interval) -> Reading:
    """``means`` with every level below the best one that does not have enough, however little the repeats varied.

    A level in between may seem to have enough only because it varies: that must not hide the ones above it.
    """
    top = max(rates, key=lambda n: rates[n].best)
    grows = max((n for n in rates if n < top and rates[n].narrowest.high < GROWN * plateau.best), default=0)
    if grows <= means.low:
        return means
    return replace(means, low=grows, sentence=f"throughput still grows at {grows} in flight")


def _latency(plateau: Interval, alone: Interval) -> Reading:
    low, best, high = (rate * time / 1e3 for rate, time in zip(*_ends(plateau, alone), strict=True))
    sentence = (
        f"{plateau.best:,.0f}/s of calls that take {alone.best:,.1f} ms alone are {best:,.1f} in flight; calls beyond "
        "wait for others"
    )
    return Reading("latency", low, best, high, sentence)


def _ends(*intervals: Interval) -> list[tuple[float, float, float]]:
    return [(each.low, each.best, each.high) for each in intervals]


def _burst(bursts: Sequence[Burst], alone_ms: float) -> tuple[Reading, bool]:
    """The reading, and whether it is a width that was seen in waves."""
    if not bursts:
        return Reading("burst", 0, None, None, "no calls were sent at once"), False
    count = len(bursts[0].ends_ms)
    widths = []
    for burst in bursts:
        found = waves_of(alone_ms, burst.ends_ms)
        if found.width is not None and found.width < count:
            widths.append(found.width)
    if 2 * len(widths) > len(bursts) and max(widths) <= (1 + TOLERANCE) * min(widths):
        width = median(widths)
        sentence = f"of {count} calls sent at once {width:.0f} ended together, then the next {width:.0f}"
        return Reading("burst", min(widths), width, max(widths), sentence), True
    lasts = Interval.of([max(burst.ends_ms) for burst in bursts])
    if alone_ms >= SHORT_MS and not widths and lasts.best <= 1.3 * alone_ms:
        return Reading("burst", count, None, None, f"all {count} calls sent at once were handled at once"), False
    if alone_ms >= SHORT_MS and len(widths) > len(bursts) / 4:
        return Reading("burst", 0, None, None, f"{count} calls sent at once ended in other waves each time"), False
    shares = [
        alone_ms / max(1e-9, (max(burst.ends_ms) - alone_ms) / max(1, len(burst.ends_ms) - 1)) for burst in bursts
    ]
    shared = Interval.of(shares)
    sentence = (
        f"{count} calls sent at once ended {alone_ms / shared.best:,.2f} ms apart, without waves: they share work, "
        f"{shared.best:,.1f} calls' worth in the time of one"
    )
    return Reading("burst", shared.low, shared.best, shared.high, sentence), False


def _client(known: Sequence[Repeated], plateau: Interval, alone_ms: float) -> str | None:
    """Whether the generator was what limited; the blame is then not the server's."""
    top = [level for each in known if each.per_s.best >= ENOUGH * plateau.best for level in each.sound]
    cores, late = median(level.client_cores for level in top), median(level.client_late_ms for level in top)
    if cores < CLIENT_CORES and late < max(2.0, 0.1 * alone_ms):
        return None
    return (
        f"the client was the limit, not the server: it used {cores:.2f} of one core and its own timers were "
        f"{late:.1f} ms late; what the server does above {plateau.best:,.0f}/s cannot be told from here"
    )


# --- their agreement ------------------------------------------------------------------------------


def _agreed(readings: tuple[Reading, Reading, Reading], is_wave: bool, contended: bool) -> int | str:
    """The number on which they agree, or why they do not."""
    return _by_width(*readings) if is_wave else _by_curve(*readings, contended)


def _by_width(curve: Reading, latency: Reading, burst: Reading) -> int | str:
    """A width that was seen; the others must be near it, and none may contradict it."""
    width = round(burst.best or 0)
    slack = max(TOLERANCE * width, 0.5)
    if latency.best is None or abs(latency.best - width) > slack:
        return _differ(burst, latency)
    if not curve.low < width + slack or (curve.high or width) < width - slack:
        return _differ(burst, curve)
    return width


def _by_curve(curve: Reading, latency: Reading, burst: Reading, contended: bool) -> int | str:
    """Where calls share something without a width, the curve is soft: it must be fine, and the machine quiet."""
    if contended and not _one_by_one(curve, latency, burst):
        return (
            f"{OTHERS_WORK}, and no width shows in bursts, so what limits may be the machine; try again when "
            "it is quiet"
        )
    best, least = round(curve.best or 0), latency.best or 0.0
    if curve.high is not None and not curve.is_fine:
        return f"{curve.sentence}: too coarse to recommend a number between"
    if not (1 - TOLERANCE) * least <= best <= (1 + TOLERANCE) * (2 * least + 1):
        return _differ(curve, latency)
    if burst.best is None and burst.low > (1 + TOLERANCE) * best:
        return _differ(curve, burst)
    if burst.best is None and not burst.low:
        return burst.sentence
    if burst.best is not None and not 0.5 <= burst.best / max(least, 0.1) <= 2.0:
        return _differ(latency, burst)
    return best


def _one_by_one(*readings: Reading) -> bool:
    """Whether each says that one call is handled at a time: that no other program can make a server seem to do."""
    return all(each.best is not None and each.best <= 1 + TOLERANCE for each in readings)


def _differ(one: Reading, other: Reading) -> str:
    return f"two readings do not agree: {one.sentence}; but {other.sentence}"


# --- in words -------------------------------------------------------------------------------------


def _untold(readings: tuple[Reading, ...], why: str, measured: str) -> Knee:
    return Knee(None, readings, f"No limit is recommended: {why}.", measured, why)


def _advice(found: int, known: Sequence[Repeated], plateau: Interval) -> str:
    at = min(known, key=lambda level: abs(level.in_flight - found))
    share = at.per_s.best / plateau.best
    beyond = next((level for level in known if level.in_flight >= 2 * found), known[-1])
    advice = (
        f"Keep at most {found} {'call' if found == 1 else 'calls'} in flight: that gives {min(share, 1.0):.0%} of the "
    )
    advice += f"highest throughput ({plateau.best:,.0f}/s)"
    if beyond.in_flight > found:
        change = percentile(sorted(beyond.times_ms), 0.99) / max(1e-9, percentile(sorted(at.times_ms), 0.99))
        advice += f"; with {beyond.in_flight} a call takes {change:.1f} times as long (P99) for no more"
    return f"{advice}."
