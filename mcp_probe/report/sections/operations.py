"""Where the time goes: one row per operation, its budget as a bar and in words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Literal

from mcp_probe.aggregate.backends import backend_of
from mcp_probe.aggregate.checks.evidence import waited_for_ms
from mcp_probe.aggregate.grown import told
from mcp_probe.aggregate.quality import total_quality
from mcp_probe.aggregate.thresholds import FindingOptions
from mcp_probe.model import AwaitSummary, OperationSummary, Quality, Summary, Tag
from mcp_probe.report import figures
from mcp_probe.report.blocks import (
    Block,
    Cell,
    Column,
    Flow,
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
from mcp_probe.report.budget import PARTS, Slice, known_ms, slices_of, total_ms, whole_ms
from mcp_probe.report.figures import EXACT, UNKNOWN, Notation, plural, quantity
from mcp_probe.report.phrases import first, number, one, prose, rank
from mcp_probe.report.sections.awaits import LABELS as AWAITED

OPERATION_ROWS = 15
SLOW_ROWS = 3
LATE_FLUSH_MS = FindingOptions().flush_ms  # p95, from which a client is said not to read
NAMES_IN_A_LINE = 8
VISIBLE = 0.01  # share of a request's time from which a part is named
WORTH_SAYING = 0.1  # share of an operation's time from which a sub-figure gets a line of its own
WORTH_SAYING_MS = 1.0
NEVER_ENDED = "no request of it ever ended"
KINDS = {"prompts/get": "prompt", "resources/read": "resource"}
NO_TRANSPORT = {
    "memory": "the client calls the server in its own process: nothing is queued and nothing is written",
    "streams": "the probe sees messages, not the bytes below them",
}


def operations(summary: Summary, notation: Notation) -> Iterator[Block]:
    if not summary.operations:
        return
    ranked = sorted(summary.operations, key=lambda operation: -rank(total_ms(operation)))
    shown, hidden = first(ranked, OPERATION_ROWS)
    budgets = {id(operation): slices_of(operation) for operation in shown}
    _note_missing(summary, shown, notation)
    nowhere = _nowhere(budgets.values())
    yield Heading("Where the time goes", "most total time first; all calls together, then per call")
    rows: list[tuple[Cell, ...] | Paragraph | Flow] = [
        _operation_row(operation, budgets[id(operation)], notation, nowhere) for operation in shown
    ]
    if hidden:
        rows.append(Paragraph(one(_hidden_operations(ranked, hidden), "dim"), indent=1))
    rows.append(_legend(budgets.values()))
    rows.extend(_slow_calls(ranked))
    rows.extend(_operation_notes(ranked))
    yield Grid(
        columns=(
            Column("operation", gap=1, most=36),
            Column("calls", right=True),
            Column("err" if any(operation.errors for operation in shown) else "", right=True, gap=1),
            Column("in all", right=True, most=16),
            Column("p50", right=True, most=16),
            Column("p95", right=True, most=16),
            Column("p99", right=True, most=16),
            Column("share of time", most=32),
            Column(most=64),
        ),
        rows=tuple(rows),
        # Keep two parts in words beside the bar, then shorten names, and give up p99 before the parts: findings speak
        # of p95.
        squeeze=(
            *((8, 40), (7, 16), (0, 24), (8, 28), (7, 12), (0, 18)),
            *((6, 0), (8, 18), (0, 16), (7, 10), (8, 15), (0, 12), (0, 8), (7, 6), (8, 11), (8, 0), (2, 0)),
        ),
    )


def _operation_row(
    operation: OperationSummary, slices: tuple[Slice, ...], notation: Notation, said: frozenset[str]
) -> tuple[Cell, ...]:
    """``said``: parts that the legend calls unavailable for every row."""
    whole = whole_ms(slices)
    total = operation.total_ms
    latencies = {"p50": total.p50, "p95": total.p95, "p99": total.p99}
    for name, value in latencies.items():
        if value is None:
            why = NEVER_ENDED if _endless(operation) else "too few requests were seen from arrival to end"
            notation.missing(name, why, operation.name)
    known = [piece for piece in slices if piece.ms is not None and whole > 0]
    parts = tuple((piece.part.role, piece.part.letter, (piece.ms or 0.0) / whole) for piece in known)
    largest = sorted(known, key=lambda piece: -(piece.ms or 0.0))
    visible = [piece for piece in largest if _visible(piece, slices)]
    items = [item for piece in visible for item in _items(piece, operation, whole, notation)]
    if parts:
        unseen = [piece.part.name for piece in slices if piece.ms is None and piece.part.name not in said]
        items += [one(f"{name} {UNKNOWN}", "dim") for name in unseen]
    return (
        Items(_operation_name(operation), "middle"),
        number(quantity(operation.count)),
        number(quantity(operation.errors) if operation.errors else "", "critical"),
        number(_waited_for(operation, notation), "strong"),
        *(number(notation.duration(value, _quality_of(operation, name))) for name, value in latencies.items()),
        Stack(parts) if parts else Words(one(UNKNOWN, "dim")),
        Items(tuple(items), _shorten(visible, operation)),
    )


def _shorten(visible: Sequence[Slice], operation: OperationSummary) -> Literal["start", "middle", "end"]:
    """Where the largest part's words may be cut: a host's name is long, and the share its end."""
    if visible and visible[0].part.name == "write":
        return "start"
    return "middle" if operation.awaits else "end"


def clients_waited(summary: Summary, notation: Notation) -> str:
    """What clients waited for all calls together, as far as that is known."""
    return _in_all(summary.clients_waited_ms or 0.0, summary.clients_waited_quality, notation)


def _waited_for(operation: OperationSummary, notation: Notation) -> str:
    """What clients waited for all its calls together, as far as that is known. Nobody waits for a notification."""
    if operation.kind == "notification":
        return ""
    ms = waited_for_ms(operation)
    return _in_all(ms, operation.quality.get("all_calls_ms", EXACT), notation) if ms else UNKNOWN


def _in_all(ms: float, quality: Quality, notation: Notation) -> str:
    """A sum that may be more by so little that it reads the same is shown without its bounds."""
    if quality.tag == "bounded":
        is_more = quality.hi is None or figures.duration(ms) != figures.duration(quality.hi)
        quality = Quality("lower") if is_more else EXACT
    return notation.duration(ms, quality)


def _quality_of(operation: OperationSummary, percentile: str) -> Quality:
    quality = total_quality(operation, percentile)
    return Quality("lower") if quality.tag == "exact" and _endless(operation) else quality


def _operation_name(operation: OperationSummary) -> tuple[Spans, ...]:
    kind = KINDS.get(operation.method, "" if operation.kind == "request" else operation.kind)
    return (one(operation.name or operation.method or "unnamed", "name"), *((one(kind, "dim"),) if kind else ()))


def _items(piece: Slice, operation: OperationSummary, whole: float, notation: Notation) -> Iterator[Spans]:
    """One part in words; awaiting and the run of jobs by what they waited for, as far as that is known."""
    if piece.part.name == "write" and piece.quality.tag in ("exact", "estimate"):
        yield from _write_items(piece, operation, whole, notation)
        return
    awaits = [found for found in operation.awaits if piece.part.fields == (found.stage,)]
    if not awaits or not operation.count:
        yield _part_item(piece, whole, _earlier(operation), notation)
        return
    waited: dict[str, float] = {}
    for found in awaits:
        waited[_awaited(found)] = waited.get(_awaited(found), 0.0) + found.total_ms / operation.count
    vague = {_awaited(found) for found in awaits if found.quality != "exact"}
    shown = {name: ms for name, ms in waited.items() if name != "other" and ms >= VISIBLE * whole}
    for name, ms in sorted(shown.items(), key=lambda item: -item[1]):
        quality = Quality("estimate") if name in vague else EXACT
        named = replace(piece, ms=ms, quality=quality, name=name)
        yield _part_item(named, whole, _earlier(operation), notation)
    rest = (piece.ms or 0.0) - sum(shown.values())
    if rest >= VISIBLE * whole:
        yield _part_item(replace(piece, ms=rest, quality=EXACT), whole, _earlier(operation), notation)


def _write_items(piece: Slice, operation: OperationSummary, whole: float, notation: Notation) -> Iterator[Spans]:
    """What the answer waited for on its way out; what nobody can name has the part's own name.

    Only longer waits of the writer are known, so what is left of its time is an upper bound.
    """
    seen = operation.write_ms
    wait, flush = known_ms(operation, "write_wait") or 0.0, known_ms(operation, "write_flush") or 0.0
    encoding = min(flush, operation.encode_ms or 0.0)
    sending = max(0.0, flush - encoding - seen.flush_loop - seen.flush_thread)
    is_late = (operation.write_flush_p95_ms or 0.0) > LATE_FLUSH_MS and sending > flush / 2
    causes: tuple[tuple[str, float, Tag], ...] = (
        ("loop busy", seen.wait_loop + seen.flush_loop, "lower"),
        ("no thread", seen.wait_thread + seen.flush_thread, "lower"),
        ("encoding", encoding, "exact"),
        ("others first", max(0.0, wait - seen.wait_loop - seen.wait_thread), "upper"),
        ("slow client", sending if is_late else 0.0, "upper"),
    )
    shown = [cause for cause in causes if cause[1] >= VISIBLE * whole]
    rest = (piece.ms or 0.0) - sum(ms for _, ms, _ in shown)
    if not shown or rest >= VISIBLE * whole:
        shown.append(("", rest, "exact"))
    for name, ms, tag in sorted(shown, key=lambda cause: -cause[1]):
        quality = Quality(tag) if piece.quality.tag == "exact" else piece.quality
        named = replace(piece, ms=ms, quality=quality, name=f"{piece.name}: {name}" if name else piece.name)
        yield _part_item(named, whole, _earlier(operation), notation)


def _awaited(found: AwaitSummary) -> str:
    """In a word: the host of a backend, else the kind."""
    backend = backend_of(found.object) if found.kind in ("connect", "http", "db") else None
    return AWAITED.get(found.kind, found.kind) if backend is None else figures.brief(backend.host)


def _part_item(piece: Slice, whole: float, earlier: float, notation: Notation) -> Spans:
    """``earlier``: by how much the request may have come earlier. That makes the queue longer, and with it the whole;
    other parts only change places within it."""
    ms, quality = piece.ms or 0.0, piece.quality
    inside = piece.part.name == "queue"
    least, most = (ms, ms) if quality.tag == "exact" else (quality.lo, quality.hi)
    longest = whole + earlier
    ratio = Quality(
        quality.tag if quality.tag != "exact" or not earlier else "bounded",
        None if least is None else least / (whole if inside else longest),
        None if most is None else most / (longest if inside else whole),
    )
    return (Span(piece.name, piece.part.role), Span(" " + notation.share(ms / whole, ratio)))


def _earlier(operation: OperationSummary) -> float:
    """By how much an average request of it may have come earlier than is certain, ms."""
    known, most = known_ms(operation, "queue_transport"), operation.quality.get("queue_transport", EXACT).hi
    return 0.0 if known is None or most is None else max(0.0, most - known)


def _hidden_operations(ranked: Sequence[OperationSummary], hidden: Sequence[OperationSummary]) -> str:
    whole = sum(map(total_ms, ranked))
    part = f", {figures.share(sum(map(total_ms, hidden)) / whole)} of the time" if whole > 0 else ""
    return f"+{len(hidden)} more: {plural(sum(operation.count for operation in hidden), 'call')}{part}"


def _slow_calls(operations: Sequence[OperationSummary]) -> Iterator[Paragraph]:
    """What makes slow calls slow: of the operations whose slow calls take most time in all."""
    known = [(found, operation) for operation in operations if (found := operation.slow_calls) is not None]
    known.sort(key=lambda row: -(row[0].slow_ms - row[0].quick_ms) * row[0].slow_calls)
    for found, operation in known[:SLOW_ROWS]:
        took = (
            f" {figures.duration(found.slow_ms)} on average around p95, {figures.duration(found.quick_ms)} in the "
            "quicker half; the difference: "
        )
        lead = (Span("slow calls of ", "dim"), Span(figures.brief(operation.name), "name"))
        yield Paragraph((*lead, Span(took), *prose(told(found, operation.name) + ".")), lead=(Span(" "),), indent=1)


def _operation_notes(operations: Sequence[OperationSummary]) -> Iterator[Flow]:
    """What a row cannot hold: requests that never ended, work that outlived its request, sub-figures."""
    counted: tuple[tuple[str, Role, list[tuple[str, int]]], ...] = (
        ("never finished: ", "warn", [(op.name, op.unfinished) for op in operations if op.unfinished]),
        ("cancelled: ", "dim", [(op.name, op.cancelled) for op in operations if op.cancelled]),
    )
    for label, role, counts in counted:
        yield from _named(label, role, [f"{figures.brief(name)} ×{quantity(number)}" for name, number in counts])
    timed: tuple[tuple[str, str, list[tuple[str, float]]], ...] = (
        ("ran on after its request had ended: ", "in all", [(op.name, op.detached_ms) for op in operations]),
        ("of its await, the client took: ", "per call", _notable(operations, "client_wait_ms")),
        ("of its queue, parsing on the loop took: ", "per call", _notable(operations, "decode_ms")),
        ("of its write, encoding on the loop took: ", "per call", _notable(operations, "encode_ms")),
    )
    sent = [(op, _pipe_wait(op)) for op in operations]
    yield from _named(
        "waited unread before it arrived, p50 and max: ",
        "dim",
        [f"{figures.brief(op.name)} {text}" for op, text in sent if text],
    )
    for label, unit, values in timed:
        texts = [f"{figures.brief(name)} {figures.duration(ms)} {unit}" for name, ms in values if ms >= WORTH_SAYING_MS]
        yield from _named(label, "dim", texts)


def _pipe_wait(operation: OperationSummary) -> str:
    """Only clients that say when they wrote a request make this known; `mcp-probe load` does."""
    wait = operation.pipe_wait_ms
    mark = figures.MARKS.get(operation.quality.get("pipe_wait_ms", EXACT).tag, "")
    return "" if wait.p50 is None else f"{mark}{figures.duration(wait.p50)}, {mark}{figures.duration(wait.max)}"


def _named(label: str, role: Role, texts: Sequence[str]) -> Iterator[Flow]:
    shown, hidden = first(texts, NAMES_IN_A_LINE)
    more = (one(f"+{len(hidden)} more", "dim"),) if hidden else ()
    if shown:
        yield Flow((*(one(text, "plain") for text in shown), *more), lead=one(label, role), indent=1)


def _notable(operations: Iterable[OperationSummary], name: str) -> list[tuple[str, float]]:
    values = [(op, getattr(op, name)) for op in operations]
    return [(op.name, ms) for op, ms in values if ms is not None and ms >= WORTH_SAYING * whole_ms(slices_of(op))]


def _legend(budgets: Iterable[tuple[Slice, ...]]) -> Flow:
    """The parts that occur, each with its letter or colour; what no row could see with the sign of unknown."""
    items: list[Spans] = []
    budgets = list(budgets)
    nowhere = _nowhere(budgets)
    for index, part in enumerate(PARTS):
        if part.name in nowhere:
            items.append(one(f"{UNKNOWN} {part.name}", "dim"))
        elif any(_visible(slices[index], slices) for slices in budgets):
            items.append((Span(part.letter, part.role, swatch=True), Span(f" {part.name}: {part.meaning}", "dim")))
    return Flow(tuple(items), separator="  ", indent=1)


def _nowhere(budgets: Iterable[tuple[Slice, ...]]) -> frozenset[str]:
    """Parts unavailable in every row, as far as a row has any part at all."""
    seen = [slices for slices in budgets if any(piece.ms is not None for piece in slices)]
    unseen = [part.name for index, part in enumerate(PARTS) if all(slices[index].ms is None for slices in seen)]
    return frozenset(unseen if seen else ())


def _visible(piece: Slice, slices: tuple[Slice, ...]) -> bool:
    return piece.ms is not None and piece.ms > 0 and piece.ms >= VISIBLE * whole_ms(slices)


def _note_missing(summary: Summary, shown: Sequence[OperationSummary], notation: Notation) -> None:
    outside = NO_TRANSPORT.get(summary.server.transport, "not visible from where the probe is attached")
    inside = (
        "a hook is disabled, see below" if summary.probe.disabled_hooks else f"not visible on {summary.server.loop}"
    )
    partly = [operation for operation in shown if any(piece.ms is not None for piece in slices_of(operation))]
    for operation in shown:
        if operation not in partly:
            notation.missing("share of time", NEVER_ENDED if _endless(operation) else inside, operation.name)
    for part in PARTS if partly else ():
        why = outside if part.name in ("queue", "write") else inside
        without = {name: [op for op in partly if known_ms(op, name) is None] for name in part.fields}
        if all(len(lacking) == len(partly) for lacking in without.values()):
            notation.missing(part.name, why)
            continue
        for name, lacking in without.items():
            if len(lacking) == len(partly):
                notation.missing(name, why)
                continue
            for operation in lacking:
                if part.name != "write" or operation.kind != "notification":  # nobody answers that
                    notation.missing(name, why, operation.name)


def _endless(operation: OperationSummary) -> bool:
    return 0 < operation.count <= operation.unfinished
