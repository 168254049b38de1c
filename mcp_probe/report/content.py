"""What the report says, in which order and in which words. How wide and how coloured it is, others decide.

The order answers a reader who stops at any line: who was profiled, the verdict, where the time goes, who waited
for whom, which step was slow, which pool is full, how the loop is, what else was found, how exact all this is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from mcp_probe.model import (
    CROWDING_OPERATION,
    LOOP_OPERATION,
    BlockedBy,
    Cause,
    ExecutorSummary,
    Finding,
    OperationSummary,
    Quality,
    Severity,
    SlowStep,
    Summary,
)
from mcp_probe.report import figures
from mcp_probe.report.blocks import (
    Block,
    Box,
    Cell,
    Column,
    Flow,
    Gauge,
    Grid,
    Heading,
    Items,
    Paragraph,
    Role,
    Span,
    Spans,
    Stack,
    Words,
)
from mcp_probe.report.budget import PARTS, Slice, slices_of, total_ms, whole_ms
from mcp_probe.report.figures import EXACT, UNKNOWN, Notation, plural, quantity
from mcp_probe.report.places import place

OPERATION_ROWS = 15
BLOCKED_ROWS = 8
STEP_ROWS = 8
EXECUTOR_ROWS = 8
FINDING_ROWS = 12
CRITICAL_STEP_MS = 50.0  # measurement.md §2
WORTH_SAYING = 0.1  # share of an operation's time from which a sub-figure gets a line of its own

CAUSES: dict[Cause, str] = {
    "blocking-call": "blocking call",
    "cpu": "CPU-bound",
    "gil": "waiting for the GIL",
    "run-queue": "waiting for a CPU",
    "gc": "garbage collection",
    "unknown": "cause unknown",
}
PSEUDO_BLOCKERS = {LOOP_OPERATION: "the loop's own work", CROWDING_OPERATION: "many small steps"}
SEVERITIES: tuple[Severity, ...] = ("critical", "warn", "info")
SEVERITY_NOUNS = {"critical": ("critical", "critical"), "warn": ("warning", "warnings"), "info": ("note", "notes")}
KINDS = {"prompts/get": "prompt", "resources/read": "resource"}
NO_TRANSPORT = {
    "memory": "the client calls the server in its own process: nothing is queued and nothing is written",
    "streams": "the probe sees messages, not the bytes below them",
}
MARK_MEANINGS = (
    ("lower", "≥ at least"),
    ("upper", "≤ at most"),
    ("estimate", "~ estimate"),
    ("bounded", "[a–b] lies between"),
)


def build(summary: Summary, *, cwd: str) -> tuple[Block, ...]:
    """The report's blocks from top to bottom. Paths below ``cwd`` are shown relative to it."""
    notation = Notation()
    body = (
        *_header(summary, notation),
        *_verdict(summary, cwd),
        *_operations(summary, notation),
        *_blocked_by(summary, notation, cwd),
        *_slow_steps(summary, notation, cwd),
        *_executors(summary, notation, cwd),
        *_loop(summary, notation),
        *_findings(summary),
    )
    return (*body, *_footnotes(summary, notation))


# --- header ---------------------------------------------------------------------------------------


def _header(summary: Summary, notation: Notation) -> Iterator[Block]:
    server, counts, probe = summary.server, summary.requests, summary.probe
    yield Flow(
        (
            _one(server.name or "unnamed server", "strong"),
            *(_one(text, "dim") for text in (server.transport, server.loop, f"{server.sdk} {server.sdk_version}")),
            _one(f"Python {server.python}", "dim"),
        ),
        right=_one(figures.instant(summary.window.start_unix), "dim"),
    )
    yield Flow(tuple(_load(summary)))
    if probe.overhead_share is None:
        notation.missing("overhead", "the probe could not measure its own cost")
    cost = figures.fine_share(probe.overhead_share)
    items = [
        _one(f"probe {summary.probe_version}", "dim"),
        _one(f"overhead {cost} of the process's CPU" if probe.overhead_share is not None else f"overhead {cost}", "dim"),
        _one(f"{plural(probe.dropped_marks, 'mark')} dropped", "warn" if probe.dropped_marks else "dim"),
        _one(f"timer {quantity(probe.timer_resolution_ns)} ns", "dim"),
    ]
    if counts.dropped:
        items.insert(2, _one(f"{plural(counts.dropped, 'request')} dropped", "warn"))
    if probe.disabled_hooks:
        items.append(_one(f"{plural(len(probe.disabled_hooks), 'hook')} disabled", "warn"))
    yield Flow(tuple(items))
    if not summary.complete:
        text = "The server was killed or crashed before it could say goodbye: up to the last second may be missing."
        yield Paragraph(_one(text, "warn"), lead=_one("Incomplete: ", "warn"))


def _load(summary: Summary) -> Iterator[Spans]:
    counts, outstanding = summary.requests, summary.outstanding
    yield _one(f"{plural(counts.count, 'request')} in {figures.duration(summary.window.seconds * 1000)}", "plain")
    bad: tuple[tuple[int, str, Role], ...] = (
        (counts.errors, plural(counts.errors, "error"), "critical"),
        (counts.cancelled, f"{quantity(counts.cancelled)} cancelled", "warn"),
        (counts.unfinished, f"{quantity(counts.unfinished)} unfinished", "warn"),
    )
    for number, text, role in bad:
        yield _one(text, role if number else "dim")
    if outstanding.peak:
        yield _one(f"at most {quantity(outstanding.peak)} outstanding", "plain")
    if outstanding.finished_unwritten_peak > 1:
        yield _one(f"{quantity(outstanding.finished_unwritten_peak)} of them answered but not yet written", "plain")
    if outstanding.slope_per_s is not None and outstanding.slope_per_s >= 1:
        yield _one(f"growing by {figures.decimal(outstanding.slope_per_s)} per second", "warn")
    if outstanding.backlog_bytes_peak:
        yield _one(f"backlog up to {figures.size(outstanding.backlog_bytes_peak)}", "plain")


# --- verdict --------------------------------------------------------------------------------------


def _verdict(summary: Summary, cwd: str) -> Iterator[Block]:
    if not summary.requests.count and not summary.operations and summary.verdict.code in _QUIET:
        yield _nothing_seen(summary)
        return
    verdict, finding = summary.verdict, _verdict_finding(summary)
    role = _verdict_role(summary)
    body: list[Paragraph | Flow] = [Paragraph(_inline(verdict.sentence, "strong"), lead=_one("● ", role))]
    if finding is not None and finding.advice:
        body.append(Paragraph(_inline(finding.advice), lead=(Span("→ ", role),)))
    elsewhere = _severity_counts(_other_findings(summary))
    if elsewhere:
        body.append(Paragraph(_one(f"Below: {elsewhere} more.", "dim"), indent=2))
    severity = finding.severity if finding is not None and verdict.code not in _QUIET else ""
    aside = " · ".join(filter(None, (verdict.code, "warning" if severity == "warn" else severity)))
    yield Box("Verdict", aside, role, tuple(body))


_QUIET = ("healthy", "not-enough-data")


def _verdict_role(summary: Summary) -> Role:
    if summary.verdict.code == "healthy":
        return "good"
    finding = _verdict_finding(summary)
    return finding.severity if finding is not None else "info" if summary.verdict.code in _QUIET else "warn"


def _verdict_finding(summary: Summary) -> Finding | None:
    alike = [finding for finding in summary.findings if finding.code == summary.verdict.code]
    return next((finding for finding in alike if finding.subject == summary.verdict.subject), next(iter(alike), None))


def _nothing_seen(summary: Summary) -> Box:
    """No request at all: what that means, and what to look at."""
    seconds = figures.duration(summary.window.seconds * 1000)
    checks = (
        "Did a client connect and call something? A server that only starts up serves no request.",
        "Is the probe attached to the server object that serves? Code that makes a second one escapes it.",
        "`mcp-probe doctor` shows which hooks take hold here and why others do not.",
    )
    sentence = f"No request reached this server in the {seconds} it was watched, so there is nothing to judge."
    return Box(
        "Verdict",
        "no requests",
        "info",
        (
            Paragraph(_one(sentence, "strong"), lead=_one("● ", "info")),
            *(Paragraph(_inline(check), lead=_one("→ ", "info")) for check in checks),
        ),
    )


# --- operations -----------------------------------------------------------------------------------


def _operations(summary: Summary, notation: Notation) -> Iterator[Block]:
    if not summary.operations:
        return
    ranked = sorted(summary.operations, key=lambda operation: -_rank(total_ms(operation)))
    shown, hidden = _split(ranked, OPERATION_ROWS)
    budgets = {id(operation): slices_of(operation) for operation in shown}
    _note_missing(summary, shown, notation)
    yield Heading("Where the time goes", "per call, most total time first")
    rows: list[tuple[Cell, ...] | Paragraph | Flow] = [
        _operation_row(operation, budgets[id(operation)], notation) for operation in shown
    ]
    if hidden:
        rows.append(Paragraph(_one(_hidden_operations(ranked, hidden), "dim"), indent=1))
    rows.extend(_operation_notes(shown))
    yield Grid(
        columns=(
            Column("operation", gap=1, most=36),
            Column("calls", right=True),
            Column("errors", right=True, gap=1),
            Column("p50", right=True, most=16),
            Column("p95", right=True, most=16),
            Column("p99", right=True, most=16),
            Column("share of a request's time", most=30),
            Column("", most=64),
        ),
        rows=tuple(rows),
        # Keep two parts in words beside the bar, then shorten names, and give up p95 before anything else.
        squeeze=((7, 24), (6, 16), (0, 18), (7, 12), (6, 12), (4, 0), (0, 14), (2, 0), (7, 0), (0, 8), (6, 6)),
    )
    yield _legend(budgets.values())


def _operation_row(operation: OperationSummary, slices: tuple[Slice, ...], notation: Notation) -> tuple[Cell, ...]:
    whole = whole_ms(slices)
    quality = operation.quality.get("total_ms", EXACT)
    if operation.unfinished and operation.unfinished == operation.count and quality.tag == "exact":
        quality = Quality("lower")
    if quality.tag == "bounded":  # its bounds belong to the mean, not to any percentile
        quality = Quality("estimate")
    total = operation.total_ms
    latencies = (total.p50, total.p95, total.p99)
    if None in latencies:
        notation.missing(f"percentiles of {operation.name}", "no request of it was seen from arrival to end")
    known = [piece for piece in slices if piece.ms is not None and whole > 0]
    parts = tuple((piece.part.role, piece.part.letter, (piece.ms or 0.0) / whole) for piece in known)
    largest = sorted((piece for piece in known if (piece.ms or 0.0) / whole >= 0.01), key=lambda piece: -(piece.ms or 0))
    items = [_part_item(piece, whole, notation) for piece in largest]
    items += [_one(f"{piece.part.name} {UNKNOWN}", "dim") for piece in slices if piece.ms is None]
    return (
        Words(_operation_name(operation), "middle"),
        _number(quantity(operation.count)),
        _number(quantity(operation.errors), "critical" if operation.errors else "dim"),
        *(_number(notation.duration(value, quality)) for value in latencies),
        Stack(parts) if parts else Words(_one(UNKNOWN, "dim")),
        Items(tuple(items)),
    )


def _operation_name(operation: OperationSummary) -> Spans:
    kind = KINDS.get(operation.method, "" if operation.kind == "request" else operation.kind)
    suffix = (Span(f" {kind}", "dim"),) if kind else ()
    return (Span(operation.name or operation.method or "unnamed", "name"), *suffix)


def _part_item(piece: Slice, whole: float, notation: Notation) -> Spans:
    quality = piece.quality
    ratio = Quality(
        quality.tag,
        None if quality.lo is None else quality.lo / whole,
        None if quality.hi is None else quality.hi / whole,
    )
    return (Span(piece.part.name, piece.part.role), Span(" " + notation.share((piece.ms or 0.0) / whole, ratio)))


def _hidden_operations(ranked: Sequence[OperationSummary], hidden: Sequence[OperationSummary]) -> str:
    whole = sum(map(total_ms, ranked))
    part = f", {figures.share(sum(map(total_ms, hidden)) / whole)} of the time" if whole > 0 else ""
    return f"+{len(hidden)} more: {plural(sum(operation.count for operation in hidden), 'call')}{part}"


def _operation_notes(shown: Sequence[OperationSummary]) -> Iterator[Flow]:
    """What a row cannot hold: requests that never ended, work that outlived its request, sub-figures."""
    unfinished = [(op.name, op.unfinished) for op in shown if op.unfinished]
    cancelled = [(op.name, op.cancelled) for op in shown if op.cancelled]
    for label, role, counted in (("never finished: ", "warn", unfinished), ("cancelled: ", "dim", cancelled)):
        if counted:
            items = tuple(_one(f"{name} ×{quantity(number)}", "plain") for name, number in counted)
            yield Flow(items, lead=(Span(label, _role(role)),), indent=1)
    subs: tuple[tuple[str, str, list[tuple[str, float]]], ...] = (
        ("ran on after its request had ended: ", "in all", [(op.name, op.detached_ms) for op in shown]),
        ("await, of it waiting for the client: ", "per call", _notable(shown, "client_wait_ms")),
        ("queue, of it parsing on the loop: ", "per call", _notable(shown, "decode_ms")),
        ("write, of it serialising on the loop: ", "per call", _notable(shown, "encode_ms")),
    )
    for label, unit, values in subs:
        items = tuple(_one(f"{name} {figures.duration(ms)} {unit}", "plain") for name, ms in values if ms > 0)
        if items:
            yield Flow(items, lead=_one(label, "dim"), indent=1)


def _notable(operations: Iterable[OperationSummary], name: str) -> list[tuple[str, float]]:
    values = [(op, getattr(op, name)) for op in operations]
    return [(op.name, ms) for op, ms in values if ms is not None and ms >= WORTH_SAYING * whole_ms(slices_of(op))]


def _legend(budgets: Iterable[tuple[Slice, ...]]) -> Flow:
    """The parts that occur, each with its letter or colour; what no row could see with the sign of unknown."""
    items: list[Spans] = []
    budgets = list(budgets)
    for index, part in enumerate(PARTS):
        values = [slices[index].ms for slices in budgets]
        if all(value is None for value in values):
            items.append(_one(f"{UNKNOWN} {part.name}", "dim"))
        elif any(values):
            items.append((Span(part.letter, part.role, swatch=True), Span(f" {part.name}", "dim")))
    return Flow(tuple(items), separator="  ", indent=1)


def _note_missing(summary: Summary, shown: Sequence[OperationSummary], notation: Notation) -> None:
    outside = NO_TRANSPORT.get(summary.server.transport, "not visible from where the probe is attached")
    inside = "a hook is disabled, see below" if summary.probe.disabled_hooks else f"not visible on {summary.server.loop}"
    for part in PARTS:
        why = outside if part.name in ("queue", "write") else inside
        for name in part.fields:
            without = [op.name for op in shown if getattr(op.budget_ms, name) is None]
            if without and len(without) == len(shown):
                notation.missing(name, why)
            elif without:
                rest = f" and {len(without) - 3} more" if len(without) > 3 else ""
                notation.missing(f"{name} of {', '.join(without[:3])}{rest}", why)


# --- who waited for whom, slow steps --------------------------------------------------------------


def _blocked_by(summary: Summary, notation: Notation, cwd: str) -> Iterator[Block]:
    waits = sorted((wait for wait in summary.blocked_by if wait.hi_ms > 0), key=lambda wait: -_rank(wait.hi_ms))
    if not waits:
        return
    shown, hidden = _split(waits, BLOCKED_ROWS)
    longest = shown[0].hi_ms
    rows: list[tuple[Cell, ...] | Paragraph | Flow] = [
        (
            Words(_one(wait.victim, "name"), "middle"),
            Words(_one(f"×{quantity(wait.victims)}", "dim")),
            Words((Span("waited ", "dim"), Span(_waited(wait, notation), "strong"))),
            Gauge(wait.hi_ms / longest, "part-ready", track=False),
            Words((Span("for ", "dim"), Span(PSEUDO_BLOCKERS.get(wait.blocker, wait.blocker), "name")), "middle"),
            _blocker_place(summary, wait.blocker, notation, cwd),
        )
        for wait in shown
    ]
    if hidden:
        most = figures.duration(sum(wait.hi_ms for wait in hidden))
        rows.append(Paragraph(_one(f"+{len(hidden)} more pairs: {most} at most", "dim"), indent=1))
    yield Heading("Who waited for whom", "sums over the window")
    yield Grid(
        columns=(
            Column(gap=1, most=32),
            Column(right=True, gap=1),
            Column(),
            Column(most=10),
            Column(most=40),
            Column(most=60),
        ),
        rows=tuple(rows),
        squeeze=((5, 26), (0, 18), (4, 22), (3, 0), (5, 14), (0, 12), (4, 12), (5, 0), (0, 8), (4, 8), (1, 0)),
    )


def _waited(wait: BlockedBy, notation: Notation) -> str:
    if wait.lo_ms < wait.hi_ms:
        return notation.duration(wait.hi_ms, Quality("bounded", wait.lo_ms, wait.hi_ms))
    return notation.duration(wait.hi_ms, Quality(wait.quality if wait.quality != "unavailable" else "estimate"))


def _blocker_place(summary: Summary, blocker: str, notation: Notation, cwd: str) -> Cell:
    """Where the blocker spent most of its slow time, and why it was slow there."""
    steps = [step for step in summary.slow_steps if step.tool == blocker]
    if not steps:
        return Items(())
    worst = max(steps, key=lambda step: (_rank(step.total_ms), _rank(step.ms)))
    where = _where(worst, notation, cwd)
    return Items((where, _one(CAUSES[worst.cause], "dim")) if where else (_one(CAUSES[worst.cause], "dim"),), "start")


def _slow_steps(summary: Summary, notation: Notation, cwd: str) -> Iterator[Block]:
    steps = sorted(summary.slow_steps, key=lambda step: (-_rank(step.total_ms), -_rank(step.ms)))
    if not steps:
        return
    shown, hidden = _split(steps, STEP_ROWS)
    rows: list[tuple[Cell, ...] | Paragraph | Flow] = [_step_row(step, notation, cwd) for step in shown]
    if hidden:
        longest = figures.duration(max(step.ms for step in hidden))
        rows.append(Paragraph(_one(f"+{len(hidden)} more places: {longest} at most", "dim"), indent=1))
    yield Heading("Slow steps", "uninterrupted runs on the event loop")
    yield Grid(
        columns=(
            Column("step of", gap=1, most=32),
            Column("longest", right=True),
            Column("median", right=True),
            Column("times", right=True),
            Column("cause"),
            Column("where", most=80),
        ),
        rows=tuple(rows),
        squeeze=((5, 24), (0, 18), (2, 0), (5, 18), (0, 12), (5, 12), (4, 8), (3, 0), (0, 8), (5, 8)),
    )


def _step_row(step: SlowStep, notation: Notation, cwd: str) -> tuple[Cell, ...]:
    role: Role = "critical" if step.ms >= CRITICAL_STEP_MS else "warn"
    longest = notation.duration(step.ms, Quality("lower") if step.running else EXACT)
    # Defaults of the model: one step is its own median; of several, 0 says that nobody computed it.
    median = step.p50_ms or (step.ms if step.count == 1 else None)
    where = _where(step, notation, cwd)
    if where is None:
        notation.missing(f"place of {step.tool}'s slow steps", "the watchdog got no sample while they ran")
    function = (_one(f"{step.function}()" if step.function.isidentifier() else step.function, "dim"),) if step.function else ()
    cause = CAUSES[step.cause] + (", still running" if step.running else "")
    return (
        Words(_one(PSEUDO_BLOCKERS.get(step.tool, step.tool), "name"), "middle"),
        _number(longest, role),
        _number(figures.duration(median)),
        _number(quantity(step.count)),
        Words(_one(cause, "plain")),
        Items((where or _one(UNKNOWN, "dim"), *function), "start"),
    )


def _where(step: SlowStep, notation: Notation, cwd: str) -> Spans | None:
    where = place(step.file, step.line, cwd)
    return None if where is None else _one(notation.mark(step.quality) + where, "place")


# --- executors ------------------------------------------------------------------------------------


def _executors(summary: Summary, notation: Notation, cwd: str) -> Iterator[Block]:
    ranked = sorted(summary.executors, key=lambda pool: (-_rank(pool.at_limit_share), -_rank(pool.wait_max_ms or 0.0)))
    if not ranked:
        return
    shown, hidden = _split(ranked, EXECUTOR_ROWS)
    rows: list[tuple[Cell, ...] | Paragraph | Flow] = []
    for pool in shown:
        rows.append(_executor_row(pool, notation))
        details = tuple(_executor_details(pool, cwd))
        if details:
            rows.append(Flow(details, indent=3))
    if hidden:
        jobs = plural(sum(pool.jobs for pool in hidden), "job")
        rows.append(Paragraph(_one(f"+{len(hidden)} more: {jobs}", "dim"), indent=1))
    yield Heading("Executors", "threads: peaks over the window, waits per job")
    yield Grid(
        columns=(
            Column("executor", gap=1, most=32),
            Column("borrowed", most=10),
            Column("of max", right=True, gap=1),
            Column("active", right=True),
            Column("pending", right=True),
            Column("wait p50", right=True, most=14),
            Column("p99", right=True, most=14),
            Column("at limit", right=True),
            Column("needed", right=True),
        ),
        rows=tuple(rows),
        squeeze=((0, 20), (1, 6), (0, 14), (1, 0), (3, 0), (5, 0), (0, 8), (8, 0), (7, 0)),
    )


def _executor_row(pool: ExecutorSummary, notation: Notation) -> tuple[Cell, ...]:
    if pool.wait_ms.p50 is None and pool.jobs:
        notation.missing(f"waits of {pool.name}", "none of its jobs was seen getting a thread")
    if pool.tokens_needed is None and pool.jobs:
        notation.missing(f"threads needed of {pool.name}", "none of its jobs was seen ending")
    full = pool.max is not None and pool.borrowed_peak >= pool.max
    role: Role = "critical" if pool.at_limit_share > 0.05 else "warn" if full else "part-run"
    short = pool.tokens_needed is not None and pool.max is not None and pool.tokens_needed > pool.max
    return (
        Words(_one(pool.name or "unnamed", "name"), "middle"),
        Gauge(pool.borrowed_peak / pool.max if pool.max else None, role),
        _number(f"{quantity(pool.borrowed_peak)}/{'no max' if pool.max is None else figures.decimal(pool.max)}"),
        _number(quantity(pool.active_peak)),
        _number(quantity(pool.pending_peak), "warn" if pool.pending_peak else "dim"),
        _number(notation.duration(pool.wait_ms.p50)),
        _number(notation.duration(pool.wait_ms.p99)),
        _number(figures.share(pool.at_limit_share), "critical" if pool.at_limit_share > 0.05 else "plain"),
        _number(figures.decimal(pool.tokens_needed), "critical" if short else "plain"),
    )


def _executor_details(pool: ExecutorSummary, cwd: str) -> Iterator[Spans]:
    if pool.transport_wait_max_ms > 0:
        longest = figures.duration(pool.transport_wait_max_ms)
        yield _one(f"the transport itself waited up to {longest} for a thread", "critical" if pool.transport_wait_max_ms > 50 else "plain")
    if pool.holders:
        rest = f" and {len(pool.holders) - 4} more" if len(pool.holders) > 4 else ""
        yield (Span("held by ", "dim"), Span(", ".join(pool.holders[:4]) + rest))
    if pool.jobs:
        run = "" if pool.run_ms is None else f" of {figures.duration(pool.run_ms)}"
        yield _one(f"{plural(pool.jobs, 'job')}{run}", "dim")
    if pool.return_ms is not None and pool.return_ms >= 1:
        yield _one(f"{figures.duration(pool.return_ms)} from done to resumed", "dim")
    if pool.abandoned:
        yield _one(f"{plural(pool.abandoned, 'job')} abandoned", "warn")
    if pool.transport_jobs:
        yield _one(f"{plural(pool.transport_jobs, 'job')} of the transport", "dim")
    if pool.made_at:
        file, colon, line = pool.made_at.rpartition(":")
        where = place(file, int(line), cwd) if colon and line.isdigit() else place(pool.made_at, None, cwd)
        yield _one(f"made at {where}", "dim")


# --- loop -----------------------------------------------------------------------------------------


def _loop(summary: Summary, notation: Notation) -> Iterator[Block]:
    loop, delay = summary.loop, summary.loop.arrival_delay_ms
    quality = Quality(loop.quality)
    if loop.utilization is None and delay.mean is None:
        if summary.requests.count:
            notation.missing("event-loop health", f"not visible on {summary.server.loop}")
            yield Heading("Event loop")
            yield Paragraph((Span("utilization ", "dim"), Span(UNKNOWN), Span("  arrival delay ", "dim"), Span(UNKNOWN)), indent=1)
        return
    yield Heading("Event loop", summary.server.loop)
    busy = loop.utilization or 0.0
    role: Role = "critical" if busy > 0.9 else "warn" if busy > 0.7 else "part-busy"
    yield Grid(
        columns=(Column(gap=1), Column(most=30), Column(), Column(most=60)),
        rows=(
            (
                Words(_one("utilization", "dim")),
                Gauge(loop.utilization, role),
                Words(_one(notation.share(loop.utilization, quality), "strong")),
                Items(tuple(_busy_split(summary))),
            ),
        ),
        squeeze=((3, 0), (1, 10)),
    )
    yield Paragraph(_delay_sentence(summary, notation, quality), indent=1)


def _busy_split(summary: Summary) -> Iterator[Spans]:
    """What the loop's busy time was, as far as the operating system says."""
    signals = summary.signals
    if signals.busy_ms <= 0 or signals.loop_cpu_ms is None:
        return
    parts = (
        ("on the CPU", signals.loop_cpu_ms),
        ("off it, blocked", signals.off_cpu_ms),
        ("waiting for a CPU", signals.run_queue_ms),
        ("in garbage collection", signals.gc_pause_ms),
    )
    for label, ms in parts:
        if ms is not None and ms >= 0.01 * signals.busy_ms:
            yield (Span(figures.share(ms / signals.busy_ms)), Span(f" {label}", "dim"))


def _delay_sentence(summary: Summary, notation: Notation, quality: Quality) -> Spans:
    delay = summary.loop.arrival_delay_ms
    if delay.mean is None:
        notation.missing("arrival delay", f"not visible on {summary.server.loop}")
        return (Span(f"A request arriving at a random moment waits {UNKNOWN}."),)
    spans = [
        Span("A request arriving at a random moment waits "),
        Span(notation.duration(delay.mean, quality), "strong"),
        Span(" on average"),
    ]
    tails: tuple[tuple[str, float | None, str], ...] = (
        ("; one in two ", delay.p50, " or more"),
        (", one in ten ", delay.p90, ""),
        (", one in a hundred ", delay.p99, ""),
        ("; the longest wait was ", delay.max, ""),
    )
    for before, value, after in tails:
        if value is not None:
            alarming = value >= CRITICAL_STEP_MS
            spans += [Span(before), Span(notation.duration(value, quality), "critical" if alarming else "strong"), Span(after)]
    return (*spans, Span("."))


# --- findings -------------------------------------------------------------------------------------


def _other_findings(summary: Summary) -> list[Finding]:
    told = _verdict_finding(summary)
    others = [finding for finding in summary.findings if finding is not told]
    return sorted(others, key=lambda finding: (SEVERITIES.index(finding.severity), -_rank(finding.cost_ms)))


def _findings(summary: Summary) -> Iterator[Block]:
    shown, hidden = _split(_other_findings(summary), FINDING_ROWS)
    if not shown:
        return
    yield Heading("Also found" if summary.verdict.code not in _QUIET else "Findings", _severity_counts([*shown, *hidden]))
    for finding in shown:
        label = "warning" if finding.severity == "warn" else finding.severity
        sure = "" if finding.confidence == "exact" else f" ({finding.confidence})"
        lead = (Span(f" {label:<8} ", finding.severity),)
        yield Paragraph((*_inline(finding.sentence), Span(f"  {finding.code}{sure}", "dim")), lead=lead)
        if finding.advice:
            yield Paragraph(_inline(finding.advice, "dim"), lead=(Span("→ ", "dim"),), indent=10)
    if hidden:
        yield Paragraph(_one(f"+{len(hidden)} more, all in the JSON summary", "dim"), indent=10)


def _severity_counts(findings: Sequence[Finding]) -> str:
    texts = []
    for severity in SEVERITIES:
        number = sum(finding.severity == severity for finding in findings)
        if number:
            texts.append(f"{number} {SEVERITY_NOUNS[severity][number > 1]}")
    return ", ".join(texts)


# --- footnotes ------------------------------------------------------------------------------------


def _footnotes(summary: Summary, notation: Notation) -> Iterator[Block]:
    yield Heading("Notes")
    unavailable = [f"{', '.join(names)} ({why})" for names, why in notation.unavailable()]
    if unavailable:
        yield _note(f"{UNKNOWN} unavailable: ", "; ".join(unavailable) + ".")
    marks = [text for tag, text in MARK_MEANINGS if tag in notation.used]
    if marks:
        yield _note("marks: ", ", ".join(marks) + "; figures without a mark are exact.")
    for hook in summary.probe.disabled_hooks:
        yield _note("disabled hook ", hook)
    for note in dict.fromkeys((*summary.notes, *summary.probe.notes)):
        yield _note("", note)
    yield _note("everything as JSON: ", "`mcp-probe run --json FILE`, `mcp-probe report --json`, `probe.snapshot().to_json()`")
    yield _note("to keep a recording: ", "`mcp-probe run --record FILE`, read again by `mcp-probe report FILE`")


def _note(label: str, text: str) -> Paragraph:
    return Paragraph((Span(label, "dim"), *_inline(text, "dim")), indent=1)


# --- small pieces ---------------------------------------------------------------------------------


def _one(text: str, role: Role) -> Spans:
    return (Span(text, role),) if text else ()


def _role(name: str) -> Role:
    return "warn" if name == "warn" else "dim"


def _inline(text: str, role: Role = "plain") -> Spans:
    """A sentence in which `backticks` mark code; they stay, since not every output has colour."""
    pieces = text.split("`")
    if len(pieces) % 2 == 0:
        return _one(text, role)
    spans = [Span(f"`{piece}`" if odd % 2 else piece, "code" if odd % 2 else role) for odd, piece in enumerate(pieces)]
    return tuple(span for span in spans if span.text)


def _number(text: str, role: Role = "plain") -> Words:
    return Words(_one(text, "dim" if text == UNKNOWN else role))


def _rank(value: float) -> float:
    """A sort key that no NaN can spoil."""
    return value if value == value else 0.0


def _split(rows: Sequence, most: int) -> tuple[Sequence, Sequence]:  # type: ignore[type-arg]
    """The rows to show and the rest; a single leftover is shown, since saying so takes as much room."""
    return (rows, ()) if len(rows) <= most + 1 else (rows[:most], rows[most:])
