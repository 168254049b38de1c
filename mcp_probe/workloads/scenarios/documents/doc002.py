"""Document 002: six tables of one operation each, and the comparison with HTTP, as printed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mcp_probe.workloads.bench.shapes import Asked, Claim


@dataclass(frozen=True, slots=True)
class Operation:
    """One table of the document, milliseconds and 1/s."""

    section: str
    total: float
    mean: float
    median: float
    min: float
    max: float
    p95: float
    p99: float
    sd: float
    throughput: float


OPERATIONS: Mapping[str, Operation] = {
    "ping": Operation("002 §1 ping", 245.32, 0.245, 0.231, 0.187, 1.523, 0.358, 0.521, 0.089, 4077),
    "tool call": Operation("002 §2 tool call", 523.45, 0.523, 0.498, 0.412, 2.156, 0.721, 1.023, 0.145, 1910),
    "resource read": Operation("002 §3 resource", 412.78, 0.413, 0.395, 0.321, 1.845, 0.598, 0.823, 0.112, 2423),
    "list tools": Operation("002 §4.1 list tools", 356.23, 0.356, 0.342, 0.289, 1.523, 0.512, 0.698, 0.098, 2808),
    "list resources": Operation(
        "002 §4.2 list resources", 334.56, 0.335, 0.321, 0.276, 1.412, 0.487, 0.654, 0.091, 2989
    ),
    "list prompts": Operation("002 §4.3 list prompts", 345.89, 0.346, 0.332, 0.283, 1.467, 0.498, 0.672, 0.094, 2891),
}
COUNT = 1000


@dataclass(frozen=True, slots=True)
class Compared:
    """One line of the document's comparison: milliseconds (1/s for the throughput) and how many times better."""

    stdio: float
    http: float
    ratio: float


HTTP: Mapping[str, Compared] = {
    "ping": Compared(0.245, 2.5, 10.2),
    "tool call": Compared(0.523, 4.3, 8.2),
    "resource read": Compared(0.413, 3.8, 9.2),
}
THROUGHPUT = Compared(4077, 850, 4.8)
HTTP_SERIAL_PER_S = 402
"""Its pings over HTTP one at a time, which it does not print: 1000 / 2.488 ms."""

CLAIMS = Claim.by_id(
    Claim(
        "002-1",
        "every operation takes less than 1 ms on average",
        "0.245 to 0.523 ms",
        (Asked("limit", (1.0,), "up"),),
        "the slowest operation's mean, ms",
    ),
    Claim(
        "002-2",
        "ping is the cheapest operation, a tool call the dearest",
        " < ".join(f"{name} {one.mean}" for name, one in sorted(OPERATIONS.items(), key=lambda item: item[1].mean)),
        (Asked("more", what="the next cheapest over ping"), Asked("more", what="tool call over the next dearest")),
        "medians",
    ),
    Claim(
        "002-2a",
        "... and a list is cheaper than a read",
        "0.335 to 0.356 ms, 0.413 ms",
        (Asked("more", what="a read over the dearest list"),),
        "medians",
        why_not="a list costs what its entries cost: a tool carries two schemas, and there are two of them",
    ),
    Claim(
        "002-3",
        "a tool call costs about twice a ping",
        "0.523 / 0.245 ms = 2.13×",
        (Asked("times", (2.13,)),),
        "medians",
    ),
    Claim(
        "002-4",
        "the three lists cost the same",
        "0.335 to 0.356 ms: 1.06×",
        (Asked("same"),),
        "dearest over cheapest, medians",
        why_shape="a list costs what its entries cost: two tools with two schemas each, one resource, one prompt",
        why_not="a list costs what its entries cost: two tools with two schemas each, one resource, one prompt",
    ),
    Claim(
        "002-5",
        "stdio answers 8 to 10 times as fast as HTTP",
        "10.2, 8.2 and 9.2×",
        (Asked("times", (8.2, 10.2)),),
        "medians",
        why_shape="the size is that of the document's own HTTP server: a connection for every call",
        why_not="the size is that of the document's own HTTP server: a connection for every call",
    ),
    Claim(
        "002-6",
        "stdio is serial and has no concurrency",
        "concurrency: no",
        (Asked("at most", load="not", what="requests in flight"),),
        "Little's law on one session; `fanout` shows the same with calls that wait",
        why_not="it is true of a server that reads, handles and writes one line after another, such as the document's",
    ),
    Claim(
        "002-7",
        "stdio has 4.8 times the throughput of HTTP",
        "4 077 (one at a time) against 850 (concurrent) requests/s",
        (Asked("times", (THROUGHPUT.ratio,)),),
        why_shape="the document compares one at a time with many at once; here both are of many",
        why_not="the document compares one at a time with many at once; here both are of many",
    ),
    Claim(
        "002-8",
        "latencies are stable, the tail is tight",
        "P99 / mean 1.9-2.1",
        (Asked("up to", (2.1,), "up"),),
    ),
)
