"""What a concurrency sweep and a burst say: where more in flight stop helping, and how many are handled at once.

Pure functions of figures.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil
from statistics import median

from mcp_probe.workloads.bench.shapes import Verdict
from mcp_probe.workloads.bench.statistics import percentile

ENOUGH = 0.95
"""Of the highest throughput: what a recommended limit must reach."""

SHORT_MS = 10.0
"""A call shorter than this takes no time that waves could be told by."""

GAP = 0.4
"""Of one call's time: a pause between two ends from which on a new wave begins."""


@dataclass(frozen=True, slots=True)
class Level:
    """So many in flight for a while."""

    in_flight: int
    span_s: float
    times_ms: tuple[float, ...]  # of the calls that were answered well
    failed: int = 0
    cancelled: int = 0

    @property
    def answered(self) -> int:
        """Calls answered well."""
        return len(self.times_ms)

    @property
    def per_s(self) -> float:
        """Calls answered well, a second."""
        return self.answered / self.span_s if self.span_s > 0 else 0.0

    @property
    def mean_ms(self) -> float:
        """0 where nothing was answered."""
        return sum(self.times_ms) / self.answered if self.answered else 0.0

    @property
    def p99_ms(self) -> float | None:
        """``None`` where nothing was answered."""
        return percentile(sorted(self.times_ms), 0.99) if self.times_ms else None


@dataclass(frozen=True, slots=True)
class Knee:
    """``recommended``: how many calls to have in flight at most."""

    recommended: int
    verdict: Verdict
    measured: str
    sentence: str
    reason: str


def knee_of(levels: Sequence[Level]) -> Knee:
    """The smallest level that gives :data:`ENOUGH` of the highest throughput, and what one more step would cost.

    Beyond it latency grows as the number in flight does, since by Little's law their ratio is the throughput.
    """
    known = [level for level in levels if level.answered]
    if not known:
        return Knee(1, "cannot be tested here", "nothing was answered", "No limit can be recommended.", "")
    best = max(known, key=lambda level: level.per_s)
    knee = next(level for level in known if level.per_s >= ENOUGH * best.per_s)
    last = known[-1]
    measured = (
        f"{knee.per_s:,.0f}/s at {knee.in_flight} in flight (P99 {_ms(knee.p99_ms)}), most {best.per_s:,.0f}/s at "
        f"{best.in_flight}, {last.per_s:,.0f}/s at {last.in_flight} (P99 {_ms(last.p99_ms)})"
    )
    if knee is last and len(known) > 1:
        return Knee(
            knee.in_flight,
            "cannot be tested here",
            measured,
            f"No knee up to {last.in_flight} calls in flight: throughput still grows there ({last.per_s:,.0f}/s).",
            "A sweep that goes higher would find it (without --quick it goes to 256).",
        )
    beyond = next((level for level in known if level.in_flight > knee.in_flight), None)
    reason = ""
    if beyond is not None and beyond.p99_ms is not None and knee.p99_ms:
        reason = (
            f"{beyond.in_flight} in flight change the throughput by {100 * (beyond.per_s / knee.per_s - 1):+.0f} % and "
            f"the P99 by {100 * (beyond.p99_ms / knee.p99_ms - 1):+.0f} %: what is sent beyond {knee.in_flight} waits."
        )
    sentence = (
        f"Recommended limit: {knee.in_flight} calls in flight, the fewest that give {100 * ENOUGH:.0f} % of the "
        f"highest throughput ({best.per_s:,.0f}/s). {reason}"
    )
    verdict: Verdict = "holds" if knee.in_flight < last.in_flight else "does not hold"
    return Knee(knee.in_flight, verdict, measured, sentence.strip(), reason)


@dataclass(frozen=True, slots=True)
class Waves:
    """``width``: calls handled at once as far as seen, ``None`` where they did not come in waves."""

    width: float | None
    verdict: Verdict
    sentence: str


def waves_of(single_ms: float, ends_ms: Sequence[float]) -> Waves:
    """What the ends of calls sent at once say of how many are handled at once.

    ``single_ms`` is one call's time alone, ``ends_ms`` how long each of the burst took. Waves of k: the first k end
    after one call's time, the next k after two, …: ceil(N / k) in all, with a gap of about a call's time between them.
    """
    count, ends = len(ends_ms), sorted(ends_ms)
    if single_ms < SHORT_MS:
        return Waves(None, "cannot be tested here", f"Calls of {single_ms:.1f} ms are too short to show waves.")
    sizes = [1]
    for before, after in pairwise(ends):
        if after - before > GAP * single_ms:
            sizes.append(1)
        else:
            sizes[-1] += 1
    if len(sizes) == 1:
        shared = (ends[-1] - ends[0]) / max(count - 1, 1)
        more = f"; each added {shared:.2f} ms of work that they share" if ends[-1] > 1.3 * single_ms else ""
        return Waves(float(count), "holds", f"All {count} were handled at once{more}.")
    *full, _last = sizes
    width = round(median(full))
    if max(sizes) > max(1.25 * width, width + 1) or min(full) < 0.75 * width or ceil(count / width) != len(sizes):
        return Waves(
            None,
            "does not hold",
            f"The last of {count} took {ends[-1] / single_ms:.1f} times as long as one alone, not in equal waves; "
            f"on average {count * single_ms / ends[-1]:.1f} were handled at once.",
        )
    if width == 1:
        return Waves(1.0, "does not hold", "They were handled one at a time: something in the server lets in only one.")
    return Waves(
        float(width), "holds in shape", f"They came in {len(sizes)} waves of {width}: {width} are handled at once."
    )


def _ms(value: float | None) -> str:
    return "–" if value is None else f"{value:,.1f} ms"
