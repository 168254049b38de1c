"""How often `mcp-probe compare` is right where the truth is known: recordings that are drawn, not measured.

Times are log-normal, and neighbours in time remember each other (the first order, as far as ``memory``). Each trial
goes the whole way, from frames to judgements of every row. Seeded: the same numbers on every machine.
``python benchmarks/compare_truth.py``; 0: what is promised was kept.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from mcp_probe.compare.judge import compared
from mcp_probe.compare.reading import reading_of
from mcp_probe.compare.samples import recorded
from mcp_probe.compare.shapes import Comparison, Reading
from mcp_probe.model import BUDGET_PARTS, Budget, End, Frame, MemoryUse, RequestRecord
from mcp_probe.testing import make_record

MS = 1_000_000
_SHARES = {"queue_dispatch": 1.0, "busy": 4.0, "executor_run": 6.0, "awaiting": 8.0, "write_flush": 1.0}


@dataclass(frozen=True, slots=True)
class Load:
    """Calls of ``operations`` tools, of which the first one's median is ``factor`` times the others'."""

    calls: int
    operations: int = 1
    variation: float = 0.5  # standard deviation over mean
    memory: float = 0.0  # correlation of one call's time with the next one's
    factor: float = 1.0


def drawn(load: Load, seed: int) -> Reading:
    """One recording of ``load``."""
    chance = np.random.default_rng(seed)
    frames = [frame for number in range(load.operations) for frame in _calls(load, number, chance)]
    frames.sort(key=lambda frame: frame.arrival_ns)
    every: list[Frame] = [*frames, End(frames[-1].end_ns, "closed")]
    return reading_of(recorded(every), f"seed {seed}")


def _calls(load: Load, number: int, chance: Any) -> Iterator[RequestRecord]:
    spread = float(np.sqrt(np.log(1 + load.variation**2)))
    fresh = chance.standard_normal(load.calls)
    state = fresh.copy()
    for at in range(1, load.calls):
        state[at] = load.memory * state[at - 1] + np.sqrt(1 - load.memory**2) * fresh[at]
    totals = 50 * MS * np.exp(spread * state) * (load.factor if number == 0 else 1.0)
    shares = chance.dirichlet(list(_SHARES.values()), size=load.calls)
    sizes = np.exp(chance.normal(10.0, 0.1, load.calls))
    for at in range(load.calls):
        arrival = at * 10 * MS + number
        parts = dict.fromkeys(BUDGET_PARTS, 0)
        parts |= {name: int(totals[at] * share) for name, share in zip(_SHARES, shares[at], strict=True)}
        size = int(sizes[at])
        yield make_record(
            f"tool_{number}",
            id=1 + at * load.operations + number,
            arrival_ns=arrival,
            budget=Budget(**parts),
            result_ns=None,
            steps=2,
            sequential_awaits=1,
            memory=MemoryUse("native-hybrid", "all Python allocations", size, 10, size // 2, size // 50),
        )


def trial(before: Load, after: Load, number: int) -> Comparison:
    """Two recordings that have nothing in common but what they were drawn from."""
    return compared([drawn(before, 2 * number)], [drawn(after, 2 * number + 1)])


def false_alarms(load: Load, trials: int) -> int:
    """How many comparisons of two equal servers call any row a difference."""
    return sum(bool(_called(trial(load, load, number))) for number in range(trials))


def found(load: Load, trials: int) -> dict[str, int]:
    """How many comparisons find that the first tool's times are greater by ``load.factor``: by any row, and by each."""
    before = Load(load.calls, load.operations, load.variation, load.memory)
    counts: dict[str, int] = {"any": 0}
    for number in range(trials):
        rows = {measure for operation, measure in _called(trial(before, load, number)) if operation == "tool_0"}
        counts["any"] += bool(rows & {"p50", "mean"})
        for measure in rows:
            counts[measure] = counts.get(measure, 0) + 1
    return counts


def _called(comparison: Comparison) -> set[tuple[str, str]]:
    return {(row.operation, row.measure) for row in comparison.rows if row.judgement == "more than noise"}


EQUAL = (Load(1000), Load(1000, 4, 0.5, 0.2), Load(300, 2, 0.5, 0.6), Load(1000, 1, 0.8, 0.85))
SLOWER = (
    Load(1000, 1, 0.5, 0.0, 1.1),
    Load(1000, 4, 0.5, 0.0, 1.1),
    Load(1000, 1, 0.5, 0.1, 1.1),
    Load(1000, 1, 0.3, 0.4, 1.1),
    Load(1000, 1, 0.14, 0.6, 1.1),
    Load(1000, 1, 0.5, 0.6, 1.1),
)
MOST_FALSE, LEAST_FOUND = 0.05, 0.9


def main() -> int:
    """Prints both tables. The last load of ``SLOWER`` is one that no method could tell, and is only shown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=100)
    trials = parser.parse_args().trials
    kept = True
    for load in EQUAL:
        count = false_alarms(load, trials)
        kept = kept and count <= MOST_FALSE * trials
        print(f"equal    {_told(load)}: a difference in {count} of {trials}", flush=True)
    for load in SLOWER:
        counts = found(load, trials)
        kept = kept and (load is SLOWER[-1] or counts["any"] >= LEAST_FOUND * trials)
        each = ", ".join(f"{name} {counts[name]}" for name in sorted(counts, key=lambda name: -counts[name])[1:6])
        print(f"+10 %    {_told(load)}: found in {counts['any']} of {trials} ({each})", flush=True)
    return 0 if kept else 1


def _told(load: Load) -> str:
    return f"{load.operations} × {load.calls} calls, CV {load.variation}, memory {load.memory}"


if __name__ == "__main__":
    raise SystemExit(main())
