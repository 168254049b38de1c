"""Random programs do the same on a followed loop as on a bare one.

The short run is part of the tests; ``make fuzz`` runs it for minutes, on each Python found (see fuzz.py).
"""

from __future__ import annotations

import sys
from typing import Any

import pytest

from tests.harm.loop_fuzz import Difference, Interpreter, fuzz
from tests.harm.programs.loop_programs import KINDS, ODD, RAISED, OwnError
from tests.harm.running import ONE_CORE, How

EXAMPLES = 80


@ONE_CORE
def test_any_program_does_the_same_on_a_followed_loop(core: How) -> None:
    assert fuzz(sys.executable, core, EXAMPLES, 1)[0] >= EXAMPLES


RARE: list[list[Any]] = [
    *([["odd", one, two], ["later", 1, 0]] for one in range(len(ODD)) for two in (0, 1)),
    *([["raise", one, two], ["soon", 0, 0]] for one in range(len(RAISED) + 1) for two in (0, 1)),
    *([[kind, 1, 1]] for kind in KINDS),
    *([["inside", [[kind, 1, 1], ["soon", 0, 0]]]] for kind in KINDS),
    [["later", 1, 0], ["later", 1, 0], ["later", 1, 0], ["cancel", 1, 1]],
    [["later", 2, 0], ["odd", 3, 1], ["inside", [["close", 0, 0]]]],
    [["later", 2, 0], ["inside", [["debug", 1, 0], ["soon", 0, 0], ["later", 1, 0]]]],
]
"""Each odd deadline, exception and kind, at the top and inside a callback, and what random programs seldom hit."""


@ONE_CORE
def test_what_is_rare_is_tried_each_time(core: How) -> None:
    assert len(RAISED) + 1 == len({*RAISED, OwnError})
    with Interpreter(sys.executable, core) as interpreter:
        for program in RARE:
            interpreter.check(program)


def test_an_interpreter_that_dies_is_a_difference() -> None:
    with Interpreter(sys.executable, "pure") as interpreter, pytest.raises(Difference, match="ended with"):
        interpreter.check([["no such kind", 0, 0]])
