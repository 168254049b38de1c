"""A public bug report, rebuilt: a server with one fault, clients that show it, and the truth for a report."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.field.cases.playing import Start
from tools.field.first_screen import Truth

FOLDER = Path(__file__).resolve().parent

PLAIN_MCP_2 = "field-time"
"""An environment with mcp 2.3 and without rich, whose tracebacks would end a server that has no descriptors left."""

Facts = Mapping[str, float]
"""Counts and seconds that a run's clients saw."""


@dataclass(frozen=True, slots=True)
class Row:
    """One variant of a case.

    ``play`` starts the server, asks it, ends it, and returns what clients saw; ``shows_fault`` says whether that is the
    fault. ``environment`` is a folder of ``.envs/``, ``bare_environment`` that of the test without the probe; an empty
    one is the interpreter that runs the test. ``options`` are those of `mcp-probe run`. A slow one's fault is tested by
    `make test-endurance`.
    """

    case: str
    variant: str
    source: str
    truth: Truth
    play: Callable[[Start], Facts]
    shows_fault: Callable[[Facts], bool]
    environment: str = "case-fastmcp"
    bare_environment: str = ""
    options: tuple[str, ...] = ()
    is_slow: bool = False

    @property
    def name(self) -> str:
        return f"{self.case} {self.variant}".strip()


class Source:
    """The server of a case, whose lines are found by their text, so that they may move."""

    def __init__(self, case: str) -> None:
        self.path = FOLDER / case / "server.py"
        self.text = self.path.read_text("utf-8")

    def line(self, text: str) -> int:
        """The number of the only line that holds ``text``.

        Raises:
            LookupError: No line holds it, or several do.
        """
        numbers = [number for number, line in enumerate(self.text.splitlines(), 1) if text in line]
        if len(numbers) != 1:
            raise LookupError(f"{self.path}: {len(numbers)} lines hold {text!r}")
        return numbers[0]

    def at(self, *texts: str) -> str:
        """A pattern of the lines that hold these texts, as reports write places."""
        return _places(self.line(text) for text in texts)

    def inside(self, *functions: str) -> str:
        """A pattern of all lines of these functions or classes, decorators included."""
        return _places(number for function in functions for number in self._range(function))

    def _range(self, function: str) -> range:
        for node in ast.walk(ast.parse(self.text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and node.name == function:
                assert node.end_lineno is not None
                return range(min([node.lineno, *(one.lineno for one in node.decorator_list)]), node.end_lineno + 1)
        raise LookupError(f"{self.path}: nothing is called {function!r}")


def _places(numbers: Iterable[int]) -> str:
    lines = "|".join(str(number) for number in sorted(set(numbers)))
    return rf"\bserver\.py:(?:\d+(?:, |-|–))*(?:{lines})\b|\bline (?:{lines})\b"


def quoted(name: str) -> str:
    """A pattern of a tool's or a thread's name as reports write it, between quotes of any kind."""
    return rf"[`'\"“‘]{re.escape(name)}[`'\"”’]"
