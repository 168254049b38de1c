"""Two results side by side: what changed, and whether that is more than noise."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import hypot
from typing import Literal

from mcp_probe.workloads.bench.shapes import Check, Results, Row, Stats

Judgement = Literal["more than noise", "within noise", "noise unknown", "only in A", "only in B"]


@dataclass(frozen=True, slots=True)
class Difference:
    """One row in both results. ``change`` is B over A; ``noise`` the factor that it must exceed to mean anything."""

    workload: str
    table: str
    label: str
    unit: str
    before: float | None
    after: float | None
    change: float | None
    noise: float | None
    judgement: Judgement
    contended: bool


@dataclass(frozen=True, slots=True)
class Turn:
    """A claim whose verdict is not the same in both."""

    claim: str
    sentence: str
    before: str
    after: str


def differences(before: Results, after: Results) -> list[Difference]:
    """Every row that either has a figure for, in the order of B, then what only A has."""
    old, new = dict(_rows(before)), dict(_rows(after))
    keys = [*new, *(key for key in old if key not in new)]
    return [_difference(key, old.get(key), new.get(key)) for key in keys]


def turns(before: Results, after: Results) -> list[Turn]:
    """The claims that both have and that came out differently."""
    old, new = _checks(before), _checks(after)
    return [
        Turn(claim, check.sentence, old[claim].verdict, check.verdict)
        for claim, check in new.items()
        if claim in old and old[claim].verdict != check.verdict
    ]


def setting_changes(before: Results, after: Results) -> list[str]:
    """What is not the same about machine, packages and size: "python 3.12.1 → 3.13.0"."""
    old, new = _flat({"size": before.size, **before.machine}), _flat({"size": after.size, **after.machine})
    ignored = ("date", "load_average_1min")
    names = [name for name in {**old, **new} if name not in ignored and old.get(name) != new.get(name)]
    return [f"{name} {old.get(name) or 'none'} → {new.get(name) or 'none'}" for name in names]


def noise_of(before: Row, after: Row) -> float | None:
    """The factor by which both may differ without meaning: the greater of the A/A floors and the 95 % intervals.

    The intervals of two independent means add in quadrature; ``None`` where neither row knows its noise.
    """
    known = [floor for row in (before, after) if (floor := row.noise_floor) is not None]
    shares = [share for row in (before, after) if (share := _half_width(row.measured)) is not None]
    if len(shares) == 2:
        known.append(1 + hypot(*shares))
    return max(known, default=None)


def _half_width(measured: Stats | float | None) -> float | None:
    """Of the 95 % interval, relative to the mean."""
    if not isinstance(measured, Stats) or measured.ci_high is None or not measured.mean:
        return None
    return abs((measured.ci_high - measured.mean) / measured.mean)


def _difference(key: tuple[str, ...], before: Row | None, after: Row | None) -> Difference:
    old = None if before is None else before.figure
    new = None if after is None else after.figure
    change = noise = None
    judgement: Judgement = "only in B" if before is None else "only in A"
    if before is not None and after is not None:
        change = new / old if old and new is not None else None
        noise = noise_of(before, after)
        if noise is None or not change or change <= 0:
            judgement = "noise unknown"
        else:
            judgement = "more than noise" if max(change, 1 / change) > noise else "within noise"
    shown = after or before
    assert shown is not None  # keys come from one of the two
    contended = any(row is not None and row.is_contended for row in (before, after))
    return Difference(key[0], key[1], key[2], shown.unit, old, new, change, noise, judgement, contended)


def _rows(results: Results) -> Iterator[tuple[tuple[str, ...], Row]]:
    for result in results.results:
        for row in result.outcome.rows:
            if row.figure is not None:
                yield (result.name, row.table, row.label, row.metric, row.unit, row.protocol), row


def _checks(results: Results) -> dict[str, Check]:
    return {check.claim: check for result in results.results for check in result.outcome.checks}


def _flat(values: dict[str, object]) -> dict[str, object]:
    """``packages`` opened up."""
    packages = values.get("packages")
    rest = {name: value for name, value in values.items() if name != "packages"}
    return {**rest, **packages} if isinstance(packages, dict) else rest
