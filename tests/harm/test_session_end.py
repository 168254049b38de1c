"""A session ends as without the probe: the loop is not held up, and nothing of ours comes out of it."""

from __future__ import annotations

import pytest

from tests.harm.running import CORES, How, bare, told

LONGEST_S = 0.2
"""A write takes 1 s, and a flush that is waited for 0.5 s; a busy machine alone delays a beat by some 10 ms."""

TRIES = 5
"""A machine that keeps the loop from its CPU for so long does so now and then; a write on the loop, each time."""


@CORES
@pytest.mark.parametrize("recording", ["slow", "fault"])
def test_the_end_of_a_session_never_holds_the_loop_up(core: How, recording: str) -> None:
    expected, gaps = bare("session_end", recording), list[float]()
    while len(gaps) < TRIES and min(gaps, default=LONGEST_S) >= LONGEST_S:
        found = told("session_end", core, recording)
        assert found["said"] == expected["said"] == ["3"] * 3
        gaps.append(found["gap_s"])
    assert min(gaps) < max(LONGEST_S, 3 * expected["gap_s"]), gaps
