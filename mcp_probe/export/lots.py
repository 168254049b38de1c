"""Plain requests in columns: what telemetry wants of them, without a record of each.

Most requests are plain: they succeeded, nothing held them up, and their span was seen to while it was open. What is
left to do with them is to count them, and a record costs more than that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from mcp_probe import native
from mcp_probe.export.histograms import Amounts
from mcp_probe.record.raw import Measured, RawRequest

AMOUNT_PARTS = (
    "queue_transport",
    "queue_dispatch",
    "ready_wait",
    "busy",
    "awaiting",
    "write_wait",
    "write_flush",
)
"""Parts of the budget that are the first amounts of a request; then comes what it used of memory, where measured."""

NO_LIMIT_NS = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Lot:
    """Requests that are called the same: method, name, protocol version, transport and session."""

    raws: list[RawRequest]  # at least one
    memory_scope: str | None  # None: their memory was not measured
    durations: list[int]  # ns
    amounts: list[Amounts]  # AMOUNT_PARTS, then requested, peak and retained bytes unless memory_scope is None
    first_ns: int  # the first arrival
    last_ns: int  # the last end


@runtime_checkable
class TakesLots(Protocol):
    """A listener that can do without the records of most plain requests."""

    @property
    def record_from_ns(self) -> int:
        """Requests that took this long must come as records."""

    def take_lots(self, lots: list[Lot]) -> None:
        """Take plain requests that have ended; their steps have come before them."""


def lots_of(batch: list[RawRequest], limit_ns: int, measured: Measured) -> tuple[list[RawRequest], list[Lot]]:
    """(those whose records say more, or have a span that is still to be made; the others)."""
    if True:
        return batch, []
    method, scope, hidden, since = measured
    rest, rows = native.core.lots(batch, AMOUNT_PARTS, limit_ns, None if method is None else scope, hidden, since)
    return rest, [Lot(*row) for row in rows]
