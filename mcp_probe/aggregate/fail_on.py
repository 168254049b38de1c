"""What ``--fail-on`` asks for: severities, codes, and thresholds on the one figure that each code is judged by."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from mcp_probe.aggregate.codes import CODES, SEVERITIES, check_codes
from mcp_probe.errors import OptionError
from mcp_probe.model import Finding, Severity

Dimension = Literal["time", "size", "share", "number"]

# The first unit of each is that of a number without one; the factors lead to ms, bytes and percent.
UNITS: Mapping[Dimension, Mapping[str, float]] = MappingProxyType(
    {
        "time": {"ms": 1.0, "s": 1e3},
        "size": {"MB": 1e6, "B": 1.0, "kB": 1e3, "GB": 1e9},
        "share": {"%": 1.0},
        "number": {"": 1.0},
    }
)


@dataclass(frozen=True, slots=True)
class Figure:
    """The number of a finding that a threshold is compared with.

    ``evidence`` names where the finding has it, in ms, bytes, or as a share of 1; of several the largest counts.
    A finding that has none of them has the quotient of the two in ``mean``.
    """

    evidence: tuple[str, ...]
    dimension: Dimension
    meaning: str
    mean: tuple[str, str] | None = None


FIGURES: Mapping[str, Figure] = MappingProxyType(
    {
        "blocking-call": Figure(
            ("max_ms",), "time", "the longest step; of many short calls, the mean of one", mean=("total_ms", "count")
        ),
        "cpu-bound-step": Figure(("max_ms",), "time", "the longest step"),
        "head-of-line": Figure(("waited_p95_share",), "share", "of the tool's p95, the wait for other requests"),
        "crowding": Figure(("waited_p95_share",), "share", "of the tool's p95, the wait for its turn"),
        "busy-spin": Figure(("spun_ms",), "time", "the time that a call spins on the loop"),
        "serial-handler": Figure(("p95_ms",), "time", "p95 of the waits for the lock"),
        "pool-exhausted": Figure(("wait_p95_ms",), "time", "p95 of the waits for a connection"),
        "client-per-request": Figure(("connect_ms",), "time", "the mean time to open one connection"),
        "serial-awaits": Figure(("awaits",), "number", "similar awaits in a call, on average"),
        "slow-backend": Figure(("first_byte_p95_ms",), "time", "p95 of the first byte"),
        "unexplained-wait": Figure(("unnamed_p95_share",), "share", "of the tool's p95, what nothing named"),
        "long-wait": Figure(("p95_share", "share"), "share", "of the tool's p95, the wait; of several, of its time"),
        "cold-start": Figure(("cold_ms",), "time", "the work of the first call"),
        "cold-start-stampede": Figure(("cold_ms",), "time", "the work of the dearest first call"),
        "gc-pause": Figure(("max_pause_ms",), "time", "the longest pause"),
        "gil-contention": Figure(("busy_share",), "share", "of the loop's busy time, the wait for the GIL"),
        "host-pressure": Figure(("busy_share",), "share", "of the loop's busy time, the wait for a CPU"),
        "own-threads": Figure(("busy_share",), "share", "of the loop's busy time, the wait for a CPU"),
        "executor-saturated": Figure(("wait_p99_ms",), "time", "p99 of the waits for a thread"),
        "transport-starvation": Figure(("transport_wait_max_ms",), "time", "the transport's longest wait for a thread"),
        "abandoned-work": Figure(("longest_ms",), "time", "the longest job that nobody wanted"),
        "slow-reader": Figure(("write_flush_p95_ms",), "time", "p95 of the flush"),
        "chatty-notifications": Figure(("notifications",), "number", "notifications of a call, on average"),
        "dispatch-backlog": Figure(("in_flight_after",), "number", "requests in flight at the end of the rise"),
        "memory-growth": Figure(("bytes_per_call",), "size", "what a call keeps"),
        "memory-peak": Figure(("peak_bytes",), "size", "the largest peak of a call"),
        "large-payload": Figure(("response_bytes_max", "request_bytes_max"), "size", "the largest message"),
        "schema-lookup": Figure(("schema_lookup_ms",), "time", "the mean look-up"),
        "stdout-pollution": Figure(("bytes",), "size", "what was written to stdout"),
        "slow-error-logging": Figure(("mean_ms",), "time", "the mean time to log a traceback"),
        "unbounded-fan-out": Figure(("tasks_max",), "number", "the most tasks of a call at once"),
    }
)
"""Code -> its figure. A code that is not here has none, and takes no threshold. docs/ci.md lists them."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One item of ``--fail-on``: a severity and all above it, or a code, perhaps only beyond a threshold.

    ``more_than`` is in ms, bytes, percent or a number, as the code's figure is.
    """

    text: str
    severity: Severity | None = None
    code: str | None = None
    more_than: float | None = None

    def matches(self, finding: Finding) -> bool:
        """Whether ``finding`` is one that this asks for. A figure that is not known counts as beyond any threshold."""
        if self.severity is not None:
            return SEVERITIES.index(finding.severity) <= SEVERITIES.index(self.severity)
        if finding.code != self.code:
            return False
        figure = None if self.more_than is None else figure_of(finding)
        return self.more_than is None or figure is None or figure > self.more_than


def figure_of(finding: Finding) -> float | None:
    """The figure of ``finding`` in ms, bytes, percent or as a number; ``None`` where it is not known."""
    figure = FIGURES.get(finding.code)
    if figure is None:
        return None
    known = _known(finding, figure.evidence)
    if figure.mean is not None and not known:
        whole, parts = _known(finding, figure.mean[:1]), _known(finding, figure.mean[1:])
        known = [whole[0] / parts[0]] if whole and any(parts) else []
    return max(known) * (100.0 if figure.dimension == "share" else 1.0) if known else None


def _known(finding: Finding, names: Iterable[str]) -> list[float]:
    found = (finding.evidence.get(name) for name in names)
    return [float(value) for value in found if isinstance(value, (int, float))]


def codes_of(rules: Iterable[Rule]) -> tuple[str, ...]:
    """The codes that ``rules`` look at, in the order of docs/findings.md: all, as soon as one names a severity."""
    named = [rule.code for rule in rules]
    return tuple(code for code in CODES if None in named or code in named)


def parse_fail_on(text: str) -> tuple[Rule, ...]:
    """The rules of ``text``: severities, codes, and ``code>number``, separated by commas.

    Raises:
        OptionError: Says what was found, what was expected, and what to write instead. An empty item is an error,
            too: what was meant to fail would pass.
    """
    return tuple(_rule(item.strip(), text) for item in text.split(","))


_ITEM = re.compile(r"(?P<name>[^\s<>=]+)\s*(?:>\s*(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>[A-Za-z%]*))?", re.ASCII)


def _rule(item: str, text: str) -> Rule:
    if not item:
        raise OptionError(
            f"--fail-on {text!r} has an empty item. Expected a severity or a code of a finding: "
            "write --fail-on warn, or --fail-on blocking-call."
        )
    found = _ITEM.fullmatch(item)
    if found is None:
        raise OptionError(
            f"{item!r} is not understood. Expected a severity ({', '.join(SEVERITIES[::-1])}), a code, or a code with "
            "a threshold, such as 'blocking-call>100ms' (in quotes, or the shell takes the `>`)."
        )
    name, number = found["name"], found["number"]
    for severity in SEVERITIES:
        if name == severity:
            if number is not None:
                raise OptionError(f"{item!r}: a severity takes no threshold. Write {name}, or a code with a threshold.")
            return Rule(item, severity=severity)
    check_codes([name])
    return Rule(item, code=name, more_than=None if number is None else _threshold(name, number, found["unit"], item))


def _threshold(code: str, number: str, unit: str, item: str) -> float:
    figure = FIGURES.get(code)
    if figure is None:
        raise OptionError(
            f"{item!r} sets a threshold, but findings of {code} have no figure to compare it with. "
            f"Expected the code alone: write {code}. Codes with a figure: {', '.join(FIGURES)}."
        )
    units = UNITS[figure.dimension]
    if unit and unit not in units:
        expected = " or ".join(filter(None, units))
        raise OptionError(
            f"{item!r} has the unit {unit!r}. The figure of {code} is {figure.meaning}: expected a number"
            f"{f' in {expected}' if expected else ' without a unit'}, such as {code}>100{next(iter(units))}."
        )
    return float(number) * (units[unit] if unit else next(iter(units.values())))
