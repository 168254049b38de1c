from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mcp_probe.model import BACKGROUND_OPERATION, CROWDING_OPERATION, LOOP_OPERATION, BlockedBy, SlowStep
from mcp_probe.report.console import render
from tests.report.summaries import healthy

RESIZE = SlowStep(
    "resize", 212.0, "blocking-call", "/app/tools/resize.py", 41, "resize_image", "exact", 48, 6_000.0, 141.0
)


def section(heading: str, width: int = 140, **overrides: Any) -> list[str]:
    text = render(replace(healthy(), **overrides), width=width, color=False, ascii_only=False, whole=True)
    lines = text.split("\n")
    start = next((index for index, line in enumerate(lines) if line.startswith(heading)), None)
    return [] if start is None else lines[start + 1 : lines.index("", start)]


def waits(*pairs: BlockedBy, steps: tuple[SlowStep, ...] = ()) -> list[str]:
    return [" ".join(line.split()) for line in section("Who waited", blocked_by=pairs, slow_steps=steps)]


def steps(*found: SlowStep, width: int = 140) -> list[str]:
    return [" ".join(line.split()) for line in section("Slow steps", width, slow_steps=found)]


def test_a_wait_names_victim_calls_time_blocker_place_and_cause() -> None:
    (line,) = waits(BlockedBy("search", "resize", 57, 3_100.0, 3_100.0, "exact"), steps=(RESIZE,))
    assert line == "search ×57 waited 3.10 s ██████████ for resize resize.py:41 blocking call"


def test_bounded_waits_show_both_ends_in_one_unit() -> None:
    (line,) = waits(BlockedBy("search", "resize", 57, 820.0, 3_100.0, "bounded"))
    assert "waited [0.82–3.10 s]" in line


def test_waits_are_sorted_by_what_they_may_have_cost_and_drawn_in_proportion() -> None:
    lines = waits(
        BlockedBy("a", "x", 1, 10.0, 10.0, "exact"),
        BlockedBy("b", "x", 1, 100.0, 200.0, "bounded"),
        BlockedBy("c", "x", 1, 100.0, 100.0, "lower"),
    )
    assert [line[0] for line in lines] == ["b", "c", "a"]
    assert [line.count("█") for line in lines] == [10, 5, 0]
    assert "▏" in lines[2], "little, and not nothing"
    assert "waited ≥100 ms" in lines[1]


def test_work_of_no_request_and_crowding_have_names_people_understand() -> None:
    lines = waits(
        BlockedBy("a", LOOP_OPERATION, 1, 20.0, 20.0, "exact"), BlockedBy("a", CROWDING_OPERATION, 1, 9.0, 9.0, "exact")
    )
    assert lines[0].endswith("for background work")
    assert lines[1].endswith("for brief work")


def test_many_pairs_collapse() -> None:
    lines = waits(*(BlockedBy(f"tool_{index}", "x", 1, 10.0, 10.0, "exact") for index in range(12)))
    assert len(lines) == 9
    assert lines[-1] == "+4 more pairs: 40 ms in all"


def test_collapsed_pairs_show_both_ends_or_that_it_was_more() -> None:
    many = [BlockedBy(f"tool_{index}", "x", 1, 50.0, 50.0, "exact") for index in range(8)]
    bounded = [BlockedBy(f"rest_{index}", "x", 1, 10.0, 20.0, "bounded") for index in range(2)]
    assert waits(*many, *bounded)[-1] == "+2 more pairs: [20–40 ms] in all"
    lower = BlockedBy("rest_1", "x", 1, 10.0, 20.0, "lower")
    assert waits(*many, bounded[0], lower)[-1] == "+2 more pairs: ≥20 ms in all"


def test_pairs_that_may_not_have_waited_at_all_are_counted_and_not_ranked() -> None:
    """Their upper bounds may exceed every certain wait, and say little."""
    lines = waits(
        BlockedBy("a", "x", 1, 10.0, 10.0, "exact"),
        BlockedBy("b", "x", 3, 0.0, 300.0, "bounded"),
        BlockedBy("c", "x", 3, 0.3, 90.0, "bounded"),
    )
    assert lines[0].startswith("a ×1 waited 10 ms")
    assert lines[1:] == ["of 2 more pairs it cannot be told whether one waited for the other"]


def test_a_wait_that_was_not_seen_whole_has_no_upper_bound() -> None:
    (line,) = waits(BlockedBy("a", "x", 1, 10.0, 20.0, "lower"))
    assert "waited ≥10 ms" in line


def test_a_blocker_slow_in_several_ways_shows_its_longest_step_and_counts_the_others() -> None:
    computing = replace(RESIZE, ms=90.0, cause="cpu", count=300, total_ms=9_000.0, line=77)
    (line,) = waits(BlockedBy("search", "resize", 57, 3_100.0, 3_100.0, "exact"), steps=(RESIZE, computing))
    assert line.endswith("for resize resize.py:41 blocking call +300 others")


def test_a_library_that_the_place_calls_stands_below_it() -> None:
    step = replace(RESIZE, library="PIL.Image.Image.save")
    assert steps(step)[1].endswith("blocking call /app/tools/resize.py:41")
    assert steps(step)[2] == "in resize_image() calling PIL.Image.Image.save()"


def test_an_import_is_told_as_a_first_call() -> None:
    step = replace(RESIZE, library="import of PIL.Image", count=1)
    assert steps(step)[2] == "in resize_image() first call: import of PIL.Image"


def test_what_the_collector_or_the_machine_made_slow_is_no_lines_fault() -> None:
    paused = replace(RESIZE, cause="gc", library="json.loads")
    (line,) = waits(BlockedBy("search", "resize", 57, 3_100.0, 3_100.0, "exact"), steps=(paused,))
    assert line.endswith("for resize gc pause")
    assert steps(paused)[1:] == ["resize 212 ms 141 ms 48 gc pause /app/tools/resize.py:41"]
    nowhere = replace(paused, file=None, line=None, library=None, function=None)
    assert steps(nowhere)[1:] == ["resize 212 ms 141 ms 48 gc pause"]
    assert "nobody could look" not in render(
        replace(healthy(), slow_steps=(nowhere,)), color=False, ascii_only=False, whole=True
    )


HELD = BlockedBy(
    *("append_note", "append_note", 139, 58_900.0, 58_900.0, "exact"),
    *("lock", "asyncio.Lock notes.GATE", "/srv/app/notes.py:33"),
)


def test_a_holder_is_a_row_with_what_it_held_and_where_it_took_it() -> None:
    (line,) = waits(HELD)
    assert line == (
        "append_note ×139 waited 58.9 s ██████████ for append_note asyncio.Lock notes.GATE held at notes.py:33"
    )


def test_holders_and_blockers_are_ranked_together() -> None:
    blocked = BlockedBy("search", "resize", 57, 99_000.0, 99_000.0, "exact")
    assert [line.split()[0] for line in waits(HELD, blocked, steps=(RESIZE,))] == ["search", "append_note"]
    text = render(replace(healthy(), blocked_by=(HELD, blocked)), width=140, color=False, ascii_only=False, whole=True)
    assert "all calls together; where its longest step was or what it held" in text
    alone = render(replace(healthy(), blocked_by=(HELD,)), width=140, color=False, ascii_only=False, whole=True)
    assert "all calls together; what it held" in alone


def test_a_task_of_no_request_that_held_something_is_a_background_task() -> None:
    (line,) = waits(replace(HELD, blocker=BACKGROUND_OPERATION, where=None))
    assert line.endswith("for a background task asyncio.Lock notes.GATE")


@pytest.mark.parametrize("width", [80, 100, 120])
def test_what_was_held_keeps_its_end_where_there_is_little_room(width: int) -> None:
    (line,) = section("Who waited", width, blocked_by=(HELD,))
    assert "notes.GATE" in line
    assert len(line) <= width


def test_pairs_that_certainly_cost_nothing_leave_no_section() -> None:
    assert waits(BlockedBy("a", "x", 1, 0.0, 0.0, "exact")) == []


def test_a_slow_step_has_longest_median_count_cause_place_and_function() -> None:
    assert steps(RESIZE)[1] == "resize 212 ms 141 ms 48 blocking call /app/tools/resize.py:41 resize_image()"


def test_a_step_still_running_is_at_least_that_long() -> None:
    running = replace(RESIZE, running=True)
    assert steps(running)[1].startswith("resize ≥212 ms")
    assert "still running" in steps(running)[1]


def test_an_estimated_place_keeps_its_mark_when_the_path_is_shortened() -> None:
    guessed = replace(RESIZE, quality="estimate", file="/app/" + "deep/" * 3 + "a_rather_long_module_name.py")
    line = steps(guessed, width=80)[1]
    assert "~…" in line
    assert line.endswith("module_name.py:41")


def test_a_step_without_a_place_says_so() -> None:
    unseen = replace(RESIZE, file=None, line=None, function=None, quality="unavailable")
    assert steps(unseen)[1].endswith("blocking call –")
    text = " ".join(render(replace(healthy(), slow_steps=(unseen,)), color=False, ascii_only=False, whole=True).split())
    assert "place of slow steps of resize (nobody could look while they ran)" in text


def test_a_median_nobody_computed_is_unknown_but_one_step_is_its_own_median() -> None:
    assert steps(replace(RESIZE, p50_ms=0.0, count=1))[1].startswith("resize 212 ms 212 ms 1 ")
    assert steps(replace(RESIZE, p50_ms=0.0, count=4))[1].startswith("resize 212 ms – 4 ")
