"""Whose code a line is, what a suspended task waits for, and which thread runs an event loop: told by file names.

The files are those of another interpreter, perhaps of another machine's version of it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from mcp_probe.capture.await_kinds import kind_of, waits_for_tasks
from mcp_probe.capture.places import is_own, is_plumbing
from mcp_probe.launch.outside.shapes import Line
from mcp_probe.model import AwaitKind

_STANDARD = re.compile(r"(?:^|/)lib(?:64)?/python3\.\d+t?/(?!site-packages/|dist-packages/)(?P<below>.+)$")
_INSTALLED = re.compile(r"/(?:site|dist)-packages/(?P<below>.+)$")
_LOOPS = {
    "asyncio/base_events.py": "asyncio",
    "uvloop/__init__.py": "uvloop",
    "trio/_core/_run.py": "trio",
    "asyncio/runners.py": "asyncio",
}
_POLLS = frozenset({
    ("selectors.py", "select"), ("trio/_core/_io_epoll.py", "get_events"),
    ("asyncio/runners.py", "run"), ("uvloop/__init__.py", "run"), ("uvloop/__init__.py", "wrapper"),
})  # fmt: skip
"""Functions in which a loop's thread is innermost while no task runs. uvloop polls in C, below whoever started it."""


def below_library(file: str) -> str:
    """``asyncio/locks.py``: the part of a path below the library's folder; the whole path of other files."""
    found = _INSTALLED.search(file) or _STANDARD.search(file)
    return found["below"] if found else file


def is_servers_own(line: Line) -> bool:
    """Whether it is neither Python's, nor the SDK's or what that runs on, nor ours."""
    if _STANDARD.search(line.file) or line.file.startswith("<"):
        return False
    return not is_plumbing(line.file) and not is_own(line.file)


def place_among(lines: Sequence[Line]) -> Line | None:
    """The innermost line of the server's own code."""
    return next((line for line in lines if is_servers_own(line)), None)


def kind_among(chain: Sequence[Line]) -> AwaitKind | None:
    """What a task waits for: the first of its lines, from the innermost on, that tells."""
    for line in chain:
        module = _module(line)
        found = kind_of(module, line.function)
        if found is not None:
            return found
        if waits_for_tasks(module, line.function) or waits_for_tasks(
            module, _plain(line).replace("_aexit", "__aexit__")
        ):
            return "task"
        if is_servers_own(line):
            return None
    return None


def loop_of(stack: Sequence[Line]) -> str | None:
    """The library whose event loop runs somewhere in this stack."""
    found = None
    for line in stack:
        name = next((name for file, name in _LOOPS.items() if _is_file(line, file)), None)
        found = name if found in (None, "asyncio") and name is not None else found
    return found


def polls(stack: Sequence[Line]) -> bool:
    """Whether the loop of this stack waits for events: no task runs."""
    return bool(stack) and any(_is_file(stack[0], file) and _plain(stack[0]) == name for file, name in _POLLS)


def _is_file(line: Line, file: str) -> bool:
    return line.file == file or line.file.endswith(f"/{file}")


def _module(line: Line) -> str:
    below = below_library(line.file)
    return below.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _plain(line: Line) -> str:
    return line.function.rpartition(".")[2]
