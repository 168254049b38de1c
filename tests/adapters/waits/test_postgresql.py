"""asyncpg, psycopg and SQLAlchemy with a real PostgreSQL: pools with their holders, statements by host and port."""

from __future__ import annotations

import asyncio
import functools
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import anyio
import asyncpg  # type: ignore[import-untyped]
import psycopg
import pytest
from psycopg_pool import AsyncConnectionPool, ConnectionPool, PoolTimeout
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from tests.adapters.waits.backends import LONG_S, postgresql_server
from tests.adapters.waits.scenes import HELD_S, MS, Scene, check_waves, held_in, play, play_undisturbed

USER, PASSWORD = "swordfish", "hunter2"
SECRETS = (USER, PASSWORD, "opensesame", "tr0ub4dor")
SLOW = "select pg_sleep(0.1), 'opensesame'"


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with postgresql_server(USER) as found:
        until = time.monotonic() + LONG_S
        while True:  # it listens before it answers
            try:
                psycopg.connect(conninfo(found)).close()
                break
            except psycopg.OperationalError:
                assert time.monotonic() < until
                time.sleep(0.05)
        yield found


def where_of(port: int) -> dict[str, Any]:
    return {"host": "127.0.0.1", "port": port, "user": USER, "password": PASSWORD}


def conninfo(port: int) -> str:
    return f"host=127.0.0.1 port={port} user={USER} password={PASSWORD} dbname=postgres application_name=tr0ub4dor"


def checked(scene: Scene, library: str) -> None:
    for one in check_waves(scene, places=2):
        assert one.object.startswith(f"{library} pool made at test_postgresql.py:")
        assert (one.where or "").startswith(f"{__file__}:")
    everything = scene.everything()
    assert [secret for secret in SECRETS if secret in everything] == []


async def six(scene: Scene, acquire: Callable[[], Any], ask: Callable[[Any], Awaitable[Any]]) -> None:
    async def holds(name: str) -> None:
        scene.turns.asked[name] = time.monotonic_ns()
        async with acquire() as connection:
            scene.turns.got[name] = time.monotonic_ns()
            await ask(connection)
            await asyncio.sleep(HELD_S)
        scene.turns.gave_back[name] = time.monotonic_ns()

    async with anyio.create_task_group() as tasks:
        for number in range(6):
            tasks.start_soon(scene.call, f"call {number}", functools.partial(holds, f"call {number}"))


def test_six_calls_of_an_asyncpg_pool_of_two_wait_in_waves(port: int) -> None:
    async def scenario(scene: Scene) -> None:
        async with asyncpg.create_pool(**where_of(port), database="postgres", min_size=2, max_size=2) as pool:
            await six(scene, pool.acquire, lambda connection: connection.fetchval("select 'opensesame'"))

    checked(play_undisturbed(scenario), "asyncpg")


def test_six_calls_of_a_psycopg_pool_of_two_wait_in_waves(port: int) -> None:
    async def scenario(scene: Scene) -> None:
        async with AsyncConnectionPool(conninfo(port), min_size=2, max_size=2, open=False) as pool:
            await pool.wait()
            await six(scene, pool.connection, lambda connection: connection.execute("select 'opensesame'"))

    checked(play_undisturbed(scenario), "psycopg")


def test_a_psycopg_pool_that_a_worker_thread_waits_for_is_named_with_its_holder(port: int) -> None:
    got, leave = threading.Event(), threading.Event()

    async def scenario(scene: Scene) -> None:
        with ConnectionPool(conninfo(port), min_size=1, max_size=1) as pool:

            def holds() -> None:
                with pool.connection():
                    got.set()
                    assert leave.wait(100)

            def gives_up() -> None:
                with pytest.raises(PoolTimeout), pool.connection(timeout=HELD_S):
                    raise AssertionError("it was held all the time")

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(scene.call, "first", lambda: anyio.to_thread.run_sync(holds))
                await anyio.to_thread.run_sync(got.wait)
                await scene.call("second", lambda: anyio.to_thread.run_sync(gives_up))
                leave.set()

    scene = play(scenario)
    (wait,) = scene.awaits("second", "connection-pool")
    assert (wait.stage, wait.limit) == ("executor_run", 1)
    assert wait.ns / MS >= 0.95 * HELD_S * 1000
    assert set(held_in([wait])) == {"first"}


async def with_asyncpg(port: int) -> None:
    connection = await asyncpg.connect(**where_of(port), database="postgres")
    await connection.fetch(SLOW)
    await connection.close()


async def with_asyncpgs_statement(port: int) -> None:
    connection = await asyncpg.connect(**where_of(port), database="postgres")
    statement = await connection.prepare("select pg_sleep($1)")
    await statement.fetchval(0.1)
    await connection.close()


async def with_asyncpgs_cursor(port: int) -> None:
    connection = await asyncpg.connect(**where_of(port), database="postgres")
    async with connection.transaction():
        async for _ in connection.cursor(SLOW):
            pass
    await connection.close()


async def with_psycopg(port: int) -> None:
    async with await psycopg.AsyncConnection.connect(conninfo(port)) as connection:
        await connection.execute(SLOW)


async def with_psycopg_in_a_thread(port: int) -> None:
    def asks() -> None:
        with psycopg.connect(conninfo(port)) as connection:
            connection.execute("select pg_sleep(%s)", (0.1,))

    await anyio.to_thread.run_sync(asks)


async def with_sqlalchemy(port: int, driver: str) -> None:
    engine = create_async_engine(f"postgresql+{driver}://{USER}:{PASSWORD}@127.0.0.1:{port}/postgres")
    async with engine.connect() as connection:
        await connection.execute(text(SLOW))
    await engine.dispose()


HOW: dict[str, Callable[[int], Awaitable[None]]] = {
    "asyncpg": with_asyncpg,
    "asyncpg, prepared": with_asyncpgs_statement,
    "asyncpg, cursor": with_asyncpgs_cursor,
    "psycopg": with_psycopg,
    "psycopg in a thread": with_psycopg_in_a_thread,
    "sqlalchemy with asyncpg": lambda port: with_sqlalchemy(port, "asyncpg"),
    "sqlalchemy with psycopg": lambda port: with_sqlalchemy(port, "psycopg_async"),
}


@pytest.mark.parametrize("how", HOW)
def test_a_statement_is_named_by_host_and_port(how: str, port: int) -> None:
    scene = play(lambda scene: scene.call("call", lambda: HOW[how](port)))
    waits = scene.awaits("call", "db")
    assert {one.object for one in waits} == {f"postgresql://127.0.0.1:{port}"}
    assert sum(one.ns for one in waits) / MS >= 95
    assert sum(one.calls for one in waits) >= 1
    opened = [one for one in scene.awaits("call", "connect") if one.opened]
    assert sum(one.opened for one in opened) == 1
    assert {one.object for one in opened} == {f"postgresql://127.0.0.1:{port}"}
    everything = scene.everything()
    assert [secret for secret in SECRETS if secret in everything] == []


def test_a_database_that_does_not_answer_is_named_by_its_scheme_alone(port: int) -> None:
    async def scenario(scene: Scene) -> None:
        async def asks() -> None:
            with pytest.raises(psycopg.OperationalError):
                await psycopg.AsyncConnection.connect(f"host=127.0.0.1 port=1 user={USER} password={PASSWORD}")

        await scene.call("call", asks)

    scene = play(scenario)
    assert {one.object for one in scene.awaits("call", "connect")} <= {"postgresql"}
    assert [secret for secret in SECRETS if secret in scene.everything()] == []


def test_the_hooks_are_gone_after_detach() -> None:
    owners = (
        asyncpg.Pool, asyncpg.Connection, asyncpg.pool.PoolConnectionHolder, asyncpg.connect_utils,
        psycopg.Connection, psycopg.AsyncConnection, psycopg.waiting, ConnectionPool, AsyncConnectionPool,
    )  # fmt: skip
    before = [dict(vars(owner)) for owner in owners]

    async def scenario(scene: Scene) -> None:
        assert all(dict(vars(owner)) != old for owner, old in zip(owners, before, strict=True))

    play(scenario)
    assert [dict(vars(owner)) for owner in owners] == before


@pytest.mark.parametrize(
    ("owner", "name", "hook"),
    [(asyncpg.Pool, "_acquire", "awaits (asyncpg)"), (psycopg.Connection, "wait", "awaits (psycopg)")],
)
def test_a_version_that_is_not_known_is_left_alone(
    owner: type, name: str, hook: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, None)

    async def scenario(scene: Scene) -> None:
        assert vars(owner)[name] is None

    assert f"{name} is not as in" in play(scenario).hooks[hook]
