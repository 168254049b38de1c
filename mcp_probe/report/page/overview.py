"""What there is where a page is of several processes or recordings: one line each, which leads to it."""

from __future__ import annotations

from collections.abc import Sequence

from mcp_probe.model import Summary
from mcp_probe.report import figures
from mcp_probe.report.figures import plural, quantity
from mcp_probe.report.page.markup import text_of

HEADS = ("", "requests", "errors", "clients waited", "slowest p95", "verdict")


def overview(summaries: Sequence[Summary]) -> str:
    """A table with a line for each of ``summaries``; empty where there is only one."""
    if len(summaries) < 2:
        return ""
    whole = plural(sum(summary.requests.count for summary in summaries), "request")
    heads = "".join(
        f'<th scope="col"{_kind(at)}>{text_of(head)}</th>' if head else "<td></td>" for at, head in enumerate(HEADS)
    )
    rows = "".join(_row(number, summary) for number, summary in enumerate(summaries, 1))
    return (
        f'<section class="overview"><h2>{plural(len(summaries), "recording")} <small>{text_of(whole)} in all; '
        "figures below are of one of them at a time</small></h2>"
        f'<div class="scroll" tabindex="0"><table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>'
        "</section>\n"
    )


def name_of(number: int, summary: Summary) -> str:
    """``2 · shop (process 4711)``"""
    pid = "" if summary.server.pid is None else f" (process {summary.server.pid})"
    return f"{number} · {summary.server.name or 'unnamed server'}{pid}"


def _kind(column: int) -> str:
    return ' class="right"' if 0 < column < len(HEADS) - 1 else ""


def _row(number: int, summary: Summary) -> str:
    target = "verdict" if number == 1 else f"{number}-verdict"
    counts = summary.requests
    slowest = max((op.total_ms.p95 for op in summary.operations if op.total_ms.p95 is not None), default=None)
    cells = (
        f'<a href="#{target}">{text_of(name_of(number, summary))}</a>',
        text_of(quantity(counts.count)),
        text_of(quantity(counts.errors)),
        text_of(figures.duration(summary.clients_waited_ms)),
        text_of(figures.duration(slowest)),
        text_of(summary.verdict.sentence.replace("`", "")),
    )
    return f"<tr>{''.join(f'<td{_kind(at)}>{cell}</td>' for at, cell in enumerate(cells))}</tr>"
