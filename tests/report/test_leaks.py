from __future__ import annotations

from dataclasses import replace

import pytest

from mcp_probe.model import Growth, GrowthLine, GrowthType, LeakHunt, ProcessGrowth, Quality, Remainder
from mcp_probe.report.console import render
from tests.aggregate.summaries import make_growth, make_hunt
from tests.report.summaries import healthy


def lines_of(hunt: LeakHunt | None, width: int = 100) -> list[str]:
    lines = render(replace(healthy(), leaks=hunt), width=width, color=False, ascii_only=False, whole=True).split("\n")
    start = next((index for index, line in enumerate(lines) if line.startswith("Leaks")), None)
    return [] if start is None else [" ".join(line.split()) for line in lines[start + 2 : lines.index("", start)]]


def steady(name: str = "add") -> Growth:
    return make_growth(name, verdict="steady", held_bytes=12_000, lines=(), types=())


def test_without_a_hunt_there_is_no_section() -> None:
    assert lines_of(None) == []


def test_a_tool_that_grows_shows_its_rate_its_lines_and_its_types() -> None:
    rows = lines_of(make_hunt(make_growth(bytes_per_call=544.0, quality=Quality("lower", 544.0)), steady()))
    assert rows == [
        "remember grows ≥544 B 5 MB 1,000",
        "allocated at /srv/app/server.py:41 remember() 4.9 MB in 1,000 blocks",
        "of type 1,000 app.Entry 4.8 MB (4.8 kB each, with what it refers to)",
        "add steady 12 kB 1,000",
        "all Python allocations · 20 full collections of the hunt took 400 ms",
        "Do not judge the server's times by this run: the hunt and its tracing slow it down.",
    ]


def test_a_steady_tool_shows_from_where_on_its_growth_would_have_been_told() -> None:
    rows = lines_of(make_hunt(replace(steady(), floor_bytes=32.0)))
    assert rows[0] == "add steady <32 B 12 kB 1,000"
    assert "<N: a leak of fewer bytes a call could not have been told from noise in this run" in " ".join(rows)
    assert "<N" not in " ".join(lines_of(make_hunt(make_growth(floor_bytes=32.0))))


def test_lines_of_an_earlier_look_say_how_many_calls_there_were_by_then() -> None:
    assert "lines and types as of 300 calls, the latest look for them" in lines_of(
        make_hunt(make_growth(looked_at_calls=300))
    )
    assert "as of" not in " ".join(lines_of(make_hunt(make_growth(looked_at_calls=1_000))))


@pytest.mark.parametrize(
    ("seen", "told"),
    [
        (32, "lines of 32 calls, evenly chosen: there was no time for more"),
        (0, "lines of some blocks only: there was no time for more"),
        (938, None),
        (None, None),
    ],
)
def test_a_look_that_was_cut_short_says_how_many_calls_its_lines_are_of(seen: int | None, told: str | None) -> None:
    found = " ".join(lines_of(make_hunt(make_growth(looked_at_calls=1_000, seen_calls=seen))))
    assert ("no time" in found) == (told is not None)
    assert told is None or told in found


def test_it_says_how_much_the_hunt_slows_the_server_and_the_header_that_it_does() -> None:
    hunt = replace(make_hunt(steady()), tracing_factor=22.5)
    text = " ".join(render(replace(healthy(), leaks=hunt), color=False, whole=True).split())
    assert "slowed down by the leak hunt, see below" in text
    assert "Do not judge the server's times by this run: allocating an object took 22 times as long" in text
    assert "leak hunt" not in render(healthy(), color=False, whole=True)
    assert "collections and looks slow it down" in " ".join(lines_of(replace(hunt, are_lines_known=False)))


def test_lines_of_little_weight_are_left_to_the_json() -> None:
    lines = (GrowthLine("/srv/a.py", 1, "a", 1_000, 10), GrowthLine("/srv/b.py", 2, "b", 90, 1))
    text = " ".join(lines_of(make_hunt(make_growth(lines=lines, types=()))))
    assert "a.py:1" in text
    assert "b.py:2" not in text


def test_a_tool_of_which_nothing_is_known_says_so_and_a_footnote_why() -> None:
    hunt = make_hunt(make_growth(verdict="unknown", bytes_per_call=None, held_bytes=0, calls=3, lines=(), types=()))
    assert lines_of(hunt)[0] == "remember not known – 3"
    text = " ".join(render(replace(healthy(), leaks=hunt), color=False, whole=True).split())
    assert "growth of remember (fewer than 50 calls, or too few looks at them)" in text


def test_what_grew_in_the_process_and_what_the_hunt_could_not_do_stand_below() -> None:
    hunt = replace(
        make_hunt(steady()),
        lines=(GrowthLine("/srv/c.py", 3, "c", 700, 7),),
        types=(GrowthType("list", 40, None),),
        notes=("Lines are not known: tracemalloc is off.",),
    )
    text = " ".join(lines_of(hunt))
    assert "Grew in the process, operation not known: allocated at /srv/c.py:3 c() 700 B" in text
    assert "of type 40 list" in text
    assert text.endswith("Lines are not known: tracemalloc is off.")


@pytest.mark.parametrize("width", [60, 80, 100, 120])
def test_it_fits(width: int) -> None:
    hunt = make_hunt(make_growth("a_tool_with_a_name_that_is_much_longer_than_it_ought_to_be"), steady())
    text = render(replace(healthy(), leaks=hunt), width=width, color=False, ascii_only=False, whole=True)
    assert max(map(len, text.split("\n"))) <= width


def test_what_the_process_grew_by_stands_part_by_part_and_what_is_not_known_is_not_called_steady() -> None:
    parts = (
        Remainder("nobody", "grows", 29_600_000, 100_000.0, Quality("estimate")),
        Remainder("native", "unknown", -1_200_000, None, Quality("unavailable")),
    )
    rows = " ".join(lines_of(replace(make_hunt(steady()), process=ProcessGrowth(296, 28_500_000, 100_000, parts))))
    assert "process, from the first look to the last: +28.5 MB in 296 calls = +100 kB owned by calls" in rows
    assert "+29.6 MB owned by nobody (grows ~100 kB a call)" in rows
    assert "-1.2 MB of native code (not known)" in rows
