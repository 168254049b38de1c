"""What a load is made of: which calls in which proportion, at what rate, for how long; from a TOML file or options.

rate = 50                 # requests a second
arrivals = "poisson"      # or "constant"
seconds = 20              # or count = 1000
warm_up = 2               # seconds before that are not counted

[[call]]
tool = "price"            # or prompt, resource, method
weight = 3                # of 4: three quarters of the requests
arguments = [{ item = "tea" }, { item = "cake" }]   # one after the other; or one table

[[call]]
tool = "stock"
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from math import isfinite
from pathlib import Path
from typing import Any, Literal

from mcp_probe.errors import MissingExtraError, OptionError
from mcp_probe.workloads.load.wire import Order

Arrivals = Literal["constant", "poisson"]
ARRIVALS: tuple[Arrivals, ...] = ("constant", "poisson")

FASTEST = 100_000.0
LONGEST_S = 86_400.0
MOST = 1_000_000_000
"""Requests of one load: a day at 10,000 a second and more."""

_KINDS = {"tool": "tools/call", "prompt": "prompts/get", "resource": "resources/read"}


@dataclass(frozen=True, slots=True)
class Call:
    """One kind of request in a mix; ``variants`` are sent one after the other, over and over."""

    method: str
    variants: tuple[Mapping[str, Any], ...]  # parameters of the request
    weight: float = 1.0

    @property
    def operation(self) -> str:
        """The tool's, prompt's or resource's name, else the method."""
        return self.order(0).operation

    def order(self, turn: int) -> Order:
        """The request of its ``turn``-th time."""
        return Order(self.method, self.variants[turn % len(self.variants)])


@dataclass(frozen=True, slots=True)
class Mix:
    """A load, complete: two runs of equal mixes send the same requests at the same intended instants."""

    calls: tuple[Call, ...]
    rate: float = 20.0  # requests a second, on average
    arrivals: Arrivals = "constant"
    seconds: float | None = 10.0  # None: ``count`` says when it ends
    count: int | None = None
    warm_up: float = 1.0  # seconds at the same rate that are not counted
    drain: float = 5.0  # seconds that answers may still take after the last request was due
    in_flight: int = 1  # of the closed loop beside it; 0 = none
    seed: int = 1

    def __post_init__(self) -> None:
        _in_range("rate", self.rate, 0, FASTEST, "requests a second", open_below=True)
        if self.arrivals not in ARRIVALS:
            raise OptionError(f"arrivals is {self.arrivals!r}; expected one of {', '.join(ARRIVALS)}.")
        if (self.seconds is None) == (self.count is None):
            raise OptionError("A load ends after seconds or after count; give exactly one of the two.")
        if self.seconds is not None:
            _in_range("seconds", self.seconds, 0, LONGEST_S, "seconds", open_below=True)
        if self.count is not None and not 1 <= self.count <= MOST:
            raise OptionError(f"count is {self.count}; expected a whole number from 1 to {MOST:,}.")
        _in_range("warm_up", self.warm_up, 0, LONGEST_S, "seconds")
        _in_range("drain", self.drain, 0, LONGEST_S, "seconds")
        if not 0 <= self.in_flight <= 10_000:
            raise OptionError(f"in_flight is {self.in_flight}; expected 0 (no closed loop) to 10000.")
        if self.rate * self.window_s > MOST:
            raise OptionError(
                f"{self.rate:g}/s for {self.window_s:g} s are more than {MOST:,} requests; ask for fewer."
            )

    @property
    def window_s(self) -> float:
        """How long requests are due, on average, without warm-up and drain."""
        return self.seconds if self.seconds is not None else (self.count or 0) / self.rate

    def schedule(self) -> Iterator[tuple[int, int]]:
        """(nanoseconds after the start, index of the call) of each request to be counted; always the same."""
        return self._due(random.Random(self.seed), self.seconds, self.count)

    def warming(self) -> Iterator[tuple[int, int]]:
        """The same for the warm-up."""
        return self._due(random.Random(self.seed + 1), self.warm_up, None) if self.warm_up else iter(())

    def _due(self, chance: random.Random, seconds: float | None, count: int | None) -> Iterator[tuple[int, int]]:
        weights = [call.weight for call in self.calls]
        choices, number, at = range(len(self.calls)), 0, 0.0
        while count is None or number < count:
            # The first gap is drawn, too: a Poisson process has no event at its start.
            at = at + chance.expovariate(self.rate) if self.arrivals == "poisson" else number / self.rate
            if seconds is not None and at >= seconds:
                return
            yield round(at * 1e9), chance.choices(choices, weights)[0]
            number += 1


def _in_range(name: str, value: float, low: float, high: float, unit: str, *, open_below: bool = False) -> None:
    if not isfinite(value) or not low <= value <= high or (open_below and value == low):
        above = f"more than {low:g}" if open_below else f"at least {low:g}"
        raise OptionError(f"{name} is {value:g}; expected {above} and at most {high:g} {unit}.")


# --- from options ---------------------------------------------------------------------------------


def tool_call(tool: str, arguments: str | None) -> Call:
    """The one call of ``--tool NAME --arguments JSON``.

    Raises: OptionError when the arguments are no JSON object.
    """
    given = json_object("--arguments", arguments or "{}", """an object such as '{"item": "tea"}'""")
    return Call("tools/call", ({"name": tool, "arguments": given},))


def json_object(option: str, text: str, expected: str) -> dict[str, Any]:
    """What an option was given as JSON. Raises: OptionError where it is none, or no object."""
    try:
        given = json.loads(text)
    except ValueError as exc:
        raise OptionError(f"{option} is no JSON: {exc}; expected {expected}.") from None
    if not isinstance(given, dict):
        raise OptionError(f"{option} is {given!r}; expected {expected}.")
    return given


def changed(mix: Mix, **given: Any) -> Mix:
    """``mix`` with what was given on the command line instead; ``None`` = not given."""
    kept = {name: value for name, value in given.items() if value is not None}
    if "count" in kept:
        kept.setdefault("seconds", None)
    elif "seconds" in kept:
        kept["count"] = None
    return replace(mix, **kept)


# --- from a file ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MixFile:
    """A mix, and the server that the file names, if it does."""

    mix: Mix
    server: str = ""
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)


_SETTINGS = {part.name: part for part in fields(Mix) if part.name != "calls"}
_TOP = {*_SETTINGS, "call", "server", "url", "headers"}
_CALL = {*_KINDS, "method", "params", "arguments", "weight"}


def read_mix(path: Path) -> MixFile:
    """The mix in a TOML file.

    Raises:
        OptionError: it cannot be read, is no TOML, or says something this version does not know.
        MissingExtraError: on Python 3.10, the ``tomli`` package is missing.
    """
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        try:
            import tomli as tomllib  # type: ignore[import-not-found, unused-ignore]
        except ImportError:
            raise MissingExtraError(
                'Mix files need the tomli package on Python 3.10: pip install "mcp-probe-profiler[bench]".'
            ) from None
    try:
        content = tomllib.loads(path.read_text("utf-8"))
    except OSError as exc:
        raise OptionError(f"Cannot read the mix {path}: {exc.strerror}.") from exc
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
        raise OptionError(f"The mix {path} is no TOML: {exc}.") from None
    try:
        return _mix_of(content)
    except OptionError as exc:
        raise OptionError(f"The mix {path}: {exc}") from None


def _mix_of(content: Mapping[str, Any]) -> MixFile:
    _known(content, _TOP, "at its top")
    calls = content.get("call")
    if not isinstance(calls, list) or not calls or not all(isinstance(call, dict) for call in calls):
        raise OptionError("it has no [[call]]; expected at least one, with a tool, prompt, resource or method.")
    settings = {name: _number(name, content[name]) for name in _SETTINGS if name in content}
    if "count" in settings:
        settings.setdefault("seconds", None)
    headers = content.get("headers", {})
    if not isinstance(headers, dict) or not all(isinstance(value, str) for value in headers.values()):
        raise OptionError("its headers are no table of texts.")
    mix = Mix(calls=tuple(_call_of(number, call) for number, call in enumerate(calls, 1)), **settings)
    return MixFile(mix, _text(content, "server"), _text(content, "url"), headers)


def _number(name: str, value: Any) -> Any:
    if name == "arrivals":
        return value
    whole = name in ("count", "in_flight", "seed")
    if type(value) is not int and (whole or type(value) is not float):
        raise OptionError(f"{name} is {value!r}; expected a {'whole ' if whole else ''}number.")
    return value


def _text(content: Mapping[str, Any], name: str) -> str:
    value = content.get(name, "")
    if not isinstance(value, str):
        raise OptionError(f"{name} is {value!r}; expected a text.")
    return value


def _known(table: Mapping[str, Any], names: set[str], where: str) -> None:
    if unknown := sorted(set(table) - names):
        raise OptionError(f"{where} it says {', '.join(unknown)}; known there: {', '.join(sorted(names))}.")


def _call_of(number: int, call: Mapping[str, Any]) -> Call:
    where = f"[[call]] {number}"
    _known(call, _CALL, f"in {where}")
    kinds = [kind for kind in (*_KINDS, "method") if kind in call]
    if len(kinds) != 1 or not isinstance(call[kinds[0]], str):
        raise OptionError(
            f"{where} names {' and '.join(kinds) or 'nothing'}; expected one tool, prompt, resource or method."
        )
    kind, name = kinds[0], call[kinds[0]]
    weight = call.get("weight", 1.0)
    if isinstance(weight, bool) or not isinstance(weight, (int, float)) or not isfinite(weight) or weight <= 0:
        raise OptionError(f"{where} has weight {weight!r}; expected a number above 0.")
    given = call.get("params" if kind == "method" else "arguments", {})
    variants = given if isinstance(given, list) and given else [given]
    if not all(isinstance(variant, dict) for variant in variants):
        raise OptionError(f"{where} has arguments {given!r}; expected a table, or a list of tables.")
    if kind == "method":
        return Call(name, tuple(variants), float(weight))
    if kind == "resource":
        return Call(_KINDS[kind], ({"uri": name},), float(weight))
    return Call(_KINDS[kind], tuple({"name": name, "arguments": variant} for variant in variants), float(weight))


def named(calls: Sequence[Call], kind: str) -> list[str]:
    """The tools, prompts or resources (``kind`` as in a mix file) that the calls name."""
    return [call.operation for call in calls if call.method == _KINDS[kind]]
