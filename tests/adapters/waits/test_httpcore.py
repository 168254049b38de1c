"""What httpx, httpx2 and httpcore await, against what a backend with known delays has noted itself."""

from __future__ import annotations

import asyncio
import time
import types
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
from mcp_probe.session import Probe
from tests.adapters.test_http_arrival import tls_contexts
from tests.adapters.waits.backend import serving
from tests.adapters.waits.calls import (
    CLOSE_MS,
    FOLDER,
    LATE_S,
    at_once,
    calls,
    check_order,
    check_phase,
    check_waves,
    headers_late,
    no_wait,
    opened,
    phases,
    waited_for_pool,
)
from tests.capture.test_awaits import Scene, play
from tests.loops import ASYNCIO, LOOPS, TRIO
from tests.ports import free_port
from tests.running import Backend as Loop
from tests.running import kind_of
from tests.turns import MS

HERE = f"{__file__}:"

OLDER_THAN_THE_PROBE = imported_by_name()

on_each_loop = pytest.mark.parametrize("loop", LOOPS)
each_library = pytest.mark.parametrize("library", [httpx, httpx2], ids=["httpx", "httpx2"])


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
    for name in names:  # a look may find the call between two phases: that has the name of the call
        in_phases = [one for one in scene.awaits(name, "http", "connect") if one.phase]
        assert {one.object for one in in_phases} == {backend.address}
        odd = [one for one in scene.awaits(name, "http", "connect") if not (one.where or "").startswith(FOLDER)]
        assert odd == []


@pytest.mark.parametrize("loop", [ASYNCIO, TRIO])
@each_library
def test_a_client_per_call_opens_a_connection_per_call_and_its_phases_are_told_apart(
    loop: Loop, library: types.ModuleType, tmp_path: Path
) -> None:
    tls, trusting = tls_contexts(tmp_path)
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
        seen = backend.of(f"/{name}")
        asked_ns = min(one.from_ns for one in scene.awaits(name) if one.phase == "tls")
        tls_ms = (backend.secured_ns[seen.connection] - asked_ns) / MS
        body_ms = 120 - headers_late(scene, backend, name)
        for phase, ms in (("tls", tls_ms), ("first-byte", 120), ("body", body_ms), ("tcp", 0)):
            check_phase(scene, name, phase, ms)
        check_order(scene, name, seen, backend.secured_ns[seen.connection])
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
                requests = {name: client.build_request("GET", f"{backend.address}/{name}") for name in names}

                def send(name: str) -> None:
                    scene.turns[name].asked = time.monotonic_ns()  # to get its thread is another wait
                    client.send(requests[name])

                await at_once(scene, names, lambda name: anyio.to_thread.run_sync(send, name))

        scene = play(loop, scenario)
    check_waves(scene, backend, names, 2)
    assert opened(scene, *names) == 2
    assert calls(scene, *names) == 4
    for name in names:
        assert {one.stage for one in scene.awaits(name, "http", "connection-pool") if one.ns > MS} == {"executor_run"}
        check_phase(scene, name, "first-byte", 100)


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
    check_phase(scene, "call", "first-byte", 100)


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
                    with anyio.move_on_after(2.0):
                        await client.get(f"{slow.address}/impatient")

                async def queued() -> None:
                    with anyio.move_on_after(1.0):
                        await client.get(f"{backend.address}/queued")

                async def last() -> None:
                    await client.get(f"{backend.address}/last")

                async with anyio.create_task_group() as tasks:
                    for name, call in (("impatient", impatient), ("queued", queued), ("last", last)):
                        tasks.start_soon(scene.call(name, call))
                        await anyio.sleep(0.01)
                await scene.call("alone", last)()

        scene = play(loop, scenario)
    before_ms = sum(ms for phase, ms in phases(scene.awaits("impatient")).items() if phase != "first-byte")
    check_phase(scene, "impatient", "first-byte", 2000 - before_ms)
    check_phase(scene, "queued", "connection-pool", 1000)
    (wait,) = [one for one in scene.awaits("last", "connection-pool") if one.ns > MS]
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


async def streamed(client: Any, address: str, slept: float, gaps: list[tuple[int, int]]) -> None:
    async with client.stream("GET", address) as response:
        async for _ in response.aiter_raw():
            began = time.monotonic_ns()
            await anyio.sleep(slept)
            gaps.append((began, time.monotonic_ns()))


async def stopped_early(client: Any, address: str) -> None:
    async with client.stream("GET", address) as response:
        async for _ in response.aiter_raw():
            break


@on_each_loop
@each_library
def test_only_the_reads_of_a_body_that_is_streamed_are_waits_for_it(loop: Loop, library: types.ModuleType) -> None:
    slept = 0.05
    gaps: list[tuple[int, int]] = []
    with serving(between=0.08, chunks=4) as backend:

        async def scenario(scene: Scene) -> None:
            async with library.AsyncClient(limits=library.Limits(max_connections=1)) as client:
                await scene.call("streamed", lambda: streamed(client, f"{backend.address}/streamed", slept, gaps))()
                if kind_of(loop) != "trio":  # it warns of generators that are left to the collector, httpx's too
                    await scene.call("early", lambda: stopped_early(client, f"{backend.address}/early"))()
                await scene.call("last", lambda: client.get(f"{backend.address}/last"))()

        scene = play(loop, scenario)
    body = [one for one in scene.awaits("streamed") if one.phase == "body"]
    [headers] = [one for one in scene.awaits("streamed") if one.phase == "first-byte"]
    late = headers_late(scene, backend, "streamed")
    assert 4 * 80 - 3 * 1000 * slept - late - no_wait(scene, "streamed") - 5 < sum(one.ns for one in body) / MS
    assert all(one.to_ns <= gap[0] or one.from_ns >= gap[1] for one in body for gap in gaps)  # not while it slept
    first = streamed.__code__.co_firstlineno
    assert {one.where for one in body} == {f"{HERE}{first + 2}"}  # where it is read, not where it was asked for
    assert headers.where == f"{HERE}{first + 1}"
    assert waited_for_pool(scene, "last") < CLOSE_MS
    if kind_of(loop) != "trio":
        check_phase(scene, "early", "body", 80 - headers_late(scene, backend, "early"))


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
