"""The marker ``mcp_budget``: what calls of a test may cost, checked after the test has passed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any

from mcp_probe.aggregate import phrasing
from mcp_probe.aggregate.fail_on import UNITS, Dimension, parse_fail_on
from mcp_probe.aggregate.gate import judge
from mcp_probe.errors import OptionError, ProbeError
from mcp_probe.report import figures
from mcp_probe.testing.errors import NotMeasuredError
from mcp_probe.testing.locks import LockedAwait, short_place
from mcp_probe.testing.profile import LOOKED_INTO_MS, Profile

Value = Any
Check = Callable[[Profile, Value, "str | None"], Iterator[str]]


def _retained(profile: Profile, most: float, operation: str | None) -> Iterator[str]:
    kept = profile.retained_bytes(operation)
    if kept > most:
        yield (
            f"{_who(operation)} keep {figures.size(kept)} a call (mean of all but each first call, after a full "
            f"collection); the budget is {figures.size(most)}."
        )


def _step_cpu(profile: Profile, most: float, operation: str | None) -> Iterator[str]:
    step = profile.longest_step_cpu(operation)
    if step.ms > most:
        at = "" if step.where is None else f" at {short_place(step.where)}"
        yield (
            f"`{step.operation}` computed for {figures.duration(step.ms)} in one step on the event loop{at}; "
            f"the budget is {figures.duration(most)}."
        )


def _connections(profile: Profile, most: float, operation: str | None) -> Iterator[str]:
    opened = profile.connections_opened(operation)
    if opened > most:
        calls = phrasing.plural(profile.calls(operation), "call")
        yield f"{phrasing.plural(opened, 'connection')} were opened by {calls}; the budget is {most:g}."


def _tasks(profile: Profile, most: float, operation: str | None) -> Iterator[str]:
    tasks = profile.tasks_at_once(operation)
    if tasks > most:
        yield f"One call had {phrasing.plural(tasks, 'task')} at once; the budget is {most:g}."


def _under_lock(profile: Profile, most: float, operation: str | None) -> Iterator[str]:
    found = profile.awaits_under_lock(operation)
    if len(found) > most:
        told = [str(one) for one in _together(found)]
        more = f" (and {len(told) - 3} more)" if len(told) > 3 else ""
        times = phrasing.plural(len(found), "time")
        yield f"{'; '.join(told[:3])}{more}: {times} in all; the budget is {most:g}."


def _together(found: list[LockedAwait]) -> Iterator[LockedAwait]:
    """One of each place, with all that was awaited there."""
    places = dict.fromkeys((one.operation, one.lock, one.where) for one in found)
    for place in places:
        here = [one for one in found if (one.operation, one.lock, one.where) == place]
        yield replace(here[0], awaited=tuple(dict.fromkeys(name for one in here for name in one.awaited)))


def _findings(profile: Profile, rules: str, operation: str | None) -> Iterator[str]:
    wanted = parse_fail_on(rules)
    for rule in wanted:
        if rule.code is not None:
            profile.findings(rule.code)  # raises where it could not be judged
    judgement = judge([profile.judged()], wanted)
    yield from judgement.problems
    for one in judgement.failing:
        if operation is None or one.subject == operation:
            yield f"{one.code}: {one.sentence}"


@dataclass(frozen=True, slots=True)
class Key:
    """One key of the marker."""

    dimension: Dimension | None  # None: text
    example: str
    check: Check
    least: float = 0.0


KEYS: Mapping[str, Key] = {
    "retained": Key("size", '"1kB"', _retained),
    "step_cpu": Key("time", '"20ms"', _step_cpu, LOOKED_INTO_MS),
    "max_connections": Key("number", "2", _connections),
    "max_tasks": Key("number", "8", _tasks),
    "max_awaits_under_lock": Key("number", "0", _under_lock),
    "findings": Key(None, '"blocking-call,memory-peak>10MB"', _findings),
}
"""What can be limited. The key ``operation`` says whose calls all of it is about."""

_NUMBER = re.compile(r"\s*(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>[A-Za-z%]*)\s*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Budget:
    """A marker that was understood."""

    limits: tuple[tuple[str, Value], ...]
    operation: str | None

    @property
    def needs_hunt(self) -> bool:
        """A server of its own process has to be profiled with ``memory="leaks"``."""
        return any(name == "retained" for name, _ in self.limits)

    def problems(self, profile: Profile) -> list[str]:
        """Sentences: each limit that is not kept, or of which nobody knows."""
        found: list[str] = []
        for name, limit in self.limits:
            try:
                found += [f"{name}: {sentence}" for sentence in KEYS[name].check(profile, limit, self.operation)]
            except NotMeasuredError as exc:
                found.append(f"{name} is not known: {exc}")
            except ProbeError as exc:
                found.append(f"{name}: {exc}")
        return found


def parse_budget(args: tuple[Any, ...], given: Mapping[str, Any]) -> Budget:
    """What the marker says. Raises: OptionError for what it does not understand."""
    known = [*KEYS, "operation"]
    if args:
        raise OptionError(f"mcp_budget was given {args[0]!r} without a name. Name it: mcp_budget({_example()}).")
    for name in given:
        if name not in known:
            near = get_close_matches(name, known, n=1, cutoff=0.5)
            hint = f" Did you mean {near[0]}?" if near else ""
            raise OptionError(f"mcp_budget has no key {name!r}.{hint} Known keys: {', '.join(known)}.")
    operation = given.get("operation")
    if operation is not None and not isinstance(operation, str):
        raise OptionError(f"mcp_budget: operation is {operation!r}; expected the name of one tool, prompt or method.")
    limits = tuple((name, _limit(name, value)) for name, value in given.items() if name != "operation")
    if not limits:
        raise OptionError(f"mcp_budget limits nothing. Say what: mcp_budget({_example()}).")
    return Budget(limits, operation)


def _example() -> str:
    return ", ".join(f"{name}={KEYS[name].example}" for name in ("retained", "max_connections"))


def _limit(name: str, value: Any) -> Value:
    key = KEYS[name]
    if key.dimension is None:
        if not isinstance(value, str):
            raise OptionError(f"mcp_budget: {name} is {value!r}; expected text such as {key.example}.")
        parse_fail_on(value)
        return value
    limit = _number(name, key, value)
    if limit < key.least:
        raise OptionError(f"mcp_budget: {name} is {value!r}; steps below {key.least:g} ms are not told apart.")
    return limit


def _number(name: str, key: Key, value: Any) -> float:
    assert key.dimension is not None
    units = {unit: factor for unit, factor in UNITS[key.dimension].items() if unit}
    expected = f"a number with a unit ({', '.join(units)})" if units else "a whole number"
    complaint = f"mcp_budget: {name} is {value!r}; expected {expected}, such as {name}={key.example}."
    if not units:
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise OptionError(complaint)
        return value
    found = _NUMBER.fullmatch(value) if isinstance(value, str) else None
    if found is None or found["unit"] not in units:
        raise OptionError(complaint)
    return float(found["number"]) * units[found["unit"]]


def _who(operation: str | None) -> str:
    return "Calls" if operation is None else f"Calls of `{operation}`"
