"""What becomes of a claim: one pure function, and the one table of what each kind of claim allows.

What is known of a figure's noise makes a stretch in which the true figure may lie: its interval, two runs of the same
thing, and others' work on the machine. A claim holds if the whole stretch lies within what it allows, and does not
hold if all of it lies outside. So noise can only move a verdict towards "cannot be told", and never makes one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf, nextafter

from mcp_probe.workloads.bench.figures import number, times
from mcp_probe.workloads.bench.shapes import Asked, Kind, Measured, Part, Verdict

UNTOLD: Verdict = "cannot be told here"
ONCE = "It was measured once: nothing says how far two runs of it differ."
OTHERS = "Others used the machine meanwhile."

FIGURE, FIGURE_SHAPE = 1.5, 3.0
"""Of a figure from another machine."""
LEAST_EFFECT = 0.2
"""A factor is in shape from this share of it on, in logarithms: 1.8 of 20 times, 1.05 of 1.26 times."""
SAME, SAME_SHAPE = 1.15, 1.3
"""Of what must be alike: the widest that ratios of one and the same thing were beside a documented 15 %."""
NOTHING = 1.05
"""Of what is to cost nothing: five percent."""
STRAIGHT, STRAIGHT_SHAPE = 0.99, 0.95
"""R² of a line."""

Band = tuple[float, float]

TOLERANCES: dict[Kind, str] = {
    "times": f"within {FIGURE:g} times of {{}}; in shape: as clearly in the same direction",
    "figure": f"within {FIGURE:g} times of {{}}; in shape: within {FIGURE_SHAPE:g} times",
    "up to": f"at most {FIGURE:g} times {{}}; in shape: at most {FIGURE_SHAPE:g} times",
    "same": f"within {SAME:g} times of {{}}; in shape: within {SAME_SHAPE:g} times",
    "at most": f"at most {SAME:g}{{0}}; in shape: at most {SAME_SHAPE:g}{{0}}",
    "nothing": f"no difference beyond {NOTHING:g}×",
    "free": f"at most {NOTHING:g}×",
    "more": "more than 1×, beyond the noise",
    "limit": "at most {}",
    "at least": "at least {}",
    "exact": "exactly {}",
    "straight": f"R² of a line ≥ {STRAIGHT:g}; in shape: ≥ {STRAIGHT_SHAPE:g}",
}
_FINEST: dict[Kind, Band] = {
    "same": (SAME, SAME_SHAPE),
    "at most": (SAME, SAME_SHAPE),
    "nothing": (NOTHING, NOTHING),
    "free": (NOTHING, NOTHING),
}
"""A floor wider than this cannot show that something is alike, wherever the figure lies."""


@dataclass(frozen=True, slots=True)
class Grade:
    """A verdict; ``reason`` says why none can be told."""

    verdict: Verdict
    reason: str = ""


def grade(parts: Sequence[Part]) -> Grade:
    """What becomes of a claim that says all of ``parts``. Without any it cannot be told."""
    grades = [_grade(part) for part in parts]
    if not grades:
        return Grade(UNTOLD)
    for verdict in ("does not hold", UNTOLD, "in shape"):
        if found := [each for each in grades if each.verdict == verdict]:
            return found[0]
    return Grade("holds")


def allowed(asked: Asked) -> tuple[Band, Band]:
    """Where a figure must lie for the claim to hold, and to be in shape; the second holds the first."""
    least, most = (min(asked.documented), max(asked.documented)) if asked.documented else (1.0, 1.0)
    match asked.kind:
        case "times":
            return _times(least, most)
        case "figure":
            return (least / FIGURE, most * FIGURE), (least / FIGURE_SHAPE, most * FIGURE_SHAPE)
        case "up to":
            return (-inf, most * FIGURE), (-inf, most * FIGURE_SHAPE)
        case "same":
            return (least / SAME, most * SAME), (least / SAME_SHAPE, most * SAME_SHAPE)
        case "at most":
            return (-inf, most * SAME), (-inf, most * SAME_SHAPE)
        case "straight":
            return (STRAIGHT, inf), (STRAIGHT_SHAPE, inf)
    without_shape: dict[str, Band] = {
        "nothing": (1 / NOTHING, NOTHING),
        "free": (-inf, NOTHING),
        "more": (nextafter(1.0, inf), inf),
        "limit": (-inf, most),
        "at least": (least, inf),
        "exact": (least, most),
    }
    return (without_shape[asked.kind],) * 2


def _times(least: float, most: float) -> tuple[Band, Band]:
    """Of a factor above or below 1: its direction counts before its size."""
    if most < 1:
        (low, high), _ = _times(1 / most, 1 / least)
        return (1 / high, 1 / low), (-inf, most**LEAST_EFFECT)
    direction = least**LEAST_EFFECT
    return (max(least / FIGURE, direction), most * FIGURE), (direction, inf)


def ends(found: Measured) -> Band | None:
    """Between which a figure lies by its interval and its A/A; ``None`` where it was measured once."""
    if found.floor is None and found.low is None and found.high is None:
        return None
    floor = max(1.0, found.floor or 1.0)
    every = (found.value, found.value * floor, found.value / floor, found.low, found.high)
    known = [end for end in every if end is not None]
    return min(known), max(known)


def stretch(part: Part) -> Band:
    """In which the true figure may lie."""
    found, load = part.measured, part.asked.load
    known = ends(found)
    if known is None:
        return -inf, inf
    low, high = known
    if found.contended and load in ("up", "both"):
        low = -inf
    if found.contended and load in ("down", "both"):
        high = inf
    return low, high


def _grade(part: Part) -> Grade:
    verdict = _verdict(part)
    return Grade(verdict, _reason(part) if verdict == UNTOLD else "")


def _verdict(part: Part) -> Verdict:
    low, high = stretch(part)
    holds, shape = allowed(part.asked)
    finest = _FINEST.get(part.asked.kind, (inf, inf))
    floor = part.measured.floor or 1.0
    if floor <= finest[0] and holds[0] <= low and high <= holds[1]:
        return "holds"
    if floor <= finest[1] and shape[0] <= low and high <= shape[1]:
        return "in shape"
    blurred = part.measured.contended and part.asked.load == "blurs"
    return "does not hold" if (high < shape[0] or low > shape[1]) and not blurred else UNTOLD


def _reason(part: Part) -> str:
    """Which of the noises it is: the first without which there would be a verdict."""
    found = part.measured
    what = f"{part.asked.what}: " if part.asked.what else ""
    if found.floor is None and found.low is None:
        return _after(what, ONCE)
    if found.contended and _verdict(_quieter(part, contended=False)) != UNTOLD:
        return _after(what, OTHERS)
    if found.floor is not None and _verdict(_quieter(part, contended=False, floor=1.0)) != UNTOLD:
        return _after(what, f"Two runs of the same thing differ by {times(found.floor)}.")
    return _after(what, _both_sides(part.asked, stretch(_quieter(part, contended=False))))


def _both_sides(asked: Asked, found: Band) -> str:
    (low, high), (holds, shape) = found, allowed(asked)
    between = f"It lies between {number(low)} and {number(high)}"
    if high < holds[0] and low < shape[0]:
        return f"{between}: it does not hold, and may be in shape, which begins at {number(shape[0])}."
    if low > holds[1] and high > shape[1]:
        return f"{between}: it does not hold, and may be in shape, which ends at {number(shape[1])}."
    return f"{between}, on both sides of what is asked."


def _after(what: str, told: str) -> str:
    return f"{what}{told[0].lower()}{told[1:]}" if what else told


def _quieter(part: Part, **changed: float | bool) -> Part:
    return replace(part, measured=replace(part.measured, **changed))  # type: ignore[arg-type]


def tolerance(asked: Sequence[Asked]) -> str:
    """What is asked, in words: the same for claims of one kind."""
    return "; ".join(dict.fromkeys(_tolerance(each) for each in asked))


def _tolerance(asked: Asked) -> str:
    unit = "×" if asked.kind == "times" else ""
    figure = " to ".join(number(each) + unit for each in dict.fromkeys(asked.documented)) or "1"
    if asked.kind == "at most":
        figure = f" × {figure}" if asked.documented else "×"
    return f"{asked.what}: {TOLERANCES[asked.kind]}".removeprefix(": ").format(figure)
