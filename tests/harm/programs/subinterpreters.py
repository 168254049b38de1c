"""Calls that each use a subinterpreter, on a worker thread or on the loop's own, while every step is slow."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Any

from tests.harm.programs.probing import Watched, tell

try:
    import _xxsubinterpreters as interpreters  # type: ignore[import-not-found,unused-ignore]
except ImportError:
    import _interpreters as interpreters  # type: ignore[import-not-found,no-redef,unused-ignore]

CODE = "import json\nkept = [json.dumps({'number': number}) for number in range(50)]\n"
HOG = "import os; parent = os.getppid()\nwhile os.getppid() == parent: pass"
"""Computes until whoever started it is gone."""


def use_one() -> None:
    which: Any = interpreters.create()
    try:
        run = getattr(interpreters, "run_string", None) or interpreters.exec
        run(which, CODE)
    finally:
        interpreters.destroy(which)


async def calls(watched: Watched, count: int, on_the_loop: bool) -> int:
    watched.follow()
    for _ in range(count):
        with watched.request():
            if on_the_loop:
                use_one()
            else:
                await asyncio.to_thread(use_one)
    return count


def main(count: int, where: str, hogs: int) -> None:
    """The steps are slow by the limit that is set, and because others want the CPU."""
    busy = [subprocess.Popen([sys.executable, "-c", HOG], start_new_session=True) for _ in range(hogs)]
    try:
        with Watched(slow_step_ms=1) as watched:
            done = asyncio.run(calls(watched, count, where == "loop"))
    finally:
        for one in busy:
            one.kill()
            one.wait()
    tell({"calls": done})


if __name__ == "__main__":
    main(int(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
