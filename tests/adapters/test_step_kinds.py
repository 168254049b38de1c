"""The start-up check of asyncio's tasks leaves the program as it was."""

from __future__ import annotations

import asyncio
import gc
from asyncio import events

import pytest

from mcp_probe.adapters.step_kinds import StepKinds


def is_recognised() -> bool:
    return StepKinds().step_type is not StepKinds().wakeup_type


def test_outside_a_loop_none_is_left_running() -> None:
    assert is_recognised()
    assert events._get_running_loop() is None


def test_inside_a_task_the_loop_its_task_and_the_next_name_stay() -> None:
    async def main() -> tuple[int, int]:
        task, loop, known = asyncio.current_task(), asyncio.get_running_loop(), asyncio.all_tasks()
        before = await number_of_next_task()
        assert is_recognised()
        assert (asyncio.current_task(), asyncio.get_running_loop(), asyncio.all_tasks()) == (task, loop, known)
        return before, await number_of_next_task()

    before, after = asyncio.run(main())
    assert after == before + 1


def test_in_a_callback_and_in_a_worker_thread() -> None:
    async def main() -> None:
        told: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(lambda: told.set_result(is_recognised()))
        assert await told
        assert await asyncio.to_thread(is_recognised)

    asyncio.run(main())


def test_a_step_that_raises_leaves_no_trace(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    gc.collect()  # what tests before left may say something as it ends
    capfd.readouterr()

    class Broken(StepKinds.Recorder):
        def call_soon(self, callback: object, *args: object, context: object = None) -> None:
            super().call_soon(lambda: 1 / 0, *args, context=context)

    monkeypatch.setattr(StepKinds, "Recorder", Broken)

    async def main() -> None:
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        with pytest.raises(ZeroDivisionError):
            StepKinds()
        assert asyncio.current_task() is task
        assert asyncio.get_running_loop() is loop
        await asyncio.sleep(0)

    asyncio.run(main())
    gc.collect()
    assert capfd.readouterr() == ("", "")


async def number_of_next_task() -> int:
    task = asyncio.ensure_future(asyncio.sleep(0))
    await task
    return int(task.get_name().rpartition("-")[2])
