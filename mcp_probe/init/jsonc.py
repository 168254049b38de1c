"""JSON as editors write it, with comments and commas at the end, and where each value of it stands.

A configuration is changed by replacing the text of single values, so that comments and layout stay.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

_SKIP = re.compile(r"(?:[ \t\r\n]+|//[^\n]*|/\*.*?\*/)*", re.S)
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
_SCALAR = re.compile(r"-?\d[\d.eE+-]*|true|false|null")
_DEEPEST = 200


class NotJson(ValueError):
    """The text is not JSON; the message says where, and what was expected there."""


@dataclass(slots=True)
class Node:
    """One value: what it is, and its place in the text. ``members`` are those of an object."""

    value: Any
    start: int
    end: int
    members: dict[str, Node] = field(default_factory=dict)


def parse(text: str) -> Node:
    """The value that ``text`` is. Raises: NotJson, also where an object has one key twice."""
    reader = _Reader(text)
    node = reader.value(0)
    reader.skip()
    if reader.at != len(text):
        raise reader.fault("the end of the file")
    return node


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self.at = 0

    def fault(self, expected: str) -> NotJson:
        line = self._text.count("\n", 0, self.at) + 1
        found = self._text[self.at : self.at + 1]
        return NotJson(f"line {line}: expected {expected}, found {found!r}" if found else f"it ends before {expected}")

    def skip(self) -> None:
        match = _SKIP.match(self._text, self.at)
        self.at = match.end() if match else self.at

    def value(self, depth: int) -> Node:
        self.skip()
        if depth > _DEEPEST:
            raise self.fault(f"at most {_DEEPEST} levels")
        start = self.at
        first = self._text[start : start + 1]
        if first == "{":
            return self._object(start, depth)
        if first == "[":
            return self._array(start, depth)
        if first == '"':
            return Node(self._string(), start, self.at)
        match = _SCALAR.match(self._text, start)
        try:
            if match:
                self.at = match.end()
                return Node(json.loads(match[0]), start, self.at)
        except ValueError:
            self.at = start
        raise self.fault("a value")

    def _string(self) -> str:
        match = _STRING.match(self._text, self.at)
        if match is None:
            raise self.fault("a string that ends on its line")
        try:
            found: str = json.loads(match[0])
        except ValueError:
            raise self.fault("a string whose escapes are those of JSON") from None
        self.at = match.end()
        return found

    def _is_end(self, closing: str) -> bool:
        self.skip()
        if not self._text.startswith(closing, self.at):
            return False
        self.at += 1
        return True

    def _comma(self, closing: str) -> bool:
        """Whether the collection goes on. A comma before its end is allowed."""
        if self._is_end(closing):
            return False
        if not self._text.startswith(",", self.at):
            raise self.fault(f"`,` or `{closing}`")
        self.at += 1
        return not self._is_end(closing)

    def _object(self, start: int, depth: int) -> Node:
        self.at += 1
        members: dict[str, Node] = {}
        goes_on = not self._is_end("}")
        while goes_on:
            self.skip()
            if not self._text.startswith('"', self.at):
                raise self.fault("a name in double quotes")
            name = self._string()
            if name in members:
                raise self.fault(f"each name once; {name!r} is there twice")
            self.skip()
            if not self._text.startswith(":", self.at):
                raise self.fault("`:`")
            self.at += 1
            members[name] = self.value(depth + 1)
            goes_on = self._comma("}")
        return Node({name: node.value for name, node in members.items()}, start, self.at, members)

    def _array(self, start: int, depth: int) -> Node:
        self.at += 1
        values = []
        goes_on = not self._is_end("]")
        while goes_on:
            values.append(self.value(depth + 1).value)
            goes_on = self._comma("]")
        return Node(values, start, self.at)


def indent_at(text: str, position: int) -> str:
    """The white space that the line of ``position`` begins with."""
    line = text[text.rfind("\n", 0, position) + 1 : position]
    return line[: len(line) - len(line.lstrip())]
