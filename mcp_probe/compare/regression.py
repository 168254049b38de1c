"""``--max-regression``: how much worse a row may be. Fails closed: what cannot be told does not pass."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import exp

from mcp_probe.aggregate.fail_on import UNITS
from mcp_probe.compare.bootstrap import libraries
from mcp_probe.compare.samples import ERRORS, QUANTILES, SIZES
from mcp_probe.compare.shapes import Comparison, Difference
from mcp_probe.errors import OptionError
from mcp_probe.model import BUDGET_PARTS

ANY = "*"
MEASURES = (*QUANTILES, "mean", ERRORS, *BUDGET_PARTS, *SIZES, "cpu")
_ITEM = re.compile(r"(?P<operation>.+)\.(?P<measure>\w+)\s*=\s*(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>[A-Za-z%]+)")


@dataclass(frozen=True, slots=True)
class Limit:
    """One item: ``most`` is a share of 1 where it ``is_share``, else in ms or bytes."""

    text: str
    operation: str
    measure: str
    most: float
    is_share: bool


@dataclass(frozen=True, slots=True)
class Checked:
    """What became of the limits: sentences. ``failing`` and ``unknown`` fail; ``remarks`` change nothing."""

    failing: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()

    @property
    def passes(self) -> bool:
        """Every limit was shown to be kept."""
        return not self.failing and not self.unknown


def parse_limits(text: str) -> tuple[Limit, ...]:
    """Limits of ``OPERATION.MEASURE=NUMBER UNIT``, separated by commas; the operation may be ``*``.

    Raises:
        OptionError: says what was found and what to write instead. An empty item is an error, too.
    """
    return tuple(_limit(item.strip(), text) for item in text.split(","))


def _limit(item: str, text: str) -> Limit:
    found = _ITEM.fullmatch(item)
    if found is None:
        raise OptionError(
            f"--max-regression {text!r}: {item!r} is not understood. Expected OPERATION.MEASURE=LIMIT, "
            "such as 'search.p95=10%', 'search.mean=5ms' or '*.p50=10%'."
        )
    measure, unit = found["measure"], found["unit"]
    if measure not in MEASURES:
        raise OptionError(f"{item!r}: there is no measure {measure!r}. Expected one of {', '.join(MEASURES)}.")
    if unit == "%":
        return Limit(item, found["operation"], measure, float(found["number"]) / 100, True)
    units = UNITS["size" if measure in SIZES else "time"]
    if measure == ERRORS or unit not in units:
        expected = ["%"] if measure == ERRORS else ["%", *units]
        raise OptionError(f"{item!r} has the unit {unit!r}. Expected {' or '.join(expected)}.")
    return Limit(item, found["operation"], measure, float(found["number"]) * units[unit], False)


def checked(comparison: Comparison, limits: Sequence[Limit]) -> Checked:
    """Holds each limit against the 90 % interval of its row: it is kept if the upper end is, exceeded if the lower is.

    An operation's error share is compared in percentage points. Limits of ``*`` are held against every operation that
    has enough calls on both sides, of which there must be one.
    """
    failing: list[str] = []
    unknown: list[str] = []
    remarks: list[str] = []
    for limit in limits:
        rows = [row for row in comparison.rows if row.measure == limit.measure]
        if limit.operation == ANY:
            told = [row for row in rows if _bounds(row, limit) is not None]
            left = [row.operation for row in rows if row not in told]
            if left:
                remarks.append(f"{limit.text} was not checked of {', '.join(left)}: {_why_not(rows, left[0])}.")
        else:
            told = [row for row in rows if row.operation == limit.operation]
        if not told:
            unknown.append(f"{limit.text} could not be checked: {_missing(comparison, limit)}.")
        for row in told:
            _check(row, limit, failing, unknown)
    return Checked(tuple(failing), tuple(unknown), tuple(remarks))


def _check(row: Difference, limit: Limit, failing: list[str], unknown: list[str]) -> None:
    name = f"{row.operation}.{row.measure}"
    bounds = _bounds(row, limit)
    if row.contended:
        unknown.append(f"{limit.text} could not be checked of {name}: a side was contended.")
    elif bounds is None:
        unknown.append(f"{limit.text} could not be checked of {name}: {_reason(row)}.")
    elif bounds[0] > limit.most:
        failing.append(f"{name} got worse by {_told(bounds, limit)}, and {limit.text} allows less.")
    elif bounds[1] > limit.most:
        unknown.append(
            f"{limit.text} could not be told: the change of {name} is {_told(bounds, limit)}. Record more calls."
        )


def _bounds(row: Difference, limit: Limit) -> tuple[float, float] | None:
    """The 90 % interval in the unit of the limit; ``None``: not known."""
    if row.change is None or row.log_error is None or row.before is None:
        return None
    _, stats = libraries()
    reach = float(stats.t.ppf(0.95, row.freedom)) * row.log_error
    if row.is_part:
        low, high = row.change - reach, row.change + reach
        scale = row.before if limit.is_share and row.unit != "share" else 1.0
        return (low / scale, high / scale) if scale > 0 else None
    low, high = row.change * exp(-reach), row.change * exp(reach)
    return (low - 1, high - 1) if limit.is_share else ((low - 1) * row.before, (high - 1) * row.before)


def _told(bounds: tuple[float, float], limit: Limit) -> str:
    unit, scale = ("%", 100.0) if limit.is_share else ("B", 1.0) if limit.measure in SIZES else ("ms", 1.0)
    low, high = (f"{scale * end:+.3g}" for end in bounds)
    return f"between {low} and {high} {unit}"


def _reason(row: Difference) -> str:
    if row.judgement in ("only before", "only after"):
        return f"it is there {row.judgement}"
    if row.judgement == "too few calls":
        return "there are too few calls on a side"
    return "nothing is known of its noise (compare recordings, or several files a side)"


def _why_not(rows: Sequence[Difference], operation: str) -> str:
    return next(_reason(row) for row in rows if row.operation == operation)


def _missing(comparison: Comparison, limit: Limit) -> str:
    names = dict.fromkeys(row.operation for row in comparison.rows)
    if limit.operation == ANY:
        return f"no operation has enough calls on both sides to tell its {limit.measure}"
    if limit.operation in names:
        return f"{limit.operation} has no {limit.measure} here"
    return f"there is no operation {limit.operation!r}, but {', '.join(names) or 'none at all'}"
