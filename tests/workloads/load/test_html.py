"""The page of a load has what its terminal says, and its charts have the same figures."""

from __future__ import annotations

from mcp_probe.report import figures
from mcp_probe.workloads.load.html import html
from mcp_probe.workloads.load.page import blocks
from tests.report.page_reader import NO_BREAK, Reader, missing
from tests.workloads.load.test_result import log_of, result_of


def test_everything_the_terminal_says_is_on_the_page() -> None:
    log = log_of([(due % 2, due, due + 5 + due // 50, "ok") for due in range(0, 1000, 10)])
    result = result_of(log, log_of([(0, due, due + 9, "ok") for due in range(0, 1000, 20)]))
    found = Reader(html(result))
    assert missing(blocks(result), found.text) == []
    rates, percentiles, window = [attributes["aria-label"] or "" for tag, attributes in found.elements if tag == "svg"]
    assert f"open loop, from when due p99 {figures.duration(result.open.due_to_answer.p99)}" in percentiles
    assert result.closed is not None
    assert f"closed loop, from sending p50 {figures.duration(result.closed.sent_to_answer.p50)}" in percentiles
    assert "offered 0 101/s" in rates
    assert "sent 0 101/s" in rates
    assert f"longest 0 {figures.duration(result.slices[0].max)}" in window


def test_a_load_without_an_answer_has_a_page_without_charts() -> None:
    result = result_of(log_of([(0, due, due + 5, "cancelled") for due in range(0, 1000, 10)]))
    text = html(result).replace(NO_BREAK, " ")
    assert "no answers" in text
