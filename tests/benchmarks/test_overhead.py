"""The statistics of the overhead benchmark on literal blocks, and one small run of the real thing."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import pairwise, permutations
from pathlib import Path

import pytest

from benchmarks.blocks import (
    Block,
    Estimate,
    added,
    differences,
    estimate,
    idle_verdicts,
    is_settled,
    judge,
    level,
    own_share,
    per_call,
    undisturbed,
    verdicts,
)
from benchmarks.overhead import Plan
from benchmarks.page import RESULTS, filled, parts
from benchmarks.subjects import VARIANTS
from benchmarks.tables import Run, console_text, from_json, json_text, to_json, trouble
from mcp_probe.workloads.bench.statistics import turn_order

ROOT = Path(__file__).resolve().parent.parent.parent
MACHINE = {
    "python": "3.13.0",
    "implementation": "CPython",
    "cpu": "a processor",
    "cores": 2,
    "system": "Linux 6.1",
    "load_average_1min": 0.1,
    "packages": {"mcp": "2.3.0", "uvicorn": None},
    "commit": "abc1234",
    "date": "2026-01-01",
}


def block(
    variant: str, cycle: int, p50_us: float, *, generation: int = 0, row: str = "memory", contended: bool = False
) -> Block:
    """A block whose three figures are ``p50_us``, and 10 and 20 more."""
    return Block(
        row, variant, generation, cycle, 100, p50_us, p50_us + 10, p50_us + 20, foreign_cores=0.0, contended=contended
    )


def cycle_of(cycle: int, drift: float, *, probe: float = 12.0, otel: float = 28.0, generation: int = 0) -> list[Block]:
    """One cycle on a machine that is ``drift`` slower than at the start; the two bare processes are 2 µs apart."""
    bare = 300.0 + drift
    return [
        block("bare", cycle, bare, generation=generation),
        block("bare again", cycle, bare + 2, generation=generation),
        block("probe", cycle, bare + 1 + probe, generation=generation),
        block("sdk-otel", cycle, bare + 1 + otel, generation=generation),
    ]


def drifting(cycles: int = 6) -> list[Block]:
    """A machine that gets 50 µs slower from one cycle to the next."""
    return [one for cycle in range(cycles) for one in cycle_of(cycle, 50.0 * cycle)]


def test_each_variant_follows_each_other_one_twice_and_never_itself_and_takes_each_place_twice() -> None:
    plan, names = Plan(), "ABCDEF"
    assert len(VARIANTS) == len(names)
    assert plan.rounds == 2 * len(names)
    rounds = [turn_order(names, turn) for turn in range(plan.rounds)]
    assert all(sorted(place) == sorted(2 * names) for place in zip(*rounds, strict=True))
    pairs = [(left, right) for order in rounds for left, right in pairwise(order)]
    assert sorted(pairs) == sorted(2 * list(permutations(names, 2)))
    in_a_row = [name for order in [*rounds, rounds[0]] for name in order]
    assert all(left != right for left, right in pairwise(in_a_row))


def test_block_figures_are_the_median_and_mean_of_its_calls_and_cpu_counts_the_lead_in_too() -> None:
    made = per_call("stdio", "probe", (1, 2), [1_000, 2_000, 9_000], cpu_ns=20_000, paid=5)
    assert (made.p50_us, made.mean_us, made.cpu_us, made.calls) == (2.0, 4.0, 4.0, 3)
    assert (made.row, made.variant, made.generation, made.cycle) == ("stdio", "probe", 1, 2)


def test_a_drifting_machine_does_not_show_in_the_differences() -> None:
    blocks = drifting()
    assert level(blocks, ["bare"], "p50_us") == 425.0
    assert added(blocks, "probe", "p50_us") == Estimate(12.0, 12.0, 12.0)


def test_the_floor_compares_the_two_bare_processes_alone() -> None:
    assert added(drifting(), "bare again", "cpu_us").us == 2.0


def test_differences_come_by_generation_and_leave_out_incomplete_cycles() -> None:
    blocks = [*cycle_of(0, 0.0), *cycle_of(0, 7.0, probe=14.0, generation=1), block("probe", 1, 900.0)]
    assert differences(blocks, "probe", ("bare", "bare again"), "p50_us") == [[12.0], [14.0]]


def test_the_interval_holds_the_spread_between_generations_not_only_between_cycles() -> None:
    steady = estimate([[10.0, 10.0, 10.0, 10.0]] * 3)
    placed = estimate([[5.0] * 4, [10.0] * 4, [15.0] * 4])
    assert (steady.low, steady.high) == (10.0, 10.0)
    assert (placed.us, placed.low, placed.high) == (10.0, 5.0, 15.0)


def test_the_interval_is_the_same_for_the_same_blocks() -> None:
    groups = [[1.0, 4.0, 2.0, 8.0], [3.0, 9.0, 5.0, 7.0]]
    assert estimate(groups) == estimate(groups)


def test_an_outlier_cycle_moves_the_interval_but_hardly_the_estimate() -> None:
    found = estimate([[10.0, 11.0, 9.0, 10.0, 500.0]])
    assert found.us == 10.0
    assert found.high == 500.0


def test_no_complete_cycle_is_refused() -> None:
    with pytest.raises(ValueError, match="complete cycle"):
        added([block("probe", 0, 1.0)], "probe", "p50_us")


@pytest.mark.parametrize(
    ("found", "state"),
    [
        (Estimate(10, 8, 12), "met"),
        (Estimate(15, 15, 15), "met"),
        (Estimate(14, 8, 19), "cannot be told here"),
        (Estimate(16, 14, 19), "cannot be told here"),
        (Estimate(40, 30, 50), "missed"),
    ],
)
def test_nothing_can_be_told_where_the_interval_has_the_target_inside(found: Estimate, state: str) -> None:
    assert judge("memory", "wall", found, 15.0, "µs").state == state


def states(row: str, blocks: list[Block]) -> dict[str, str]:
    return {verdict.what.split(" (+")[0]: verdict.state for verdict in verdicts(row, blocks)}


def test_in_memory_the_probe_is_held_to_microseconds_and_to_half_of_the_sdks_span() -> None:
    wall, beside_span = verdicts("memory", drifting())
    assert (wall.estimate.us, wall.limit, wall.state) == (12.0, 25.0, "met")
    assert (beside_span.estimate.us, beside_span.state) == (-2.0, "met")
    assert "+12.0 µs, the span +28.0" in beside_span.what
    slow = [one for cycle in range(6) for one in cycle_of(cycle, 0.0, probe=26.0)]
    assert [verdict.state for verdict in verdicts("memory", slow)] == ["missed", "missed"]


def test_over_a_transport_the_probe_is_held_to_the_sdks_span_in_wall_time_and_cpu() -> None:
    wall, cpu = verdicts("stdio", [one for cycle in range(6) for one in cycle_of(cycle, 0.0, probe=27.0)])
    assert (wall.estimate.us, wall.limit, wall.state, cpu.estimate.us) == (-1.0, 0.0, "met", -1.0)


def test_telemetry_is_held_to_one_and_a_half_spans_and_pure_python_to_twice_what_the_rest_is() -> None:
    blocks = drifting()
    for cycle in range(6):
        blocks.append(block("sdk-otel and probe", cycle, 300.0 + 50 * cycle + 1 + 28 + 41))
        blocks.append(block("probe, pure Python", cycle, 300.0 + 50 * cycle + 1 + 27))
    assert states("memory", blocks) == {
        "added wall time (p50)": "met",
        "wall time (p50), over 0.5 times what the span adds": "met",
        "without its accelerator: added wall time (p50)": "met",
        "without its accelerator: wall time (p50), over what the span adds": "met",
        "wall time (p50) of telemetry on top of the SDK's spans, over 1.5 times what the span adds": "met",
        "CPU, all threads of telemetry on top of the SDK's spans, over 1.5 times what the span adds": "met",
    }


def test_a_row_at_its_leanest_has_no_target() -> None:
    assert verdicts("http-lean", drifting()) == idle_verdicts("http-lean", [dict.fromkeys(VARIANTS, 0.0)]) == []


def test_idle_is_held_to_milliseconds_a_second_more_than_bare() -> None:
    rates = {"bare": 1.0, "bare again": 1.2, "probe": 2.0, "probe, pure Python": 13.0}
    native, pure = idle_verdicts("stdio", [rates, rates])
    assert (round(native.estimate.us, 2), native.limit, native.state) == (0.9, 1.0, "met")
    assert (round(pure.estimate.us, 2), pure.limit, pure.state) == (11.9, 10.0, "missed")


def test_the_floor_is_settled_where_its_interval_is_a_third_of_the_span() -> None:
    assert is_settled(drifting())
    spread = [one for cycle in range(6) for one in cycle_of(cycle, 0.0, generation=cycle)]
    spread += [block("bare again", cycle, 302.0 + 10 * cycle, generation=cycle) for cycle in range(6)]
    assert not is_settled(spread)


def test_the_share_measured_from_outside_is_of_the_probed_process() -> None:
    blocks = [one for cycle in range(6) for one in cycle_of(cycle, 0.0)]
    assert own_share(blocks) == pytest.approx(12.0 / 333.0)


def test_cycles_beside_other_load_are_left_out_whole_while_enough_remain() -> None:
    blocks = [*drifting(6), block("sdk-otel", 6, 1.0, contended=True), block("bare", 6, 1.0)]
    assert undisturbed(blocks) == drifting(6)
    few = [*drifting(4), block("sdk-otel", 4, 1.0, contended=True)]
    assert undisturbed(few) == few


def run_of(blocks: list[Block], **said: object) -> Run:
    answer = {"overhead_share": 0.04, "disabled_hooks": [], "dropped": 0, **said}
    return Run(MACHINE, {"generations": 1}, tuple(blocks), {"memory": [answer, {**answer, "overhead_share": 0.06}]})


def test_the_file_gives_back_the_run_it_was_made_of() -> None:
    run = run_of(drifting())
    document = json.loads(json_text(to_json(run)))
    assert from_json(document) == run
    assert document["results"]["memory"]["probe"]["p50_us"]["added"] == {"us": 12.0, "low": 12.0, "high": 12.0}


def test_a_file_of_another_format_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="mcp-probe-overhead/9"):
        from_json({"format": "mcp-probe-overhead/9"})


def test_the_console_has_both_measures_of_overhead_and_every_verdict() -> None:
    text = console_text(run_of(drifting()))
    assert "+12.0 (+12.0 … +12.0)" in text
    assert "target at most 25 µs: met" in text
    assert "the probe itself reports it 5.0 %, measured from outside 2.6 % of CPU" in text
    assert "!" not in text


def test_what_a_reader_must_know_is_said() -> None:
    blocks = [*drifting(6), block("probe", 6, 1.0, contended=True)]
    said = trouble(run_of(blocks, disabled_hooks=["gc: not here"], dropped=3))
    assert said == [
        "memory: 1 blocks are left out, since their cycles ran beside other load",
        "memory: hook off: gc: not here",
        "memory: the probe dropped 6 of its records",
    ]


def test_a_generated_part_replaces_what_stood_between_its_marks_and_nothing_else() -> None:
    page = "a\n<!-- soak:begin -->\nold\n<!-- soak:end -->\nb\n"
    assert filled(page, {"soak": r"new \1"}) == "a\n<!-- soak:begin -->\n\nnew \\1\n\n<!-- soak:end -->\nb\n"
    with pytest.raises(ValueError, match="'overhead'"):
        filled(page, {"overhead": "new"})


def test_the_page_shows_a_miss_in_bold(tmp_path: Path) -> None:
    slow = [one for cycle in range(6) for one in cycle_of(cycle, 0.0, probe=40.0)]
    (tmp_path / "overhead-3.13.json").write_text(json_text(to_json(run_of(slow))), "utf-8")
    made = parts(tmp_path)
    assert "target ≤ 25 µs: **missed**" in made["overhead"]
    assert made["soak"] == made["hot-path"] == "No results are committed yet."


def test_the_page_holds_what_the_committed_results_say() -> None:
    page = (ROOT / "docs" / "performance.md").read_text("utf-8")
    assert page == filled(page, parts(RESULTS)), "run: python benchmarks/overhead.py --write-docs"


@pytest.mark.workloads
def test_a_small_run_measures_every_variant_on_every_transport(tmp_path: Path) -> None:
    output = tmp_path / "overhead.json"
    command = [sys.executable, "benchmarks/overhead.py", "--smoke", "--output", str(output)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    run = from_json(json.loads(output.read_text()))
    assert {(one.row, one.variant) for one in run.blocks} == {
        (row, variant) for row in ("memory", "stdio", "http", "http-lean") for variant in VARIANTS
    }
    assert all(one.p50_us > 0 and one.cpu_us > 0 for one in run.blocks)
    for row, answers in run.said.items():
        assert answers[0]["requests"] >= 20, row
        assert answers[0]["disabled_hooks"] == [], row
