"""Calls whose memory is known by construction, measured; run as a program by test_memory_truth.py, on any Python.

Twenty-one calls on one loop, alone and among fifty others that allocate and free all the while. Needs nothing but the
standard library and mcp_probe: calls are profiled functions, so no SDK has to be there.

    python memory_truth.py TIER[,TIER] [apart]

``apart``: those that use threads run after the others and not beside them. Prints one JSON object: for each tier
{"state", "alone", "among"}, the last two a list of [case, truth, what was measured] each.
"""

from __future__ import annotations

import asyncio
import gc
import json
import random
import sys
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Any

from mcp_probe.model import Frame, RequestRecord
from mcp_probe.session import Probe

MB = 1_000_000
NOISE = 50
Truth = dict[str, int]
"""requested, peak and retained in bytes; a figure that is not known by construction is left out."""
Case = tuple[str, Truth, Callable[[], Coroutine[Any, Any, None]]]


class Heard:
    """A listener that keeps the records."""

    def __init__(self) -> None:
        self.records: list[RequestRecord] = []

    def take(self, frames: Sequence[Frame]) -> None:
        """Keep what ended."""
        self.records += [frame for frame in frames if isinstance(frame, RequestRecord)]

    def close(self, timeout_s: float) -> None:
        """Nothing to close."""


class Node:
    """Part of a cycle; collected only by the garbage collector."""

    def __init__(self, size: int) -> None:
        self.payload = bytearray(size)
        self.other: Node | None = None


class Cases:
    """Makes the calls; what leaks is kept in ``kept``."""

    def __init__(self) -> None:
        self.kept: list[Any] = []
        self.pool = ThreadPoolExecutor(4)
        self.given = asyncio.Event()
        self.taken = asyncio.Event()
        self.passed: list[bytearray] = []

    def on_the_loop(self) -> list[Case]:
        """Those without threads."""
        return [
            *(self.held(size) for size in range(1, 8)),
            *(self.burst(size) for size in (1, 2, 3, 5)),
            *(self.small(size) for size in (500_000, 1_000_000)),
            self.leak(),
            self.leak_of_dicts(),
            self.children(),
            self.gives(),
            self.takes(),
        ]

    def on_threads(self) -> list[Case]:
        """Those whose memory is allocated by jobs."""
        return [
            *(self.in_thread(size) for size in (1, 2, 4)),
            self.in_executor(3),
            self.leak_in_thread(),
        ]

    def held(self, size: int) -> Case:
        async def call() -> None:
            block = bytearray(size * MB)
            for _ in range(5):
                await asyncio.sleep(0.001)
            del block

        return f"held {size}", {"requested": size * MB, "peak": size * MB, "retained": 0}, call

    def burst(self, size: int) -> Case:
        async def call() -> None:
            await asyncio.sleep(0)
            block = bytearray(size * MB)
            del block
            await asyncio.sleep(0.001)

        return f"burst {size}", {"requested": size * MB, "peak": size * MB, "retained": 0}, call

    def small(self, total: int) -> Case:
        size = 200 - sys.getsizeof(b"")

        async def call() -> None:
            objects = []
            for _ in range(4):
                objects += [bytes(size) for _ in range(total // 800)]
                await asyncio.sleep(0.001)
            del objects

        return f"small {total}", {"peak": total, "retained": 0}, call

    def leak(self) -> Case:
        async def call() -> None:
            await asyncio.sleep(0.001)
            self.kept.append([bytearray(1000) for _ in range(100)])

        return "leak", {"retained": 100 * (1001 + sys.getsizeof(bytearray()))}, call

    def leak_of_dicts(self) -> Case:
        """Of ten keys each: tables for up to five come from a free list on 3.10, as 80 dicts without one always do."""
        count, keys = 230, [str(number) for number in range(10)]

        async def call() -> None:
            await asyncio.sleep(0.001)
            self.kept.append([dict.fromkeys(keys) for _ in range(count)])

        return "leak of dicts", {"retained": count * (sys.getsizeof(dict.fromkeys(keys)) + 8)}, call

    def in_thread(self, size: int) -> Case:
        def job() -> int:
            return len(bytearray(size * MB))

        async def call() -> None:
            await asyncio.get_running_loop().run_in_executor(None, job)

        return f"thread {size}", {"requested": size * MB, "peak": size * MB, "retained": 0}, call

    def in_executor(self, size: int) -> Case:
        def job() -> bytearray:
            return bytearray(size * MB)

        async def call() -> None:
            block = await asyncio.wrap_future(self.pool.submit(job))
            await asyncio.sleep(0.001)
            del block

        return f"executor {size}", {"requested": size * MB, "peak": size * MB, "retained": 0}, call

    def leak_in_thread(self) -> Case:
        def job() -> None:
            self.kept.append(bytearray(MB))

        async def call() -> None:
            await asyncio.to_thread(job)

        return "leak in a thread", {"requested": MB, "peak": MB, "retained": MB}, call

    def children(self) -> Case:
        async def child(size: int, ready: list[int], all_hold: asyncio.Event) -> None:
            await asyncio.sleep(0.001)
            block = bytearray(size * MB)
            ready.append(size)
            if len(ready) == 3:
                all_hold.set()
            await all_hold.wait()
            del block

        async def call() -> None:
            ready: list[int] = []
            all_hold = asyncio.Event()
            await asyncio.gather(*(child(size, ready, all_hold) for size in (1, 2, 3)))

        return "children", {"requested": 6 * MB, "peak": 6 * MB, "retained": 0}, call

    def gives(self) -> Case:
        async def call() -> None:
            self.passed.append(bytearray(MB))
            self.given.set()
            await self.taken.wait()

        return "gives", {"requested": MB, "peak": MB, "retained": 0}, call

    def takes(self) -> Case:
        async def call() -> None:
            await self.given.wait()
            self.passed.clear()
            block = bytearray(2 * MB)
            await asyncio.sleep(0.001)
            del block
            self.taken.set()

        return "takes", {"requested": 2 * MB, "peak": 2 * MB, "retained": 0}, call


async def noise(seed: int, stop: asyncio.Event) -> None:
    """Allocates and frees up to 2 MB in pieces of every size until told to stop."""
    chance = random.Random(seed)
    kept: list[Any] = []
    while not stop.is_set():
        kept.append(bytearray(chance.choice((100, 5_000, 100_000, MB))))
        kept.append([str(number) for number in range(chance.randrange(500))])
        await asyncio.sleep(chance.random() / 500)
        while len(kept) > chance.randrange(2, 8):
            kept.pop(chance.randrange(len(kept)))


async def garbage(probe: Probe) -> list[Case]:
    """A makes a megabyte of cycles and drops them; they are collected while B runs."""
    dropped = asyncio.Event()

    async def makes() -> None:
        first = last = Node(1000)
        for _ in range(999):
            last.other = Node(1000)
            last = last.other
        last.other = first
        del first, last
        dropped.set()
        await asyncio.sleep(0)

    async def collects() -> None:
        await dropped.wait()
        gc.collect()
        await asyncio.sleep(0)

    gc.collect()
    gc.disable()
    try:
        await asyncio.gather(named(probe, "makes garbage", makes)(), named(probe, "collects", collects)())
    finally:
        gc.enable()
    return [("makes garbage", {"retained": 0}, makes), ("collects", {}, collects)]


def named(
    probe: Probe, name: str, function: Callable[..., Coroutine[Any, Any, None]]
) -> Callable[..., Coroutine[Any, Any, None]]:
    """``function``, profiled under ``name``."""
    function.__qualname__ = name
    return probe.profile(function)


async def run(probe: Probe, among: bool, apart: bool) -> list[Case]:
    """Every case once."""
    cases = Cases()
    on_the_loop, on_threads = cases.on_the_loop(), cases.on_threads()
    stop = asyncio.Event()
    others = [asyncio.ensure_future(named(probe, "noise", noise)(seed, stop)) for seed in range(NOISE * among)]
    await asyncio.sleep(0.005)
    groups = [on_the_loop, on_threads] if apart else [[*on_the_loop, *on_threads]]
    for group in groups:
        await asyncio.gather(*(named(probe, name, call)() for name, _, call in group))
    stop.set()
    await asyncio.gather(*others)
    cases.pool.shutdown()
    collected = await garbage(probe)
    return [*on_the_loop, *on_threads, *collected]


def rows_of(heard: Heard, cases: list[Case]) -> list[Any]:
    """[case, truth, what was measured] each; forgets what was heard."""
    by_name = {record.method: record.memory for record in heard.records}
    heard.records.clear()
    uses = [(name, truth, by_name[name]) for name, truth, _ in cases]
    return [[name, truth, None if use is None else asdict(use)] for name, truth, use in uses]


def measured(tier: str, apart: bool) -> dict[str, Any]:
    """What a probe of ``tier`` says of all cases, alone and among others."""
    heard = Heard()
    probe = Probe(memory=tier, telemetry="off")
    told: dict[str, Any] = {}
    try:
        probe.add_listener(heard)
        for when, among in (("alone", False), ("among", True)):
            cases = asyncio.run(run(probe, among, apart))
            told["state"] = probe.snapshot().probe.memory or ""
            told[when] = rows_of(heard, cases)
    finally:
        probe.detach()
    return told


def main(tiers: list[str], apart: bool) -> None:
    """Measures; what Python itself sets up at first use is nobody's."""
    probe = Probe(memory="off", telemetry="off")
    asyncio.run(run(probe, False, apart))
    probe.detach()
    print(json.dumps({tier: measured(tier, apart) for tier in tiers}))


if __name__ == "__main__":
    main(sys.argv[1].split(","), "apart" in sys.argv[2:])
