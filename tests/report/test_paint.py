from __future__ import annotations

import re
from typing import get_args

import pytest

from mcp_probe.report.blocks import Role, Span
from mcp_probe.report.paint import Depth, code_of, paint

COLOURED: tuple[Depth, ...] = ("16", "256", "truecolor")
PARTS = [role for role in get_args(Role) if role.startswith("part-")]


def test_without_colour_only_the_text_is_left() -> None:
    assert paint([(Span("a", "critical"), Span(" b")), ()], "none") == "a b\n\n"


def test_with_colour_every_span_closes_what_it_opens() -> None:
    assert paint([(Span("a", "warn"), Span(" "), Span("b"))], "16") == "\x1b[1;33ma\x1b[0m b\n"


def test_neighbours_of_one_role_share_one_code() -> None:
    assert paint([(Span("a", "dim"), Span(" ", "dim"), Span("b", "dim"))], "16") == "\x1b[90ma b\x1b[0m\n"


def test_more_colours_are_finer_ones() -> None:
    assert [code_of("place", depth) for depth in COLOURED] == ["36", "38;5;67", "38;2;59;155;179"]
    assert [code_of("strong", depth) for depth in COLOURED] == ["1", "1", "1"]
    assert [code_of("part-await", depth) for depth in COLOURED] == ["37", "38;5;246", "38;2;139;148;158"]


@pytest.mark.parametrize("depth", COLOURED)
def test_parts_of_the_budget_keep_their_own_colours(depth: Depth) -> None:
    assert len({code_of(role, depth) for role in PARTS}) == len(PARTS) == 10


@pytest.mark.parametrize("depth", get_args(Depth))
def test_every_code_is_a_well_formed_one(depth: Depth) -> None:
    for role in get_args(Role):
        assert re.fullmatch(r"(1;?)?(\d\d|38;5;\d+|38;2;\d+;\d+;\d+)?", code_of(role, depth))
