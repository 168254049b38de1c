"""A fault of ours in what is awaited never reaches the application: its answers are those without the probe."""

from __future__ import annotations

import logging
from asyncio import create_subprocess_exec
from asyncio.subprocess import PIPE
from collections.abc import Callable
from pathlib import Path
from subprocess import check_output
from typing import Any

import anyio
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from mcp_probe.adapters.waits.aiosqlite import AiosqliteHooks
from mcp_probe.adapters.waits.library import LibraryHooks
from mcp_probe.adapters.waits.pools import PoolWaits
from mcp_probe.adapters.waits.sqlalchemy import SqlAlchemyHooks
from mcp_probe.adapters.waits.subprocesses import SubprocessHooks
from mcp_probe.capture.awaits import Awaits
from mcp_probe.capture.outbound import Outbound
from mcp_probe.session import Probe
from tests.running import run_on

PARTS: tuple[tuple[type, str], ...] = (
    (Outbound, "begin"), (Outbound, "end"), (Outbound, "_note"), (Awaits, "begin"), (Awaits, "end"),
    (Awaits, "gave_back"), (LibraryHooks, "over"), (PoolWaits, "made"), (PoolWaits, "asks"), (PoolWaits, "opens"),
    (PoolWaits, "answered"), (PoolWaits, "gave_back"), (SqlAlchemyHooks, "_note_engine"), (SqlAlchemyHooks, "_of_pool"),
    (AiosqliteHooks, "_begins"), (SubprocessHooks, "_begin"), (SubprocessHooks, "_note_readers"),
)  # fmt: skip


def broken(hits: list[int]) -> Callable[..., Any]:
    def raises(*_: Any, **__: Any) -> Any:
        hits.append(1)
        raise RuntimeError("a fault of ours")

    return raises


async def answers(folder: Path) -> list[object]:
    engine = create_async_engine(f"sqlite+aiosqlite:///{folder}/one.db", pool_size=1, max_overflow=0)

    async def asks() -> object:
        async with engine.connect() as connection:
            return (await connection.execute(text("select 42"))).scalar_one()

    found: list[object] = []
    for _ in range(2):
        found.append(await asks())
    await engine.dispose()
    process = await create_subprocess_exec("echo", "task", stdout=PIPE)
    assert process.stdout is not None
    found += [await process.stdout.readline(), await process.wait()]
    found.append(await anyio.to_thread.run_sync(lambda: check_output(["echo", "thread"])))
    return found


@pytest.mark.parametrize(("owner", "name"), PARTS, ids=[f"{owner.__name__}.{name}" for owner, name in PARTS])
def test_a_part_that_raises_changes_no_answer(
    owner: type, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    hits: list[int] = []
    monkeypatch.setattr(owner, name, broken(hits))  # before the hooks take hold of it
    probe = Probe()
    try:
        found = run_on("asyncio", lambda: probe.profile(answers)(tmp_path))
        states = [state for state in probe._hub.hooks.values() if state.startswith("disabled after RuntimeError")]
    finally:
        probe.detach()
    assert found == [42, 42, b"task\n", 0, b"thread\n"]
    assert hits and states
