"""What a coroutine awaits is only asked while it stands still."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import types
from collections.abc import AsyncIterator, Callable, Generator
from typing import Any

from mcp_probe.capture.await_looks import chain_of

LOOKED_AT_WHILE_IT_RUNS = """
from mcp_probe.capture.await_looks import chain_of

class Looks:  # the interpreter adapts a call to a function, and counts how often it failed to adapt any other
    def __call__(self):
        assert chain_of(running) == ([], None)

async def runs():
    look = Looks()
    for _ in range(5000):
        look()

running = runs()
try:
    running.send(None)
except StopIteration:
    print("ended")
"""


def test_a_look_at_a_running_coroutine_reads_nothing_beyond_its_frame() -> None:
    # CPython 3.11 and 3.12 take the count beside a call for an await in one of some hundred calls: the process ended.
    done = subprocess.run([sys.executable, "-c", LOOKED_AT_WHILE_IT_RUNS], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout.strip()) == (0, "ended"), done.stderr


@types.coroutine
def bare() -> Generator[str, None, None]:
    yield "suspended"


def look_into(coroutine: Any, looks: list[Any]) -> None:
    looks.append(chain_of(coroutine))


async def numbers(look: Callable[[], None]) -> AsyncIterator[int]:
    look()
    await bare()
    yield 1


async def iterates(look: Callable[[], None]) -> None:
    async for _ in numbers(look):
        look()


def test_nothing_is_said_of_a_chain_of_which_something_runs() -> None:
    looks: list[Any] = []
    coroutine = iterates(lambda: look_into(coroutine, looks))
    assert coroutine.send(None) == "suspended"
    assert looks == [([], None)]
    links, _ = chain_of(coroutine)
    assert [frame.f_code.co_name for frame, _ in links] == ["bare", "numbers", "iterates"]
    with contextlib.suppress(StopIteration):
        coroutine.send(None)
    assert looks == [([], None)] * 2
