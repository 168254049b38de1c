"""What calls of aiohttp await, against what a backend with known delays has noted itself."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import pytest
from aiohttp import ClientSession as imported_by_name
from aiohttp.abc import AbstractResolver, ResolveResult

from mcp_probe.session import Probe
from tests.adapters.test_http_arrival import tls_contexts
from tests.adapters.waits.backend import serving
from tests.adapters.waits.calls import (
    CLOSE_MS,
    LATE_S,
    at_once,
    calls,
    check_order,
    check_phase,
    check_waves,
    headers_late,
    opened,
    phases,
    waited_for_pool,
)
from tests.capture.test_awaits import Scene, play
from tests.loops import ASYNCIO, UVLOOP
from tests.ports import free_port
from tests.running import Backend as Loop
from tests.turns import MS

HERE = f"{__file__}:"
each_loop = pytest.mark.parametrize("loop", [ASYNCIO, UVLOOP])


async def read(session: Any, address: str) -> None:
    async with session.get(address) as response:
        await response.read()


@each_loop
@pytest.mark.parametrize("per_host", [False, True], ids=["in all", "a host"])
def test_calls_beyond_the_limit_wait_in_waves_for_those_who_hold_its_connections(loop: Loop, per_host: bool) -> None:
    names = [f"call-{number}" for number in range(12)]
    with serving(first_byte=LATE_S) as backend:

        async def scenario(scene: Scene) -> None:
            connector = aiohttp.TCPConnector(limit_per_host=3) if per_host else aiohttp.TCPConnector(limit=3)
            async with imported_by_name(connector=connector) as session:
                await at_once(scene, names, lambda name: read(session, f"{backend.address}/{name}"))

        scene = play(loop, scenario)
    check_waves(scene, backend, names, 3)
    assert opened(scene, *names) == backend.connections == 3
    assert calls(scene, *names) == 12
    (pool,) = {one.object for name in names for one in scene.awaits(name, "connection-pool") if one.ns > MS}
    assert pool.startswith(f"aiohttp pool of {backend.address} made at" if per_host else "aiohttp pool made at")
    assert f"{Path(__file__).name}:" in pool


class SlowResolver(AbstractResolver):
    async def resolve(self, host: str, port: int = 0, family: Any = 0) -> list[ResolveResult]:
        await asyncio.sleep(LATE_S)
        flags = {"family": 2, "proto": 0, "flags": 0}
        return [ResolveResult(hostname=host, host="127.0.0.1", port=port, **flags)]  # type: ignore[typeddict-item]

    async def close(self) -> None:
        pass


def test_looking_up_connecting_the_first_byte_and_the_body_are_told_apart(tmp_path: Path) -> None:
    tls, trusting = tls_contexts(tmp_path)
    names = ["one", "two"]
    with serving(tls=tls, handshake=0.08, first_byte=0.12, between=0.06, chunks=2) as backend:

        async def get(name: str) -> None:
            connector = aiohttp.TCPConnector(resolver=SlowResolver(), ssl=trusting)
            async with aiohttp.ClientSession(connector=connector) as session:
                await read(session, f"{backend.address}/{name}")

        async def scenario(scene: Scene) -> None:
            await at_once(scene, names, get)

        scene = play("asyncio", scenario)
    assert opened(scene, *names) == calls(scene, *names) == backend.connections == 2
    for name in names:
        ours = [one for one in scene.awaits(name) if one.object == backend.address]
        body_ms = 120 - headers_late(scene, backend, name)
        for phase, ms in (("dns", 100), ("connect", 80), ("first-byte", 120), ("body", body_ms)):
            check_phase(scene, name, phase, ms, ours)
        check_order(scene, name, backend.of(f"/{name}"), backend.secured_ns[backend.of(f"/{name}").connection])
        assert "tcp" not in phases(ours)  # TLS is not told from TCP: it is all one, without a phase


def test_a_users_own_trace_config_is_kept_and_called_first() -> None:
    told: list[str] = []
    config = aiohttp.TraceConfig()

    async def started(*_: Any) -> None:
        told.append("theirs")

    config.on_request_start.append(started)
    mine = [config]
    with serving() as backend:

        async def scenario(scene: Scene) -> None:
            async with aiohttp.ClientSession(trace_configs=mine) as session:
                assert session.trace_configs[0] is config
                await scene.call("call", lambda: read(session, backend.address))()

        scene = play("asyncio", scenario)
    assert told == ["theirs"]
    assert mine == [config]
    assert calls(scene, "call") == 1


def test_a_redirect_is_another_call_and_its_first_connection_is_given_back() -> None:
    with serving(first_byte=LATE_S) as last, serving(first_byte=LATE_S, moved_to=f"{last.address}/x") as first:

        async def scenario(scene: Scene) -> None:
            async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=1)) as session:
                await scene.call("call", lambda: read(session, f"{first.address}/a"))()
                await scene.call("next", lambda: read(session, f"{last.address}/b"))()

        scene = play("asyncio", scenario)
    assert calls(scene, "call") == 2
    assert {one.object for one in scene.awaits("call", "http") if one.ns > 5 * MS} == {first.address, last.address}
    assert waited_for_pool(scene, "next") < CLOSE_MS


async def cancelled(session: Any, address: str) -> None:
    with anyio.move_on_after(LATE_S):
        await read(session, address)


async def refused(session: Any, address: str) -> None:
    with pytest.raises(aiohttp.ClientConnectorError):
        await read(session, address)


@pytest.mark.parametrize(("end", "sent"), [(cancelled, 1), (refused, 0)])
def test_a_call_that_fails_says_how_far_it_came_and_holds_nothing(
    end: Callable[[Any, str], Awaitable[None]], sent: int
) -> None:
    nobody = f"http://127.0.0.1:{free_port()}"
    with serving(first_byte=10.0) as slow, serving() as backend:

        async def scenario(scene: Scene) -> None:
            async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=1)) as session:
                await scene.call("failing", lambda: end(session, slow.address if sent else nobody))()
                await scene.call("next", lambda: read(session, backend.address))()

        scene = play("asyncio", scenario)
    assert (calls(scene, "failing"), opened(scene, "failing")) == (sent, sent)
    assert waited_for_pool(scene, "next") < CLOSE_MS
    if sent:
        before_ms = sum(ms for phase, ms in phases(scene.awaits("failing")).items() if phase != "first-byte")
        check_phase(scene, "failing", "first-byte", 100 - before_ms)


def test_a_session_that_is_older_than_the_probe_is_named_by_looks() -> None:
    with serving(first_byte=4 * LATE_S) as backend:

        async def run() -> Scene:
            async with aiohttp.ClientSession() as session:
                probe = Probe()
                scene = Scene(probe)
                probe.add_sink(scene.kept)
                await scene.call("call", lambda: read(session, backend.address))()
                await anyio.to_thread.run_sync(probe.detach)
                await read(session, backend.address)  # goes on as before
            return scene

        scene = asyncio.run(run())
    (http,) = [one for one in scene.awaits("call", "http") if one.ns > 100 * MS]
    assert http.object.startswith("aiohttp.")
    assert http.phase is None
    assert len(backend.seen) == 2


def test_a_session_outlives_the_probe_it_was_made_under() -> None:
    before = vars(aiohttp.ClientSession)["__init__"], vars(aiohttp.ClientResponse)["read"]
    with serving() as backend:

        async def run() -> None:
            probe = Probe()
            async with aiohttp.ClientSession() as session:
                await anyio.to_thread.run_sync(probe.detach)
                await read(session, backend.address)

        asyncio.run(run())
    assert (vars(aiohttp.ClientSession)["__init__"], vars(aiohttp.ClientResponse)["read"]) == before
    assert len(backend.seen) == 1
