"""The benchmark of recordings on literal turns, and a short one of real processes: their counts are exact."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.record_load import Counts, Cycle, Turn, generation, ratios, rows_of


def cycle(speed: float) -> Cycle:
    """A machine that runs at ``speed``, whose bare processes differ; recording takes a tenth of their mean."""
    share = {"bare": 0.9, "bare again": 1.1, "probe": 0.95, "record": 0.9}
    return {name: Turn(100, 3000 * speed * part, 300 / part) for name, part in share.items()}


def test_ratios_are_taken_within_a_cycle_and_against_both_bare_processes() -> None:
    found = [[cycle(1.0), cycle(0.1)], [cycle(0.5)]]
    bare = ("bare", "bare again")
    assert ratios(found, "record", bare, "per_second") == [pytest.approx([-10, -10]), pytest.approx([-10])]
    assert ratios(found, "bare again", bare[:1], "per_second")[1] == pytest.approx([100 * (1.1 / 0.9 - 1)])
    assert ratios(found, "record", ["probe"], "cpu_us")[1] == pytest.approx([100 * (0.95 / 0.9 - 1)])
    counts = {name: Counts(900, None, None, 0) for name in found[0][0]}
    counts["record"] = Counts(900, 899, 450, 90_000)
    line = next(line for line in rows_of(found, [counts]) if line.startswith("| record |"))
    assert "| -10.0 % (-10.0 … -10.0) | -5.3 % (-5.3 … -5.3) |" in line
    assert "| off by [-1], 50% have a record, 100 bytes a call |" in line


@pytest.mark.workloads
def test_processes_take_turns_and_each_recording_counts_what_its_client_counted(tmp_path: Path) -> None:
    names = ["bare", "record", "run record"]
    turns, counts = generation(names, 2, 0.05, 100, tmp_path / "servers")
    assert [set(one) for one in turns] == [set(names)] * 2
    for name in names:
        assert counts[name].answered > sum(one[name].answered for one in turns) > 0  # the warm-up counts, too
        assert counts[name].counted == (None if name == "bare" else counts[name].answered)
