"""Whose memory it is: steps, child tasks, jobs on threads and parts of requests, on every loop."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import anyio
import anyio.to_thread
import pytest

from mcp_probe import native
from mcp_probe.model import Frame, MemoryUse, RequestRecord
from mcp_probe.session import Probe
from tests.loops import LOOPS
from tests.running import Backend, run_on

hooks: Any = native.memory

MB = 1_000_000
ROOM = 60_000 if sys.gettrace() is None else 240_000  # a tracer such as coverage's allocates in the steps, too
"""Bytes that a call needs besides, a new thread included."""
MAP = 131_072
"""What obmalloc's map of addresses takes within the call that happens to need a part of it, in few processes."""

pytestmark = pytest.mark.skipif(native.core is None, reason=f"no accelerator: {native.absence}")
on_every_loop = pytest.mark.parametrize("backend", LOOPS)


class Heard:
    def __init__(self) -> None:
        self.uses: dict[str, MemoryUse | None] = {}

    def take(self, frames: Sequence[Frame]) -> None:
        for frame in frames:
            if isinstance(frame, RequestRecord):
                self.uses[frame.method] = frame.memory

    def close(self, timeout_s: float) -> None:
        """Nothing to close."""


class Bench:
    """A probe, and what it says of the functions that are profiled with it."""

    def __init__(self, probe: Probe) -> None:
        self.probe = probe
        self._heard = Heard()
        probe.add_listener(self._heard)

    def named(
        self, name: str, function: Callable[..., Coroutine[Any, Any, None]]
    ) -> Callable[..., Coroutine[Any, Any, None]]:
        function.__qualname__ = name
        return self.probe.profile(function)

    def use(self, name: str) -> MemoryUse:
        self.probe.snapshot()
        found = self._heard.uses[name]
        assert found is not None
        return found

    def known(self, name: str) -> bool:
        self.probe.snapshot()
        return self._heard.uses[name] is not None


@pytest.fixture
def bench() -> Iterator[Bench]:
    probe = Probe(memory="detailed", telemetry="off")
    yield Bench(probe)
    probe.detach()


def near(value: int | None, truth: int) -> bool:
    return value is not None and any(truth + more <= value <= truth + more + ROOM for more in (0, MAP))


async def warm() -> None:
    """What a loop and its worker threads set up at first use is nobody's."""
    await anyio.sleep(0)
    await anyio.to_thread.run_sync(lambda: None)


@on_every_loop
def test_a_step_charges_the_request_whose_it_is(bench: Bench, backend: Backend) -> None:
    async def large() -> None:
        block = bytearray(MB)
        await anyio.sleep(0.001)
        del block

    async def small() -> None:
        for _ in range(5):
            await anyio.sleep(0)

    async def main() -> None:
        await warm()
        async with anyio.create_task_group() as group:
            group.start_soon(bench.named("large", large))
            group.start_soon(bench.named("small", small))

    run_on(backend, main)
    assert near(bench.use("large").requested, MB) and near(bench.use("large").peak, MB)
    assert near(bench.use("small").requested, 0) and near(bench.use("small").peak, 0)


@on_every_loop
def test_child_tasks_charge_their_request(bench: Bench, backend: Backend) -> None:
    async def child(size: int, held: list[int], all_hold: anyio.Event) -> None:
        block = bytearray(size * MB)
        held.append(size)
        if len(held) == 3:
            all_hold.set()
        await all_hold.wait()
        del block

    async def parent() -> None:
        held: list[int] = []
        all_hold = anyio.Event()
        async with anyio.create_task_group() as group:
            for size in (1, 2, 3):
                group.start_soon(child, size, held, all_hold)

    async def main() -> None:
        await warm()
        await bench.named("parent", parent)()

    run_on(backend, main)
    use = bench.use("parent")
    assert near(use.requested, 6 * MB) and near(use.peak, 6 * MB) and near(use.retained, 0)


@on_every_loop
def test_a_job_on_a_worker_thread_charges_its_request_and_then_nobody(bench: Bench, backend: Backend) -> None:
    async def call() -> None:
        await anyio.to_thread.run_sync(lambda: len(bytearray(2 * MB)))

    async def idle() -> None:
        await anyio.sleep(0)

    async def main() -> None:
        await warm()
        await bench.named("call", call)()
        await anyio.to_thread.run_sync(lambda: len(bytearray(5 * MB)))  # the same thread, for nobody
        await bench.named("idle", idle)()

    run_on(backend, main)
    assert near(bench.use("call").requested, 2 * MB) and near(bench.use("call").peak, 2 * MB)
    assert near(bench.use("idle").requested, 0)


@on_every_loop
def test_jobs_of_two_requests_at_once_are_told_apart(bench: Bench, backend: Backend) -> None:
    both_hold = threading.Barrier(2, timeout=60)

    def job(size: int) -> None:
        block = bytearray(size)
        both_hold.wait()
        del block

    async def call(size: int) -> None:
        await anyio.to_thread.run_sync(job, size)

    async def main() -> None:
        await warm()
        async with anyio.create_task_group() as group:
            for size in (1, 3):
                group.start_soon(bench.named(f"call {size}", lambda size=size: call(size * MB)))

    run_on(backend, main)
    assert near(bench.use("call 1").peak, MB) and near(bench.use("call 3").peak, 3 * MB)


@on_every_loop
def test_jobs_that_lose_the_context_charge_their_request_all_the_same(bench: Bench, backend: Backend) -> None:
    kept: list[bytearray] = []
    with ThreadPoolExecutor(1) as pool:

        async def call() -> None:
            done = pool.submit(bytearray, MB)
            thread = threading.Thread(target=lambda: kept.append(bytearray(2 * MB)))
            thread.start()
            thread.join()
            kept.append(done.result())

        async def main() -> None:
            await warm()
            await bench.named("call", call)()

        run_on(backend, main)
    use = bench.use("call")
    assert near(use.requested, 3 * MB) and near(use.peak, 3 * MB) and near(use.retained, 3 * MB)


@on_every_loop
def test_a_part_of_a_request_is_the_requests_too(bench: Bench, backend: Backend) -> None:
    async def inner() -> None:
        block = bytearray(MB)
        await anyio.sleep(0)
        del block

    async def outer() -> None:
        block = bytearray(2 * MB)
        await bench.named("inner", inner)()
        del block

    async def main() -> None:
        await warm()
        await bench.named("outer", outer)()

    run_on(backend, main)
    assert near(bench.use("inner").peak, MB)
    assert near(bench.use("outer").peak, 3 * MB) and near(bench.use("outer").requested, 3 * MB)


@on_every_loop
def test_what_another_request_frees_is_taken_off_its_owner(bench: Bench, backend: Backend) -> None:
    passed: list[bytearray] = []

    async def gives(given: anyio.Event, taken: anyio.Event) -> None:
        passed.append(bytearray(MB))
        given.set()
        await taken.wait()

    async def takes(given: anyio.Event, taken: anyio.Event) -> None:
        await given.wait()
        passed.clear()
        block = bytearray(2 * MB)
        taken.set()
        await anyio.sleep(0)
        del block

    async def main() -> None:
        await warm()
        events = anyio.Event(), anyio.Event()
        async with anyio.create_task_group() as group:
            group.start_soon(bench.named("gives", gives), *events)
            group.start_soon(bench.named("takes", takes), *events)

    run_on(backend, main)
    assert near(bench.use("gives").peak, MB) and near(bench.use("gives").retained, 0)
    assert near(bench.use("takes").peak, 2 * MB) and near(bench.use("takes").retained, 0)


@on_every_loop
def test_work_that_outlives_its_request_is_not_charged_to_it(bench: Bench, backend: Backend) -> None:
    async def main() -> None:
        await warm()
        ended = anyio.Event()
        async with anyio.create_task_group() as group:

            async def later() -> None:
                await ended.wait()
                kept.append(bytearray(4 * MB))

            async def starts() -> None:
                group.start_soon(later)
                await anyio.sleep(0)

            await bench.named("starts", starts)()
            ended.set()

    kept: list[bytearray] = []
    run_on(backend, main)
    use = bench.use("starts")
    assert near(use.requested, 0) and near(use.retained, 0)


# --- switching while it runs ----------------------------------------------------------------------


@on_every_loop
def test_the_tier_is_switched_on_a_running_server(bench: Bench, backend: Backend) -> None:
    async def call() -> None:
        block = [bytes(200) for _ in range(1000)]
        await anyio.sleep(0)
        del block

    async def across() -> None:
        await anyio.sleep(0)
        bench.probe.memory = "light"
        await anyio.sleep(0)

    async def main() -> None:
        await warm()
        await bench.named("before", call)()
        await bench.named("across", across)()
        await bench.named("after", call)()
        bench.probe.memory = "off"
        await bench.named("off", call)()
        bench.probe.memory = "detailed"
        await bench.named("again", call)()

    run_on(backend, main)
    assert bench.probe.memory == "detailed"
    assert {name: bench.use(name).method for name in ("before", "after", "again")} == {
        "before": "native-shadow",
        "after": "native-hybrid",
        "again": "native-shadow",
    }
    assert not bench.known("across") and not bench.known("off")
    assert near(bench.use("before").peak, 233_000) and near(bench.use("again").peak, 233_000)
    ((_, tag, lo, hi),) = [row for row in bench.use("after").quality if row[0] == "peak"]
    assert tag == "bounded" and lo is not None and hi is not None and lo < 60_000 < 233_000 < hi


def test_the_hook_is_gone_with_the_last_probe() -> None:
    first, second = Probe(memory="light", telemetry="off"), Probe(memory="detailed", telemetry="off")
    modes = [hooks.state()["mode"]]
    second.detach()
    modes.append(hooks.state()["mode"])
    first.detach()
    modes.append(hooks.state()["mode"])
    assert modes == ["shadow", "hybrid", "off"]


def test_a_probe_that_wants_nothing_installs_nothing() -> None:
    probe = Probe(memory="off", telemetry="off")
    try:
        assert hooks.state()["mode"] == "off"
        assert probe.snapshot().probe.memory in (None, "off")
    finally:
        probe.detach()
