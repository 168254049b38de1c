"""The benchmark of awaits on literal figures, and one small burst of each tool."""

from __future__ import annotations

import asyncio

import pytest

from benchmarks.awaits import TAKEN, TOOLS, VARIANTS, burst, differences, text_of

FIGURES = ("p50", "loop", "process")


def cycle(drift: float) -> dict[str, dict[str, dict[str, float]]]:
    """A machine that is ``drift`` slower; off costs 20, off again 22, and on 30 more than bare."""
    costs = dict(zip(VARIANTS, (0.0, 20.0, 22.0, 30.0), strict=True))
    return {
        tool: {one: dict.fromkeys(FIGURES, (100 + drift + cost) * parts) for one, cost in costs.items()}
        for tool, (_, _, parts) in TOOLS.items()
    }


def test_differences_are_taken_within_a_cycle_and_for_each_lock() -> None:
    found = [[cycle(0.0), cycle(50.0)], [cycle(500.0)]]
    for tool in TOOLS:
        assert differences(found, tool, "off", "p50").us == pytest.approx(21)
        assert differences(found, tool, "off again", "loop").us == pytest.approx(2)
        assert differences(found, tool, "on", "process").us == pytest.approx(9)
    assert "| each of 100 free locks | p50 | 150.00 | +21.00 (+21.00 … +21.00) |" in text_of(found)


@pytest.mark.parametrize("tool", TOOLS)
def test_each_tool_answers_with_awaits_on_and_off(tool: str) -> None:
    for variant in ("off", "on"):
        row = asyncio.run(burst(variant, tool, 3))
        assert set(row) == set(FIGURES)
        assert all(value > 0 for value in row.values())
    assert TAKEN == 100  # the titles say so
