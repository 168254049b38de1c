"""aiosqlite: what its callers await is named by the scheme; the file, the statement and the arguments are not."""

from __future__ import annotations

import time
from pathlib import Path

import aiosqlite
import pytest

from tests.adapters.waits.scenes import MS, Scene, play

SECRETS = ("hunter2", "swordfish", "opensesame")


def test_a_statement_is_named_and_counted(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        async def asks() -> None:
            async with aiosqlite.connect(tmp_path / f"{SECRETS[0]}.db") as database:
                await database.create_function("snooze", 1, time.sleep)
                async with database.execute(f"select snooze(?), '{SECRETS[1]}', ?", (0.1, SECRETS[2])) as rows:
                    await rows.fetchall()
                await database.execute_fetchall("select 1")

        await scene.call("call", asks)

    scene = play(scenario)
    record = scene.record("call")
    assert record.budget.executor_run in (0, None)  # its thread is its own
    waits = scene.awaits("call", "db")
    assert {one.object for one in waits} == {"sqlite"}
    assert sum(one.ns for one in waits) / MS >= 95
    assert sum(one.calls for one in waits) == 2
    assert {(one.where or "").rpartition(":")[0] for one in waits} == {__file__}
    assert [secret for secret in SECRETS if secret in scene.everything()] == []


def test_the_hooks_are_gone_after_detach_and_an_unknown_version_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    before = dict(vars(aiosqlite.core.Connection))

    async def scenario(scene: Scene) -> None:
        assert dict(vars(aiosqlite.core.Connection)) != before

    play(scenario)
    assert dict(vars(aiosqlite.core.Connection)) == before
    monkeypatch.setattr(aiosqlite.core.Connection, "_connect", None)
    before = dict(vars(aiosqlite.core.Connection))

    async def left_alone(scene: Scene) -> None:
        assert dict(vars(aiosqlite.core.Connection)) == before

    assert "Connection._connect is not as in" in play(left_alone).hooks["awaits (aiosqlite)"]
