"""What the probe costs: bare, probe and the SDK's own OpenTelemetry middleware, interleaved, on three transports.

``--quick`` takes some three minutes and only prints; without it the run takes up to twenty, writes
``benchmarks/results/overhead-<python>.json`` and puts the tables into ``docs/performance.md``. Linux only.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import anyio

from benchmarks.blocks import UNJUDGED, Block, is_settled, per_call, undisturbed
from benchmarks.driving import SUBJECT_MAKERS, Subject
from benchmarks.machine import ForeignLoad, cpu_ns, describe_machine, python_tag
from benchmarks.page import write_page
from benchmarks.subjects import VARIANTS
from benchmarks.tables import Run, console_text, from_json, json_text, to_json
from mcp_probe.workloads.bench.context import Patience
from mcp_probe.workloads.bench.machine import FOREIGN_LIMIT
from mcp_probe.workloads.bench.statistics import turn_order

RESULTS = Path(__file__).with_name("results")
CALM_S = 0.1


@dataclass(frozen=True, slots=True)
class Plan:
    """How much to measure. A burst is one variant's turn; ``calls`` per row make it last about 0.1 s."""

    generations: int = 5  # of processes: where the parts of one come to lie makes it several us slower or faster
    row_s: float = 400.0  # generations are added until the floor is known well enough, for no longer than this a row
    cycles: int = 1
    rounds: int = 12  # until turn_order has each of the six variants follow each other one equally often
    calls: tuple[tuple[str, int], ...] = (("memory", 300), ("stdio", 80), ("http", 50), ("http-lean", 120))
    warm_up: int = 300
    lead_in: float = 0.1  # share of a burst's calls made before it: another process has just used the caches
    settle_s: float = 2.1  # longer than the collector sleeps: what it has to do for a cycle is charged to the cycle
    idle_s: float = 4.1  # without a call, once per set of processes: what a call costs is told from what time costs
    patience_s: float = 40.0  # per row, for waiting until others leave the machine and for running cycles again


QUICK_CALLS = (("memory", 250), ("stdio", 60), ("http", 40), ("http-lean", 100))
QUICK = Plan(generations=1, row_s=0.0, cycles=3, rounds=6, calls=QUICK_CALLS, patience_s=3.0)
SMOKE_CALLS = (("memory", 20), ("stdio", 20), ("http", 20), ("http-lean", 20))
SMOKE = Plan(1, 0.0, 1, 1, SMOKE_CALLS, warm_up=5, settle_s=0.02, idle_s=0.05, patience_s=0.0)


async def measure_row(row: str, calls: int, plan: Plan) -> tuple[list[Block], list[dict[str, Any]]]:
    """All blocks of one row, and what each probed process said of itself at its end."""
    blocks: list[Block] = []
    said = []
    patience = Patience(plan.patience_s)
    until = time.monotonic() + plan.row_s
    generation = 0
    while generation < plan.generations or (time.monotonic() < until and not is_settled(undisturbed(blocks))):
        async with AsyncExitStack() as stack:
            subjects = {name: await stack.enter_async_context(SUBJECT_MAKERS[row](name)) for name in VARIANTS}
            for subject in subjects.values():
                await subject.block(plan.warm_up, 0)
            await anyio.sleep(plan.settle_s)
            idle = await _idle_ns_per_s(subjects, plan.idle_s)
            for cycle in range(plan.cycles):
                blocks += await _quiet_cycle(row, (generation, cycle), subjects, calls, plan, patience, idle)
            told = {"idle_cpu_ms_per_s": {name: round(ns / 1e6, 3) for name, ns in idle.items()}}
            said.append({**await subjects["probe"].describe(), **told})
        generation += 1
    return blocks, said


async def _idle_ns_per_s(subjects: dict[str, Subject], seconds: float) -> dict[str, float]:
    """CPU of each process while nobody calls it."""
    before, began = {name: cpu_ns(subject.pid) for name, subject in subjects.items()}, time.monotonic()
    await anyio.sleep(seconds)
    passed = time.monotonic() - began
    return {name: (cpu_ns(subject.pid) - before[name]) / passed for name, subject in subjects.items()}


async def _quiet_cycle(
    row: str,
    place: tuple[int, int],
    subjects: dict[str, Subject],
    calls: int,
    plan: Plan,
    patience: Patience,
    idle: dict[str, float],
) -> list[Block]:
    """One cycle, run again where others used the machine meanwhile, as long as there is patience."""
    pids = [one.pid for one in subjects.values()]
    reruns = 0
    while True:
        await _calm(pids, patience)
        load, began = ForeignLoad(pids), time.monotonic()
        blocks = await _cycle(row, place, subjects, calls, plan, idle)
        foreign = load.cores()
        contended = foreign > FOREIGN_LIMIT
        if not contended or not patience.left:
            noted: dict[str, Any] = {"foreign_cores": round(foreign, 3), "reruns": reruns, "contended": contended}
            return [replace(block, **noted) for block in blocks]
        patience.spend(time.monotonic() - began)
        reruns += 1


async def _cycle(
    row: str, place: tuple[int, int], subjects: dict[str, Subject], calls: int, plan: Plan, idle: dict[str, float]
) -> list[Block]:
    """A block of each variant, in bursts that take turns.

    Each process is idle while the six others have their turn; what that costs it has been measured and is taken off.
    """
    taken: dict[str, list[int]] = {name: [] for name in subjects}
    lead_in = round(calls * plan.lead_in)
    before, began = {name: cpu_ns(subject.pid) for name, subject in subjects.items()}, time.monotonic()
    for turn in range(plan.rounds):
        for name in turn_order(list(subjects), turn):
            taken[name] += await subjects[name].block(calls, lead_in)
    await anyio.sleep(plan.settle_s)
    paid, passed = plan.rounds * (calls + lead_in), time.monotonic() - began
    return [
        per_call(row, name, place, taken[name], round(cpu_ns(subject.pid) - before[name] - idle[name] * passed), paid)
        for name, subject in subjects.items()
    ]


async def _calm(pids: Sequence[int], patience: Patience) -> None:
    """Return after a moment in which nobody else used the machine, or out of patience."""
    while patience.left:
        load = ForeignLoad(pids)
        await anyio.sleep(CALM_S)
        if load.cores() <= FOREIGN_LIMIT:
            return
        patience.spend(CALM_S)


async def measure(plan: Plan, rows: Sequence[str]) -> Run:
    """Everything, row after row."""
    machine = describe_machine()
    blocks: list[Block] = []
    said: dict[str, list[dict[str, Any]]] = {}
    for row, calls in plan.calls:
        if row not in rows:
            continue
        began = time.monotonic()
        found, said[row] = await measure_row(row, calls, plan)
        blocks += found
        print(f"{row}: {len(found)} blocks in {time.monotonic() - began:.0f} s", file=sys.stderr)
    return Run(machine, asdict(plan), tuple(blocks), said)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="about a minute, one set of processes; prints only")
    parser.add_argument(
        "--smoke", action="store_true", help="one cycle of 20 calls, for tests: its figures mean nothing"
    )
    parser.add_argument("--minutes", type=float, help="at most so many for all rows (default: 20)")
    parser.add_argument("--row", action="append", choices=list(SUBJECT_MAKERS), help="only this row (repeatable)")
    parser.add_argument("--output", type=Path, help="write the results here instead")
    parser.add_argument("--write-docs", action="store_true", help="only put the committed results into the docs")
    parser.add_argument("--show", type=Path, help="only print the results in this file")
    parser.add_argument("--profile-hot-path", action="store_true", help="ns per followed callback, poll and request")
    arguments = parser.parse_args()
    if arguments.write_docs:
        write_page()
    elif arguments.show:
        print(console_text(from_json(json.loads(arguments.show.read_text()))))
    elif arguments.profile_hot_path:
        print_hot_path()
    else:
        run_and_keep(arguments)


def print_hot_path() -> None:
    """The micro costs, and under the profiler the functions they are in."""
    from benchmarks import hot_path

    print(hot_path.text(hot_path.measure()))
    print(hot_path.busiest_text())


def run_and_keep(arguments: argparse.Namespace) -> None:
    """Measure, print, and keep what is a whole run."""
    os.environ.pop("MCP_PROBE_REPORT", None)
    plan = SMOKE if arguments.smoke else QUICK if arguments.quick else Plan()
    rows = arguments.row or [row for row in SUBJECT_MAKERS if arguments.smoke or row not in UNJUDGED]
    if arguments.minutes is not None:
        plan = replace(plan, row_s=60 * arguments.minutes / len(rows))
    run = anyio.run(measure, plan, rows)
    print(console_text(run))
    whole = not (arguments.smoke or arguments.quick or arguments.row)
    if whole:
        from benchmarks import hot_path

        costs = hot_path.measure()
        run = replace(run, hot_path=costs)
        print("\n" + hot_path.text(costs))
    target = arguments.output or (RESULTS / f"overhead-{python_tag()}.json" if whole else None)
    if target is not None:
        target.parent.mkdir(exist_ok=True)
        target.write_text(json_text(to_json(run)), "utf-8")
    if whole and arguments.output is None:
        write_page()


if __name__ == "__main__":
    main()
