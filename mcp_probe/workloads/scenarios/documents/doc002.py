"""Document 002: six tables of one operation each, and the comparison with HTTP, as printed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


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
