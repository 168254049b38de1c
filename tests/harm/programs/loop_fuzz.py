"""``python -m tests.harm.programs.loop_fuzz native``: programs come as lines of JSON, and how each differs goes out.

Each runs bare and followed, in this one process. Standard library only, so that every interpreter can run it; the
programs are made by Hypothesis in another one (``tests/harm/loop_fuzz.py``).
"""

from __future__ import annotations

import asyncio
import json
import sys
import warnings
from typing import Any

from tests.harm.programs.loop_programs import Operation, trace_of
from tests.harm.programs.probing import Watched, tell

SLOTS_S = (0.003, 0.02, 0.1)
"""A busy machine may let a slot of time pass: a difference counts if longer slots do not end it."""


def traces(watched: Watched, program: list[Operation], slot_s: float) -> tuple[list[Any], list[Any]]:
    """(bare, followed and inside a request)."""
    bare = trace_of(program, asyncio.new_event_loop(), slot_s)
    loop = asyncio.new_event_loop()
    return bare, watched.on(loop, lambda: trace_of(program, loop, slot_s))


def differs(watched: Watched, program: list[Operation]) -> Any:
    """How the traces differ, ``None`` where they are the same at one length of a slot."""
    for slot_s in SLOTS_S:
        bare, followed = traces(watched, program, slot_s)
        if bare == followed:
            return None
    shorter = min(len(bare), len(followed))
    place = next((at for at in range(shorter) if bare[at] != followed[at]), shorter)
    return {
        "at": place,
        "bare": [repr(event) for event in bare[max(0, place - 2) : place + 3]],
        "followed": [repr(event) for event in followed[max(0, place - 2) : place + 3]],
    }


def main() -> None:
    warnings.simplefilter("ignore")  # tasks that a program left behind
    with Watched() as watched:
        for line in sys.stdin:
            tell({"differs": differs(watched, json.loads(line)), "disabled": watched.disabled()})


if __name__ == "__main__":
    main()
