"""Numbers as a reader sees them: adaptive units, marks of exactness, never 0 for what is unknown."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from math import isfinite

from mcp_probe.model import Quality, Tag

UNKNOWN = "–"
"""Stands where a number could not be known; a footnote says why."""

EXACT = Quality("exact")
MARKS: dict[Tag, str] = {"lower": "≥", "upper": "≤", "estimate": "~"}
NOTHING = 0.005  # of the upper bound: a lower bound below this says nothing
UNITS = ((1.0, "ms", 999.5), (1e3, "s", 600e3), (60e3, "min", 7_200e3), (3_600e3, "h", float("inf")))


def duration(ms: float | None) -> str:
    """``ms`` in the unit that keeps two or three digits; ``None`` and infinities are ``UNKNOWN``."""
    if ms is None or not isfinite(ms):
        return UNKNOWN
    number, unit = _scaled(ms)
    return f"{number} {unit}"


def fine_duration(ms: float) -> str:
    """As :func:`duration`, below a millisecond in microseconds: for costs that are small on purpose."""
    return f"{1000 * ms:.0f} µs" if 0.0005 <= ms < 0.9995 else duration(ms)


def duration_range(lo_ms: float, hi_ms: float) -> str:
    """``[2.8–3.1 s]``, both ends in the unit of the larger; one figure where they read the same."""
    lo, hi = duration(lo_ms), duration(hi_ms)
    if lo == hi:
        return lo
    number, unit = _scaled(hi_ms)
    scale = next(scale for scale, name, _ in UNITS if name == unit)
    return f"[{_digits(lo_ms / scale, fine=unit == 's')}–{number} {unit}]"


def share(ratio: float | None) -> str:
    """A ratio in percent; above 0 and below one half percent it says so instead of rounding to 0."""
    if ratio is None or not isfinite(ratio):
        return UNKNOWN
    percent = 100 * ratio
    if 0 < percent < 0.5:
        return "<1%"
    return f"{percent:.0f}%" if abs(percent) < 1e5 else f"{percent:.1e}%"


def fine_share(ratio: float | None) -> str:
    """As ``share``, with one decimal below 10 %: for costs that are small on purpose."""
    if ratio is None or not isfinite(ratio) or ratio <= 0 or ratio >= 0.0995:
        return share(ratio)
    return f"{100 * ratio:.1f}%" if ratio >= 0.0005 else "<0.1%"


def quantity(number: float) -> str:
    """A count; exact up to six digits, then ``1.23M``."""
    if abs(number) < 999_999.5:
        return f"{number:,.0f}"
    for scale, unit in ((1e6, "M"), (1e9, "G")):
        if abs(number) < 999.5 * scale:
            return f"{number / scale:.3g}{unit}"
    return f"{float(number):.2e}"


def decimal(number: float | None) -> str:
    """One decimal below 100, none above and none where there is nothing to show."""
    if number is None or not isfinite(number):
        return UNKNOWN
    return f"{number:.1f}" if abs(number) < 99.95 and number != int(number) else quantity(number)


def size(count: float | None) -> str:
    """Bytes, in powers of 1000."""
    if count is None or not isfinite(count):
        return UNKNOWN
    for scale, unit in ((1, "B"), (1e3, "kB"), (1e6, "MB"), (1e9, "GB")):
        if abs(count) < 999.5 * scale:
            return f"{count / scale:.3g} {unit}"
    return f"{count / 1e12:,.3g} TB"


def size_range(lo: float, hi: float) -> str:
    """``[1.2–45 kB]``, both ends in the unit of the larger; one figure where they read the same."""
    first, last = size(lo), size(hi)
    if first == last:
        return first
    number, unit = last.split(" ")
    scale = {"B": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}[unit]
    least = f"{lo / scale:.3g}" if lo >= 0.01 * scale else "<0.01"
    return f"[{least}–{number} {unit}]" if least != number else last


def brief(name: str) -> str:
    """A name for the middle of a sentence: a long one loses its middle."""
    return name if len(name) <= 28 else f"{name[:15]}…{name[-12:]}"


def plural(number: float, noun: str, many: str | None = None) -> str:
    return f"{quantity(number)} {noun if number == 1 else many or noun + 's'}"


def instant(unix: float) -> str:
    """A moment in UTC, to the second; empty for the epoch and for what no calendar holds."""
    if not isfinite(unix) or unix <= 0:
        return ""
    try:
        moment = datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(seconds=unix)
    except OverflowError:
        return ""
    return moment.strftime("%Y-%m-%d %H:%M:%S UTC")


def _scaled(ms: float) -> tuple[str, str]:
    for scale, unit, below in UNITS:
        if abs(ms) < below:
            return _digits(ms / scale, fine=unit == "s"), unit
    return UNKNOWN, "h"


def _digits(number: float, *, fine: bool) -> str:
    """Seconds keep one digit more than milliseconds: 1.28 s, but 4.2 ms."""
    size = abs(number)
    if size == 0:
        return "0"
    if size < 0.005:
        return "<0.01"
    if size < 0.995 or (fine and size < 9.995):
        return f"{number:.2f}"
    if size < 9.95 or (fine and size < 99.95):
        return f"{number:.1f}"
    return f"{number:,.0f}" if size < 1e6 else f"{number:.1e}"


@dataclass(slots=True)
class Notation:
    """Writes figures with their marks and remembers what it used, so that footnotes explain that and no more."""

    used: set[Tag] = field(default_factory=set)
    _missing: dict[str, dict[str, list[str]]] = field(default_factory=dict)

    def duration(self, ms: float | None, quality: Quality = EXACT) -> str:
        return self._marked(ms, quality, duration, duration_range)

    def share(self, ratio: float | None, quality: Quality = EXACT) -> str:
        """``quality`` bounds the ratio itself."""
        return self._marked(ratio, quality, share, _share_range)

    def size(self, count: float | None, quality: Quality = EXACT) -> str:
        return self._marked(count, quality, size, size_range)

    def mark(self, tag: Tag) -> str:
        """The sign before a text that is no number, a place for example."""
        if tag in MARKS:
            self.used.add(tag)
        return MARKS.get(tag, "")

    def missing(self, what: str, why: str, of: str = "") -> None:
        """Notes that ``what`` could not be known: for ``of``, or for all."""
        owners = self._missing.setdefault(why, {}).setdefault(what, [])
        if of and of not in owners:
            owners.append(of)

    def unavailable(self) -> Iterator[tuple[str, str]]:
        """What could not be known, with the reason, in the order it was met."""
        for why, missing in self._missing.items():
            together: dict[str, list[str]] = {}
            for what, owners in missing.items():
                together.setdefault(_listed(owners), []).append(what)
            texts = [", ".join(names) + (f" of {owners}" if owners else "") for owners, names in together.items()]
            yield "; ".join(texts), why

    def _marked(
        self, value: float | None, quality: Quality, one: Callable[[float], str], span: Callable[[float, float], str]
    ) -> str:
        if value is None or not isfinite(value) or quality.tag == "unavailable":
            return UNKNOWN
        tag, lo, hi = quality.tag, quality.lo, quality.hi
        if tag == "bounded":
            if lo is not None and hi is not None and isfinite(lo) and isfinite(hi):
                if 0 <= lo <= NOTHING * hi and hi > 0:
                    return self.mark("upper") + one(hi)
                text = span(lo, hi)
                if text.startswith("["):
                    self.used.add("bounded")
                return text
            tag = "estimate"
        return self.mark(tag) + one(value)


def _listed(names: list[str]) -> str:
    rest = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(map(brief, names[:3])) + rest


def _share_range(lo: float, hi: float) -> str:
    first, last = share(lo), share(hi)
    return first if first == last else f"[{first.removesuffix('%')}–{last}]"
