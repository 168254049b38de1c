"""Holds a report against what the client measured. Everything is in milliseconds."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from tools.field.client import Exchange

HOLDING, QUICK, PING, QUIET, ALONE = "holding", "quick", "ping", "quiet", "alone"
BESIDE = {QUICK: QUIET, PING: QUIET, HOLDING: ALONE}
"""What is sent beside a holding call -> the same on the idle server."""
TOLERANCE = 0.10
WIDEST_MS = 20.0
GRAIN_MS = 3.0
"""What a client on the same two cores adds of its own: threads that wake, an interpreter between pipe and clock."""
LEAST_BLAME = 0.90
LEAST_WAIT_MS = 500.0
"""Of less, on a machine with other work, a share says nothing."""
GRAIN_OF_BLAME_MS = 100.0
"""What a whole run may be blamed for beyond what was seen: 80 victims of a look each 2 ms."""


@dataclass(frozen=True, slots=True)
class Percentile:
    """What the client measured, and what the report says: from ``low`` to ``high``, one figure where they are equal."""

    client: float
    low: float | None
    high: float | None

    @property
    def fault(self) -> str:
        """Which rule it breaks, or nothing."""
        if self.low is None or self.high is None:
            return "not bounded on both sides"
        slack = max(TOLERANCE * self.client, GRAIN_MS)
        if max(abs(self.low - self.client), abs(self.high - self.client)) <= slack:
            return ""
        if not self.low <= self.client <= self.high:
            return "false"
        if self.high - self.low > max(WIDEST_MS, TOLERANCE * self.client):
            return "too wide"
        return ""

    def __str__(self) -> str:
        low, high = ("?" if end is None else f"{end:.0f}" for end in (self.low, self.high))
        return low if low == high else f"{low}–{high}"


@dataclass(slots=True)
class Judgement:
    """All that a row of the table says. Waits are sums over quick calls and pings beyond a quiet server's time.

    ``held``: how long the loop was not in its poll while they were under way; ``None`` where nobody could look.
    """

    sdk: str
    percentiles: dict[tuple[str, str], Percentile]
    waited: float
    blamed_low: float
    blamed_high: float
    sent: dict[str, int]
    counted: dict[str, int]
    verdict: str
    held: float | None = None
    faults: list[str] = field(default_factory=list)


def judge(
    exchanges: Sequence[Exchange],
    summary: dict[str, Any],
    *,
    blocks: bool,
    held_ms: Callable[[float, float], float | None] = lambda from_s, to_s: None,
) -> Judgement:
    """``held_ms``: for how long between two instants the server's loop was seen to be held."""
    sent = Counter(one.operation for one in exchanges)
    counted = {row["name"]: row["count"] for row in summary["operations"] if row["kind"] == "request"}
    victims = {one.operation for one in exchanges if one.label in (QUICK, PING)}
    rows = {row["name"]: row for row in summary["operations"]}
    percentiles = {
        (operation, name): percentile(exchanges, rows[operation], operation, name)
        for operation in sorted(victims, key=lambda operation: operation == "ping")
        if operation in rows
        for name in ("p50", "p95")
    }
    # Where nobody blocks, what the loop itself holds up is no accusation.
    pairs = [row for row in summary["blocked_by"] if row["victim"] in victims and (blocks or row["blocker"] in sent)]
    server = summary["server"]
    found = Judgement(
        sdk=f"{server['sdk']} {server['sdk_version']}",
        percentiles=percentiles,
        waited=waited(exchanges),
        blamed_low=sum(row["lo_ms"] for row in pairs),
        blamed_high=sum(math.inf if row["hi_ms"] is None else row["hi_ms"] for row in pairs),
        sent=dict(sent),
        counted=counted,
        verdict=f"{summary['verdict']['code']}: {summary['verdict']['sentence']}",
        held=total_held(victims_of(exchanges), held_ms),
    )
    found.faults = list(faults(found, blocks=blocks))
    return found


def faults(found: Judgement, *, blocks: bool) -> list[str]:
    told = [
        f"{name} of `{operation}` is {one.fault}: {one} for the client's {one.client:.0f}"
        for (operation, name), one in found.percentiles.items()
        if one.fault
    ]
    for operation in sorted(found.sent.keys() | found.counted.keys()):
        sent, counted = found.sent.get(operation, 0), found.counted.get(operation, 0)
        if sent != counted:
            told.append(f"{sent} of `{operation}` sent, {counted} counted")
    held = found.held if found.held is not None else math.inf if blocks else 0.0
    if found.blamed_low > (2 - LEAST_BLAME) * held + GRAIN_OF_BLAME_MS:
        told.append(f"blames {found.blamed_low:.0f} ms where the loop was held for {held:.0f} ms")
    if blocks and found.waited >= LEAST_WAIT_MS:
        if found.blamed_low < LEAST_BLAME * found.waited:
            told.append(f"blames {found.blamed_low / found.waited:.0%} of the wait")
        elif found.blamed_low > (2 - LEAST_BLAME) * found.waited:
            told.append(f"blames more than the wait: {found.blamed_low / found.waited:.0%}")
    return told


def percentile(exchanges: Sequence[Exchange], row: dict[str, Any], operation: str, name: str) -> Percentile:
    times = [one.ms for one in exchanges if one.operation == operation]
    value = row["total_ms"][name]
    quality = row["quality"].get(f"total_ms_{name}")
    low, high = (quality["lo"], quality["hi"]) if quality else (value, value)
    return Percentile(nearest_rank(times, int(name[1:]) / 100), low, high)


def victims_of(exchanges: Sequence[Exchange]) -> list[Exchange]:
    """Quick calls and pings beside a holding call; where that is of the same tool, holding calls, too."""
    operations = {one.operation for one in exchanges if one.label in (QUICK, PING)}
    return [one for one in exchanges if one.operation in operations and one.label in BESIDE]


def waited(exchanges: Sequence[Exchange]) -> float:
    """What calls and pings took beyond the median of the same on the idle server."""
    total = 0.0
    quiet: dict[tuple[str, str], float] = {}
    for one in victims_of(exchanges):
        like = (one.operation, BESIDE[one.label])
        if like not in quiet:
            quiet[like] = median(other.ms for other in exchanges if (other.operation, other.label) == like)
        total += max(0.0, one.ms - quiet[like])
    return total


def total_held(victims: Sequence[Exchange], held_ms: Callable[[float, float], float | None]) -> float | None:
    """Over all of them; ``None`` where nobody looked."""
    found = [held_ms(one.sent_s, one.sent_s + one.ms / 1e3) for one in victims]
    seen = [ms for ms in found if ms is not None]
    return sum(seen) if len(seen) == len(found) else None


def nearest_rank(values: Sequence[float], q: float) -> float:
    return sorted(values)[max(math.ceil(q * len(values)) - 1, 0)]
