"""Document 004: the levels and the sample run of its sweep, and its tuning table, as printed."""

from __future__ import annotations

from collections.abc import Mapping

from mcp_probe.workloads.bench.shapes import Asked, Claim

LEVELS = (
    *((10, 50), (50, 100), (100, 100), (200, 200), (500, 200)),
    *((500, 500), (1000, 500), (1000, 1000), (2000, 1000), (3000, 1000)),
)
"""Workers and connections of the default sweep."""

_FIGURES = ("requests", "throughput", "mean", "p50", "p95", "p99", "max", "success")
_SAMPLE: Mapping[tuple[int, int], tuple[float | None, ...]] = {
    (100, 100): (45_231, 1507.7, 6.51, 5.12, None, 15.23, 89.12, 100),
    (500, 200): (84_976, 700.8, 709.82, 393.14, 1790.87, 6779.09, 32687.63, 100),
    (1000, 500): (59_282, 464.3, 2109.22, 1128.15, None, 31836.61, 44382.89, 100),
    (3000, 1000): (40_812, 252.0, 9835.22, 6518.99, None, 48333.05, 100931.56, 100),
}
SWEEP: Mapping[tuple[int, int], Mapping[str, float]] = {
    level: {metric: told for metric, told in zip(_FIGURES, printed, strict=True) if told is not None}
    for level, printed in _SAMPLE.items()
}
"""The sample run, as printed."""

# Expected load, connections, kept connections, the document's expected throughput: (lowest, as printed).
TUNED: tuple[tuple[str, int, int, int, float, str], ...] = (
    ("low (10-50)", 50, 100, 50, 1500, "~1,500+"),
    ("medium (50-200)", 200, 200, 100, 700, "~700-1,500"),
    ("high (200-500)", 500, 300, 150, 500, "~500-700"),
    ("very high (500+)", 1000, 500, 250, 300, "~300-500"),
)

PER_REQUEST = 20.0
"""How many times slower a client per request is."""

CLAIMS = Claim.by_id(
    Claim(
        "004-1",
        "a client per request is about 20 times slower than a shared one",
        "~20×, without a table",
        (Asked("times", (PER_REQUEST,)),),
        "throughput",
    ),
    Claim(
        "004-1a",
        "... because each client opens a connection of its own",
        '"TCP handshake" per request',
        (Asked("at least", (0.5,), what="share of the difference"),),
        "what is left of it with one TLS context for all clients",
        why_not="each client loads every root certificate, for a URL that is not even TLS",
    ),
    Claim(
        "004-1m",
        "a session per call is many times slower than one that is kept",
        "~20× (a client per plain HTTP request)",
        (Asked("times", (PER_REQUEST,)),),
        "medians",
    ),
    Claim(
        "004-1p",
        "a process per call is slower than one that is kept",
        "not measured there",
        (Asked("more"),),
        "medians",
    ),
    Claim(
        "004-2",
        "a shared client with limits is the recommended pattern",
        '"recommended", no figure',
        (Asked("at most"),),
        "throughput by default over with 100 connections and 50 kept",
        why_not="connections that are not kept are made anew",
    ),
    Claim(
        "004-3",
        "the best concurrency is not the highest",
        "1 508 requests/s at c100, 252 at c3000: 6.0×",
        (Asked("times", (6.0,)),),
        "best throughput over that of the highest concurrency",
    ),
    Claim(
        "004-4",
        "P99 explodes with concurrency",
        "15 ms at c100, 48 333 ms at c3000: 3 174×",
        (Asked("times", (3174.0,)),),
        "a run of three levels sees a part of it",
    ),
    Claim(
        "004-5",
        "HTTP/2 brings little on localhost",
        '"minimal benefit"',
        how="the protocol version as read from the responses",
    ),
    Claim(
        "004-6",
        "a client without Limits has no limits",
        '"shared_no_limits"',
        (Asked("exact", (0,), "not", "limits"),),
        why_not="the pattern measures the library's default limits",
    ),
    Claim(
        "004-pool",
        "with more workers than connections the wait is workers / connections × latency",
        "not measured there",
        (Asked("same"), Asked("limit", (20,), "not", "requests in flight at the server")),
        "median latency over that",
        why_holds="a request waits for its turn at a connection, as calls do at a pool of threads",
    ),
)

NOTES = (
    "Arithmetic on the document's own print: its 15 ms at c100 are not of 100 workers, 1 508 requests/s × 6.51 ms make "
    "9.8 in flight.",
)
"""Of what the document prints, not of anything measured."""
