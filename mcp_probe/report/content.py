"""What the report says, in which order and in which words. How wide and how coloured it is, others decide.

The order answers a reader who stops at any line: who was profiled, the verdict, where the time goes, who waited
for whom, which step was slow, which pool is full, how the loop is, what else was found, how exact all this is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mcp_probe.aggregate import phrasing
from mcp_probe.model import Finding, Severity, Summary
from mcp_probe.report import figures
from mcp_probe.report.blocks import Block, Box, Flow, Heading, Paragraph, Role, Span, Spans
from mcp_probe.report.figures import UNKNOWN, Notation, plural, quantity
from mcp_probe.report.phrases import first, one, prose, rank
from mcp_probe.report.sections.awaits import awaits
from mcp_probe.report.sections.executors import executors
from mcp_probe.report.sections.leaks import leaks
from mcp_probe.report.sections.loop import event_loop
from mcp_probe.report.sections.measures import measures
from mcp_probe.report.sections.memory import memory
from mcp_probe.report.sections.operations import operations
from mcp_probe.report.sections.waits import blocked_by, slow_steps

FINDING_ROWS = 12
SEVERITIES: tuple[Severity, ...] = ("critical", "warn", "info")
SEVERITY_NOUNS = {"critical": ("critical", "critical"), "warn": ("warning", "warnings"), "info": ("note", "notes")}
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
        *_verdict(summary),
        *operations(summary, notation),
        *blocked_by(summary, notation, cwd),
        *slow_steps(summary, notation, cwd),
        *awaits(summary, notation, cwd),
        *leaks(summary, notation, cwd),
        *executors(summary, notation, cwd),
        *memory(summary, notation),
        *measures(summary, notation),
        *event_loop(summary, notation),
        *_findings(summary),
    )
    return (*body, *_footnotes(summary, notation))


# --- header ---------------------------------------------------------------------------------------


def _header(summary: Summary, notation: Notation) -> Iterator[Block]:
    server, counts, probe = summary.server, summary.requests, summary.probe
    sdk = f"{server.sdk} {server.sdk_version}" if server.sdk_version != "unknown" else ""  # functions only, no server
    yield Flow(
        (
            one(server.name or "unnamed server", "strong"),
            *(one(text, "dim") for text in (server.transport, server.loop, sdk) if text and text != "unknown"),
            one(f"Python {server.python}", "dim"),
        ),
        right=one(figures.instant(summary.window.start_unix), "dim"),
    )
    yield Flow(tuple(_load(summary)))
    if probe.overhead_share is None:
        notation.missing("overhead", "the probe could not measure its own cost")
    cost = figures.fine_share(probe.overhead_share)
    more = "" if cost.startswith("<") else " or more"  # the hooks' part is timed warm: a lower bound
    items = [
        one(f"mcp-probe {summary.probe_version}", "dim"),
        one(
            f"overhead {cost}{more} of the process's CPU" if probe.overhead_share is not None else f"overhead {cost}",
            "dim",
        ),
        one(f"{plural(probe.dropped_marks, 'mark')} dropped", "warn" if probe.dropped_marks else "dim"),
        one(f"timer {quantity(probe.timer_resolution_ns)} ns", "dim"),
    ]
    if probe.accelerator is not None:
        items.append(one("accelerated" if probe.accelerator == "active" else "not accelerated, see below", "dim"))
    if summary.leaks is not None:
        items.append(one("slowed down by the leak hunt, see below", "warn"))
    if counts.dropped:
        items.insert(2, one(f"{plural(counts.dropped, 'request')} dropped", "warn"))
    if probe.disabled_hooks:
        items.append(one(f"{plural(len(probe.disabled_hooks), 'hook')} disabled", "warn"))
    if any(delivery.undelivered for delivery in probe.telemetry):
        items.append(one("telemetry not all delivered, see below", "warn"))
    yield Flow(tuple(items))
    if server.processes > 1:
        which = "One process" if server.pid is None else f"Process {server.pid}, one"
        text = f"{which} of {server.processes} that served MCP. Each has a report of its own, of its own requests."
        yield Paragraph(one(text, "warn"))
    if server.behind_proxy:
        text = "Requests arrive with the proxy's bytes. What they waited in it, or on their way to it, is in no figure."
        yield Paragraph(one(text, "warn"), lead=one("Behind a proxy: ", "warn"))
    if not summary.complete:
        text = "The server was killed or crashed: up to its last second may be missing."
        yield Paragraph(one(text, "warn"), lead=one("Incomplete: ", "warn"))


def _load(summary: Summary) -> Iterator[Spans]:
    counts, outstanding = summary.requests, summary.outstanding
    yield one(f"{plural(counts.count, 'request')} in {figures.duration(summary.window.seconds * 1000)}", "plain")
    if counts.recorded is not None and counts.recorded < counts.count:
        yield one(f"{quantity(counts.recorded)} of them looked at in full", "warn")
    bad: tuple[tuple[int, str, Role], ...] = (
        (counts.errors, plural(counts.errors, "error"), "critical"),
        (counts.cancelled, f"{quantity(counts.cancelled)} cancelled", "warn"),
        (counts.unfinished, f"{quantity(counts.unfinished)} unfinished", "warn"),
    )
    for number, text, role in bad:
        yield one(text, role if number else "dim")
    if outstanding.peak:
        yield one(f"at most {quantity(outstanding.peak)} outstanding", "plain")
    if outstanding.finished_unwritten_peak > 1:
        yield one(f"{quantity(outstanding.finished_unwritten_peak)} of them answered but not yet written", "plain")
    if outstanding.slope_per_s is not None and outstanding.slope_per_s >= 1:
        yield one(f"growing by {figures.decimal(outstanding.slope_per_s)} per second", "warn")
    if outstanding.backlog_bytes_peak:
        yield one(f"backlog up to {figures.size(outstanding.backlog_bytes_peak)}", "plain")


# --- verdict --------------------------------------------------------------------------------------


def _verdict(summary: Summary) -> Iterator[Block]:
    if not summary.requests.count and not summary.operations and summary.verdict.code in _QUIET:
        yield _nothing_seen(summary)
        return
    verdict, finding = summary.verdict, _verdict_finding(summary)
    role = _verdict_role(summary)
    body: list[Paragraph | Flow] = [Paragraph(prose(verdict.sentence, "strong"), lead=one("● ", role))]
    if finding is not None and finding.advice:
        body.append(Paragraph(prose(finding.advice), lead=(Span("→ ", role),)))
    if finding is not None and (explained := _explained(summary, finding)):
        body.append(Paragraph(one(f"It {explained} that clients waited.", "strong"), indent=2))
    elsewhere = _severity_counts(_other_findings(summary))
    if elsewhere:
        body.append(Paragraph(one(f"Also found, below: {elsewhere}.", "dim"), indent=2))
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


def _explained(summary: Summary, finding: Finding) -> str:
    """``explains 42% of the 313 s`` that clients waited; empty where nothing of it is known, or nothing explained."""
    whole = summary.clients_waited_ms
    if whole is None or not whole > 0 or not finding.cost_ms > 0:
        return ""
    return f"explains {figures.share(min(1.0, finding.cost_ms / whole))} of the {figures.duration(whole)}"


def _nothing_seen(summary: Summary) -> Box:
    """No request at all: what that means, and what to look at."""
    seconds = figures.duration(summary.window.seconds * 1000)
    checks = (
        *(
            ("Another process may have had them: each has a report of its own.",)
            if summary.server.processes > 1
            else ()
        ),
        "Did a client connect and call something? A server that only starts up serves no request.",
        "Is the probe attached to the server object that serves? A second server object in the code is not watched.",
        "`mcp-probe doctor` shows which hooks take hold here and why others do not.",
    )
    sentence = f"No request reached this server in the {seconds} it was watched, so there is nothing to judge."
    return Box(
        "Verdict",
        "no requests",
        "info",
        (
            Paragraph(one(sentence, "strong"), lead=one("● ", "info")),
            *(Paragraph(prose(check), lead=one("→ ", "info")) for check in checks),
        ),
    )


# --- findings -------------------------------------------------------------------------------------


def _other_findings(summary: Summary) -> list[Finding]:
    told = _verdict_finding(summary)
    others = [finding for finding in summary.findings if finding is not told]
    return sorted(others, key=lambda finding: (SEVERITIES.index(finding.severity), -rank(finding.cost_ms)))


def _findings(summary: Summary) -> Iterator[Block]:
    shown, hidden = first(_other_findings(summary), FINDING_ROWS)
    if not shown:
        return
    yield Heading(
        "Also found" if summary.verdict.code not in _QUIET else "Findings", _severity_counts([*shown, *hidden])
    )
    for finding in shown:
        label = "warning" if finding.severity == "warn" else finding.severity
        sure = "" if finding.confidence == "exact" else f" ({finding.confidence})"
        lead = (Span(f" {label:<8}  ", finding.severity),)
        explained = _explained(summary, finding)
        code = f"{finding.code}{sure}, {explained}: " if explained else f"{finding.code}{sure}: "
        yield Paragraph((Span(code, "dim"), *prose(finding.sentence)), lead=lead)
        if finding.advice:
            yield Paragraph(prose(finding.advice), lead=(Span("→ ", "dim"),), indent=11)
    if hidden:
        yield Paragraph(one(f"+{len(hidden)} more, all in the JSON summary", "dim"), indent=11)


def _severity_counts(findings: Sequence[Finding]) -> str:
    texts = []
    for severity in SEVERITIES:
        number = sum(finding.severity == severity for finding in findings)
        if number:
            texts.append(f"{number} {SEVERITY_NOUNS[severity][number > 1]}")
    return ", ".join(texts)


# --- footnotes ------------------------------------------------------------------------------------


def _footnotes(summary: Summary, notation: Notation) -> Iterator[Block]:
    counts = summary.requests
    yield Heading("Notes")
    for what, why in notation.unavailable():
        yield _note(f"{UNKNOWN} unavailable", f"{what} ({why})")
    marks = [text for tag, text in MARK_MEANINGS if tag in notation.used]
    if marks:
        yield _note("marks", ", ".join(marks) + "; a figure without a mark is exact")
    if looked_at := phrasing.looked_at(counts):
        yield _note("sampled", f"{looked_at} Every failed, cancelled or slow request was looked at")
    for hook in summary.probe.disabled_hooks:
        yield _note("disabled hook", hook)
    if summary.probe.accelerator not in (None, "active"):
        yield _note("accelerator", f"{summary.probe.accelerator}; the same figures, at more cost to the server")
    if summary.probe.memory is not None and all(row.memory.method is None for row in summary.operations):
        yield _note("memory", summary.probe.memory)
    if summary.probe.awaits == "off":
        yield _note("awaits", "off: nothing looked at what calls wait for while they are suspended")
    for note in dict.fromkeys((*summary.notes, *summary.probe.notes)):
        yield _note("note", note)
    yield _note(
        "all as JSON", "`mcp-probe run --json FILE`, `mcp-probe report --json FILE`, `probe.snapshot().to_json()`"
    )
    yield _note("recording", "`mcp-probe run --record FILE`, read again by `mcp-probe report FILE`")


def _note(label: str, text: str) -> Paragraph:
    return Paragraph(prose(text, "dim"), lead=one(f" {label:<15}", "dim"))
