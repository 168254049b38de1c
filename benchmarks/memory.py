"""What memory per request costs: the probe's tiers against the probe without memory, beside tracemalloc and memray.

Three tools of one server, client and server over memory streams in one process. The tiers take turns within that one
process, so that nothing but the tier differs; tracemalloc and memray run in processes of their own, from their
beginning. ``--quick`` takes about a minute and only prints; without it the run takes about six, writes
``benchmarks/results/memory-<python>.json`` and puts the table into ``docs/performance.md``. Linux only.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.blocks import Block, per_call
from benchmarks.machine import ForeignLoad, describe_machine, python_tag
from benchmarks.memory_tables import FORMAT, ROWS, Run, console_text, from_json
from benchmarks.orders import Ordered
from benchmarks.page import RESULTS, write_page
from benchmarks.tables import json_text
from mcp_probe.workloads.bench.statistics import turn_order

SUBJECTS = Path(__file__).with_name("memory_subjects.py")
FOREIGN_LIMIT = 0.25
TIERS = {"bare": "off", "bare again": "off", "light": "light", "detailed": "detailed"}
"""By variant, within one process. ``bare`` is the probe without memory."""
FOREIGN = ("tracemalloc", "memray")


@dataclass(frozen=True, slots=True)
class Plan:
    """How much to measure; ``calls`` per row make a burst last about 0.1 s."""

    generations: int = 4
    cycles: int = 6
    rounds: int = 4  # a square of turn_order of the four variants that share a process
    calls: tuple[tuple[str, int], ...] = (("call", 300), ("documents", 25), ("objects", 40))
    warm_up: int = 60
    lead_in: float = 0.1
    patience_s: float = 40.0  # per row, for running cycles again that others disturbed


QUICK = Plan(generations=1, cycles=5, patience_s=5.0)
SMOKE = Plan(1, 1, 1, (("call", 10), ("documents", 2), ("objects", 2)), warm_up=1, patience_s=0.0)


class Process(Ordered):
    """A subject, which is told how many calls to make and under which tier."""

    def __init__(self, row: str, tracer: str) -> None:
        super().__init__([sys.executable, str(SUBJECTS), "--tool", row, "--tracer", tracer])
        self.pid: int = self.hello["pid"]

    def end(self) -> None:
        """Its stdin ends, and so does it."""
        self.close()
        self.process.wait(60)


@contextmanager
def process(row: str, tracer: str) -> Iterator[Process]:
    """A subject for as long as the block runs."""
    made = Process(row, tracer)
    try:
        yield made
    finally:
        made.end()


def tracers() -> tuple[list[str], list[str]]:
    """(those that are here, those that are not)."""
    here = [name for name in FOREIGN if importlib.util.find_spec(name) is not None]
    return here, [name for name in FOREIGN if name not in here]


def measure_row(row: str, calls: int, plan: Plan) -> tuple[list[Block], dict[str, Any]]:
    """All blocks of one row, and what the probe said at the end."""
    blocks: list[Block] = []
    said: dict[str, Any] = {}
    patience = plan.patience_s
    for generation in range(plan.generations):
        with ExitStack() as stack:
            shared = stack.enter_context(process(row, "none"))
            subjects = {name: (shared, tier) for name, tier in TIERS.items()}
            for name in tracers()[0]:
                subjects[name] = (stack.enter_context(process(row, name)), "off")
            for subject, tier in subjects.values():
                subject.ask(tier=tier, calls=plan.warm_up if subject is shared else 1, lead_in=0)
            pids = [subject.pid for subject, _ in subjects.values()]
            for cycle in range(plan.cycles):
                while True:
                    load, began = ForeignLoad(set(pids)), time.monotonic()
                    found = one_cycle(row, (generation, cycle), subjects, calls, plan)
                    foreign = load.cores()
                    if foreign <= FOREIGN_LIMIT or patience <= 0:
                        break
                    patience -= time.monotonic() - began
                contended = foreign > FOREIGN_LIMIT
                blocks += [replace(one, foreign_cores=round(foreign, 3), contended=contended) for one in found]
            said = shared.ask(describe=True)
    return blocks, said


def one_cycle(
    row: str, place: tuple[int, int], subjects: dict[str, tuple[Process, str]], calls: int, plan: Plan
) -> list[Block]:
    """A block of each variant: the tiers in bursts that take turns, then each tracer, with a tenth of the calls."""
    taken: dict[str, list[int]] = {name: [] for name in subjects}
    cpu, paid = dict.fromkeys(subjects, 0), dict.fromkeys(subjects, 0)
    order = [name for turn in range(plan.rounds) for name in turn_order(list(TIERS), turn)]
    for name in [*order, *(name for name in subjects if name not in TIERS)]:
        subject, tier = subjects[name]
        some = calls if name in TIERS else max(2, calls // 10)
        lead_in = max(1, round(some * plan.lead_in))
        answer = subject.ask(tier=tier, calls=some, lead_in=lead_in)
        taken[name] += answer["taken_ns"]
        cpu[name] += answer["cpu_ns"]
        paid[name] += some + lead_in
    return [per_call(row, name, place, taken[name], cpu[name], paid[name]) for name in subjects]


def measure(plan: Plan, rows: Sequence[str]) -> Run:
    """Everything, row after row."""
    machine = describe_machine()
    blocks: list[Block] = []
    said: dict[str, dict[str, Any]] = {}
    for row, calls in plan.calls:
        if row in rows:
            began = time.monotonic()
            found, said[row] = measure_row(row, calls, plan)
            blocks += found
            print(f"{row}: {len(found)} blocks in {time.monotonic() - began:.0f} s", file=sys.stderr)
    return Run(machine, asdict(plan), tuple(blocks), said, tuple(tracers()[1]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="about a minute, one set of processes; prints only")
    parser.add_argument("--smoke", action="store_true", help="a few calls, for tests: its figures mean nothing")
    parser.add_argument("--row", action="append", choices=list(ROWS), help="only this row (repeatable)")
    parser.add_argument("--output", type=Path, help="write the results here instead")
    parser.add_argument("--show", type=Path, help="only print the results in this file")
    arguments = parser.parse_args()
    if arguments.show:
        print(console_text(from_json(json.loads(arguments.show.read_text()))))
        return
    os.environ.pop("MCP_PROBE_REPORT", None)
    plan = SMOKE if arguments.smoke else QUICK if arguments.quick else Plan()
    run = measure(plan, arguments.row or list(ROWS))
    print(console_text(run))
    whole = plan == Plan() and not arguments.row
    target = arguments.output or (RESULTS / f"memory-{python_tag()}.json" if whole else None)
    if target is not None:
        target.parent.mkdir(exist_ok=True)
        target.write_text(json_text({"format": FORMAT, **asdict(run)}), "utf-8")
    if whole and arguments.output is None:
        write_page()


if __name__ == "__main__":
    main()
