"""What was seen of a process from outside, whatever tool saw it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from mcp_probe.model import AwaitKind

Means = Literal["interpreter", "py-spy", "kernel"]
"""The server's own interpreter (its module ``_remote_debugging``), py-spy, or only /proc."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line that a function is at."""

    file: str
    line: int
    function: str


@dataclass(frozen=True, slots=True)
class Thread:
    """One thread at two looks, ``Look.between_s`` apart. Stacks have the innermost line first.

    ``cpu`` is the share of one CPU that it used between the looks; ``kernel`` what the kernel says it waits in.
    """

    id: int
    name: str
    stack: tuple[Line, ...]
    later: tuple[Line, ...]
    cpu: float | None
    kernel: str | None = None
    loop: str | None = None
    """The library whose event loop runs on it."""

    @property
    def is_same(self) -> bool:
        """Both looks found it at the same line."""
        return bool(self.stack) and self.stack == self.later


@dataclass(frozen=True, slots=True)
class Task:
    """One asyncio task; its chain of awaits has the innermost line first. ``awaited_by`` names tasks."""

    name: str
    thread: int
    chain: tuple[Line, ...]
    awaited_by: tuple[str, ...]
    kind: AwaitKind | None = None
    """What it waits for, where its chain tells."""
    place: Line | None = None
    """The line of the server's own code; ``None`` for a task of libraries only."""


@dataclass(frozen=True, slots=True)
class Look:
    """A process at one time. ``tasks`` is ``None`` where they cannot be seen; ``unseen`` says what and why."""

    pid: int
    command: tuple[str, ...]
    python: str
    means: Means
    threads: tuple[Thread, ...]
    tasks: tuple[Task, ...] | None
    between_s: float
    unseen: tuple[str, ...]

    @property
    def loops(self) -> tuple[Thread, ...]:
        """The threads on which an event loop runs."""
        return tuple(thread for thread in self.threads if thread.loop is not None)
