"""Document 001, MCP Hangar: parallel calls over stdio, cold starts, and a hard-coded 4.

100 runs per configuration after 5 that were thrown away; milliseconds, means.
"""

from __future__ import annotations

from dataclasses import dataclass

from mcp_probe.workloads.bench.shapes import Asked, Claim

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

CLAIMS = Claim.by_id(
    Claim(
        "001-1",
        "one stdio session carries calls side by side",
        "1047 ms one by one, 107 ms at once: 9.8×",
        (Asked("times", (round(ONE_BY_ONE_MS / ALL_AT_ONCE_MS, 2),), "down"),),
        "quickest rounds",
    ),
    Claim(
        "001-2",
        "the time of N calls at once hardly depends on N",
        "108-112 ms for N = 5 … 20",
        (Asked("at most", load="up"),),
        "20 calls over 1, quickest rounds",
    ),
    Claim(
        "001-3",
        "a pool of 4 serves N calls in ceil(N/4) waves",
        "208 / 313 / 521 ms: 2, 3, 5 waves",
        (
            Asked("same", load="blurs", what="t(N) / t(4) over ceil(N/4)"),
            Asked("limit", (4,), "not", "requests at once in the server"),
        ),
        "quickest rounds",
    ),
    Claim(
        "001-3a",
        "the SDK has a hidden width of its own: plain def tools on stdio",
        "(not in the document)",
        (Asked("times", (2.0,), "blurs", "40 calls over 39: a second wave"),),
        "quickest rounds",
    ),
    Claim(
        "001-4",
        "with 20 threads the waves are gone",
        "107 / 110 / 108 ms",
        (Asked("at most", load="up"),),
        "over the delay, quickest rounds",
    ),
    Claim(
        "001-5",
        "calls that sleep take as long through the framework",
        "-3.2 % to +2.2 %, seven rows of calls that sleep",
        (Asked("nothing"),),
        "through it over direct",
        why="rows of calls that sleep dilute a cost: each says what 0.2 ms a call would read",
    ),
    Claim(
        "001-5z",
        "so a framework around the client costs nothing that can be measured",
        "(the row of calls that do not sleep is not printed)",
        (Asked("nothing"),),
        "the same where calls do not sleep",
        why_not="the clients differ in more than the framework: one parses with the SDK, the other reads raw JSON in "
        "threads",
    ),
    Claim(
        "001-5c",
        "this probe, in the row where a cost shows",
        "(not in the document)",
        (Asked("free"),),
        "a call of 0 ms with the probe over one without, switched on and off in one process",
    ),
    Claim(
        "001-6",
        "behind a single-flight gate one start serves all callers",
        "54 / 56 / 56 / 58 ms for 1 / 5 / 10 / 20 callers",
        (Asked("exact", (1,), "not", "starts"), Asked("at most", what="20 callers over 1")),
    ),
    Claim(
        "001-6a",
        "the 18.5× come from not starting a server twenty times",
        "54 ms for one cold call, with a start of 500 ms",
        (Asked("figure", (54.0,), "not", "a cold call, ms"),),
        why_not="with a start of 500 ms no cold call takes 54 ms",
    ),
    Claim(
        "001-6b",
        "without the gate the callers start a server each",
        '"20 provider processes spawning"',
        (Asked("exact", (5,), "not", "starts"), Asked("more", load="both", what="over one start")),
        why_holds="the starts share the machine's cores",
    ),
    Claim(
        "001-6c",
        "20 calls one by one take 18.5 times as long as at once",
        "1 079 / 58 ms = 18.5×",
        (Asked("times", (COLD_START[20].speed_up,), "down"),),
        "of a server that runs already",
        why_holds="so the printed table is that of a running server, and its factor that of parallel calls",
    ),
    Claim(
        "001-7",
        "3 providers take as long as the slowest, not as long as all of them",
        "105.2 ms, of 100",
        (Asked("at most", load="up"),),
        "all at once over the longest delay, quickest rounds",
    ),
    Claim(
        "001-7a",
        "the same for five providers of 50 to 500 ms, which the document's suite has and the document has not",
        "(not in the document)",
        (Asked("at most", load="up"),),
        "all at once over the longest delay, quickest rounds",
    ),
    Claim(
        "001-8",
        "calls of mixed latency take as long as the slowest",
        "505.1 ms (its parameters expect 850 one by one)",
        (Asked("at most", load="up"),),
        "parallel over the longest delay, quickest rounds",
    ),
    Claim(
        "001-9",
        "a workflow takes the critical path: the slowest call of each of its steps",
        "(no figure; its parameters expect 1550 and 550 ms: 2.8×)",
        (Asked("at most", load="up"),),
        "parallel over the delays of the critical path, quickest rounds",
    ),
    Claim(
        "001-10",
        "a call costs the same beyond its sleep, however long it sleeps",
        "5.03 ms at 50 ms, 5.12 ms at 200 ms, by division",
        (Asked("at most"),),
        "largest over smallest, median calls",
        why_not="only the figure of calls that do not sleep is a cost; what longer calls take on top is both sides "
        "waking up after they have slept",
    ),
)

NOTES = (
    f"Arithmetic on the document's own print: the mean of its seven overheads is "
    f"{sum(known.percent for known in OVERHEAD.values()) / len(OVERHEAD):.2f} %, not -0.5 %; it prints "
    "seven of 23 comparable rows.",
    f"By the document's own intervals of ± {HALF_WIDTH_MS} ms two of its rows differ from zero significantly, one each "
    f"way: {OVERHEAD['S2 N=20'].hangar_ms - OVERHEAD['S2 N=20'].direct_ms:+.1f} ms (S2 N=20) and "
    f"{OVERHEAD['S2 N=10'].hangar_ms - OVERHEAD['S2 N=10'].direct_ms:+.1f} ms (S2 N=10).",
)
"""Of what the document prints, not of anything measured."""
