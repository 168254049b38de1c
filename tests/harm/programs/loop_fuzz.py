"""``python -m tests.harm.programs.loop_fuzz native SECONDS SEED``: random programs, bare and followed.

Standard library only, so that it runs on every interpreter; a program that differs is made small before it is told.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
import warnings
from collections.abc import Sequence
from typing import Any

from tests.harm.programs.loop_programs import KINDS, Operation, trace_of
from tests.harm.programs.probing import Watched, tell

LONGEST = 12
TRIES = 3
"""A difference counts if it is there each time: a busy machine may let a slot of time pass."""


def traces(watched: Watched, program: Sequence[Operation]) -> tuple[list[Any], list[Any]]:
    """(bare, followed and inside a request)."""
    bare = trace_of(program, asyncio.new_event_loop())
    loop = asyncio.new_event_loop()
    return bare, watched.on(loop, lambda: trace_of(program, loop))


def differs(watched: Watched, program: Sequence[Operation]) -> Any:
    """How the traces differ, ``None`` where they are the same in one of some tries."""
    for _ in range(TRIES):
        bare, followed = traces(watched, program)
        if bare == followed:
            return None
    shorter = min(len(bare), len(followed))
    place = next((at for at in range(shorter) if bare[at] != followed[at]), shorter)
    return {
        "program": list(program),
        "at": place,
        "bare": [repr(event) for event in bare[max(0, place - 2) : place + 3]],
        "followed": [repr(event) for event in followed[max(0, place - 2) : place + 3]],
    }


def random_program(rolls: random.Random) -> list[Operation]:
    return [(rolls.choice(KINDS), rolls.randrange(16), rolls.randrange(4)) for _ in range(rolls.randrange(1, LONGEST))]


def smallest(watched: Watched, program: list[Operation]) -> Any:
    """The difference of the smallest program that still differs, by leaving out one operation after the other."""
    found = differs(watched, program)
    at = 0
    while found is not None and at < len(program):
        shorter = program[:at] + program[at + 1 :]
        still = differs(watched, shorter)
        if still is not None:
            program, found = shorter, still
        else:
            at += 1
    return found


def main(seconds: float, seed: int) -> None:
    warnings.simplefilter("ignore")  # tasks that a program left behind
    rolls, until, examples = random.Random(seed), time.monotonic() + seconds, 0
    found: Any = None
    with Watched() as watched:
        while found is None and time.monotonic() < until:
            program = random_program(rolls)
            sys.stderr.write(f"{program}\n")
            examples += 1
            if differs(watched, program) is not None:
                found = smallest(watched, program)
        hooks = (
            []
            if watched.probe is None
            else [f"{k}: {v}" for k, v in watched.probe._hub.hooks.items() if "disabled" in v]
        )
    tell({"examples": examples, "differs": found, "disabled": hooks, "python": sys.version.split()[0]})


if __name__ == "__main__":
    main(float(sys.argv[2]), int(sys.argv[3]))
