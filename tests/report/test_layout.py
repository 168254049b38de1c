from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from mcp_probe.report.blocks import Box, Column, Flow, Gauge, Grid, Heading, Items, Paragraph, Span, Spans, Stack, Words
from mcp_probe.report.layout import apportion, cut, lay_out, width_of, wrap
from mcp_probe.report.paint import paint
from mcp_probe.report.theme import glyphs

UNICODE = glyphs(color=False, ascii_only=False)
TEXTS = st.text(alphabet="ab 検é\u0301…1 ms", max_size=60)


def spans(text: str) -> Spans:
    return (Span(text),)


def text_of(line: Spans) -> str:
    return "".join(span.text for span in line)


def drawn(*blocks: Heading | Box | Grid | Paragraph | Flow, width: int = 60) -> list[str]:
    return paint(lay_out(blocks, width, UNICODE), "none").split("\n")[:-1]


@given(TEXTS, st.integers(4, 40))
def test_wrapping_loses_no_character_and_fits(text: str, width: int) -> None:
    lines = wrap(spans(text), width)
    assert all(width_of(line) <= width for line in lines)
    squeezed = "".join(text_of(line) for line in lines).replace(" ", "").replace("\u00a0", "")
    assert squeezed == text.replace(" ", "")


def test_a_number_stays_with_its_unit() -> None:
    assert [text_of(line) for line in wrap(spans("it waited 3.1 s"), 13)] == ["it waited", "3.1\u00a0s"]


def test_code_that_fits_a_line_stays_in_one_line() -> None:
    shown = [
        text_of(line).replace("\u00a0", " ")
        for line in wrap(spans("call `await f(x)` there, or `a b c d e f g h`"), 16)
    ]
    assert shown == ["call", "`await f(x)`", "there, or `a b c", "d e f g h`"]


def test_roles_survive_wrapping_in_the_middle_of_a_word() -> None:
    (line,) = wrap((Span("held "), Span("tool", "code"), Span(".")), 40)
    assert line == (Span("held"), Span(" "), Span("tool", "code"), Span("."))


@given(TEXTS, st.integers(1, 40), st.sampled_from(["start", "middle", "end"]))
def test_cutting_fits_and_leaves_what_fits_alone(text: str, width: int, where: str) -> None:
    short = cut(spans(text), width, where, UNICODE)
    assert width_of(short) <= width
    assert (text_of(short) == text) is (width_of(spans(text)) <= width)


def test_the_ellipsis_stands_where_asked() -> None:
    cuts = [text_of(cut(spans("abcdefghij"), 5, where, UNICODE)) for where in ("start", "middle", "end")]
    assert cuts == ["…ghij", "ab…ij", "abcd…"]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=10), st.integers(1, 40))
def test_bars_are_full_and_large_parts_are_visible(weights: list[float], room: int) -> None:
    whole = sum(weights)
    shares = [weight / whole for weight in weights] if whole > 1e-9 else []
    counts = apportion(shares, room)
    assert all(count >= 0 for count in counts)
    assert sum(counts) == (room if shares else 0)
    assert all(count for share, count in zip(shares, counts, strict=True) if share * room >= 1)


def test_a_part_of_three_percent_gets_a_cell_and_a_smaller_one_does_not() -> None:
    assert apportion([0.95, 0.03, 0.02], 10) == [9, 1, 0]


def grid(*squeeze: tuple[int, int]) -> Grid:
    return Grid(
        columns=(Column("name", gap=0, most=40), Column("ms", right=True), Column("bar", most=20), Column("words")),
        rows=(
            (
                Words(spans("a_tool_with_a_long_name"), "middle"),
                Words(spans("1,234")),
                Stack((("part-busy", "B", 0.5), ("part-await", ".", 0.5))),
                Items((spans("busy 50%"), spans("await 50%"))),
            ),
        ),
        squeeze=squeeze,
    )


def test_a_grid_squeezes_its_columns_in_the_order_given() -> None:
    assert drawn(grid((3, 8), (2, 12), (0, 10))) == [
        "name                        ms  bar                 words",
        "a_tool_with_a_long_name  1,234  |BBBBBBBB........|  busy 50%",
    ]
    assert drawn(grid((0, 14), (3, 8), (2, 12)))[1] == "a_tool_…g_name  1,234  |BBBBBBBBB.........|  busy 50%"


def test_what_a_dropped_column_frees_goes_back_to_the_squeezed_ones() -> None:
    assert drawn(grid((0, 20), (3, 0)))[1] == "a_tool_with_a_long_name  1,234  |BBBBBBBBB.........|"


def test_a_title_runs_on_over_columns_without_one() -> None:
    block = Grid(
        columns=(Column("share of all time", gap=0, most=6), Column(most=20)),
        rows=((Gauge(0.5, "good"), Words(spans("and what it was"))),),
        squeeze=(),
    )
    assert drawn(block)[0] == "share of all time"


def test_a_flow_breaks_between_items_only_and_leaves_no_separator_behind() -> None:
    items = tuple(spans(f"item number {number}") for number in range(8))
    lines = drawn(Flow(items))
    assert len(lines) > 1
    assert all(line.startswith("item number") and not line.endswith("·") for line in lines)
    assert " · ".join(lines) == " · ".join(f"item number {number}" for number in range(8))


def test_the_right_end_of_a_flow_is_dropped_where_there_is_no_room() -> None:
    right = spans("2025-11-21")
    assert drawn(Flow((spans("left"),), right=right)) == ["left" + " " * 46 + "2025-11-21"]
    assert drawn(Flow((spans("x" * 55),), right=right)) == ["x" * 55]


def test_a_box_is_exactly_as_wide_as_asked_however_long_its_titles_are() -> None:
    for title, aside in (("Verdict", "healthy"), ("t" * 90, "a"), ("t", "a" * 90), ("t", "")):
        lines = drawn(Box(title, aside, "good", (Paragraph(spans("One sentence. " * 9)),)), width=80)
        assert {len(line) for line in lines} == {80}


def test_sections_are_set_apart_by_one_blank_line() -> None:
    lines = drawn(Heading("A"), Paragraph(spans("a")), Heading("B"), Paragraph(spans("b")))
    assert [index for index, line in enumerate(lines) if not line] == [2]
    assert not any(first == second == "" for first, second in pairwise(lines))


def test_a_gauge_is_never_empty_above_zero_and_never_overfull() -> None:
    def bar(share: float | None) -> str:
        block = Grid((Column(gap=0, most=10), Column()), ((Gauge(share, "good"), Words(spans("x"))),), ())
        return drawn(block)[0]

    assert bar(0.001).startswith("█░")
    assert bar(7.0) == "█" * 10 + "  x"
    assert bar(0.0).startswith("░" * 10)
    assert bar(None) == " " * 12 + "x"
