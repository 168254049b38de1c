"""Ways that take turns: whose rounds, noise and readings a row has, and what a claim is made of."""

from __future__ import annotations

import pytest

from mcp_probe.workloads.bench.context import Bench
from mcp_probe.workloads.bench.serving import ProfiledServer
from mcp_probe.workloads.bench.shapes import Little, Measured
from mcp_probe.workloads.bench.statistics import describe
from mcp_probe.workloads.client import Call
from mcp_probe.workloads.scenarios.arms import Arm, put_arm, put_ratio, take_turns
from mcp_probe.workloads.scenarios.tables import Table, burst


async def answered(call: Call) -> float:
    return 1.0


def arm(*wall_ms: float, floor: float | None = None, contended: bool = False) -> Arm:
    return Arm(describe(wall_ms, first_apart=False, contended=contended), floor, wall_ms, Little(1.0, 1.0), "a reason")


async def test_each_arm_has_its_rounds_and_its_last_one_is_a_phase_at_every_server() -> None:
    servers = ProfiledServer(None), ProfiledServer(None)
    ways = {"one": burst(answered, [Call("wait", {})]), "five": burst(answered, [Call("wait", {})] * 5)}
    arms = await take_turns(Bench(quick=True), ways, 3, *servers, twin="one", excused="they differ")
    assert {label: len(each.wall_ms) for label, each in arms.items()} == {"one": 6, "five": 3}  # the twin has two turns
    assert all(each.floor is not None and each.floor >= 1 for each in arms.values())
    assert [each.little.excused for each in arms.values() if each.little is not None] == ["they differ"] * 2
    for server in servers:
        assert server._spans == {label: way.last_ns for label, way in ways.items()}


async def test_arms_without_a_server_have_no_reason() -> None:
    arms = await take_turns(Bench(quick=True), {"one": burst(answered, [Call("wait", {})])}, 2)
    assert (arms["one"].why, arms["one"].floor) == ("", None)


def test_a_row_has_all_that_is_known_of_its_arm_unless_it_is_overruled() -> None:
    bench = Bench(quick=True)
    table = Table(bench, "001 S2", scale=0.5)
    put_arm(table, "calls", arm(2.0, 2.0, floor=1.1), 4.0, unit="µs")
    put_arm(table, "others", arm(2.0, 2.0, floor=1.1), floor=None, little=None, why="another")
    first, second = bench.outcome().rows
    assert (first.unit, first.documented, first.scale, first.floor, first.why) == ("µs", 4.0, 0.5, 1.1, "a reason")
    assert first.little == Little(1.0, 1.0)
    assert (second.floor, second.little, second.why) == (None, None, "another")


def test_a_ratio_is_of_any_size_and_as_uncertain_as_the_worse_of_both() -> None:
    bench = Bench(quick=True)
    over, under = arm(6.0, 6.0, floor=1.1, contended=True), arm(2.0, 2.0, floor=1.3)
    put_ratio(Table(bench, "001 S2", scale=0.5), "ratio", over, under, 3.0)
    (row,) = bench.outcome().rows
    assert (row.figure, row.unit, row.scale, row.floor, row.contended) == (3.0, "×", 1.0, 1.3, True)
    assert (over.over(under).value, over.over(under).floor, over.over(under).contended) == (3.0, 1.3, True)


def test_quickest_rounds_are_held_against_another_arm_or_a_number_of_milliseconds() -> None:
    one, other = arm(9.0, 3.0, 3.0), arm(1.5, 8.0, 1.5)
    assert one.quickest_over(other).value == pytest.approx(2.0)
    assert one.quickest_over(1.5).value == pytest.approx(2.0)


def test_a_row_of_a_claim_s_figure_has_its_noise_unless_it_is_overruled() -> None:
    bench = Bench(quick=True)
    table = Table(bench, "001 S2", floor=1.5, contended=True)
    table.put("of the figure", "×", Measured(2.0, floor=1.1))
    table.put("overruled", "×", Measured(2.0, floor=1.1, contended=True), floor=1.2)
    Table(bench, "001 S2").put("disturbed", "×", Measured(2.0, contended=True), 3.0)
    found = [(row.figure, row.documented, row.floor, row.contended) for row in bench.outcome().rows]
    assert found == [(2.0, None, 1.1, True), (2.0, None, 1.2, True), (2.0, 3.0, None, True)]
