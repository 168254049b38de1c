"""SQLAlchemy's pools and statements, against what the calls note themselves while they hold a connection."""

from __future__ import annotations

import asyncio
import functools
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from sqlalchemy import create_engine, event, text
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.ext.asyncio import AsyncEngine, async_sessionmaker, create_async_engine
from sqlalchemy.pool import AsyncAdaptedQueuePool, NullPool, QueuePool

from mcp_probe.model import UNKNOWN_HOLDER
from tests.adapters.waits.scenes import HELD_S, MS, Scene, check_waves, held_in, play, play_undisturbed

SECRETS = ("hunter2", "swordfish", "opensesame", "tr0ub4dor")

HANDED_OVER: dict[str, Callable[[Callable[[], Any]], Awaitable[Any]]] = {
    "anyio": anyio.to_thread.run_sync,
    "asyncio.to_thread": asyncio.to_thread,
    "run_in_executor": lambda function: asyncio.get_running_loop().run_in_executor(None, function),
}


def of_two(url: str, **options: Any) -> AsyncEngine:
    return create_async_engine(url, poolclass=AsyncAdaptedQueuePool, pool_size=2, max_overflow=0, **options)


def test_six_calls_of_a_pool_of_two_wait_in_waves_for_those_who_hold_it(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        engine = of_two(f"sqlite+aiosqlite:///{tmp_path}/{SECRETS[0]}.db")

        async def holds(name: str) -> None:
            scene.turns.asked[name] = time.monotonic_ns()
            async with engine.connect() as connection:
                scene.turns.got[name] = time.monotonic_ns()
                await connection.execute(text("select 1"))
                await asyncio.sleep(HELD_S)
            scene.turns.gave_back[name] = time.monotonic_ns()

        async with anyio.create_task_group() as tasks:
            for number in range(6):
                tasks.start_soon(
                    functools.partial(scene.call, f"call {number}", functools.partial(holds, f"call {number}"))
                )
        await engine.dispose()

    scene = play_undisturbed(scenario)
    for one in check_waves(scene, places=2):
        assert one.object.startswith("SQLAlchemy pool made at test_sqlalchemy.py:")
        assert (one.where or "").startswith(f"{__file__}:")
    assert SECRETS[0] not in scene.everything()


@pytest.mark.parametrize("hand_over", HANDED_OVER)
def test_a_pool_that_worker_threads_wait_for_is_named_with_its_holder(hand_over: str, tmp_path: Path) -> None:
    engine = create_engine(f"sqlite:///{tmp_path}/one.db", poolclass=QueuePool, pool_size=1, max_overflow=0)
    got, leave = threading.Event(), threading.Event()

    async def scenario(scene: Scene) -> None:
        def holds() -> None:
            with engine.connect():
                got.set()
                assert leave.wait(100)

        def asks() -> None:
            with engine.connect() as connection:
                connection.execute(text("select 1"))

        run = HANDED_OVER[hand_over]
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(scene.call, "first", lambda: run(holds))
            await anyio.to_thread.run_sync(got.wait)
            tasks.start_soon(scene.call, "second", lambda: run(asks))
            while not any(held.opens for held in list(scene.probe._hub.awaits._objects.values())):
                await asyncio.sleep(0.001)
            await asyncio.sleep(HELD_S)
            leave.set()

    try:
        scene = play(scenario)
    finally:
        engine.dispose()
    (wait,) = scene.awaits("second", "connection-pool")
    assert wait.stage == "executor_run"
    assert wait.ns / MS >= HELD_S * 1000 - 1
    assert max(held_in([wait]), key=held_in([wait]).__getitem__) == "first"
    assert wait.object.startswith("SQLAlchemy pool first awaited at test_sqlalchemy.py:")
    assert {one.object for one in scene.awaits("second", "db")} == {"sqlite"}
    assert [one for one in scene.awaits("first", "connection-pool") if one.holders] == []


AT_MODULE_LEVEL = create_async_engine(
    "sqlite+aiosqlite://", poolclass=AsyncAdaptedQueuePool, pool_size=1, max_overflow=0
)


def test_a_pool_that_is_older_than_the_probe_is_named_by_its_engines_variable() -> None:
    async def scenario(scene: Scene) -> None:
        async def holds() -> None:
            async with AT_MODULE_LEVEL.connect():
                await asyncio.sleep(HELD_S)

        async with anyio.create_task_group() as tasks:
            for number in range(2):
                tasks.start_soon(scene.call, f"call {number}", holds)
        scene.probe.snapshot()  # its engine has another pool afterwards
        await AT_MODULE_LEVEL.dispose()

    scene = play(scenario)
    (wait,) = [one for number in range(2) for one in scene.awaits(f"call {number}", "connection-pool")]
    assert wait.object == "SQLAlchemy pool test_sqlalchemy.AT_MODULE_LEVEL"


def slow(engine: Engine) -> None:
    """Statements of ``engine`` may call ``snooze(seconds)``, which waits in the database."""

    @event.listens_for(engine, "connect")
    def _connected(connection: Any, _: Any) -> None:
        connection.create_function("snooze", 1, lambda seconds: time.sleep(seconds))


@pytest.mark.parametrize("how", ["connection", "session", "null pool"])
def test_statements_are_named_by_their_database_alone(how: str, tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        options: dict[str, Any] = {"poolclass": NullPool} if how == "null pool" else {}
        engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path}/{SECRETS[0]}.db", **options)
        slow(engine.sync_engine)
        sessions = async_sessionmaker(engine)
        statement, arguments = text(f"select snooze(:seconds), '{SECRETS[1]}', :it"), {"seconds": 0.1, "it": SECRETS[2]}

        async def asks() -> None:
            async with sessions() if how == "session" else engine.connect() as connection:
                await connection.execute(statement, arguments)

        await scene.call("call", asks)
        await engine.dispose()

    scene = play(scenario)
    waits = scene.awaits("call", "db")
    assert {one.object for one in waits} == {"sqlite"}
    assert sum(one.ns for one in waits) / MS >= 99
    assert sum(one.calls for one in waits) == 1
    assert {(one.where or "").rpartition(":")[0] for one in waits if one.calls} == {__file__}
    assert scene.named_share("call") >= 0.95
    assert sum(one.opened for one in scene.awaits("call", "connect")) == 1
    assert [secret for secret in SECRETS if secret in scene.everything()] == []


def test_a_call_that_gives_up_waiting_for_a_pool_holds_nothing(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path}/one.db", pool_size=1, max_overflow=0)
        leave = asyncio.Event()

        async def holds() -> None:
            async with engine.connect():
                await leave.wait()

        async def impatient() -> None:
            with anyio.move_on_after(HELD_S / 2):
                async with engine.connect():
                    raise AssertionError("it was held all the time")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(scene.call, "first", holds)
            await asyncio.sleep(HELD_S)
            await scene.call("impatient", impatient)
            tasks.start_soon(scene.call, "last", holds)
            await asyncio.sleep(HELD_S)
            leave.set()
        await engine.dispose()

    scene = play(scenario)
    for name in ("impatient", "last"):
        held = held_in(scene.awaits(name, "connection-pool"))
        assert max(held, key=held.__getitem__) == "first"
        assert set(held) <= {"first", UNKNOWN_HOLDER}


def test_a_database_that_cannot_be_reached_leaves_no_holder() -> None:
    engine = create_engine("sqlite:////nowhere/at/all.db", poolclass=QueuePool, pool_size=1)

    async def scenario(scene: Scene) -> None:
        def asks() -> None:
            with pytest.raises(Exception, match="unable to open"), engine.connect():
                raise AssertionError("it is not there")

        await scene.call("call", lambda: anyio.to_thread.run_sync(asks))
        held = scene.probe._hub.awaits.known(engine.pool)
        assert held is not None and held.holds == []

    play(scenario)


def test_the_hooks_are_gone_after_detach() -> None:
    owners = (QueuePool, QueuePool.__mro__[1], Engine, Connection)
    before = [dict(vars(owner)) for owner in owners]

    async def scenario(scene: Scene) -> None:
        assert vars(QueuePool)["_do_get"] is not before[0]["_do_get"]

    play(scenario)
    assert [dict(vars(owner)) for owner in owners] == before


def test_a_version_that_is_not_known_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(QueuePool, "_do_get")
    before = vars(QueuePool.__mro__[1])["_return_conn"]

    async def scenario(scene: Scene) -> None:
        assert vars(QueuePool.__mro__[1])["_return_conn"] is before

    scene = play(scenario)
    assert "QueuePool._do_get is not as in" in scene.hooks["awaits (SQLAlchemy)"]
