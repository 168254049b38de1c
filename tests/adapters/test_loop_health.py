"""Loop health on real loops, against the test's own record of how long it held them."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import anyio
import anyio.lowlevel
import pytest

from mcp_probe.model import LoopSummary
from mcp_probe.session import Probe
from tests.loops import LOOPS
from tests.rounds import least_disturbed
from tests.running import Backend, kind_of, run_on

ROUNDS = 3
BLOCKS = 2


@dataclass
class Seen:
    """What the test knows, in milliseconds.

    Attributes:
        window: how long it looked.
        held: how long each busy stretch held the loop.
        turns: what else its thread may have been busy with: its CPU, and its waits for a CPU.
    """

    window: float = 0.0
    held: list[float] = field(default_factory=list)
    turns: float = 0.0

    @property
    def mean(self) -> float:
        """Mean delay of an event that arrives at a random instant: measurement.md section 3."""
        return sum(length**2 for length in self.held) / (2 * self.window)

    def exceeded(self, x: float) -> float:
        """Share of random arrivals that wait longer than ``x``."""
        return sum(max(0.0, length - x) for length in self.held) / self.window

    def quantile(self, q: float) -> float:
        """The delay that a share ``q`` of random arrivals does not exceed, by bisection."""
        low, high = 0.0, max(self.held)
        while high - low > 0.001:
            middle = (low + high) / 2
            low, high = (middle, high) if self.exceeded(middle) > 1 - q else (low, middle)
        return high


def used_ms() -> float:
    """What the kernel counts of this thread: its CPU and, where the kernel tells, its waits for a CPU."""
    try:
        ran, waited, _ = Path("/proc/thread-self/schedstat").read_text().split()
    except OSError:
        return time.thread_time() * 1000
    return (int(ran) + int(waited)) / 1e6


async def blocked_now_and_then() -> tuple[Seen, LoopSummary]:
    probe = Probe()
    seen = Seen()
    try:
        await probe.profile(anyio.lowlevel.checkpoint)()  # the loop is followed from here on
        since, used = time.perf_counter(), used_ms()
        for _ in range(BLOCKS):
            await anyio.sleep(0.3)
            began = time.perf_counter()
            time.sleep(0.1)
            seen.held.append((time.perf_counter() - began) * 1000)
        await anyio.sleep(0.01)
        summary = probe.snapshot()
        seen.window = (time.perf_counter() - since) * 1000
        seen.turns = used_ms() - used
    finally:
        probe.detach()
    return seen, summary.loop


def known(value: float | None) -> float:
    assert value is not None
    return value


@pytest.mark.parametrize("backend", LOOPS)
def test_the_delay_of_a_random_arrival_follows_from_how_long_the_loop_was_held(backend: Backend) -> None:
    """A sleep-and-measure heartbeat would sleep through most of it."""

    def off_ms(round: tuple[Seen, LoopSummary]) -> float:
        return sum(round[0].held) - 100 * BLOCKS

    rounds = least_disturbed(lambda: run_on(backend, blocked_now_and_then), off_ms, fine_ms=3, rounds=ROUNDS)
    for q in ("mean", "p90", "p99", "max"):
        ratios = []
        for seen, loop in rounds:
            true = seen.mean if q == "mean" else max(seen.held) if q == "max" else seen.quantile(int(q[1:]) / 100)
            ratios.append(known(getattr(loop.arrival_delay_ms, q)) / true)
        assert median(ratios) == pytest.approx(1, abs=0.1), q
    assert median(seen.quantile(0.99) for seen, _ in rounds) > 80
    assert median(known(loop.arrival_delay_ms.p50) for _, loop in rounds) < 5
    shares = []
    for seen, loop in rounds:
        busy = known(loop.utilization) * seen.window
        least, most = sum(seen.held), sum(seen.held) + seen.turns
        shares.append(busy / min(max(busy, least), most))
    assert median(shares) == pytest.approx(1, abs=0.1)
    exactness = "estimate" if kind_of(backend) == "uvloop" else "exact"
    assert {loop.quality for _, loop in rounds} == {exactness}


@pytest.mark.parametrize("backend", LOOPS)
def test_an_idle_loop_is_idle(backend: Backend) -> None:
    async def idle() -> LoopSummary:
        probe = Probe()
        try:
            await probe.profile(anyio.lowlevel.checkpoint)()
            await anyio.sleep(0.3)
            return probe.snapshot().loop
        finally:
            probe.detach()

    # What wakes a loop on a busy machine may be kept from its CPU in the middle of that, which holds the loop up.
    loops = [run_on(backend, idle) for _ in range(2 * ROUNDS)]
    assert min(known(loop.utilization) for loop in loops) < 0.3  # a loop that spins has 1
    assert min(known(loop.arrival_delay_ms.mean) for loop in loops) < 1
