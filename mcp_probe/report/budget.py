"""The request budget as a reader sees it: ten parts with a letter and a role, and how large each one is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import isfinite

from mcp_probe.model import OperationSummary, Quality, Tag
from mcp_probe.report.blocks import Role
from mcp_probe.report.figures import EXACT

_WORST_LAST: tuple[Tag, ...] = ("exact", "bounded", "lower", "upper", "estimate")


@dataclass(frozen=True, slots=True)
class Part:
    """One part of the bar. Its letter is a capital for work, small for waiting."""

    name: str
    fields: tuple[str, ...]  # of BudgetMeans
    letter: str
    role: Role
    meaning: str


PARTS = (
    Part("queue", ("queue_transport", "queue_dispatch"), "q", "part-queue", "not started yet"),
    Part("busy", ("busy",), "B", "part-busy", "on the event loop"),
    Part("ready", ("ready_wait",), "r", "part-ready", "could run, waits for its turn"),
    Part("exec wait", ("executor_wait",), "e", "part-wait", "for a thread"),
    Part("exec run", ("executor_run",), "X", "part-run", "in a thread, at work or waiting there"),
    Part("exec return", ("executor_return",), "t", "part-return", "thread done, call not yet resumed"),
    Part("await", ("awaiting",), ".", "part-await", "for something else, or outside"),
    Part("write", ("write_wait", "write_flush"), "w", "part-write", "answer ready, not yet written"),
    Part("gc", ("gc",), "G", "part-gc", "garbage collector"),
    Part("unaccounted", ("unaccounted",), "?", "part-rest", "not seen"),
)


@dataclass(frozen=True, slots=True)
class Slice:
    """One part of one operation: mean ms per request, ``None`` = unavailable. ``quality`` bounds the ms.

    ``name`` is the part's own, or that of the one field of it that could be seen.
    """

    part: Part
    ms: float | None
    quality: Quality
    name: str


def slices_of(operation: OperationSummary) -> tuple[Slice, ...]:
    return tuple(_slice(operation, part) for part in PARTS)


def whole_ms(slices: tuple[Slice, ...]) -> float:
    """Mean time of one request as far as its parts are known."""
    return sum(piece.ms for piece in slices if piece.ms is not None)


def total_ms(operation: OperationSummary) -> float:
    """Time of all its requests together; where no part is known, the median stands in for the mean."""
    known = whole_ms(slices_of(operation))
    if not known and operation.total_ms.p50 is not None and isfinite(operation.total_ms.p50):
        known = operation.total_ms.p50
    return known * operation.count


def known_ms(operation: OperationSummary, name: str) -> float | None:
    """The field ``name`` of its budget; ``None`` where it was not seen, or only said to be unavailable."""
    value: float | None = getattr(operation.budget_ms, name)
    if value is None or not isfinite(value) or operation.quality.get(name, EXACT).tag == "unavailable":
        return None
    return max(value, 0.0)


def _slice(operation: OperationSummary, part: Part) -> Slice:
    values = {name: known_ms(operation, name) for name in part.fields}
    seen = [(value, operation.quality.get(name, EXACT)) for name, value in values.items() if value is not None]
    if not seen:
        return Slice(part, None, Quality("unavailable"), part.name)
    name = part.name if len(seen) == len(part.fields) else " ".join(_seen_names(values))
    return Slice(part, sum(value for value, _ in seen), _joined(seen), name)


def _seen_names(values: dict[str, float | None]) -> Iterator[str]:
    """The whole part would be more: what could not be seen is no part of the request's time either."""
    return (name.replace("_", " ") for name, value in values.items() if value is not None)


def _joined(seen: list[tuple[float, Quality]]) -> Quality:
    """The quality of a sum: its worst tag; bounds add up where each addend has them or is exact."""
    if len(seen) == 1:
        return seen[0][1]
    tag = max((quality.tag for _, quality in seen), key=_WORST_LAST.index)
    if tag == "exact":
        return EXACT
    lows = [quality.lo if quality.lo is not None else value for value, quality in seen if _has(quality, quality.lo)]
    highs = [quality.hi if quality.hi is not None else value for value, quality in seen if _has(quality, quality.hi)]
    whole = len(seen)
    return Quality(tag, sum(lows) if len(lows) == whole else None, sum(highs) if len(highs) == whole else None)


def _has(quality: Quality, bound: float | None) -> bool:
    return bound is not None or quality.tag == "exact"
