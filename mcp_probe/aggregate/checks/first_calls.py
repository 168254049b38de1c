"""What the first calls of a tool pay: `cold-start`, `cold-start-stampede`."""

from __future__ import annotations

from collections.abc import Iterator

from mcp_probe.aggregate import phrasing
from mcp_probe.aggregate.thresholds import FindingOptions
from mcp_probe.model import Finding, FirstCall, FirstCalls, OperationSummary, Summary


def cold_start(summary: Summary, options: FindingOptions) -> Iterator[Finding]:
    """The first call of a tool set something up that no later call had to."""
    for row, first, warm_ms, paid in _paid(summary, options):
        if len(paid) != 1:
            continue
        call = paid[0]
        yield Finding(
            code="cold-start",
            severity="info",
            confidence="lower",
            subject=row.name,
            sentence=(
                f"The first call of `{row.name}` worked for {phrasing.duration(call.own_ms)}{_mostly(call)}; "
                f"the {phrasing.plural(first.warm, 'call')} after it took {phrasing.duration(warm_ms)} (median)."
            ),
            advice="Do it before the first call: when the server starts, or in its lifespan.",
            evidence={
                "cold_ms": call.own_ms,
                "warm_p50_ms": warm_ms,
                "warm_max_ms": first.warm_max_ms,
                "warm_calls": first.warm,
                **_seen(call),
            },
            cost_ms=call.own_ms - warm_ms,
        )


def cold_start_stampede(summary: Summary, options: FindingOptions) -> Iterator[Finding]:
    """Several first calls at once each set up the same."""
    for row, first, warm_ms, paid in _paid(summary, options):
        if len(paid) < 2:
            continue
        whole_ms = sum(call.own_ms for call in paid)
        saved_ms = whole_ms - paid[0].own_ms
        yield Finding(
            code="cold-start-stampede",
            severity="warn",
            confidence="lower",
            subject=row.name,
            sentence=(
                f"{len(paid)} of the first calls of `{row.name}`, all in flight at once, each worked for up to "
                f"{phrasing.duration(paid[0].own_ms)}{_mostly(paid[0])}, {phrasing.duration(whole_ms)} in all; "
                f"the {phrasing.plural(first.warm, 'call')} after them took {phrasing.duration(warm_ms)} (median)."
            ),
            advice=(
                f"Let one call do it while the others wait for it (a lock around the check, or one shared task): "
                f"that saves {phrasing.duration(saved_ms)} of work. Or do it in the server's lifespan."
            ),
            evidence={
                "calls": len(paid),
                "paid_ms": whole_ms,
                "saved_ms": saved_ms,
                "cold_ms": paid[0].own_ms,
                "warm_p50_ms": warm_ms,
                "warm_max_ms": first.warm_max_ms,
                "warm_calls": first.warm,
                **_seen(paid[0]),
            },
            cost_ms=saved_ms,
        )


def _paid(
    summary: Summary, options: FindingOptions
) -> Iterator[tuple[OperationSummary, FirstCalls, float, list[FirstCall]]]:
    """Operations with the median of their later calls, ms, and the first calls that were cold, the dearest first.

    A later call that is nearly as dear tells that the operation is so now and then, whatever the first call met.
    """
    for row in summary.operations:
        first = row.first_calls
        if first is None or first.warm < options.cold_warm_calls or first.warm_p50_ms is None:
            continue
        least_ms = max(options.cold_ms, first.warm_max_ms / options.cold_repeat_share)
        paid = [
            call
            for call in first.calls
            if call.own_ms >= least_ms and call.alone_ms >= options.cold_ratio * _typical_ms(first, first.warm_p50_ms)
        ]
        if paid:
            yield row, first, first.warm_p50_ms, paid


def _typical_ms(first: FirstCalls, warm_p50_ms: float) -> float:
    """At least the median of what the later calls worked for; without their waits where most of their work is known."""
    return min(warm_p50_ms, first.warm_max_ms) if 2 * first.warm_known >= first.warm else warm_p50_ms


def are_of_first_calls(summary: Summary, options: FindingOptions, tool: str, longest_ms: float, count: int) -> bool:
    """Whether ``count`` steps up to so long were those of first calls, and no later call of ``tool`` came near."""
    rows = [row.first_calls for row in summary.operations if row.name == tool and row.first_calls is not None]
    return any(
        first.warm >= options.cold_warm_calls
        and first.warm_max_ms <= options.cold_repeat_share * longest_ms
        and any(call.own_ms >= longest_ms for call in first.calls)
        and sum(call.own_ms >= options.slow_step_ms for call in first.calls) >= count
        for first in rows
    )


def _mostly(call: FirstCall) -> str:
    """What it did: `` (import of `pandas`, server.py:41)``; empty where that is not known."""
    if call.imports:
        told = [f"import of {phrasing.listed(call.imports)}"]
    else:
        told = [] if call.what is None else [f"`{call.what}`"]
    place = phrasing.place_at(call.where)
    told += [] if place is None else [place]
    return f" ({', '.join(told)})" if told else ""


def _seen(call: FirstCall) -> dict[str, str | None]:
    return {"imports": ", ".join(call.imports) or None, "what": call.what, "where": call.where}
