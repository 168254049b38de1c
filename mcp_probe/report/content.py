"""What the report says, in which order and in which words. How wide and how coloured it is, others decide.

The order answers a reader who stops at any line: whose report it is, what is wrong, who suffers and by how much,
the mend (all in the first twelve lines); where the time goes, who waited for whom, which step was slow, which pool is
full, how the loop is, what else was found, how exact all this is and what it cost.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from types import MappingProxyType

from mcp_probe.aggregate import phrasing
from mcp_probe.aggregate.codes import SEVERITIES
from mcp_probe.aggregate.findings import follows
from mcp_probe.model import Finding, Gain, Summary, Tag
from mcp_probe.report import figures
from mcp_probe.report.blocks import Block, Box, Flow, Heading, Paragraph, Role, Span, Spans
from mcp_probe.report.budget import known_ms
from mcp_probe.report.figures import UNKNOWN, Notation, plural, quantity
from mcp_probe.report.fine import told_instead
from mcp_probe.report.phrases import first, one, prose, rank
from mcp_probe.report.places import place
from mcp_probe.report.sections.awaits import awaits
from mcp_probe.report.sections.executors import executors
from mcp_probe.report.sections.leaks import leaks
from mcp_probe.report.sections.loop import event_loop
from mcp_probe.report.sections.measures import measures
from mcp_probe.report.sections.memory import memory, plainly
from mcp_probe.report.sections.operations import clients_waited, operations
from mcp_probe.report.sections.waits import blocked_by, slow_steps

FINDING_ROWS = 12
PLACE_ROWS = 6
NAMED = 4
"""Codes named below the verdict."""
LITTLE_BYTES = 4096
"""Requests that nobody has read yet: less is a line or two."""
SEVERITY_NOUNS = {"critical": ("critical", "critical"), "warn": ("warning", "warnings"), "info": ("info", "info")}
SURE: dict[Tag, str] = {"lower": "at least ", "bounded": "at least ", "upper": "at most ", "estimate": "about "}
"""How a cost is told whose finding is not exact; bounds count by their lower end."""
MATRIX_CODES = frozenset({"blocking-call", "cpu-bound-step", "serial-handler", "pool-exhausted"})
"""Findings whose victims the matrix of waits knows."""
OF_THE_LOOP_AND_POOLS = frozenset(
    {"blocking-call", "cpu-bound-step", "head-of-line", "crowding", "transport-starvation", "executor-saturated"}
)
"""Findings that are not about what jobs do or what calls await."""
WHO, WHO_MS = 3, 1.0
OWN = 0.05  # of what a finding explains, from which the tool's own steps are told from what others waited
MARK_MEANINGS = (
    ("lower", "≥ at least"),
    ("upper", "≤ at most"),
    ("estimate", "~ estimate"),
    ("bounded", "[a–b] lies between"),
)


def build(summary: Summary, *, cwd: str, whole: bool = False) -> tuple[Block, ...]:
    """The report's blocks from top to bottom. Paths below ``cwd`` are shown relative to it.

    ``whole``: also the tables that are no news.
    """
    found = sections(summary, cwd=cwd, without={} if whole else told_instead(summary))
    return tuple(chain.from_iterable(found.values()))


def sections(
    summary: Summary, *, cwd: str, without: Mapping[str, str] = MappingProxyType({})
) -> dict[str, tuple[Block, ...]]:
    """The blocks by the section that they stand in, in the console's order; empty where it has nothing to say.

    ``without``: sections to leave out, and what is said instead.
    """
    notation = Notation()
    found: dict[str, Iterable[Block]] = {
        "header": _header(summary, notation),
        "verdict": _verdict(summary, notation, cwd),
        "operations": operations(summary, notation),
        "blocked-by": blocked_by(summary, notation, cwd),
        "slow-steps": slow_steps(summary, notation, cwd),
        "awaits": awaits(summary, notation, cwd),
        "leaks": leaks(summary, notation, cwd),
        "executors": executors(summary, notation, cwd),
        "memory": memory(summary, notation),
        "measures": measures(summary, notation),
        "loop": event_loop(summary, notation),
        "findings": _findings(summary, notation, cwd),
        "fine": _fine(without.values()),
        "notes": _footnotes(summary, notation),  # last: it explains what those above it used
    }
    # The blocks of a section that is left out are never made, and so need no notes.
    return {name: () if name in without else tuple(blocks) for name, blocks in found.items()}


# --- header ---------------------------------------------------------------------------------------


def _header(summary: Summary, notation: Notation) -> Iterator[Block]:
    """Whose report it is, in one line, and what to know before the verdict; the rest stands at the end."""
    yield Flow((one(summary.server.name or "unnamed server", "strong"), *_load(summary, notation)))
    trouble = tuple(_trouble(summary))
    if trouble:
        yield Flow(trouble)
    server = summary.server
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


def _load(summary: Summary, notation: Notation) -> Iterator[Spans]:
    counts = summary.requests
    peak = summary.outstanding.peak
    at_once = f", up to {quantity(peak)} at once" if peak is not None and peak > 1 else ""
    yield one(
        f"{plural(counts.count, 'request')} in {figures.duration(summary.window.seconds * 1000)}{at_once}", "plain"
    )
    bad: tuple[tuple[int, str, Role], ...] = (
        (counts.errors, plural(counts.errors, "error"), "critical"),
        (counts.cancelled, f"{quantity(counts.cancelled)} cancelled", "warn"),
        (counts.unfinished, f"{quantity(counts.unfinished)} unfinished", "warn"),
    )
    yield from (one(text, role) for number, text, role in bad if number)
    if counts.count and not any(number for number, _, _ in bad):
        yield one("no errors", "dim")
    if summary.clients_waited_ms:
        yield one(f"clients waited {clients_waited(summary, notation)} in all", "plain")


def _trouble(summary: Summary) -> Iterator[Spans]:
    """What is wrong with the figures themselves, and what they are judged without."""
    counts, probe = summary.requests, summary.probe
    starved = any(finding.code == "host-pressure" and finding.severity == "warn" for finding in summary.findings)
    if starved and summary.verdict.code != "host-pressure":
        yield one("the machine was short of CPU: steps are judged without that wait, see below", "warn")
    if counts.recorded is not None and counts.recorded < counts.count:
        yield one(f"{quantity(counts.recorded)} requests looked at in full", "warn")
    if counts.dropped:
        yield one(f"{plural(counts.dropped, 'request')} lost", "warn")
    if probe.dropped_marks:
        yield one(f"{plural(probe.dropped_marks, 'measurement')} lost", "warn")
    if probe.disabled_hooks:
        yield one(f"{plural(len(probe.disabled_hooks), 'hook')} disabled, see below", "warn")
    if summary.leaks is not None:
        yield one("slowed down by the leak hunt, see below", "warn")
    if any(delivery.undelivered for delivery in probe.telemetry):
        yield one("telemetry not all delivered, see below", "warn")


# --- verdict --------------------------------------------------------------------------------------


def _verdict(summary: Summary, notation: Notation, cwd: str) -> Iterator[Block]:
    if not summary.requests.count and not summary.operations and summary.verdict.code in _QUIET:
        yield _nothing_seen(summary)
        return
    verdict, finding = summary.verdict, _verdict_finding(summary)
    role = _verdict_role(summary)
    body: list[Paragraph | Flow] = [Paragraph(prose(verdict.sentence, "strong"), lead=one("● ", role))]
    if finding is not None:
        body += _places(finding, notation, cwd, indent=2)
    if finding is not None and (explained := _explained(summary, finding)):
        whole = figures.duration(summary.clients_waited_ms)
        told = (
            f"{explained[0].upper()}{explained[1:]} of the {whole} that clients waited{_who_waited(summary, finding)}."
        )
        body.append(Paragraph(prose(told), indent=2))
    if finding is not None and finding.advice:
        body.append(Paragraph(prose(finding.advice), lead=(Span("→ ", role),)))
        if finding.gain is not None:
            body.append(Paragraph(prose(_predicted(finding.gain)), indent=2))
    elsewhere = _named(finding for finding in _other_findings(summary) if not follows(finding, summary.findings))
    if elsewhere:
        body.append(Paragraph(one(f"Also found, below: {elsewhere}.", "dim"), indent=2))
    if finding is not None and (own := _largest_of_its_own(summary, finding)):
        body.append(Paragraph(prose(own), indent=2))
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
    """``explains at least 7.25 s (9%)``; empty where nothing of what clients waited is known, or nothing explained."""
    whole = summary.clients_waited_ms
    if whole is None or not whole > 0 or not finding.cost_ms > 0:
        return ""
    part = min(finding.cost_ms, whole)
    sure = SURE.get(finding.confidence, "")
    return f"explains {sure}{figures.duration(part)} ({figures.share(part / whole)})"


def _largest_of_its_own(summary: Summary, finding: Finding) -> str:
    """What no mend of this finding's takes away, if that is more than it explains: jobs, and what calls await outside.

    Empty for findings that are about awaits or jobs themselves.
    """
    whole = summary.clients_waited_ms or 0.0
    if not 0 < finding.cost_ms < whole or finding.code not in OF_THE_LOOP_AND_POOLS:
        return ""
    parts = (
        ((known_ms(row, part) or 0.0) * row.count, row.name, where)
        for row in summary.operations
        if row.kind == "request"
        for part, where in (("executor_run", "in its own jobs on threads"), ("awaiting", "awaiting something itself"))
    )
    ms, name, where = max(parts, default=(0.0, "", ""))
    if ms <= finding.cost_ms:
        return ""
    much = "Most" if ms > whole / 2 else "More"
    return f"{much} of that time is another matter: `{name}` was {where} for {figures.duration(ms)}."


def _who_waited(summary: Summary, finding: Finding) -> str:
    """``; who waited for it: `price` 4.76 s`` and so on, the worst first; empty where nobody knows."""
    if finding.code not in MATRIX_CODES:
        return ""
    held = finding.evidence.get("object") or finding.evidence.get("pool")
    waited: dict[str, float] = {}
    for name, ms in _waits_for_tool(summary, finding.subject) if held is None else _waits_for_object(summary, held):
        waited[name] = waited.get(name, 0.0) + ms
    shown = [name for name, ms in sorted(waited.items(), key=lambda item: -item[1]) if ms >= WHO_MS]
    if not shown:
        return ""
    # The matrix knows who waited for a tool, not for which of its lines: that may be more than this finding is about.
    is_part = sum(waited.values()) <= finding.cost_ms + WHO_MS
    names = {name: phrasing.calls_of(name, name == finding.subject and held is None) for name in shown}
    told = ", ".join(
        f"{names[name]} {figures.duration(waited[name])}" if is_part else names[name] for name in shown[:WHO]
    )
    more = f" and {len(shown) - WHO} more" if len(shown) > WHO else ""
    return f"; who waited for it: {told}{more}{_rest(summary, finding, waited, is_part)}"


def _rest(summary: Summary, finding: Finding, waited: Mapping[str, float], is_part: bool) -> str:
    """Why what it explains and what others waited differ, where they do."""
    if not isinstance(finding.evidence.get("max_ms"), (int, float)):
        return ""
    if not is_part:
        return " (they waited for its other steps, too, and while it had no CPU)"
    cost = min(finding.cost_ms, summary.clients_waited_ms or 0.0)
    is_rest = cost - sum(waited.values()) >= OWN * cost
    return f"; the rest is time of `{finding.subject}` itself" if is_rest else ""


def _waits_for_tool(summary: Summary, tool: str) -> Iterator[tuple[str, float]]:
    """(operation, ms)"""
    return ((row.victim, rank(row.lo_ms)) for row in summary.blocked_by if row.kind is None and row.blocker == tool)


def _waits_for_object(summary: Summary, name: object) -> Iterator[tuple[str, float]]:
    """(operation, ms) of waits for a lock or a pool, whether or not somebody saw who held it."""
    return ((each.name, row.total_ms) for each in summary.operations for row in each.awaits if row.object == name)


def _nothing_seen(summary: Summary) -> Box:
    """No request at all: what that means, and what to look at."""
    seconds = figures.duration(summary.window.seconds * 1000)
    checks = (
        *(
            ("Another process may have had them: each has a report of its own.",)
            if summary.server.processes > 1
            else ()
        ),
        *(
            (
                "What was in the server before is not seen by a probe that comes later: the look above has its tasks.",
                "Did a client call something meanwhile? `--seconds N` watches for longer.",
            )
            if summary.came_later
            else (
                "Did a client connect and call something? A server that only starts up serves no request.",
                "Is the probe attached to the server object that serves? A second server object in the code is not "
                "watched.",
            )
        ),
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
    return [finding for finding in summary.findings if finding is not told]


def _predicted(gain: Gain) -> str:
    then = f"{figures.duration(gain.before_ms)} → {figures.duration(gain.after_ms)}"
    return (
        f"Predicted: `{gain.operation}` p{gain.percentile} {then} (`mcp-probe what-if FILE {' '.join(gain.changes)}`)."
    )


def _places(finding: Finding, notation: Notation, cwd: str, indent: int) -> Iterator[Paragraph]:
    """A row for each place, wrapped where it is too long: the place itself is never cut."""
    shown, hidden = first(finding.places, PLACE_ROWS)

    def told(where: str, quality: Tag) -> str:
        file, line = phrasing.file_and_line(where) or (where, None)
        return notation.mark("exact" if quality == "exact" else "estimate") + (place(file, line, cwd) or "")

    for figured, at in phrasing.place_rows(shown, told):
        yield Paragraph(prose(at), lead=(Span(f"{figured}  ", "strong"),), indent=indent)
    if hidden:
        rest = figures.duration(sum(each.ms for each in hidden))
        yield Paragraph(one(f"+{len(hidden)} more places: {rest}", "dim"), indent=indent)


def _findings(summary: Summary, notation: Notation, cwd: str) -> Iterator[Block]:
    shown, hidden = first(_other_findings(summary), FINDING_ROWS)
    if not shown:
        return
    counts = _severity_counts([*shown, *hidden])
    overlap = "; several may explain the same time" if sum(finding.cost_ms > 0 for finding in shown) > 1 else ""
    yield Heading("Also found" if summary.verdict.code not in _QUIET else "Findings", counts + overlap)
    for finding in shown:
        label = "warning" if finding.severity == "warn" else finding.severity
        lead = (Span(f" {label:<8}  ", finding.severity),)
        is_new = not follows(finding, summary.findings)
        aside = _explained(summary, finding) if is_new else "follows from another finding"
        code = ", ".join(filter(None, (finding.code, aside)))
        yield Paragraph((Span(f"{code}: ", "dim"), *prose(finding.sentence)), lead=lead)
        yield from _places(finding, notation, cwd, indent=11)
        if finding.advice:
            yield Paragraph(prose(finding.advice), lead=(Span("→ ", "dim"),), indent=11)
        if finding.gain is not None:
            yield Paragraph(prose(_predicted(finding.gain)), indent=13)
    if hidden:
        yield Paragraph(one(f"+{len(hidden)} more, all in the JSON summary", "dim"), indent=11)


def _named(findings: Iterable[Finding]) -> str:
    """``transport-starvation (critical), gc-pause, 2 info``: codes of those that accuse, and how many do not."""
    serious: dict[str, None] = {}
    infos = 0
    for finding in findings:
        if finding.severity == "info":
            infos += 1
        else:
            serious[f"{finding.code} (critical)" if finding.severity == "critical" else finding.code] = None
    shown, hidden = first(tuple(serious), NAMED)
    more = (f"{len(hidden)} more",) if hidden else ()
    return ", ".join((*shown, *more, *((f"{infos} info",) if infos else ())))


def _severity_counts(findings: Sequence[Finding]) -> str:
    texts = []
    for severity in SEVERITIES:
        number = sum(finding.severity == severity for finding in findings)
        if number:
            texts.append(f"{number} {SEVERITY_NOUNS[severity][number > 1]}")
    return ", ".join(texts)


def _fine(told: Iterable[str]) -> Iterator[Block]:
    """What tables would say that are not shown."""
    sentences = [f"{text[0].upper()}{text[1:]}." for text in told]
    if sentences:
        yield Heading("Fine", "no table of its own; the HTML page and the JSON summary have all")
        yield Paragraph(prose(" ".join(sentences)), indent=1)


# --- at the end -----------------------------------------------------------------------------------


def _footnotes(summary: Summary, notation: Notation) -> Iterator[Block]:
    counts, probe = summary.requests, summary.probe
    yield Heading("Notes", figures.instant(summary.window.start_unix))
    yield _note("server", " · ".join(_server(summary)))
    if load := ", ".join(_outstanding(summary)):
        yield _note("load", load)
    yield _note("probe", _own_cost(summary))
    for what, why in notation.unavailable():
        yield _note(f"{UNKNOWN} unavailable", f"{what} ({why})")
    marks = [text for tag, text in MARK_MEANINGS if tag in notation.used]
    if marks:
        yield _note("marks", ", ".join(marks) + "; in tables, a figure without a mark is exact")
    if looked_at := phrasing.looked_at(counts):
        yield _note("sampled", f"{looked_at} Every failed, cancelled or slow request was looked at")
    for hook in probe.disabled_hooks:
        yield _note("disabled hook", hook)
    if probe.accelerator not in (None, "active"):
        yield _note("accelerator", f"{probe.accelerator}; the same figures, at more cost to the server")
    if probe.memory is not None and all(row.memory.method is None for row in summary.operations):
        yield _note("memory", plainly(probe.memory))
    if probe.awaits == "off":
        yield _note("awaits", "off: nothing looked at what calls wait for while they are suspended")
    for note in dict.fromkeys((*summary.notes, *probe.notes)):
        yield _note("note", note)
    command = "attach PID" if summary.came_later else "run"
    yield _note("save it", f"`mcp-probe {command} --record FILE`, then `mcp-probe report FILE`; as JSON `--json FILE`")


def _server(summary: Summary) -> Iterator[str]:
    server = summary.server
    sdk = f"{server.sdk} {server.sdk_version}" if server.sdk_version != "unknown" else ""  # functions only, no server
    yield from (text for text in (server.transport, server.loop, sdk) if text and text != "unknown")
    yield f"Python {server.python}"


def _outstanding(summary: Summary) -> Iterator[str]:
    outstanding = summary.outstanding
    if outstanding.peak:
        yield f"at most {plural(outstanding.peak, 'request')} in the server at once"
    if outstanding.finished_unwritten_peak > 1:
        yield f"at most {quantity(outstanding.finished_unwritten_peak)} answered and not yet written"
    if outstanding.slope_per_s is not None and outstanding.slope_per_s >= 1:
        yield f"growing by {figures.decimal(outstanding.slope_per_s)} per second"
    if (outstanding.backlog_bytes_peak or 0) >= LITTLE_BYTES:
        yield f"up to {figures.size(outstanding.backlog_bytes_peak)} of requests not yet read"


def _own_cost(summary: Summary) -> str:
    """What the probe itself took. The part on the server's threads is timed warm, so it is a lower bound."""
    probe, count, window_ms = summary.probe, summary.requests.count, summary.window.seconds * 1000
    texts = [f"mcp-probe {summary.probe_version}"]
    if probe.cpu_ms is None or not window_ms > 0:
        texts.append("its own cost is not known")
    else:
        if probe.hook_ms is not None and count:
            texts.append(f"took at least {figures.fine_duration(probe.hook_ms / count)} of each request")
        texts.append(f"on threads of its own {figures.fine_share(probe.cpu_ms / window_ms)} of one CPU core")
    if probe.accelerator is not None:
        texts.append(f"C accelerator {'' if probe.accelerator == 'active' else 'not '}in use")
    return ", ".join(texts)


def _note(label: str, text: str) -> Paragraph:
    return Paragraph(prose(text, "dim"), lead=one(f" {label:<15}", "dim"))
