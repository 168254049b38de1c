"""Random programs for event loops: what Hypothesis makes of them, and the interpreter that runs them.

Hypothesis runs here and nowhere else, so that any interpreter can be asked. One that dies or hangs of a program is a
difference, too, and is made small as every other.
"""

from __future__ import annotations

import json
import select
import subprocess
import tempfile
from types import TracebackType
from typing import Any

from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from tests.harm.programs.loop_programs import KINDS, ODD, RAISED
from tests.harm.running import ROOT, How, environment

LONGEST = 12
PATIENCE_S = 120
"""A program takes some 60 ms; one that is rescued each time, at the longest slots, takes most of this."""

_MEANT = {"odd": len(ODD) - 1, "raise": len(RAISED)}
"""The largest first number that means something else than the smaller ones."""

_one: st.SearchStrategy[Any] = st.one_of(
    [
        st.tuples(st.just(kind), st.integers(0, _MEANT.get(kind, 3)), st.integers(0, 1))
        for kind in KINDS
        if kind != "cancel"
    ]
    + [st.tuples(st.just("cancel"), st.integers(0, LONGEST), st.integers(0, 1))]
)
_nested = st.tuples(st.just("inside"), st.lists(_one, min_size=1, max_size=4))
PROGRAMS: st.SearchStrategy[list[Any]] = st.lists(st.one_of(_one, _one, _one, _nested), min_size=1, max_size=LONGEST)
"""Lists of operations, as :mod:`tests.harm.programs.loop_programs` runs them."""


class Difference(AssertionError):
    """A program that does something else on a followed loop."""


class Interpreter:
    """One process of ``python`` that runs programs bare and followed; a new one where it has died."""

    def __init__(self, python: str, core: How) -> None:
        self._command = [python, "-X", "faulthandler", "-m", "tests.harm.programs.loop_fuzz", core]
        self._environment = environment(core)
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed on leaving
        self._process: subprocess.Popen[str] | None = None
        self.programs = 0
        self.seen_once: list[str] = []
        """Differences that were not there again: told, but no failure."""

    def __enter__(self) -> Interpreter:
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None) -> None:
        self._end()
        self._errors.close()

    def check(self, program: list[Any]) -> None:
        """Raises: Difference, with what was seen, where the process died or hung, or the traces differ each time."""
        found = self._ask(program)
        if found is not None and self._ask(program) is not None:
            self._end()
            raise Difference(f"{program}: {found}")
        if found is not None:
            self.seen_once.append(f"{program}: {found}")

    def _ask(self, program: list[Any]) -> str | None:
        process = self._process = self._process or subprocess.Popen(
            self._command,
            cwd=ROOT,
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        assert process.stdin is not None and process.stdout is not None
        self.programs += 1
        process.stdin.write(json.dumps(program) + "\n")
        process.stdin.flush()
        answered = select.select([process.stdout], [], [], PATIENCE_S)[0]
        line = process.stdout.readline() if answered else ""
        if not line:
            code = self._end()
            self._errors.seek(0)
            errors = "\n".join(self._errors.read().splitlines()[-30:])
            raise Difference(f"{program}: " + (f"ended with {code}\n{errors}" if answered else "no end"))
        found = json.loads(line)
        return json.dumps(found, indent=1) if found["differs"] is not None or found["disabled"] else None

    def _end(self) -> int | None:
        process, self._process = self._process, None
        if process is None:
            return None
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.close()
            return process.wait(5)
        except (OSError, subprocess.TimeoutExpired):
            process.kill()
            return process.wait()
        finally:
            process.stdout.close()


def fuzz(python: str, core: How, examples: int, starting_from: int) -> tuple[int, list[str]]:
    """(how many programs were run, what differed once only). Raises: Difference, of the smallest program found."""
    with Interpreter(python, core) as interpreter:

        @seed(starting_from)
        @settings(max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck))
        @given(PROGRAMS)
        def same(program: list[Any]) -> None:
            interpreter.check(program)

        same()
        return interpreter.programs, interpreter.seen_once
