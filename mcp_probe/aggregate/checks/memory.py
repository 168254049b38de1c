"""What calls do to memory: `memory-growth`, `memory-peak`, `large-payload`, `unbounded-fan-out`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from mcp_probe.aggregate import phrasing
from mcp_probe.aggregate.checks.evidence import total_ms
from mcp_probe.aggregate.quality import quality_of, worst
from mcp_probe.aggregate.thresholds import FindingOptions
from mcp_probe.model import (
    Finding,
    Growth,
    LeakHunt,
    OperationSummary,
    PeakLine,
    ProcessGrowth,
    Remainder,
    Summary,
    Tag,
)

# --- memory-growth ------------------------------------------------------------------------------------


def memory_growth(summary: Summary, options: FindingOptions) -> Iterator[Finding]:
    """Calls of one operation keep memory, and what they keep grows with their number."""
    hunt = summary.leaks
    if hunt is not None:
        yield from (_grown(row, hunt, options) for row in hunt.operations if row.verdict == "grows")
        if hunt.process is not None:
            rest = (part for part in hunt.process.remainders if part.verdict == "grows")
            yield from (_remainder(part, hunt.process, options) for part in rest)
        return
    rows = [row for row in summary.operations if _may_grow(row, options)]
    kept = {row.name: _kept_by(row) for row in rows}
    grown, expected = summary.signals.rss_growth_bytes, sum(kept.values())
    # From the second quarter of the window to the last, half of what the calls of the whole window keep must show.
    if grown is not None and expected >= options.kept_bytes and grown >= options.rss_share * expected / 2:
        yield _kept(max(rows, key=lambda row: (kept[row.name], row.name)), kept, grown)
    elif grown is not None and grown >= options.kept_bytes and summary.signals.rss_still_grows:
        yield _unowned(summary, grown, expected)


def _kept(row: OperationSummary, kept: Mapping[str, int], grown: int) -> Finding:
    """The calls of ``row`` keep most of what the process grew by; whether for ever is not known."""
    each = row.memory.retained.p50 or 0
    return Finding(
        code="memory-growth",
        severity="info",
        confidence="estimate",
        subject=row.name,
        sentence=(
            f"`{row.name}` may leak: half of its calls still held {phrasing.size(each)} or more when they had ended "
            f"({phrasing.plural(row.count, 'call')}), and the process grew by {phrasing.size(grown)} meanwhile."
        ),
        advice="Run it with `--memory leaks`: that distinguishes a leak from a cache and names the allocating lines.",
        evidence={
            "bytes_per_call": each,
            "calls": row.count,
            "held_bytes": kept[row.name],
            "rss_growth_bytes": grown,
            "how": row.memory.method,
            "scope": row.memory.scope,
        },
    )


def _unowned(summary: Summary, grown: int, owned: int) -> Finding:
    """The process grows to the end, and no call is known to keep that much."""
    return Finding(
        code="memory-growth",
        severity="warn",
        confidence="estimate",
        subject="process",
        sentence=(
            f"The process grew by {phrasing.size(grown)} from the second quarter of the window to the last and still "
            f"does; its calls are known to keep {phrasing.size(owned)}."
        ),
        advice=(
            "Run it with `--memory leaks`: that tells what calls own from what nobody owns (background tasks, threads) "
            "and from native code. Caches and pools that are not full yet look the same: run longer to be sure."
        ),
        evidence={
            "rss_growth_bytes": grown,
            "owned_bytes": owned,
            "calls": summary.requests.count,
        },
    )


def _grown(row: Growth, hunt: LeakHunt, options: FindingOptions) -> Finding:
    each = row.bytes_per_call or 0.0
    at_least = "at least " if row.quality.tag in ("lower", "estimate") else ""
    line = row.lines[0] if row.lines else None
    kind = row.types[0] if row.types else None
    where = "" if line is None else f", allocated at {phrasing.place_of(line.file, line.line)}"
    if line is not None and line.function:
        where += f" in `{line.function}`"
    what = "" if kind is None else f"; of type `{kind.name}` there are {kind.objects:,}"
    return Finding(
        code="memory-growth",
        severity="critical" if each * row.calls >= options.kept_bytes else "warn",
        confidence=row.quality.tag,
        subject=row.name,
        sentence=(
            f"`{row.name}` grows: each call keeps {at_least}{phrasing.size(each)}, {phrasing.size(1000 * each)} in a "
            f"thousand calls{where}{what}."
        ),
        advice=(
            "Release it when the call is over, or bound the container (a cache with a `maxsize`, a deque with a "
            "`maxlen`). A cache that is not full yet looks the same: run longer to be sure."
            + ("" if hunt.are_lines_known else " Its line was not traced: the report's section on leaks says why.")
        ),
        evidence={
            "bytes_per_call": each,
            "calls": row.calls,
            "held_bytes": row.held_bytes,
            "file": None if line is None else line.file,
            "line": None if line is None else line.line,
            "function": None if line is None else line.function,
            "type": None if kind is None else kind.name,
            "objects": None if kind is None else kind.objects,
            "how": row.how,
            "scope": row.scope,
        },
    )


def _remainder(part: Remainder, process: ProcessGrowth, options: FindingOptions) -> Finding:
    """What grows beside the calls: nobody's, or of native code."""
    each, grown = part.bytes_per_call or 0.0, part.bytes or 0
    if part.kind == "nobody":
        what = (
            f"Python's memory that no call owns grows by {phrasing.size(each)} a call, {phrasing.size(grown)} in "
            f"{phrasing.plural(process.calls, 'call')}: something that outlives its call allocates it."
        )
        advice = (
            "Look at background tasks, at threads that a queue feeds, and at what goes on after a call has ended: "
            "bound what they keep. A pool or a cache that is not full yet looks the same: run longer to be sure."
        )
    else:
        what = (
            f"Memory of native code grows by about {phrasing.size(each)} a call, {phrasing.size(grown)} in "
            f"{phrasing.plural(process.calls, 'call')}: the process grows, and Python did not ask for that part."
        )
        advice = (
            "Look at C libraries that are not given back what they handed out (ctypes, clients, images, `mmap`), and "
            "close what they opened. A heap with holes looks the same for a while: run longer to be sure."
        )
    return Finding(
        code="memory-growth",
        severity="critical" if grown >= options.kept_bytes else "warn",
        confidence=part.quality.tag,
        subject=part.kind,
        sentence=what,
        advice=advice,
        evidence={
            "bytes_per_call": each,
            "calls": process.calls,
            "held_bytes": grown,
            "owned_bytes": process.owned_bytes,
            "rss_growth_bytes": process.resident_bytes,
        },
    )


def _may_grow(row: OperationSummary, options: FindingOptions) -> bool:
    quality = quality_of(row, "retained")
    least = row.memory.retained.p50 if quality.lo is None else quality.lo
    return row.kind == "request" and row.count >= options.growth_calls and (least or 0) > 0


def _kept_by(row: OperationSummary) -> int:
    return row.count * (row.memory.retained.p50 or 0)


# --- memory-peak --------------------------------------------------------------------------------------


def memory_peak(summary: Summary, options: FindingOptions) -> Iterator[Finding]:
    """One call held so much at once that a few together are the process's memory."""
    limit = summary.signals.memory_limit_bytes
    most = options.peak_bytes if limit is None else min(options.peak_bytes, round(options.peak_share * limit))
    for row in summary.operations:
        peak, quality = row.memory.peak.max, row.quality.get("peak_max", quality_of(row, "peak"))
        least = peak if quality.lo is None else round(quality.lo)
        if peak is None or least is None or least <= most:
            continue
        share = None if limit is None else least / limit
        of_limit = "" if share is None else f", {phrasing.percent(share)} of the {phrasing.size(limit or 0)} it may use"
        typical = row.memory.peak.p50
        line = _line_of_peak(summary, row)
        at_least = "at least " if quality.tag != "exact" else ""
        yield Finding(
            code="memory-peak",
            severity="critical" if share is not None and share > options.peak_critical_share else "warn",
            confidence=quality.tag,
            subject=row.name,
            sentence=(
                f"A call of `{row.name}` held {at_least}{phrasing.size(least)} at its peak{of_limit}; "
                f"half of its calls {phrasing.size(typical or 0)} or more. {_where_allocated(summary, line)}"
            ),
            advice=(
                "Stream it, or work on a page at a time; and bound how many such calls run at once "
                "(a semaphore, or a `CapacityLimiter` of its own)."
                + ("" if summary.leaks is not None else " `--memory leaks` looks for the line that allocates it.")
            ),
            evidence={
                "peak_bytes": least,
                "peak_p50_bytes": typical,
                "requested_max_bytes": row.memory.requested.max,
                "limit_bytes": limit,
                "limit_share": share,
                "calls": row.count,
                "file": None if line is None else line.file,
                "line": None if line is None else line.line,
                "function": None if line is None else line.function,
                "line_bytes": None if line is None else line.bytes,
                "line_held_bytes": None if line is None else line.held_bytes,
                "how": row.memory.method,
                "scope": row.memory.scope,
            },
        )


def _line_of_peak(summary: Summary, row: OperationSummary) -> PeakLine | None:
    peaks = () if summary.leaks is None else summary.leaks.peaks
    found = (peak for peak in peaks if peak.operation == row.name)
    return max(found, key=lambda peak: peak.held_bytes, default=None)


def _where_allocated(summary: Summary, line: PeakLine | None) -> str:
    if line is not None:
        place = phrasing.place_of(line.file, line.line)
        most, held = phrasing.size(line.bytes), phrasing.size(line.held_bytes)
        function = f" in `{line.function}`" if line.function else ""
        return f"Looked at while it held {held}, at least {most} of that had been allocated at {place}{function}."
    if summary.leaks is None:
        return "The line is not known in this tier."
    if not summary.leaks.are_lines_known:
        return "The line is not known: nothing was traced."
    return "The line is not known: the hunt did not look while a call held so much."


# --- large-payload ------------------------------------------------------------------------------------


def large_payload(summary: Summary, options: FindingOptions) -> Iterator[Finding]:
    """Arguments or results are large, or encoding and decoding them is much of the operation's time."""
    for row in summary.operations:
        if row.kind != "request":
            continue
        sent, got = row.response_bytes_max or 0, row.request_bytes_max or 0
        coding = [ms for ms in (row.decode_ms, row.encode_ms) if ms is not None]
        whole = total_ms(row)
        coding_ms = sum(coding)
        share = min(1.0, coding_ms * row.count / whole) if whole > 0 and coding else None
        is_large = max(sent, got) > options.payload_bytes
        if not is_large and not (share is not None and share > options.coding_share and coding_ms > options.coding_ms):
            continue
        yield _payload(row, sent, got, coding_ms if coding else None, share, is_large)


def _payload(
    row: OperationSummary, sent: int, got: int, coding_ms: float | None, share: float | None, is_large: bool
) -> Finding:
    which, size = ("A result", sent) if sent >= got else ("Arguments", got)
    parts = [f"{which} of `{row.name}` took {phrasing.size(size)}"] if is_large else []
    if coding_ms is not None and share is not None:
        loop = f"{phrasing.duration(coding_ms)} a call on the event loop, {phrasing.percent(share)} of its time"
        parts.append(
            f"encoding and decoding {loop}" if parts else f"Encoding and decoding messages of `{row.name}` takes {loop}"
        )
    return Finding(
        code="large-payload",
        severity="warn",
        confidence="exact",
        subject=row.name,
        sentence=f"{'; '.join(parts)}.",
        advice="Return a page, or a link to a resource that the client reads when it needs it; take references.",
        evidence={
            "response_bytes_max": row.response_bytes_max,
            "request_bytes_max": row.request_bytes_max,
            "encode_ms": row.encode_ms,
            "decode_ms": row.decode_ms,
            "coding_share": share,
            "calls": row.count,
        },
        cost_ms=(coding_ms or 0.0) * row.count,
    )


# --- unbounded-fan-out --------------------------------------------------------------------------------


def unbounded_fan_out(summary: Summary, options: FindingOptions) -> Iterator[Finding]:
    """A call had so many tasks at once that nothing can have bounded them."""
    for row in summary.operations:
        if row.tasks_max <= options.fan_out_tasks:
            continue
        peak = row.memory.peak.max
        each = None if peak is None else peak / row.tasks_max
        tag: Tag = "lower"  # a task is counted from its first step on
        quality = row.quality.get("peak_max", quality_of(row, "peak"))
        cost = "" if each is None else f", {phrasing.size(each)} each"
        if peak is not None and quality.tag != "exact":
            tag, cost = worst((tag, quality.tag)), cost.replace(", ", ", at least ")
        yield Finding(
            code="unbounded-fan-out",
            severity="warn",
            confidence=tag,
            subject=row.name,
            sentence=f"A call of `{row.name}` had {row.tasks_max:,} tasks alive at once{cost}.",
            advice=(
                "Bound them: a semaphore around what each does, or a few workers that take from a queue; start the "
                "next when one is done."
            ),
            evidence={
                "tasks_max": row.tasks_max,
                "bytes_per_task": each,
                "peak_bytes": peak,
                "calls": row.count,
            },
        )
