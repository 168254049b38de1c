"""A guard keeps what our parts raise from the server, awaited ones too, and lets everything else through."""

from __future__ import annotations

import asyncio

import pytest

from mcp_probe.capture.guard import Guard


def test_what_an_awaited_part_raises_is_told_and_its_hook_is_off() -> None:
    async def breaks() -> None:
        await asyncio.sleep(0)
        raise LookupError("ours")

    told: list[tuple[str, Exception]] = []
    guard = Guard("leak hunt", lambda name, exc: told.append((name, exc)))
    asyncio.run(guard.wait_for(breaks))
    assert not guard.active and guard.faults == 1
    ((name, exc),) = told
    assert name == "leak hunt" and isinstance(exc, LookupError)


def test_who_is_cancelled_while_our_part_waits_is_cancelled() -> None:
    async def cancelled() -> None:
        guard = Guard("leak hunt", lambda name, exc: pytest.fail(f"{name}: {exc!r}"))
        task = asyncio.ensure_future(guard.wait_for(lambda: asyncio.sleep(60)))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert guard.active

    asyncio.run(cancelled())
