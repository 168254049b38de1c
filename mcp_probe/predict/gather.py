"""Awaits of a call that come one after the other, put side by side, as a task group would."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise

from mcp_probe.predict.workload import ANSWER, DELAY, HOLD, JOB, SIGNAL, SIGNALLED, SPAWN, Act, Call, Step, Unit

_ALIKE = frozenset({"http", "db", "sleep", "subprocess", "thread", "task", "other"})
"""Kinds of awaits that need not follow each other."""

_LEADS = ("connection-pool ", "connect ")
"""What comes before the await of a backend, and belongs to it."""


def gathered(call: Call) -> Call:
    """``call`` with its most costly row of alike awaits side by side; as it is, where it has none."""
    if not call.units:
        return call
    unit = call.units[0]
    places = _places(unit, call)
    if len(places) < 2:
        return call
    start, chunks, rest = _cut(unit, places)
    if not chunks:
        return call
    signals = max((s.arg for u in call.units for s in u if s.after == SIGNALLED), default=0)
    signals = max([signals, *(n for u in call.units for s in u for what, n in (*s.begins, *s.ends) if what == SIGNAL)])
    units: list[Unit] = list(call.units)
    spawns: list[Act] = []
    joins: list[Step] = []
    for chunk in chunks:
        signals += 1
        spawns.append((SPAWN, len(units)))
        last = chunk[-1]
        units.append((*chunk[:-1], last._replace(ends=(*last.ends, (SIGNAL, signals)))))
        joins.append(Step(SIGNALLED, signals, 0))
    before = list(unit[:start])
    if before:
        before[-1] = before[-1]._replace(ends=(*before[-1].ends, *spawns))
    else:
        before = [Step(DELAY, 0, 0, ends=tuple(spawns))]
    units[0] = (*before, *joins, *rest)
    return replace(call, units=tuple(units))


def _places(unit: Unit, call: Call) -> list[int]:
    """Of the alike awaits that take most time in all: the steps that follow one."""
    cost: Counter[str] = Counter()
    where: dict[str, list[int]] = {}
    for index, step in enumerate(unit):
        name = f"job {call.jobs[step.arg].pool}" if step.after == JOB else step.about
        kind = name.split(" ", 1)[0]
        name = kind if kind == "sleep" else name  # which line sleeps is known of the long ones only
        if step.after == JOB:
            job = call.jobs[step.arg]
            took = job.outside_ns + job.free_ns + job.cpu_ns
        elif step.after == DELAY and kind in _ALIKE and (kind != "http" or " first-byte " in name):
            took = step.arg
        else:
            continue
        cost[name] += took
        where.setdefault(name, []).append(index)
    alike = [name for name in cost if len(where[name]) > 1]
    return where[max(alike, key=lambda name: cost[name])] if alike else []


def _cut(unit: Unit, places: list[int]) -> tuple[int, list[Unit], Unit]:
    """(where the first begins, the steps of each, the steps after them)."""
    stride = min(b - a for a, b in pairwise(places))
    lead = 0
    while lead < stride - 1 and places[0] - lead - 1 > 0 and _leads(unit[places[0] - lead - 1], unit[places[0] - lead]):
        lead += 1
    starts = [at - lead for at in places]
    end = min(len(unit), starts[-1] + stride)
    while end > places[-1] + 1 and any(what == ANSWER for step in unit[starts[-1] : end] for what, _ in step.ends):
        end -= 1
    bounds = [*starts, end]
    chunks = [unit[a:b] for a, b in pairwise(bounds)]
    last, rest = chunks[-1][-1], unit[end:]
    if any(what == ANSWER for what, _ in last.ends):  # what comes after the last await is not awaited beside the others
        chunks[-1] = (*chunks[-1][:-1], last._replace(run_ns=0, ends=()))
        rest = (last._replace(after=DELAY, arg=0, begins=(), about=""), *rest)
    if starts[0] < 0 or any(what == ANSWER for chunk in chunks for step in chunk for what, _ in step.ends):
        return 0, [], ()
    return starts[0], chunks, rest


def _leads(step: Step, following: Step) -> bool:
    return step.about.startswith(_LEADS) or step.after == HOLD or following.after == JOB
