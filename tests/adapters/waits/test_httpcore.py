"""What httpx, httpx2 and httpcore await, against what a backend with known delays has noted itself."""

from __future__ import annotations

import asyncio
import gc
import ssl
import time
import types
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import httpcore
import httpcore2
import httpx
import httpx2
import pytest
from httpx import AsyncClient as imported_by_name

from mcp_probe.adapters.hook import declared
from mcp_probe.model import UNKNOWN_HOLDER, Await
from mcp_probe.session import Probe
from tests.adapters.test_http_arrival import self_signed
from tests.adapters.waits.backend import Backend, serving
from tests.capture.test_awaits import Scene, play
from tests.loops import ASYNCIO, LOOPS, TRIO
from tests.ports import free_port
from tests.running import Backend as Loop
from tests.running import kind_of
from tests.turns import MS, Turn

LATE_S = 0.1
CLOSE_MS = 15.0
"""A busy machine may stop our threads, or the backend's, between two stamps of the same instant."""
HERE = f"{__file__}:"

OLDER_THAN_THE_PROBE = imported_by_name()

on_each_loop = pytest.mark.parametrize("loop", LOOPS)
each_library = pytest.mark.parametrize("library", [httpx, httpx2], ids=["httpx", "httpx2"])


def phases(awaits: list[Await]) -> dict[str, float]:
    """ms by phase, the pool's by its kind."""
    found: Counter[str] = Counter()
    for one in awaits:
        found[one.phase or one.kind] += one.ns / MS  # type: ignore[assignment]
    return dict(found)


def waited_for_pool(scene: Scene, name: str) -> float:
    return sum(one.ns for one in scene.awaits(name, "connection-pool")) / MS


def opened(scene: Scene, *names: str) -> int:
    return sum(one.opened for name in names for one in scene.awaits(name))


def calls(scene: Scene, *names: str) -> int:
    return sum(one.calls for name in names for one in scene.awaits(name))


def at_once(scene: Scene, names: list[str], get: Callable[[str], Any]) -> Any:
    """All calls at once; notes when each asked, got its answer and let go of its connection."""

    async def run() -> None:
        gc.collect()  # or one of the tests before has left much for a pause of the whole process
        async with anyio.create_task_group() as tasks:
            for name in names:

                async def call(name: str = name) -> None:
                    scene.turns[name].asked = time.monotonic_ns()
                    await get(name)
                    scene.turns[name].gave_back = time.monotonic_ns()

                scene.turns[name] = Turn(name)
                tasks.start_soon(scene.call(name, call))

    return run()


def check_waves(scene: Scene, backend: Backend, names: list[str], places: int) -> None:
    """Waits for the pool are as the backend's own log says, and those who held it are those it served meanwhile.

    Of what lies between asking and the backend's log, what the loop and the calls' own code took is no wait.
    """
    served = sorted((backend.of(f"/{name}") for name in names), key=lambda one: one.came_ns)
    assert len({one.connection for one in served}) == places
    freed: dict[int, int] = {}  # connection: when the last request let go of it
    holding: dict[str, tuple[int, int]] = {}
    waves: Counter[int] = Counter()
    for one in served:
        name = one.target[1:]
        holding[name] = freed.get(one.connection, scene.turns[name].asked), scene.turns[name].gave_back
        freed[one.connection] = scene.turns[name].gave_back
    for one in served:
        name = one.target[1:]
        asked = scene.turns[name].asked
        truth = (one.came_ns - asked) / MS
        wave = waves[one.connection]
        waves[one.connection] += 1
        if not wave:
            assert waited_for_pool(scene, name) < CLOSE_MS
            continue
        assert truth >= 1000 * LATE_S * wave  # in waves, by the backend's own clock
        budget = scene.record(name).budget
        no_wait = sum(filter(None, (budget.busy, budget.ready_wait, budget.executor_wait, budget.gc))) / MS
        assert truth - no_wait - CLOSE_MS < waited_for_pool(scene, name) < truth + CLOSE_MS
        found: Counter[str] = Counter()
        for wait in scene.awaits(name, "connection-pool"):
            assert wait.limit == places
            for part in wait.holders:
                found[part.operation] += (part.to_ns - part.from_ns) / part.among / MS  # type: ignore[assignment]
                assert part.operation == UNKNOWN_HOLDER or (part.where or "").startswith(HERE)
        assert sum(found.values()) == pytest.approx(waited_for_pool(scene, name), abs=CLOSE_MS)
        for other, (since, until) in holding.items():
            shared = (min(until, one.came_ns) - max(since, asked)) / places / MS
            if other != name and shared > CLOSE_MS:
                assert shared - no_wait - CLOSE_MS < found[other] < shared + CLOSE_MS


@on_each_loop
@each_library
def test_calls_beyond_the_pools_limit_wait_in_waves_for_those_who_hold_its_connections(
    loop: Loop, library: types.ModuleType
) -> None:
    names = [f"call-{number}" for number in range(20)]
    with serving(first_byte=LATE_S) as backend:

        async def scenario(scene: Scene) -> None:
            async with library.AsyncClient(limits=library.Limits(max_connections=5)) as client:
                await at_once(scene, names, lambda name: client.get(f"{backend.address}/{name}"))

        scene = play(loop, scenario)
    check_waves(scene, backend, names, 5)
    assert opened(scene, *names) == backend.connections == 5
    assert calls(scene, *names) == 20
    (wait,) = {one.object for name in names for one in scene.awaits(name, "connection-pool") if one.ns > MS}
    assert wait.startswith(f"{library.__name__} pool made at test_httpcore.py:")
    for name in names:
        assert {one.object for one in scene.awaits(name, "http", "connect")} == {backend.address}
        odd = [one for one in scene.awaits(name, "http", "connect") if not (one.where or "").startswith(HERE)]
        assert odd == []


@pytest.mark.parametrize("loop", [ASYNCIO, TRIO])
@each_library
def test_a_client_per_call_opens_a_connection_per_call_and_its_phases_are_told_apart(
    loop: Loop, library: types.ModuleType, tmp_path: Path
) -> None:
    certificate, key, trusting = self_signed(tmp_path)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    names = [f"call-{number}" for number in range(4)]
    with serving(tls=tls, handshake=0.08, first_byte=0.12, between=0.06, chunks=2) as backend:

        async def get(name: str) -> None:
            async with library.AsyncClient(verify=trusting) as client:
                await client.get(f"{backend.address}/{name}")

        async def scenario(scene: Scene) -> None:
            await at_once(scene, names, get)

        scene = play(loop, scenario)
    assert opened(scene, *names) == calls(scene, *names) == backend.connections == len(names)
    for name in names:
        found = phases(scene.awaits(name))
        assert found["tls"] == pytest.approx(80, abs=CLOSE_MS)
        assert found["first-byte"] == pytest.approx(120, abs=CLOSE_MS)
        assert found["body"] == pytest.approx(120, abs=CLOSE_MS)
        assert found["tcp"] < 60  # nothing of it is by construction: localhost is looked up on a thread
        one = backend.of(f"/{name}")
        [first] = [one for one in scene.awaits(name) if one.phase == "first-byte"]
        assert (one.came_ns - first.from_ns) / MS < CLOSE_MS  # it begins as the request is sent
        [secured] = [one for one in scene.awaits(name) if one.phase == "tls"]
        assert abs(secured.to_ns - first.from_ns) / MS < CLOSE_MS
        assert {(one.object, one.kind) for one in scene.awaits(name) if one.phase} == {
            (backend.address, "connect"),
            (backend.address, "http"),
        }


@pytest.mark.parametrize("library", [httpx, httpx2], ids=["httpx", "httpx2"])
@pytest.mark.parametrize("loop", [ASYNCIO, TRIO])
def test_calls_on_worker_threads_are_seen_as_parts_of_their_jobs(library: types.ModuleType, loop: Loop) -> None:
    names = [f"call-{number}" for number in range(4)]
    with serving(first_byte=LATE_S) as backend:

        async def scenario(scene: Scene) -> None:
            with library.Client(limits=library.Limits(max_connections=2)) as client:
                await at_once(
                    scene,
                    names,
                    lambda name: anyio.to_thread.run_sync(lambda: client.get(f"{backend.address}/{name}")),
                )

        scene = play(loop, scenario)
    check_waves(scene, backend, names, 2)
    assert opened(scene, *names) == 2
    assert calls(scene, *names) == 4
    for name in names:
        assert {one.stage for one in scene.awaits(name, "http", "connection-pool") if one.ns > MS} == {"executor_run"}
        assert phases(scene.awaits(name))["first-byte"] == pytest.approx(100, abs=CLOSE_MS)


@pytest.mark.parametrize("library", [httpcore, httpcore2], ids=["httpcore", "httpcore2"])
def test_httpcore_itself_is_seen_and_its_users_request_stays_as_it_was(library: types.ModuleType) -> None:
    told: list[str] = []

    async def trace(name: str, info: Any) -> None:
        told.append(name)

    def expected(library: types.ModuleType) -> list[str]:
        async def without_probe() -> None:
            async with library.AsyncConnectionPool() as pool:
                await pool.request("GET", f"{backend.address}/bare", extensions={"trace": trace})

        asyncio.run(without_probe())
        bare, told[:] = list(told), []
        return bare

    with serving(first_byte=LATE_S) as backend:
        bare = expected(library)
        request = library.Request(
            "GET", f"{backend.address}/probed", headers={"host": "x"}, extensions={"trace": trace}
        )
        before = {name: value for name, value in vars(request).items()}

        async def scenario(scene: Scene) -> None:
            async with library.AsyncConnectionPool(max_connections=3) as pool:

                async def get() -> None:
                    response = await pool.handle_async_request(request)
                    await response.aread()
                    await response.aclose()

                await scene.call("call", get)()

        scene = play("asyncio", scenario)
    assert told == bare
    assert vars(request) == before
    assert request.extensions == {"trace": trace}
    assert phases(scene.awaits("call"))["first-byte"] == pytest.approx(100, abs=CLOSE_MS)


def test_a_users_callback_of_the_wrong_kind_fails_as_without_the_probe() -> None:
    def wrong() -> str:
        async def get() -> None:
            async with httpx.AsyncClient() as client:
                await client.get(f"{backend.address}/x", extensions={"trace": lambda name, info: None})

        with pytest.raises(TypeError) as raised:
            asyncio.run(get())
        return str(raised.value)

    with serving() as backend:
        bare = wrong()
        probe = Probe()
        try:
            assert wrong() == bare
        finally:
            probe.detach()


@on_each_loop
def test_a_call_that_is_cancelled_names_what_it_waited_for_and_gives_its_connection_back(loop: Loop) -> None:
    with serving(first_byte=10.0) as slow, serving(first_byte=LATE_S) as backend:

        async def scenario(scene: Scene) -> None:
            async with httpx.AsyncClient(limits=httpx.Limits(max_connections=1)) as client:

                async def impatient() -> None:
                    with anyio.move_on_after(LATE_S):
                        await client.get(f"{slow.address}/impatient")

                async def queued() -> None:
                    with anyio.move_on_after(LATE_S / 2):
                        await client.get(f"{backend.address}/queued")

                async def last() -> None:
                    await client.get(f"{backend.address}/last")

                async with anyio.create_task_group() as tasks:
                    for name, call in (("impatient", impatient), ("queued", queued), ("last", last)):
                        tasks.start_soon(scene.call(name, call))
                        await anyio.sleep(0.01)
                await scene.call("alone", last)()

        scene = play(loop, scenario)
    assert phases(scene.awaits("impatient"))["first-byte"] == pytest.approx(100, abs=CLOSE_MS)
    assert waited_for_pool(scene, "queued") == pytest.approx(50, abs=CLOSE_MS)
    (wait,) = [one for one in scene.awaits("last", "connection-pool") if one.ns > MS]
    assert wait.ns / MS == pytest.approx(80, abs=CLOSE_MS)
    assert {part.operation for part in wait.holders if part.to_ns - part.from_ns > 5 * MS} == {"impatient"}
    assert waited_for_pool(scene, "alone") < CLOSE_MS  # nothing is left of the others
    assert [one.target for one in backend.seen] == ["/last", "/last"]


def test_a_refused_connection_was_not_opened_and_is_no_call() -> None:
    address = f"http://127.0.0.1:{free_port()}"

    async def scenario(scene: Scene) -> None:
        async with httpx.AsyncClient() as client:

            async def refused() -> None:
                with pytest.raises(httpx.ConnectError):
                    await client.get(address)

            await scene.call("call", refused)()

    scene = play("asyncio", scenario)
    assert {(one.kind, one.phase, one.object) for one in scene.awaits("call", "connect")} == {
        ("connect", "tcp", address)
    }
    assert (opened(scene, "call"), calls(scene, "call")) == (0, 0)


def test_a_scheme_that_nobody_knows_fails_as_without_the_probe() -> None:
    """A hook that was switched off by one odd address would see no later call (httpx's own suite has it)."""

    async def scenario(scene: Scene) -> None:
        async with httpx.AsyncClient() as client:

            async def odd() -> None:
                with pytest.raises(httpx.UnsupportedProtocol):
                    await client.get("invalid://example.org")

            await scene.call("call", odd)()

    play("asyncio", scenario)


async def streamed(client: Any, address: str, slept: float) -> None:
    gate = anyio.Lock()
    async with client.stream("GET", address) as response:
        async for _ in response.aiter_raw():
            async with gate:
                await anyio.sleep(slept)


async def stopped_early(client: Any, address: str) -> None:
    async with client.stream("GET", address) as response:
        async for _ in response.aiter_raw():
            break


@on_each_loop
@each_library
def test_only_the_reads_of_a_body_that_is_streamed_are_waits_for_it(loop: Loop, library: types.ModuleType) -> None:
    slept = 0.05
    with serving(between=0.08, chunks=4) as backend:

        async def scenario(scene: Scene) -> None:
            async with library.AsyncClient(limits=library.Limits(max_connections=1)) as client:
                await scene.call("streamed", lambda: streamed(client, f"{backend.address}/streamed", slept))()
                if kind_of(loop) != "trio":  # it warns of generators that are left to the collector, httpx's too
                    await scene.call("early", lambda: stopped_early(client, f"{backend.address}/early"))()
                await scene.call("last", lambda: client.get(f"{backend.address}/last"))()

        scene = play(loop, scenario)
    body = [one for one in scene.awaits("streamed") if one.phase == "body"]
    [headers] = [one for one in scene.awaits("streamed") if one.phase == "first-byte"]
    truth = (backend.of("/streamed").answered_ns - headers.to_ns) / MS - 3 * 1000 * slept
    assert sum(one.ns for one in body) / MS == pytest.approx(truth, abs=2 * CLOSE_MS)
    first = streamed.__code__.co_firstlineno
    assert {one.where for one in body} == {f"{HERE}{first + 3}"}  # where it is read, not where it was asked for
    assert headers.where == f"{HERE}{first + 2}"
    assert waited_for_pool(scene, "last") < CLOSE_MS
    if kind_of(loop) != "trio":
        assert phases(scene.awaits("early"))["body"] == pytest.approx(80, abs=CLOSE_MS)


def test_a_client_made_before_the_probe_is_named_by_its_variable() -> None:
    names = ["one", "two"]
    limits = OLDER_THAN_THE_PROBE._transport._pool  # type: ignore[attr-defined]
    limits._max_connections = 1
    with serving(first_byte=LATE_S) as backend:

        async def scenario(scene: Scene) -> None:
            await at_once(scene, names, lambda name: OLDER_THAN_THE_PROBE.get(f"{backend.address}/{name}"))

        scene = play("asyncio", scenario)
    waits = [one for name in names for one in scene.awaits(name, "connection-pool") if one.ns > MS]
    assert [one.object for one in waits] == ["httpx pool test_httpcore.OLDER_THAN_THE_PROBE"]
    assert waits[0].tag == "exact"


def test_the_probe_leaves_nothing_behind() -> None:
    owners = [
        (getattr(library, pool), name)
        for library in (httpcore, httpcore2)
        for pool, method in (("AsyncConnectionPool", "handle_async_request"), ("ConnectionPool", "handle_request"))
        for name in ("__init__", method)
    ]
    before = [vars(owner)[name] for owner, name in owners]
    probe = Probe()
    during = [vars(owner)[name] for owner, name in owners]
    assert all(ours is not theirs for ours, theirs in zip(during, before, strict=True))
    assert {(one.owner, one.name) for one in declared()} >= set(owners)
    probe.detach()
    after = [vars(owner)[name] for owner, name in owners]
    assert all(now is then for now, then in zip(after, before, strict=True))
