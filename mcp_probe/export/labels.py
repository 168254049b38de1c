"""The names that metrics use: bounded in number, and a client cannot invent them at will.

A tool, prompt or method has a label of its own once a call of it has succeeded, up to ``MAX_NAMES`` of them. One that
has only failed so far gets one while there are few of its kind; where the protocol says that the request itself was at
fault (no such method, bad parameters) it never does. Everything else is ``other``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from mcp_probe.export import semantic_conventions as names
from mcp_probe.export.semantic_conventions import Series
from mcp_probe.export.span_attributes import Attributes, error_attributes, network_attributes, operation_attributes
from mcp_probe.model import CROWDING_OPERATION, LOOP_OPERATION, RequestRecord

TOOL_METHOD = "tools/call"
MAX_ERROR_TYPES = 100
MAX_VERSIONS = 20
MAX_REMEMBERED = 1000
_VERSION = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Operation:
    """What requests without a record are called, and how they all ended; fields as in ``RequestRecord``."""

    method: str
    name: str | None
    transport: str
    outcome: str
    error: str | None = None
    error_code: str | None = None
    protocol_version: str | None = None


Called = RequestRecord | Operation


class Names:
    """Names that have a label of their own. Not thread-safe."""

    def __init__(self, most: int = names.MAX_NAMES, most_unproven: int = names.MAX_UNPROVEN_NAMES) -> None:
        self._most = most
        self._most_unproven = most_unproven
        self._proven: set[str] = set()
        self._unproven: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return name in self._proven or name in self._unproven

    def label(self, name: str, *, proven: bool) -> str:
        """``name``, or ``other`` where there is no place for it (any more)."""
        if name in self._proven:
            return name
        if name in self._unproven:
            if proven:
                self._unproven.discard(name)
                self._proven.add(name)
            return name
        if len(self._proven) + len(self._unproven) >= self._most:
            return names.OTHER
        if proven:
            self._proven.add(name)
        elif len(self._unproven) < self._most_unproven:
            self._unproven.add(name)
        else:
            return names.OTHER
        return name


class Values:
    """Values of one attribute, of which only so many may differ."""

    def __init__(self, most: int, other: str) -> None:
        self._most = most
        self._other = other
        self._known: set[str] = set()

    def label(self, value: str) -> str:
        """``value``, or what stands for all others."""
        if value not in self._known:
            if len(self._known) >= self._most:
                return self._other
            self._known.add(value)
        return value


class Labels:
    """The labels of one pipeline. Not thread-safe."""

    def __init__(self) -> None:
        self._names = Names()
        self._errors = Values(MAX_ERROR_TYPES, names.OTHER_ERROR)
        self._versions = Values(MAX_VERSIONS, names.OTHER)
        self._hosts = Values(names.MAX_HOSTS, names.OTHER)
        self._executors = Values(names.MAX_NAMES, names.OTHER)
        self._tools: set[str] = set()
        self._others: set[str] = set()
        self._functions: set[str] = set()

    def tool(self, record: Called) -> Series:
        """The tool of ``record`` as an attribute; empty for anything but a tool call."""
        name = self.name(record)
        return ((names.GEN_AI_TOOL_NAME, name),) if name is not None and record.method == TOOL_METHOD else ()

    def name(self, record: Called) -> str | None:
        """Label of its tool or prompt, if it is one's call."""
        if record.name is None:
            return None
        label = self._admit(record.name, record)
        if label != names.OTHER:
            (self._tools if record.method == TOOL_METHOD else self._others).add(record.name)
        return label

    def method(self, record: Called) -> str:
        """Label of its method."""
        return record.method if record.method in names.KNOWN_METHODS else self._admit(record.method, record)

    def _admit(self, name: str, record: Called) -> str:
        if record.error_code in names.NOT_AN_ERROR_CODES and record.outcome == "error":
            return name if name in self._names else names.OTHER
        return self._names.label(name, proven=record.outcome == "ok")

    def known_method(self, method: str) -> str:
        """Label of a method of which nothing but its name is known."""
        return method if method in names.KNOWN_METHODS or method in self._names else names.OTHER

    def tool_of(self, operation: str) -> Series:
        """As :meth:`tool`, of an operation whose calls have been seen: a tool's, a prompt's or a method's name."""
        if operation in self._tools:
            return ((names.GEN_AI_TOOL_NAME, operation),)
        if operation in self._others or operation in self._names or operation in names.KNOWN_METHODS:
            return ()
        return () if operation == LOOP_OPERATION else ((names.GEN_AI_TOOL_NAME, names.OTHER),)

    def know_function(self, name: str) -> None:
        """A profiled function of that name exists."""
        if len(self._functions) < MAX_REMEMBERED:
            self._functions.add(name)

    def is_function(self, operation: str) -> bool:
        """Whether ``operation`` is a profiled function, whose steps are a request's as well."""
        return operation in self._functions and operation not in self._tools

    def blocker(self, operation: str) -> str:
        """Label of the operation that held the loop. It was seen at work, so it gets a label while there is room."""
        if operation == CROWDING_OPERATION:
            return names.SMALL_STEPS
        if operation == LOOP_OPERATION or operation in names.KNOWN_METHODS:
            return operation
        return self._names.label(operation, proven=False)

    def executor(self, name: str) -> str:
        """Label of an executor."""
        return self._executors.label(names.token(name))

    def host(self, name: str) -> str:
        """Label of a backend's host."""
        return self._hosts.label(name)

    def operation(self, record: Called, *, is_partial: bool = False) -> Attributes:
        """Attributes of ``mcp.server.operation.duration``: those of the request's span, as far as they are bounded.

        ``is_partial``: its duration is only the least that it can have been.
        """
        name, code = self.name(record), record.error_code
        found = operation_attributes(record.method, name)
        found[names.MCP_METHOD_NAME] = self.method(record)
        for key, value in error_attributes(record.outcome, code or record.error, code).items():
            found[key] = self._errors.label(str(value))
        found.update(self.version(record.protocol_version))
        found.update(network_attributes(record.transport))
        if is_partial:
            found[names.PARTIAL] = True
        return found

    def version(self, version: str | None) -> Attributes:
        """The protocol's version as an attribute, where it is one: a client may write anything."""
        if version is None or not _VERSION.fullmatch(version):
            return {}
        return {names.MCP_PROTOCOL_VERSION: self._versions.label(version)}
