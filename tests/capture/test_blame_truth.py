"""Who waited for whom, on real loops, against what the test itself knows of every instant.

Two blockers hold the loop for 120 ms and then 80 ms. The victims become ready before, during, or never; when, each
tells itself. What a victim truly waited for is computed from those instants and the blockers' own.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import anyio
import anyio.to_thread
import pytest

from mcp_probe.aggregate.blocking import StepIndex, blame, victim_of
from mcp_probe.capture.socket_reads import TICK_NS
from mcp_probe.model import RequestRecord
from mcp_probe.session import Probe
from tests.kept import Kept, keep
from tests.loops import ASYNCIO, LOOPS, UVLOOP
from tests.rounds import least_disturbed
from tests.running import Backend, kind_of, run_on

MS = 1_000_000
ROUNDS = 3
LEAD_S = 0.03
FIRST_S, SECOND_S = 0.12, 0.08
Span = tuple[int, int]
Async = Callable[[], Coroutine[Any, Any, None]]
Bounds = tuple[float, float]

on_each_loop = pytest.mark.parametrize("backend", LOOPS)


@dataclass
class Scene:
    """One run: the instants the test noted itself, and what the probe recorded."""

    blocked: dict[str, Span] = field(default_factory=dict)
    ready_ns: dict[str, int] = field(default_factory=dict)
    resumed_ns: dict[str, int] = field(default_factory=dict)
    planned_ns: int = 0  # when the first blocker was to begin
    kept: Kept = field(default_factory=Kept)

    def truth(self, victim: str, blocker: str) -> float:
        """Milliseconds of ``blocker`` in which ``victim`` was ready and did not run."""
        if victim not in self.ready_ns:
            return 0.0
        began, ended = self.blocked[blocker]
        return max(0, min(ended, self.resumed_ns[victim]) - max(began, self.ready_ns[victim])) / MS

    def held(self, blocker: str) -> float:
        """Milliseconds for which ``blocker`` held the loop."""
        began, ended = self.blocked[blocker]
        return (ended - began) / MS

    @property
    def off_ms(self) -> float:
        """How much later than planned the first blocker began, and how much longer both held the loop."""
        late = (self.blocked["first"][0] - self.planned_ns) / MS
        return late + self.held("first") + self.held("second") - 1000 * (FIRST_S + SECOND_S)

    @property
    def late_ms(self) -> float:
        """How much later than planned threads made their victims ready. It is no part of any margin."""
        planned = {"thread": 50, "socket": 80, "stream": 80}
        return max((self.ready_ns[name] - self.ready_ns["event"]) / MS - ms for name, ms in planned.items())

    def record(self, victim: str) -> RequestRecord:
        (record,) = self.kept.requests(victim, kind="function")
        return record

    def found(self, victim: str, blocker: str) -> Bounds:
        """(lo, hi) of what the probe says, in milliseconds."""
        one = victim_of(self.record(victim))
        if one is None:
            return 0.0, 0.0
        lo, hi = blame(one, StepIndex(self.kept.steps())).rows.get(blocker, (0, 0))
        return lo / MS, hi / MS


class Stage:
    """What the victims wait for, and the driver that makes it happen."""

    def __init__(self, probe: Probe, scene: Scene) -> None:
        self.scene = scene
        self.probe = probe
        self.event = anyio.Event()
        self.go = threading.Event()
        self.waiting = 0
        self.near, self.far = socket.socketpair()
        self.near.setblocking(False)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.starts_at = anyio.current_time() + 10 * LEAD_S  # set anew once all wait

    def named(self, name: str, function: Async) -> Async:
        function.__qualname__ = name
        return self.probe.profile(function)

    def blocker(self, name: str, seconds: float) -> Async:
        async def block() -> None:
            began = time.monotonic_ns()
            if not self.event.is_set():
                self.scene.ready_ns["event"] = began
                self.go.set()
                self.event.set()
            time.sleep(seconds)
            self.scene.blocked[name] = began, time.monotonic_ns()

        return self.named(name, block)

    def victim(self, name: str, wait: Callable[[], Awaitable[Any]]) -> Async:
        async def suffer() -> None:
            self.waiting += 1
            await wait()
            self.scene.resumed_ns[name] = time.monotonic_ns()

        return self.named(name, suffer)

    async def for_event(self) -> None:
        await self.event.wait()

    async def for_thread(self) -> None:
        def work() -> None:
            self.go.wait()
            time.sleep(0.05)
            self.scene.ready_ns["thread"] = time.monotonic_ns()

        await anyio.to_thread.run_sync(work)

    async def for_timer(self) -> None:
        deadline = self.starts_at + 0.1
        self.scene.ready_ns["timer"] = time.monotonic_ns() + round((deadline - anyio.current_time()) * 1e9)
        await anyio.sleep_until(deadline)

    async def for_socket(self) -> None:
        await anyio.wait_readable(self.near)

    async def connect(self) -> None:
        self.stream = await anyio.connect_tcp(*self.listener.getsockname())
        self.peer, _ = self.listener.accept()

    async def close(self) -> None:
        self.near.close()
        self.far.close()
        await self.stream.aclose()
        self.peer.close()
        self.listener.close()

    async def for_stream(self) -> None:
        await self.stream.receive(1)

    async def for_ever(self) -> None:
        await anyio.sleep(3600)

    def send_later(self) -> None:
        self.go.wait()
        time.sleep(0.08)
        self.scene.ready_ns["socket"] = time.monotonic_ns()
        self.far.send(b"x")
        self.scene.ready_ns["stream"] = time.monotonic_ns()
        self.peer.send(b"x")


Blocking = Callable[[Stage, Async, Async], Awaitable[None]]


async def in_one_step(stage: Stage, first: Async, second: Async) -> None:
    """Both blockers in one step of one task, which every loop runs alike."""
    await first()
    await second()


async def in_one_iteration(stage: Stage, first: Async, second: Async) -> None:
    """Two tasks one after the other: the order that asyncio's queue keeps."""
    async with anyio.create_task_group() as group:
        group.start_soon(first)
        group.start_soon(second)


async def in_two_iterations(stage: Stage, first: Async, second: Async) -> None:
    """The second blocker is scheduled by the first, so the loop polls between them and finds the socket."""
    async with anyio.create_task_group() as group:

        async def both() -> None:
            await first()
            group.start_soon(second)

        group.start_soon(both)


async def play(scene: Scene, blocking: Blocking) -> None:
    probe = Probe()
    scene.kept = keep(probe)
    stage = Stage(probe, scene)
    await stage.connect()
    try:
        victims = {
            "event": stage.for_event,
            "thread": stage.for_thread,
            "timer": stage.for_timer,
            "socket": stage.for_socket,
            "stream": stage.for_stream,
            "sleeper": stage.for_ever,
        }
        sender = threading.Thread(target=stage.send_later)
        sender.start()
        async with anyio.create_task_group() as group:
            stage.starts_at = anyio.current_time() + LEAD_S
            scene.planned_ns = time.monotonic_ns() + round(LEAD_S * 1e9)
            for name, wait in victims.items():
                group.start_soon(stage.victim(name, wait))
            await anyio.sleep_until(stage.starts_at)
            while stage.waiting < len(victims):
                await anyio.sleep(0)  # the first blocker is late then, so the round is off its plan
            await blocking(stage, stage.blocker("first", FIRST_S), stage.blocker("second", SECOND_S))
            while len(scene.resumed_ns) < len(victims) - 1:
                await anyio.sleep(0.005)
            group.cancel_scope.cancel()
        sender.join()
    finally:
        await stage.close()
        probe.detach()


def played(backend: Backend, blocking: Blocking) -> list[Scene]:
    def once() -> Scene:
        scene = Scene()
        run_on(backend, lambda: play(scene, blocking))
        return scene

    return least_disturbed(once, lambda scene: scene.off_ms + scene.late_ms, fine_ms=5, rounds=ROUNDS)


def margin(scenes: list[Scene], truth: float) -> float:
    """5 ms or 5 %, and as much again as this machine drew out the blockers, which only sleep."""
    return max(5.0, truth * 0.05) + max(scene.off_ms for scene in scenes)


def assert_exact(scenes: list[Scene], victim: str, blocker: str, about: float) -> None:
    """The probe gives one figure, and it is the true one; ``about`` says that the scene was as planned."""
    found = [(*scene.found(victim, blocker), scene.truth(victim, blocker)) for scene in scenes]
    truth = median(true for _, _, true in found)
    assert about / 2 <= truth <= about + 60, f"the scene went wrong: {victim} truly waited {truth:.1f} ms for {blocker}"
    error = median(max(abs(lo - true), abs(hi - true)) for lo, hi, true in found)
    assert error <= margin(scenes, truth), (victim, blocker, found)


def assert_bounded(scenes: list[Scene], victim: str, blocker: str) -> None:
    """The truth lies between the probe's bounds."""
    found = [(*scene.found(victim, blocker), scene.truth(victim, blocker)) for scene in scenes]
    assert median(max(lo - truth, truth - hi) for lo, hi, truth in found) <= 1, (victim, blocker, found)


def assert_part(scenes: list[Scene], victim: str, *names: str) -> None:
    """These parts of the victim's budget are the time from when it truly became ready until it ran."""
    found = [sum(getattr(scene.record(victim).budget, name) or 0 for name in names) / MS for scene in scenes]
    true = [(scene.resumed_ns[victim] - scene.ready_ns[victim]) / MS for scene in scenes]
    error = median(abs(a - b) for a, b in zip(found, true, strict=True))
    assert error <= margin(scenes, median(true)), (victim, names, found, true)


@pytest.fixture(scope="module")
def scenes_of() -> Callable[[Any, Blocking], list[Scene]]:
    """Plays each scene once for all tests that look at it."""
    known: dict[tuple[str, Blocking], list[Scene]] = {}

    def scenes(backend: Backend, blocking: Blocking) -> list[Scene]:
        key = kind_of(backend), blocking
        if key not in known:
            known[key] = played(backend, blocking)
        return known[key]

    return scenes


Scenes = Callable[[Any, Blocking], list[Scene]]


# trio runs the tasks of one round in either order.
in_each_scene = pytest.mark.parametrize(
    ("backend", "blocking"),
    [
        pytest.param(*param.values, blocking, id=f"{param.id}-{blocking.__name__}")
        for param in LOOPS
        for blocking in ((in_one_step,) if param.id == "trio" else (in_one_step, in_one_iteration, in_two_iterations))
    ],
)


@in_each_scene
def test_a_task_woken_inside_the_loop_waited_from_the_wake_up_on(
    backend: Backend, blocking: Blocking, scenes_of: Scenes
) -> None:
    scenes = scenes_of(backend, blocking)
    assert_exact(scenes, "event", "first", about=120)
    assert_exact(scenes, "event", "second", about=0 if blocking is in_two_iterations else 80)


@in_each_scene
def test_a_task_whose_thread_result_was_ready_waited_from_then_on(
    backend: Backend, blocking: Blocking, scenes_of: Scenes
) -> None:
    scenes = scenes_of(backend, blocking)
    assert_exact(scenes, "thread", "first", about=70)
    assert_exact(scenes, "thread", "second", about=80)


@in_each_scene
def test_a_timer_waited_from_its_deadline_on(backend: Backend, blocking: Blocking, scenes_of: Scenes) -> None:
    scenes = scenes_of(backend, blocking)
    assert_exact(scenes, "timer", "first", about=20)
    assert_exact(scenes, "timer", "second", about=80)


@in_each_scene
def test_a_socket_waited_for_something_between_two_polls(
    backend: Backend, blocking: Blocking, scenes_of: Scenes
) -> None:
    scenes = scenes_of(backend, blocking)
    assert_bounded(scenes, "socket", "first")
    assert_bounded(scenes, "socket", "second")
    assert median(scene.found("socket", "first")[0] for scene in scenes) <= 5
    whole = median(scene.found("socket", "first")[1] - scene.held("first") for scene in scenes)
    assert abs(whole) <= margin(scenes, 120)
    assert all("ready_wait" in {name for name, *_ in scene.record("socket").quality} for scene in scenes)


@pytest.mark.parametrize("backend", [ASYNCIO, UVLOOP])
def test_a_socket_found_by_the_poll_between_the_blockers_waited_for_the_second_exactly(
    backend: Backend, scenes_of: Scenes
) -> None:
    assert_exact(scenes_of(backend, in_two_iterations), "socket", "second", about=80)


@in_each_scene
def test_an_answer_on_a_tcp_connection_lies_between_its_bounds(
    backend: Backend, blocking: Blocking, scenes_of: Scenes
) -> None:
    scenes = scenes_of(backend, blocking)
    assert_bounded(scenes, "stream", "first")
    assert_bounded(scenes, "stream", "second")


@pytest.mark.skipif(TICK_NS is None, reason="only Linux says when data came")
@pytest.mark.parametrize("blocking", [in_one_step, in_one_iteration, in_two_iterations])
def test_an_answer_on_a_tcp_connection_certainly_waited_since_it_was_in_the_socket(
    blocking: Blocking, scenes_of: Scenes
) -> None:
    """The loop was in the first blocker then; the poll before it is no longer all that is certain."""
    scenes = scenes_of(ASYNCIO.values[0], blocking)
    assert TICK_NS is not None
    for blocker, about in (("first", 40), ("second", 80)):
        found = [(scene.found("stream", blocker)[0], scene.truth("stream", blocker)) for scene in scenes]
        truth = median(true for _, true in found)
        assert about / 2 <= truth <= about + 60, f"the scene went wrong: it truly waited {truth:.1f} ms for {blocker}"
        error = median(true - lo for lo, true in found)
        assert error <= margin(scenes, truth) + TICK_NS / MS, (blocker, found)


@in_each_scene
def test_a_request_that_was_never_ready_waited_for_nobody(
    backend: Backend, blocking: Blocking, scenes_of: Scenes
) -> None:
    """Charging every live request with the whole block would say 200 ms here."""
    for scene in scenes_of(backend, blocking):
        assert scene.record("sleeper").outcome == "cancelled"
        assert scene.found("sleeper", "first") == (0.0, 0.0)
        assert scene.found("sleeper", "second") == (0.0, 0.0)


@on_each_loop
def test_a_wake_up_is_stamped_when_it_happens_and_not_when_the_loop_gets_round_to_it(
    backend: Backend, scenes_of: Scenes
) -> None:
    """A stamp made by the loop's own turn would read 0.1 ms."""
    scenes = scenes_of(backend, in_one_step)
    assert_part(scenes, "event", "ready_wait")
    assert median((scene.record("event").budget.ready_wait or 0) / MS for scene in scenes) >= 190


@on_each_loop
def test_the_wait_for_a_thread_result_is_the_jobs_return(backend: Backend, scenes_of: Scenes) -> None:
    scenes = scenes_of(backend, in_one_step)
    assert_part(scenes, "thread", "executor_return")
    assert median((scene.record("thread").budget.executor_return or 0) / MS for scene in scenes) >= 100
    assert median((scene.record("thread").budget.ready_wait or 0) / MS for scene in scenes) <= margin(scenes, 0)


@on_each_loop
def test_a_sleep_is_awaited_until_its_deadline_and_ready_from_then_on(backend: Backend, scenes_of: Scenes) -> None:
    scenes = scenes_of(backend, in_one_step)
    assert_part(scenes, "timer", "ready_wait")
    records = [(scene, scene.record("timer")) for scene in scenes]
    slept = [(scene.ready_ns["timer"] - record.arrival_ns) / MS for scene, record in records]
    awaited = [(record.budget.awaiting or 0) / MS for _, record in records]
    assert median(abs(a - b) for a, b in zip(awaited, slept, strict=True)) <= margin(scenes, 0)


@in_each_scene
def test_nobody_is_blamed_for_more_than_it_held_the_loop(
    backend: Backend, blocking: Blocking, scenes_of: Scenes
) -> None:
    victims = ("event", "thread", "timer", "socket", "stream", "sleeper")
    scenes = scenes_of(backend, blocking)
    for blocker in ("first", "second"):
        for victim in victims:
            excess = median(scene.found(victim, blocker)[1] - scene.held(blocker) for scene in scenes)
            assert excess <= margin(scenes, 0), (victim, blocker)
