"""The benchmarks of one option on literal figures, and one small burst of each tool."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from benchmarks import awaits, flight
from benchmarks.awaits import SWITCH, TAKEN, TOOLS
from benchmarks.switches import FIGURES, VARIANTS, Switch


def cycle(drift: float) -> dict[str, dict[str, dict[str, float]]]:
    """A machine that is ``drift`` slower; off costs 20, off again 22, and on 30 more than bare."""
    costs = dict(zip(VARIANTS, (0.0, 20.0, 22.0, 30.0), strict=True))
    return {
        name: {one: dict.fromkeys(FIGURES, (100 + drift + cost) * tool.parts) for one, cost in costs.items()}
        for name, tool in TOOLS.items()
    }


def test_differences_are_taken_within_a_cycle_and_for_each_lock() -> None:
    found = [[cycle(0.0), cycle(50.0)], [cycle(500.0)]]
    for tool in TOOLS:
        assert SWITCH.differences(found, tool, "off", "p50").us == pytest.approx(21)
        assert SWITCH.differences(found, tool, "off again", "loop").us == pytest.approx(2)
        assert SWITCH.differences(found, tool, "on", "process").us == pytest.approx(9)
    assert "| each of 100 free locks | p50 | 150.00 | +21.00 (+21.00 … +21.00) |" in SWITCH.text_of(found)


def check_bursts(switch: Switch, tool: str) -> None:
    for variant in ("off", "on"):
        row = asyncio.run(switch.burst(variant, tool, 3))
        assert set(row) == set(FIGURES)
        assert all(value > 0 for figure, value in row.items() if figure != "others")
        assert row["loop"] + row["others"] == pytest.approx(row["process"])


@pytest.mark.parametrize("tool", awaits.TOOLS)
def test_each_tool_answers_with_awaits_on_and_off(tool: str) -> None:
    check_bursts(SWITCH, tool)
    assert TAKEN == 100  # the titles say so


@pytest.mark.parametrize("tool", flight.TOOLS)
def test_each_tool_answers_with_the_flight_recorder_on_and_off(tool: str, tmp_path: Path) -> None:
    check_bursts(flight.switch(str(tmp_path / "flights")), tool)
    assert list((tmp_path / "flights").iterdir()) == []  # made for the burst with it, and nothing was slow
