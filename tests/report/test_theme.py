from __future__ import annotations

from typing import get_args

from hypothesis import given
from hypothesis import strategies as st

from mcp_probe.report.blocks import Role
from mcp_probe.report.theme import STYLES, cells, glyphs

ASCII = glyphs(color=False, ascii_only=True)
UNICODE = glyphs(color=True, ascii_only=False)


def test_every_role_has_a_style() -> None:
    assert set(STYLES) == set(get_args(Role))


@given(st.text())
def test_ascii_output_is_ascii_and_printable(text: str) -> None:
    shown = ASCII.text(text)
    assert shown.isascii()
    assert shown.isprintable()


@given(st.text())
def test_nothing_that_moves_the_cursor_gets_through(text: str) -> None:
    assert UNICODE.text(text).replace("\u00a0", " ").isprintable()


def test_signs_become_their_ascii_neighbours() -> None:
    assert ASCII.text("≥3 · [a–b] … ×2 → µs") == ">=3 | [a-b] ... x2 -> us"


def test_wide_characters_take_two_columns_and_combining_ones_none() -> None:
    assert [cells(text) for text in ("abc", "検索", "e\u0301")] == [3, 4, 1]
