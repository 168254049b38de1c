"""redis-py with a real Redis, in threads and on asyncio: answers by host and port, and pools with their holders."""

from __future__ import annotations

import asyncio
import functools
import threading
import time
from collections.abc import Iterator
from typing import Any

import anyio
import pytest
import redis
import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from tests.adapters.waits.backends import redis_server
from tests.adapters.waits.scenes import HELD_S, MS, Scene, check_waves, held_in, play, play_undisturbed

USER, PASSWORD = "swordfish", "hunter2"
SECRETS = (USER, PASSWORD, "opensesame", "tr0ub4dor")
WAIT_S = 0.1  # an empty list is waited for by the server


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with redis_server(USER, PASSWORD) as found:
        yield found


def where_of(port: int) -> dict[str, Any]:
    return {"host": "127.0.0.1", "port": port, "username": USER, "password": PASSWORD}


def checked(scene: Scene, port: int, calls: int) -> None:
    waits = scene.awaits("call", "db")
    assert {one.object for one in waits} == {f"redis://127.0.0.1:{port}"}
    assert sum(one.ns for one in waits) / MS >= 0.95 * WAIT_S * 1000
    assert sum(one.calls for one in waits) == calls
    assert {(one.where or "").rpartition(":")[0] for one in waits} == {__file__}
    assert sum(one.opened for one in scene.awaits("call", "connect")) == 1
    everything = scene.everything()
    assert [secret for secret in SECRETS if secret in everything] == []


def test_commands_of_a_task_are_named_by_host_and_port(port: int) -> None:
    async def scenario(scene: Scene) -> None:
        async def asks() -> None:
            async with redis.asyncio.Redis(**where_of(port)) as client:
                await client.set("tr0ub4dor", "opensesame")
                await client.blpop(["opensesame"], WAIT_S)

        await scene.call("call", asks)

    checked(play(scenario), port, calls=2)


def test_commands_of_a_worker_thread_are_named_by_host_and_port(port: int) -> None:
    async def scenario(scene: Scene) -> None:
        def asks() -> None:
            with redis.Redis(**where_of(port)) as client:
                client.set("tr0ub4dor", "opensesame")
                client.blpop(["opensesame"], WAIT_S)

        await scene.call("call", lambda: asyncio.to_thread(asks))

    checked(play(scenario), port, calls=2)


@pytest.mark.parametrize("transaction", [False, True])
def test_a_pipeline_is_one_call(port: int, transaction: bool) -> None:
    async def scenario(scene: Scene) -> None:
        async with redis.asyncio.Redis(**where_of(port)) as client:
            await client.ping()

            async def asks() -> None:
                async with client.pipeline(transaction=transaction) as pipeline:
                    for number in range(50):
                        pipeline.set(f"key {number}", "opensesame")
                    await pipeline.execute()

            await scene.call("call", asks)

    scene = play(scenario)
    assert sum(one.calls for one in scene.awaits("call", "db")) == 1


def test_six_calls_of_a_pool_of_two_wait_in_waves(port: int) -> None:
    async def scenario(scene: Scene) -> None:
        pool: Any = redis.asyncio.BlockingConnectionPool(**where_of(port), max_connections=2, timeout=60)

        async def holds(name: str) -> None:
            scene.turns.asked[name] = time.monotonic_ns()
            connection = await pool.get_connection()
            scene.turns.got[name] = time.monotonic_ns()
            await asyncio.sleep(HELD_S)
            await pool.release(connection)
            scene.turns.gave_back[name] = time.monotonic_ns()

        async with anyio.create_task_group() as tasks:
            for number in range(6):
                tasks.start_soon(scene.call, f"call {number}", functools.partial(holds, f"call {number}"))
        await pool.disconnect()

    for one in check_waves(play_undisturbed(scenario), places=2):
        assert one.object.startswith("redis pool first awaited at test_redis.py:")
        assert one.tag == "estimate"


def test_a_pool_that_a_worker_thread_waits_for_is_named_with_its_holder(port: int) -> None:
    make: Any = redis.BlockingConnectionPool
    pool = make(**where_of(port), max_connections=1, timeout=HELD_S)
    got, leave = threading.Event(), threading.Event()

    async def scenario(scene: Scene) -> None:
        def holds() -> None:
            connection = pool.get_connection()
            got.set()
            assert leave.wait(100)
            pool.release(connection)

        def gives_up() -> None:
            with pytest.raises(redis.ConnectionError, match="No connection available"):
                redis.Redis(connection_pool=pool).ping()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(scene.call, "first", lambda: anyio.to_thread.run_sync(holds))
            await anyio.to_thread.run_sync(got.wait)
            await scene.call("second", lambda: anyio.to_thread.run_sync(gives_up))
            leave.set()
        pool.disconnect()

    scene = play(scenario)
    (wait,) = scene.awaits("second", "connection-pool")
    assert (wait.stage, wait.limit) == ("executor_run", 1)
    assert wait.ns / MS >= 0.95 * HELD_S * 1000
    assert set(held_in([wait])) == {"first"}


def test_a_redis_that_cannot_be_reached_is_named_all_the_same() -> None:
    async def scenario(scene: Scene) -> None:
        async def asks() -> None:
            async with redis.asyncio.Redis(
                host="127.0.0.1", port=1, password=PASSWORD, retry=Retry(NoBackoff(), 0)
            ) as client:
                with pytest.raises(redis.ConnectionError):
                    await client.ping()

        await scene.call("call", asks)

    scene = play(scenario)
    assert {one.object for one in scene.awaits("call", "connect")} == {"redis://127.0.0.1:1"}
    assert PASSWORD not in scene.everything()


def test_the_hooks_are_gone_after_detach() -> None:
    owners = (redis.connection.AbstractConnection, redis.asyncio.connection.AbstractConnection, redis.client.Pipeline)
    before = [dict(vars(owner)) for owner in owners]

    async def scenario(scene: Scene) -> None:
        assert all(dict(vars(owner)) != old for owner, old in zip(owners, before, strict=True))

    play(scenario)
    assert [dict(vars(owner)) for owner in owners] == before


def test_a_version_that_is_not_known_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis.connection.AbstractConnection, "read_response", None)
    before = vars(redis.connection.AbstractConnection)["connect"]

    async def scenario(scene: Scene) -> None:
        assert vars(redis.connection.AbstractConnection)["connect"] is before

    assert "read_response is not as in" in play(scenario).hooks["awaits (redis)"]
