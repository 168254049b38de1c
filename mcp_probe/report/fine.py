"""Which tables have no news, and what to say in their place: the console leaves them out.

A table is news if any of its rows says that something is wrong, or that somebody waited for it, and if that cannot be
told (a figure is no number). The HTML page has all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from mcp_probe.aggregate.thresholds import FindingOptions
from mcp_probe.model import LOOP_OPERATION, OperationSummary, Summary
from mcp_probe.report import figures
from mcp_probe.report.figures import quantity

LITTLE = 0.05  # of what clients waited: less is no news
IDLE = 0.5  # of the window that the loop was busy
OPTIONS = FindingOptions()
SMALL_BYTES = OPTIONS.kept_bytes
MEMORY_CODES = frozenset({"memory-growth", "memory-peak", "large-payload"})
LIGHT = frozenset({None, "native-hybrid", "native-gross"})
"""Methods of the default tier: whoever asks for another one wants to see what it finds."""


def told_instead(summary: Summary) -> dict[str, str]:
    """Section -> what it would have said, of those that are no news."""
    told = {name: text for name, of in _SECTIONS.items() if (text := of(summary))}
    return told if summary.requests.count else {}


def _waits(summary: Summary) -> str:
    """Who waited for whom."""
    whole, waited = summary.clients_waited_ms or 0.0, sum(row.hi_ms for row in summary.blocked_by)
    if not summary.blocked_by or not 0 <= waited < LITTLE * whole:
        return ""
    on_the_loop = sum(row.hi_ms for row in summary.blocked_by if row.kind is None)
    return f"requests waited for others on the event loop at most {figures.share(on_the_loop / whole)} of their time"


def _steps(summary: Summary) -> str:
    """Steps of no request that no finding tells of: those of start-up."""
    steps = summary.slow_steps
    told = any(finding.subject == LOOP_OPERATION for finding in summary.findings)
    if not steps or told or any(step.tool != LOOP_OPERATION for step in steps):
        return ""
    return "no call held the event loop for long at a stretch"


def _awaits(summary: Summary) -> str:
    whole = summary.clients_waited_ms or 0.0
    waited = sum(row.total_ms for operation in summary.operations for row in operation.awaits)
    waited += sum(operation.awaits_unnamed_ms or 0.0 for operation in summary.operations)
    if not any(operation.awaits for operation in summary.operations) or not 0 <= waited < LITTLE * whole:
        return ""
    return f"calls awaited something {figures.share(waited / whole)} of their time"


def _pools(summary: Summary) -> str:
    pools = summary.executors
    if not pools or any(operation.job_lines for operation in summary.operations):
        return ""
    for pool in pools:
        waited = (pool.wait_max_ms if pool.wait_ms.p99 is None else pool.wait_ms.p99) or 0.0
        is_full = pool.max is not None and pool.borrowed_peak >= pool.max
        if is_full or pool.at_limit_share or pool.abandoned or not waited < OPTIONS.executor_wait_ms:
            return ""
    most = max(pools, key=lambda pool: pool.borrowed_peak)
    of = "" if most.max is None else f" of {figures.decimal(most.max)}"
    return f"no thread pool was full (at most {quantity(most.borrowed_peak)}{of} threads in use)"


def _memory(summary: Summary) -> str:
    rows = [operation.memory for operation in summary.operations]
    peaks = [row.peak.max for row in rows if row.peak.max is not None]
    asked = summary.leaks is not None or any(row.method not in LIGHT for row in rows)
    told = any(finding.code in MEMORY_CODES for finding in summary.findings)
    most = max(map(_most_held, summary.operations), default=0.0)
    if not peaks or asked or told or not most < SMALL_BYTES:
        return ""
    rss = summary.signals.rss_bytes_max
    process = "" if rss is None else f", the process at most {figures.size(rss)}"
    return f"no call held more than {figures.size(most)} at once{process}"


def _most_held(operation: OperationSummary) -> float:
    """The upper end of its largest peak."""
    quality = operation.quality.get("peak_max", operation.quality.get("peak"))
    hi = None if quality is None else quality.hi
    return hi if hi is not None else operation.memory.peak.max or 0.0


def _loop(summary: Summary) -> str:
    busy, late = summary.loop.utilization, summary.loop.arrival_delay_ms.p99
    if busy is None or late is None or not busy < IDLE or not late < OPTIONS.slow_step_ms:
        return ""
    return (
        f"the event loop was busy {figures.share(busy)} of the time, and 99 in a hundred requests would wait for it "
        f"less than {figures.duration(max(late, 1.0))}"
    )


_SECTIONS: Mapping[str, Callable[[Summary], str]] = MappingProxyType(
    {
        "blocked-by": _waits,
        "slow-steps": _steps,
        "awaits": _awaits,
        "executors": _pools,
        "memory": _memory,
        "loop": _loop,
    }
)
