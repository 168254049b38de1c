"""What is more than noise: every row's difference against its error, with false-discovery control over all of them.

If nothing differs, some row is called a difference in at most 5 % of comparisons; else at most 5 % of those called so
are none, on average. Errors are estimates themselves, so a little more is asked for (``LEVEL``): simulations with few
blocks called 7 % at a level of 5 %.

Source: Y. Benjamini, Y. Hochberg (1995), Journal of the Royal Statistical Society B 57, 289; C. R. Genovese, K. Roeder,
L. Wasserman (2006), Biometrika 93, 509 (weights).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import exp, inf, log
from statistics import fmean, variance

from mcp_probe.aggregate.gate import identity_of
from mcp_probe.compare.bootstrap import libraries
from mcp_probe.compare.shapes import Comparison, Difference, Figure, Judgement, Key, Reading, Turn
from mcp_probe.model import Finding

LEVEL = 0.03
POWER = 0.8
MEAN_COUNTS = 4
"""Times as much as another row: whatever moves a tool's time moves its mean. It finds 10 % in 91 of 100 comparisons of
four tools, and 87 if all rows count alike."""
LEAST = 0.01
"""A smaller change is no difference, however sure: two runs of one server on one machine differ by more."""

_IGNORED = ("date", "load_average_1min")


@dataclass(frozen=True, slots=True)
class _Gap:
    """The difference of one row on its own scale, and how much it varies."""

    value: float
    error: float | None
    freedom: float
    floor: float | None


def compared(before: Sequence[Reading], after: Sequence[Reading]) -> Comparison:
    """Everything that both sides have, in the order of the second. Raises: MissingExtraError, without scipy."""
    old, new = _figures(before), _figures(after)
    keys = [*new, *(key for key in old if key not in new)]
    contended = tuple(reading.contended for reading in (*before, *after) if reading.contended)
    rows = [_row(key, old.get(key, []), new.get(key, []), bool(contended)) for key in keys]
    went, came = _only(before, after), _only(after, before)
    return Comparison(
        kind=after[0].kind,
        before=tuple(reading.name for reading in before),
        after=tuple(reading.name for reading in after),
        rows=tuple(_judged(rows)),
        came=came,
        went=went,
        turns=tuple(_turns(before[-1], after[-1])),
        not_the_same=tuple(_not_the_same(before[-1], after[-1])),
        contended=contended,
        notes=tuple(_notes(before, after)),
    )


def _figures(side: Sequence[Reading]) -> dict[Key, list[Figure]]:
    found: dict[Key, list[Figure]] = {}
    for reading in side:
        for key, figure in reading.figures.items():
            found.setdefault(key, []).append(figure)
    return found


def _is_nothing(figures: list[Figure]) -> bool:
    """A part that is less than the smallest difference on both sides."""
    return all(figure.is_part and abs(figure.value) <= LEAST * figure.whole for figure in figures)


def _row(key: Key, old: list[Figure], new: list[Figure], contended: bool) -> Difference:
    """One row as far as it can be told by itself; ``more than noise`` is decided with the others."""
    shown = (new or old)[0]
    is_part = shown.is_part
    before, after = _value(old, is_part), _value(new, is_part)
    row = Difference(key, shown.unit, is_part, before, after, "noise unknown")
    if before is None or after is None:
        return replace(row, judgement="only after" if before is None else "only before")
    row = replace(row, is_nothing=_is_nothing([*old, *new]))
    contended = (contended and shown.is_of_host) or any(figure.contended for figure in (*old, *new))
    gap = _gap(old, new)
    if gap is None:
        return replace(row, contended=contended)
    few = any(figure.too_few for figure in (*old, *new))
    change = gap.value if is_part else exp(gap.value)
    row = replace(row, change=change, contended=contended, floor=gap.floor, freedom=gap.freedom)
    if gap.error is not None:
        _, stats = libraries()
        reach = float(stats.t.ppf(0.975, gap.freedom)) * gap.error
        low, high = gap.value - reach, gap.value + reach
        low, high = (low, high) if is_part else (exp(low), exp(high))
        chance = 2 * float(stats.t.sf(abs(gap.value) / gap.error, gap.freedom)) if gap.error else float(gap.value == 0)
        if abs(gap.value) < _least(old, new, is_part):
            chance = 1.0
        row = replace(row, low=low, high=high, chance=chance, log_error=gap.error)
        if row.is_nothing:
            row = replace(row, chance=None, judgement="contended" if contended else "within noise")
    elif few:
        row = replace(row, judgement="too few calls")
    return row


def _value(side: list[Figure], is_part: bool) -> float | None:
    if not side:
        return None
    values = [figure.value for figure in side]
    return fmean(values) if is_part or min(values) <= 0 else exp(fmean(map(log, values)))


def _least(old: list[Figure], new: list[Figure], is_part: bool) -> float:
    if is_part:
        return LEAST * max((figure.whole for figure in (*old, *new)), default=0.0)
    return log(1 + LEAST)


def _gap(old: list[Figure], new: list[Figure]) -> _Gap | None:
    """The larger of what varies within files and between the files of a side decides; ``None``: no such difference."""
    is_part = new[0].is_part
    sides = [[figure.value for figure in side] for side in (old, new)]
    if not is_part:
        if min(map(min, sides)) <= 0:
            return None
        sides = [[log(value) for value in side] for side in sides]
    value = fmean(sides[1]) - fmean(sides[0])
    within = _within(old, new)
    between = _between(sides)
    floor = max((figure.floor for figure in (*old, *new) if figure.floor is not None), default=None)
    known = [each for each in (within, between) if each is not None]
    error, freedom = max(known, default=(None, 0.0))
    return _Gap(value, error, freedom, floor)


def _within(old: list[Figure], new: list[Figure]) -> tuple[float, float] | None:
    """(error, degrees of freedom) by Welch and Satterthwaite; ``None`` where some file does not know its own."""
    total = below = 0.0
    for side in (old, new):
        for figure in side:
            if figure.error is None:
                return None
            each = (figure.error / len(side)) ** 2
            total += each
            below += each**2 / max(figure.freedom, 1.0)
    return (total**0.5, total**2 / below) if below > 0 else (0.0, inf)


def _between(sides: list[list[float]]) -> tuple[float, float] | None:
    freedom = sum(len(side) - 1 for side in sides)
    if freedom < 1 or min(map(len, sides)) < 2:
        return None
    pooled = sum(variance(side) * (len(side) - 1) for side in sides) / freedom
    return (pooled * sum(1 / len(side) for side in sides)) ** 0.5, float(freedom)


def _judged(rows: list[Difference]) -> list[Difference]:
    tested = [(row, row.chance) for row in rows if row.chance is not None]
    whole = sum(_counts(row) for row, _ in tested)
    chances: dict[Key, float] = {}
    if tested:
        _, stats = libraries()
        asked = [min(1.0, chance * whole / len(tested) / _counts(row)) for row, chance in tested]
        adjusted = stats.false_discovery_control(asked)
        chances = {row.key: float(chance) for (row, _), chance in zip(tested, adjusted, strict=True)}
    return [_one(row, chances.get(row.key), _counts(row) / max(1, whole)) for row in rows]


def _counts(row: Difference) -> int:
    return MEAN_COUNTS if row.measure == "mean" else 1


def _one(row: Difference, chance: float | None, share: float) -> Difference:
    """``share``: of the false alarms that are allowed to all rows, this one's."""
    if row.change is None or (chance is None and row.floor is None):
        return row
    beyond = row.floor is None or (row.change > 0 and max(row.change, 1 / row.change) > row.floor)
    is_more = beyond and (chance is None or chance <= LEVEL)
    judgement: Judgement = "more than noise" if is_more else "within noise"
    if row.contended:
        judgement = "contended"
    return replace(row, chance=chance, judgement=judgement, visible=_visible(row, share))


def _visible(row: Difference, share: float) -> float | None:
    """As a factor less 1, or in the unit of a part."""
    if row.log_error is None:
        return None
    _, stats = libraries()
    reach = float(stats.t.isf(LEVEL * share / 2, row.freedom) + stats.t.ppf(POWER, row.freedom)) * row.log_error
    return reach if row.is_part else exp(min(reach, 50.0)) - 1


# --- beside the rows ------------------------------------------------------------------------------------


def _only(here: Sequence[Reading], there: Sequence[Reading]) -> tuple[Finding, ...]:
    """Findings of every file here that no file there has."""
    known = {identity_of(finding) for reading in there for finding in reading.findings}
    always = set.intersection(*({identity_of(finding) for finding in reading.findings} for reading in here))
    found = {identity_of(finding): finding for reading in here for finding in reading.findings}
    return tuple(finding for identity, finding in found.items() if identity in always - known)


def _turns(before: Reading, after: Reading) -> list[Turn]:
    return [
        Turn(claim, sentence, before.claims[claim][1], verdict)
        for claim, (sentence, verdict) in after.claims.items()
        if claim in before.claims and before.claims[claim][1] != verdict
    ]


def _not_the_same(before: Reading, after: Reading) -> list[str]:
    old, new = before.settings, after.settings
    names = [name for name in {**old, **new} if name not in _IGNORED and old.get(name) != new.get(name)]
    return [f"{name} {old.get(name) or 'none'} → {new.get(name) or 'none'}" for name in names]


def _notes(before: Sequence[Reading], after: Sequence[Reading]) -> list[str]:
    notes = [f"{reading.name}: {note}" for reading in (*before, *after) for note in reading.notes]
    if after[0].kind != "bench" and min(len(before), len(after)) < 2:
        notes.append(
            "With one file a side, only what varies within a run is known. Two runs of the same server may differ by "
            "more: give several files a side (--before FILE ... --after FILE ...)."
        )
    return notes
