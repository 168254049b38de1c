"""Thread pools and limiters: how full they were and who waited."""

from __future__ import annotations

from collections.abc import Iterator

from mcp_probe.aggregate.checks.evidence import starved_max_ms
from mcp_probe.aggregate.phrasing import holder_name
from mcp_probe.aggregate.thresholds import FindingOptions
from mcp_probe.model import ExecutorSummary, Summary
from mcp_probe.report import figures
from mcp_probe.report.blocks import Block, Cell, Column, Flow, Gauge, Grid, Heading, Paragraph, Role, Span, Spans, Words
from mcp_probe.report.figures import Notation, plural, quantity
from mcp_probe.report.phrases import first, number, one, prose, rank
from mcp_probe.report.places import place

EXECUTOR_ROWS = 8
LINE_OPERATIONS, LINES, LEAST_SHARE = 3, 3, 0.05
STARVED_MS = FindingOptions().transport_wait_ms


def executors(summary: Summary, notation: Notation, cwd: str) -> Iterator[Block]:
    ranked = sorted(summary.executors, key=lambda pool: (-rank(pool.at_limit_share), -rank(pool.wait_max_ms or 0.0)))
    if not ranked:
        return
    shown, hidden = first(ranked, EXECUTOR_ROWS)
    rows: list[tuple[Cell, ...] | Paragraph | Flow] = []
    for pool in shown:
        rows.append(_executor_row(pool, notation))
        details = tuple(_executor_details(pool, cwd))
        if details:
            rows.append(Flow(details, indent=3))
    rows.extend(_lines(summary, cwd))
    if hidden:
        jobs = plural(sum(pool.jobs for pool in hidden), "job")
        rows.append(Paragraph(one(f"+{len(hidden)} more: {jobs}", "dim"), indent=1))
    yield Heading("Thread pools", "the most at once, and how long jobs waited")
    yield Grid(
        columns=(
            Column("pool", gap=1, most=32),
            Column("in use", most=10),
            Column("of max", right=True, gap=1),
            Column("running", right=True),
            Column("waiting", right=True),
            Column("wait p50", right=True, most=14),
            Column("p99", right=True, most=14),
            Column("time full", right=True),
            Column("mean use", right=True),
        ),
        rows=tuple(rows),
        squeeze=((1, 6), (0, 24), (1, 0), (0, 20), (0, 14), (3, 0), (5, 0), (0, 8), (8, 0), (7, 0)),
    )


def _executor_row(pool: ExecutorSummary, notation: Notation) -> tuple[Cell, ...]:
    if pool.wait_ms.p50 is None and pool.jobs:
        notation.missing("waits", "none of its jobs was seen getting a thread", pool.name)
    if pool.tokens_needed is None and pool.jobs:
        notation.missing("mean use", "none of its jobs was seen ending", pool.name)
    full = pool.max is not None and pool.borrowed_peak >= pool.max
    role: Role = "critical" if pool.at_limit_share > 0.05 else "warn" if full else "part-run"
    short = pool.tokens_needed is not None and pool.max is not None and pool.tokens_needed > pool.max
    return (
        Words(one(pool.name or "unnamed", "name"), "middle"),
        Gauge(pool.borrowed_peak / pool.max if pool.max else None, role),
        number(f"{quantity(pool.borrowed_peak)}/{'no max' if pool.max is None else figures.decimal(pool.max)}"),
        number(quantity(pool.active_peak)),
        number(quantity(pool.pending_peak), "warn" if pool.pending_peak else "dim"),
        # Without a job there is no wait to speak of: blank, which is neither 0 nor unknown.
        number(notation.duration(pool.wait_ms.p50) if pool.jobs else ""),
        number(notation.duration(pool.wait_ms.p99) if pool.jobs else ""),
        number(figures.share(pool.at_limit_share), "critical" if pool.at_limit_share > 0.05 else "plain"),
        number(figures.decimal(pool.tokens_needed) if pool.jobs else "", "critical" if short else "plain"),
    )


def _lines(summary: Summary, cwd: str) -> Iterator[Paragraph]:
    """Where jobs computed, of the operations whose jobs used most CPU time."""
    ranked = sorted((each for each in summary.operations if each.job_lines), key=lambda each: -rank(each.jobs_cpu_ms))
    for operation in ranked[:LINE_OPERATIONS]:
        told = []
        for line in operation.job_lines[:LINES]:
            if line.share < LEAST_SHARE:
                break
            at = "" if line.where is None else f" at {place(*_file_and_line(line.where), cwd)}"
            told.append(f"~{figures.share(line.share)}{at} in `{line.called}`")
        used = f" computed {figures.duration(operation.jobs_cpu_ms)} in threads: {', '.join(told)}"
        if told:
            yield Paragraph((Span(figures.brief(operation.name), "name"), *prose(used)), lead=(Span("  "),), indent=1)


def _file_and_line(where: str) -> tuple[str, int | None]:
    file, colon, line = where.rpartition(":")
    return (file, int(line)) if colon and line.isdigit() else (where, None)


def _executor_details(pool: ExecutorSummary, cwd: str) -> Iterator[Spans]:
    is_starved = starved_max_ms(pool) > STARVED_MS
    # A thread that is free takes a moment, too: to tell that of a pool that was never full would point at its size.
    waited_ms = starved_max_ms(pool) if is_starved else pool.transport_wait_max_ms
    if waited_ms > STARVED_MS or (waited_ms >= 1 and pool.at_limit_share > 0):
        longest = figures.duration(waited_ms)
        yield one(f"the transport itself waited up to {longest} for a thread", "critical" if is_starved else "plain")
    if pool.holders:
        rest = f" and {len(pool.holders) - 4} more" if len(pool.holders) > 4 else ""
        yield (Span("its threads were held by ", "dim"), Span(", ".join(map(holder_name, pool.holders[:4])) + rest))
    if pool.jobs:
        run = "" if pool.run_ms is None else f" of {figures.duration(pool.run_ms)} on average"
        yield one(f"{plural(pool.jobs, 'job')}{run}", "dim")
    if pool.return_ms is not None and pool.return_ms >= 1:
        yield one(f"{figures.duration(pool.return_ms)} from a job's end until its call went on", "dim")
    if pool.abandoned:
        yield one(f"{plural(pool.abandoned, 'job')} abandoned", "warn")
    if pool.transport_jobs and pool.transport_wait_max_ms >= 1:
        yield one(f"{plural(pool.transport_jobs, 'more job')} read requests and wrote answers", "dim")
    if pool.made_at:
        yield one(f"made at {place(*_file_and_line(pool.made_at), cwd)}", "dim")
