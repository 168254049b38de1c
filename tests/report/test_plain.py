from __future__ import annotations

from mcp_probe.report.blocks import Span
from mcp_probe.report.plain import paint


def test_without_colour_only_the_text_is_left() -> None:
    assert paint([(Span("a", "critical"), Span(" b")), ()], color=False) == "a b\n\n"


def test_with_colour_every_span_closes_what_it_opens() -> None:
    assert paint([(Span("a", "warn"), Span(" "), Span("b"))], color=True) == "\x1b[1;33ma\x1b[0m b\n"
