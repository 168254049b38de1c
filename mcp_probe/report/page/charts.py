"""Charts that need no script: how long calls took, and who waited for whom."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from math import floor, log10

from mcp_probe.histogram import bucket_bounds
from mcp_probe.model import BlockedBy, OperationSummary, Summary
from mcp_probe.report import figures
from mcp_probe.report.budget import total_ms
from mcp_probe.report.figures import Notation, plural, quantity
from mcp_probe.report.page.markup import exactness, text_of
from mcp_probe.report.page.window import Window
from mcp_probe.report.phrases import first, rank
from mcp_probe.report.sections.operations import OPERATION_ROWS
from mcp_probe.report.sections.waits import PSEUDO_BLOCKERS, is_vague, together, waited

COLUMNS_OF_A_DECADE = 16
MOST_IN_HEAT = 12

# --- how long calls took --------------------------------------------------------------------------


def distributions(summary: Summary, window: Window) -> str:
    """One row an operation on a common logarithmic axis, with marks at the summary's percentiles."""
    ranked = sorted(summary.operations, key=lambda operation: -rank(total_ms(operation)))
    shown, _ = first(ranked, OPERATION_ROWS)
    rows = [(op, window.durations.get((op.method, op.name), Counter())) for op in shown]
    rows = [(op, buckets) for op, buckets in rows if buckets]
    if not rows:
        return ""
    edges = [bucket_bounds(bucket) for _, buckets in rows for bucket in buckets]
    lowest = floor(log10(max(1e-4, min(low for low, _ in edges) / 1e6)))
    highest = max(lowest + 1, floor(log10(max(high for _, high in edges) / 1e6)) + 1)
    drawn = "".join(_distribution(op, buckets, lowest, highest) for op, buckets in rows)
    labels = [figures.fine_duration(10.0**decade) for decade in range(lowest, highest + 1)]
    axis = "".join(f"<span>{text_of(label)}</span>" for label in labels)
    return (
        '<h3>How long calls took <small>logarithmic; lines at p50, p95 and p99</small></h3><div class="spread">'
        f'{drawn}<div></div><div class="axis" aria-hidden="true">{axis}</div></div>'
    )


def _distribution(operation: OperationSummary, buckets: Counter[int], lowest: int, highest: int) -> str:
    columns = (highest - lowest) * COLUMNS_OF_A_DECADE
    heights: Counter[int] = Counter()
    for bucket, count in buckets.items():
        low, high = bucket_bounds(bucket)
        x = (log10(max(1.0, (low + high) / 2) / 1e6) - lowest) * COLUMNS_OF_A_DECADE
        heights[min(columns - 1, max(0, int(x)))] += count
    tallest = max(heights.values())
    bars = "".join(
        f'<rect x="{at}" y="{30 - 28 * count / tallest:.1f}" width=".92" height="{28 * count / tallest:.1f}"/>'
        for at, count in sorted(heights.items())
    )
    total = operation.total_ms
    marks = [("p50", total.p50), ("p95", total.p95), ("p99", total.p99)]
    known = [(name, ms) for name, ms in marks if ms is not None and ms > 0]
    places = [(name, ms, f"{(log10(ms) - lowest) * COLUMNS_OF_A_DECADE:.2f}") for name, ms in known]
    lines = "".join(
        f'<line x1="{x}" x2="{x}" y1="0" y2="30"><title>{name} {figures.duration(ms)}</title></line>'
        for name, ms, x in places
    )
    told = ", ".join(f"{name} {figures.duration(ms)}" for name, ms in known)
    label = f"{operation.name}: {plural(sum(buckets.values()), 'call')}, {told}"
    return (
        f'<div class="name">{text_of(operation.name)}</div>'
        f'<svg viewBox="0 0 {columns} 30" preserveAspectRatio="none" role="img" aria-label="{text_of(label)}">'
        f"{bars}{lines}</svg>"
    )


# --- who waited for whom --------------------------------------------------------------------------


def heat(summary: Summary) -> str:
    """Victims by blockers. Each cell is a button that the script gives its requests."""
    certain = [row for row in summary.blocked_by if not is_vague(row)]
    if not certain:
        return ""
    pairs: dict[tuple[str, str], list[BlockedBy]] = {}
    for row in certain:
        pairs.setdefault((row.victim, row.blocker), []).append(row)
    victims, more_victims = _heaviest(certain, "victim")
    blockers, more_blockers = _heaviest(certain, "blocker")
    longest = max(sum(row.hi_ms for row in rows) for rows in pairs.values())
    notation = Notation()
    heads = "".join(
        f'<th scope="col"><span>{text_of(PSEUDO_BLOCKERS.get(name, name))}</span></th>' for name in blockers
    )
    body = "".join(
        f'<tr><th scope="row">{text_of(victim)}</th>'
        + "".join(_heat_cell(pairs.get((victim, blocker)), longest, notation) for blocker in blockers)
        + "</tr>"
        for victim in victims
    )
    left_out = ", ".join(
        plural(len(names), noun) for names, noun in ((more_victims, "victim"), (more_blockers, "blocker")) if names
    )
    told = f'<p class="dim">Not drawn: {left_out} that waited, or were waited for, less.</p>' if left_out else ""
    return (
        "<h3>As a map <small>rows waited for columns; a cell opens the requests in question</small></h3>"
        f'<div class="scroll" tabindex="0"><table class="heat"><thead><tr><td class="dim">waited ↓ for →</td>{heads}'
        f"</tr></thead><tbody>{body}</tbody></table></div>{told}"
    )


def _heaviest(rows: Sequence[BlockedBy], side: str) -> tuple[Sequence[str], Sequence[str]]:
    sums: dict[str, float] = {}
    for row in rows:
        name = getattr(row, side)
        sums[name] = sums.get(name, 0.0) + row.hi_ms
    return first(sorted(sums, key=lambda name: -sums[name]), MOST_IN_HEAT)


def _heat_cell(rows: list[BlockedBy] | None, longest: float, notation: Notation) -> str:
    if not rows:
        return "<td></td>"
    row = together(rows)
    text = waited(row, notation)
    warmth = 8 + 47 * (row.hi_ms / longest) ** 0.5
    label = f"{row.victim} waited {text} for {PSEUDO_BLOCKERS.get(row.blocker, row.blocker)}: show the requests"
    title = f"{', '.join(_reasons(rows))}; {exactness(text) or 'exact'}"
    return (
        f'<td><button type="button" data-victim="{text_of(row.victim)}" data-blocker="{text_of(row.blocker)}" '
        f'style="--warmth:{warmth:.0f}%" aria-label="{text_of(label)}" title="{text_of(title)}">{text_of(text)}'
        "</button></td>"
    )


def _reasons(rows: Sequence[BlockedBy]) -> Iterator[str]:
    for row in rows:
        held = "the event loop" if row.kind is None else row.object or row.kind
        yield f"{quantity(row.victims)} waited: {held} was held"
