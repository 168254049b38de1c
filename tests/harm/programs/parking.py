"""The accelerated watchdog's sleep, ended by a loop that begins a step, at any moment."""

from __future__ import annotations

import random
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from mcp_probe import native
from mcp_probe.clock import now_ns
from tests.harm.programs.probing import tell

core: Any = native.core
LIMIT_NS = 1_000_000
LATE_S = 0.6
"""A wake-up that is missed lasts until the park ends by itself, after 0.9 s."""


def waited_s() -> float:
    """For how long this thread has waited for a CPU, by the kernel; 0 where it does not say."""
    try:
        return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9
    except OSError:
        return 0.0


class LoopMonitor(core.Steps if core is not None else object):  # type: ignore[misc]
    """Steps of a loop that this program plays."""

    ordinal = 1
    unit = 0


def main(rounds: int) -> None:
    monitor = LoopMonitor()
    readings = core.Readings(monitor, None, -1)
    rolls, late, worst = random.Random(3), 0, 0.0
    for _ in range(rounds):
        monitor.since = 0
        went = SimpleNamespace(over=None, at=0.0, waited_s=0.0)

        def park(went: Any = went) -> None:
            before_s = waited_s()
            went.over = core.park((readings,), LIMIT_NS, LIMIT_NS, 5_000_000_000, core.PipeLooker())
            went.at = time.monotonic()
            went.waited_s = waited_s() - before_s

        thread = threading.Thread(target=park)
        thread.start()
        # It parks after two idle ticks of the limit: around that moment is where a wake-up could be missed.
        time.sleep(0.0015 + rolls.random() * 0.003)
        monitor.begin_poll(now_ns())
        monitor.end_poll(now_ns())
        monitor.since = now_ns()  # who begins a step wakes the watchdog
        began = time.monotonic()
        thread.join()
        took = went.at - began - went.waited_s
        worst = max(worst, took)
        late += took > LATE_S
        if went.over is not True:
            late += 1
    tell({"rounds": rounds, "late": late, "worst_s": round(worst, 3)})


if __name__ == "__main__":
    main(int(sys.argv[2]))
