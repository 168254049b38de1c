"""Requests that waited for what others held: `serial-handler`."""

from __future__ import annotations

from collections.abc import Iterator

from mcp_probe.aggregate import phrasing
from mcp_probe.aggregate.checks.evidence import is_enough, total_ms
from mcp_probe.aggregate.quality import worst
from mcp_probe.aggregate.thresholds import FindingOptions
from mcp_probe.model import (
    BACKGROUND_OPERATION,
    UNKNOWN_HOLDER,
    AwaitRoot,
    AwaitSummary,
    Finding,
    OperationSummary,
    Summary,
)

Row = tuple[OperationSummary, AwaitSummary]


def serial_handler(summary: Summary, options: FindingOptions) -> Iterator[Finding]:
    """One finding per lock, semaphore or limiter, on the operation that waited most for it."""
    if not is_enough(summary, options):
        return
    by_object: dict[str, list[Row]] = {}
    for operation in summary.operations:
        for found in operation.awaits:
            if found.holders and _is_long(operation, found, options):
                by_object.setdefault(found.object, []).append((operation, found))
    for rows in by_object.values():
        yield _finding(sorted(rows, key=lambda row: -row[1].total_ms))


def _is_long(operation: OperationSummary, found: AwaitSummary, options: FindingOptions) -> bool:
    whole = total_ms(operation)
    return (
        found.p95_ms is not None
        and found.p95_ms > options.held_ms
        and whole > 0
        and found.total_ms > options.held_share * whole
    )


def _finding(rows: list[Row]) -> Finding:
    operation, first = rows[0]
    holder = first.holders[0]
    waited = sum(found.total_ms for _, found in rows)
    others = [other.name for other, _ in rows[1:] if other.name != operation.name]
    share = min(1.0, first.total_ms / total_ms(operation))
    sentence = (
        f"`{operation.name}` spent {phrasing.percent(share)} of its time, {phrasing.duration(first.total_ms)} in all, "
        f"waiting for {_article(first)}"
    )
    where = _place(holder.where)
    if holder.operation not in (BACKGROUND_OPERATION, UNKNOWN_HOLDER):
        name = "other calls of its own" if holder.operation == operation.name else f"`{holder.operation}`"
        sentence += f" that {name} held{f' (taken at {where})' if where else ''}"
    elif holder.operation == BACKGROUND_OPERATION:
        sentence += f" that a background task held{f' (taken at {where})' if where else ''}"
    if others:
        sentence += f"; so did {phrasing.listed(sorted(set(others)))}"
    root = first.root[0] if first.root else None
    return Finding(
        code="serial-handler",
        severity="warn",
        confidence=worst(found.quality for _, found in rows),
        subject=operation.name,
        sentence=sentence + ".",
        advice=_advice(first, root),
        evidence={
            "object": first.object,
            "kind": first.kind,
            "waited_ms": waited,
            "share": share,
            "p95_ms": first.p95_ms,
            "holder": holder.operation,
            "holder_where": where,
            "holder_ms": holder.ms,
            "root": None if root is None else root.name,
            "root_kind": None if root is None else root.kind,
            "root_ms": None if root is None else root.ms,
            "operations": len({other.name for other, _ in rows}),
        },
        cost_ms=waited,
    )


def _article(found: AwaitSummary) -> str:
    return f"the {found.kind} `{found.object}`"


def _advice(found: AwaitSummary, root: AwaitRoot | None) -> str:
    where = None if root is None else _place(root.where)
    meanwhile = ""
    if root is not None and root.ms >= 0.5 * found.total_ms:
        what = (
            f"`{root.name}` on the event loop"
            if root.kind == "blocked"
            else f"{root.name}{f' at {where}' if where else ''}"
        )
        meanwhile = f"Most of that time its holder waited for {what} itself. "
    if found.kind == "lock":
        return f"{meanwhile}Hold the lock only around what it protects: await backends before or after it, not inside."
    return f"{meanwhile}Raise its limit if what it protects bears more at once, or hold it only around that."


def _place(where: str | None) -> str | None:
    found = phrasing.file_and_line(where)
    return None if found is None else phrasing.place_of(*found)
