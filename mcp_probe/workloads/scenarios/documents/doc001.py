"""Document 001, MCP Hangar: parallel calls over stdio, cold starts, and a hard-coded 4.

100 runs per configuration after 5 that were thrown away; milliseconds, means.
"""

from __future__ import annotations

from dataclasses import dataclass

WARM_UP = 5
HALF_WIDTH_MS = 0.5
"""Of the 95 % intervals, as section 2.3 states them."""
DELAY_MS = 100.0

# Section 1.1: ten calls on one stdio session.
ONE_BY_ONE_MS = 1047.0
ALL_AT_ONCE_MS = 107.0
HEADLINE = 19.6

# Scenario S2.
FAN_OUT = (1, 2, 5, 10, 15, 20)


@dataclass(frozen=True, slots=True)
class Overhead:
    """One line of section 2.2."""

    label: str
    direct_ms: float
    hangar_ms: float
    percent: float


OVERHEAD = {
    "S2 N=20": Overhead("S2 N=20, parallel", 111.6, 108.0, -3.2),
    "S2 N=5": Overhead("S2 N=5, parallel", 107.8, 107.3, -0.5),
    "S3": Overhead("S3 3 providers, parallel", 105.2, 105.2, 0.0),
    "S5": Overhead("S5 mixed latency, parallel", 505.1, 505.0, -0.0),
    "S1 50": Overhead("S1 50 ms, sequential", 2751.7, 2732.2, -0.7),
    "S1 200": Overhead("S1 200 ms, sequential", 10255.9, 10223.6, -0.3),
    "S2 N=10": Overhead("S2 N=10, parallel", 107.7, 110.1, 2.2),
}
"""In the order of the table."""
S1_CALLS = 50
S1_DELAYS_MS = (0, 10, 50, 100, 200)
DIRECT = {5: 107.8, 10: 107.7, 20: 111.6}
"""What section 2.2 says of the direct client with N calls at once."""


@dataclass(frozen=True, slots=True)
class ColdStart:
    """One line of section 3.3."""

    one_by_one_ms: float
    single_flight_ms: float
    speed_up: float


COLD_START = {
    1: ColdStart(54, 54, 1.0),
    5: ColdStart(271, 56, 4.9),
    10: ColdStart(541, 56, 9.7),
    20: ColdStart(1079, 58, 18.5),
}
START_MS = 500.0
COLD_CALL_MS = 50.0

# Section 4: N -> milliseconds, before and after; and the overhead that the second table states, percent.
POOL_OF_4 = {5: 208.0, 10: 313.0, 20: 521.0}
POOL_OF_20 = {5: 107.0, 10: 110.0, 20: 108.0}
POOL_OF_20_PERCENT = {5: -0.5, 10: 2.2, 20: -3.2}

# Methodology: calls x milliseconds.
MIXED = ((5, 10.0), (3, 100.0), (1, 500.0))
PROVIDERS_MS = (100.0, 100.0, 100.0)
FIVE_PROVIDERS_MS = (50.0, 100.0, 200.0, 300.0, 500.0)  # of the published suite; the document names three
STAGES = ((3, 200.0, 1024), (3, 300.0, 512), (1, 50.0, 128))  # of the published suite: calls, milliseconds, bytes
