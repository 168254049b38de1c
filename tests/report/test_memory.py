from __future__ import annotations

from dataclasses import replace

import pytest

from mcp_probe.aggregate.fold import Fold
from mcp_probe.model import MemoryUse, Summary
from mcp_probe.report.console import render
from mcp_probe.report.sections.memory import plainly
from tests.aggregate.summaries import make_hunt
from tests.frames import make_end, make_header, make_process, make_request

MB = 1_000_000


def summary_of(*uses: tuple[str, MemoryUse | None], **header: str) -> Summary:
    fold = Fold()
    fold.add(make_header(**header))
    for number, (name, use) in enumerate(uses, 1):
        fold.add(make_request(number, name, memory=use, request_bytes=120, response_bytes=4_500))
    fold.add(make_process(rss_bytes=84 * MB))
    fold.add(make_end())
    return fold.summary()


def hybrid(requested: int, peak: int, retained: int, loose: int) -> MemoryUse:
    rows = (("peak", "bounded", peak, peak + loose), ("retained", "bounded", retained, retained + loose))
    scope = "all Python allocations, owners > 512 B"
    return MemoryUse("native-hybrid", scope, requested, 1, peak, retained, rows)  # type: ignore[arg-type]


def exact(requested: int, peak: int, retained: int) -> MemoryUse:
    return MemoryUse("native-shadow", "all Python allocations", requested, 1, peak, retained)


def lines(summary: Summary, width: int = 100) -> list[str]:
    text = render(summary, width=width, color=False, ascii_only=False, whole=True)
    assert all(len(line) <= width for line in text.splitlines())
    return text.splitlines()


def section(summary: Summary, width: int = 100) -> list[str]:
    found = lines(summary, width)
    at = next((number for number, line in enumerate(found) if line.startswith("Memory ")), None)
    return [] if at is None else found[at : found.index("", at)]


def test_each_figure_has_a_column_with_its_quality() -> None:
    shown = section(summary_of(("big", hybrid(7 * MB, 5 * MB, 0, 250_000)), ("small", hybrid(45_000, 0, 0, 45_000))))
    assert [" ".join(line.split()) for line in shown[1:]] == [
        "operation requested p50 max peak p50 max retained p50 max in max out max",
        "big 7 MB 7 MB [5–5.25 MB] [5–5.25 MB] ≤250 kB ≤250 kB 120 B 4.5 kB",
        "small 45 kB 45 kB ≤45 kB ≤45 kB ≤45 kB ≤45 kB 120 B 4.5 kB",
        "all Python allocations · the whole process had at most 84 MB",
        "≤N: at most N; which call holds small objects, only `--memory detailed` follows",
    ]


def test_what_is_retained_is_said_to_be_no_leak_by_itself_but_not_to_who_hunts_leaks() -> None:
    kept = summary_of(("t", exact(9_000, 9_000, 9_000)))
    assert section(kept)[-1] == " retained memory need not be a leak; `--memory leaks` looks again later to find out"
    assert not [line for line in section(replace(kept, leaks=make_hunt())) if "need not be" in line]
    assert not [line for line in section(summary_of(("t", exact(9_000, 9_000, 0)))) if "need not be" in line]


def test_what_was_sent_and_received_stands_beside_it_where_there_is_room() -> None:
    shown = section(summary_of(("keep", exact(2 * MB, MB, 0))))
    assert [" ".join(line.split()) for line in shown[1:3]] == [
        "operation requested p50 max peak p50 max retained p50 max in max out max",
        "keep 2 MB 2 MB 1 MB 1 MB 0 B 0 B 120 B 4.5 kB",
    ]


def test_the_largest_peak_comes_first_whatever_took_the_time() -> None:
    shown = section(
        summary_of(
            ("a", exact(9 * MB, 1 * MB, 0)), ("b", exact(9 * MB, 7 * MB, 0)), ("c", hybrid(9 * MB, 0, 0, 8 * MB))
        )
    )
    assert [line.split()[0] for line in shown[2:5]] == ["c", "b", "a"], "by what is shown: ≤8 MB of c"


def test_unknown_is_a_dash_with_its_reason() -> None:
    rows = tuple((name, "unavailable", None, None) for name in ("requested", "peak", "retained"))
    use = MemoryUse("tracemalloc", "all Python allocations", None, None, None, None, rows)  # type: ignore[arg-type]
    summary = summary_of(("threaded", use))
    assert section(summary)[2].split()[:7] == ["threaded", *["–"] * 6]
    text = " ".join(" ".join(lines(summary)).split())
    assert "requested, peak, retained of threaded (its calls overlapped with the work of other threads" in text


def test_without_figures_a_note_says_why() -> None:
    summary = summary_of(("t", None), memory="light: payload sizes and the process's RSS only (no accelerator)")
    assert section(summary) == []
    text = " ".join(" ".join(lines(summary)).split())
    assert "memory light: payload sizes and the process's RSS only (no accelerator)" in text


def test_a_summary_from_before_there_was_memory_says_nothing_of_it() -> None:
    assert "emory" not in "\n".join(lines(summary_of(("t", None))))


@pytest.mark.parametrize("width", [60, 72, 80, 100, 120])
def test_the_table_fits_any_width(width: int) -> None:
    long = "a_tool_with_a_name_that_is_rather_long_for_any_table"
    shown = section(summary_of((long, hybrid(1_234_567_890, 1_111_111_111, 987_654_321, 22_222_222))), width)
    assert "1.23 GB" in shown[2]
    assert "[1.11–1.13 GB]" in shown[2] and "[0.988–1.01 GB]" in shown[2]


def test_sizes_of_sampled_objects_have_a_line_of_their_own() -> None:
    sized = replace(exact(5000, 5000, 5000), arguments=1200, result=304_000)
    half = replace(exact(4000, 4000, 4000), result=96)
    shown = section(summary_of(("t", sized), ("u", half), ("v", exact(1, 1, 1))))
    assert shown[-3] == " objects sent and received, sampled: t 1.2 kB in, 304 kB out · u 96 B out"


def test_many_operations_are_cut_to_the_largest() -> None:
    shown = section(summary_of(*((f"t{number}", exact(number, number, 0)) for number in range(1, 31))))
    assert shown[-2].strip() == "+20 more: 20 calls"
    assert shown[2].split()[0] == "t30"


def test_operations_that_were_not_measured_are_left_out() -> None:
    summary = summary_of(("t", exact(1, 1, 1)), ("u", None))
    assert [line.split()[0] for line in section(summary)[2:-2]] == ["t"]
    assert section(replace(summary, operations=())) == []


def test_a_range_wider_than_three_times_shows_no_lower_end() -> None:
    """A generator of 2.4 kB showed "2.4 kB to 15.8 MB"."""
    shown = section(
        summary_of(("generate", hybrid(16 * MB, 2_400, 0, 15_800_000)), ("small", hybrid(9_000, 4_000, 0, 7_000)))
    )
    text = " ".join(" ".join(shown).split())
    assert "generate 16 MB 16 MB ≤15.8 MB ≤15.8 MB" in text
    assert "[4–11 kB]" in text


@pytest.mark.parametrize(
    ("told", "plain"),
    [
        (
            "light: native-hybrid, all Python allocations, owners > 512 B",
            "light: all Python allocations; whose blocks of up to 512 B are is not followed",
        ),
        ("detailed: native-shadow, all Python allocations", "detailed: all Python allocations"),
        ("detailed: tracemalloc, all Python allocations", "detailed: all Python allocations by tracemalloc"),
        ("light: payload sizes and the process's RSS only (no accelerator)",) * 2,
        ("off",) * 2,
    ],
)
def test_tier_and_back_end_are_told_in_a_readers_words(told: str, plain: str) -> None:
    assert plainly(told) == plain
