"""An answer for the terminal."""

from __future__ import annotations

from mcp_probe.predict.outcome import LOOP, Result, Share
from mcp_probe.predict.what_if import Answer
from mcp_probe.report.blocks import Block, Column, Grid, Paragraph, Span, Words

_SHOWN_SHARES = 3


def page(answer: Answer) -> list[Block]:
    """Now and then of each operation, and where the next limit lies."""
    asked = ", ".join(map(str, answer.changes))
    blocks: list[Block] = [Paragraph((Span(answer.window.workload.arrivals, "dim"),))]
    blocks.append(Paragraph((Span(_checked(answer), "dim"),)))
    if answer.changes:
        blocks.append(Paragraph((Span("what if: "), Span(asked, "strong"))))
    blocks.append(_table(answer))
    blocks.append(Paragraph((Span(_limit(answer.before, "Now")),)))
    if answer.changes:
        blocks.append(Paragraph((Span(_limit(answer.after, "Then")),)))
    return blocks


def _checked(answer: Answer) -> str:
    checks = answer.window.checks
    worst = max(checks, key=lambda one: abs(one.error))
    where = f"`{worst.operation}` p{worst.percentile} {worst.measured_ms:,.1f} ms, simulated {worst.simulated_ms:,.1f}"
    return (
        f"Run again unchanged, the window gives what was measured: {len(checks)} percentiles, the worst "
        f"{worst.error:+.0%} ({where})."
    )


def _table(answer: Answer) -> Grid:
    names = ("p50 ms", "p95 ms", "p99 ms", "calls/s")
    columns = (Column("operation"), Column("calls", right=True), *(Column(name, right=True) for name in names))
    rows = []
    for name, now in sorted(answer.before.operations.items(), key=lambda item: -item[1].calls):
        then = answer.after.operations.get(name, now)
        cells = [
            _pair(now.p50_ms, then.p50_ms, bool(answer.changes)),
            _pair(now.p95_ms, then.p95_ms, bool(answer.changes)),
            _pair(now.p99_ms, then.p99_ms, bool(answer.changes)),
            _pair(now.per_second, then.per_second, bool(answer.changes)),
        ]
        rows.append(tuple(Words((Span(text),), "middle") for text in (name, f"{now.calls:,}", *cells)))
    return Grid(columns, tuple(rows), ((0, 12),))


def _pair(now: float, then: float, is_changed: bool) -> str:
    return f"{_number(now)} → {_number(then)}" if is_changed else _number(now)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:,.1f}" if value >= 1 else f"{value:,.2f}"


def _limit(result: Result, when: str) -> str:
    """The next limit: what is the most used, and at which rate it would be full."""
    if not result.shares:
        return f"{when}, nothing is used for long."
    first, *others = result.shares
    rest = ", ".join(f"{one.name} {one.used_ratio:.0%}" for one in others[: _SHOWN_SHARES - 1])
    return (
        f"{when}, {_named(first)} is the most used: {first.used_ratio:.0%} at {_number(result.per_second)} calls/s"
        + (f", so full at about {_number(first.full_per_second)}" if first.full_per_second else "")
        + "."
        + (f" Next: {rest}." if rest else "")
    )


def _named(share: Share) -> str:
    return share.name if share.name == LOOP or share.name.startswith("the ") else f"`{share.name}`"
