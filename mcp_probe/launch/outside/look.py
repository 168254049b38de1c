"""Looks at a process from outside: by its own interpreter where that can, else by py-spy, else by /proc alone."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mcp_probe.errors import AttachError
from mcp_probe.launch.outside import kernel, py_spy
from mcp_probe.launch.outside.shapes import Line, Look, Means, Task, Thread
from mcp_probe.launch.outside.target import Target, permission_advice
from mcp_probe.launch.outside.waits import kind_among, loop_of, place_among

BETWEEN_S = 0.3
"""Between two looks at the threads: thirty times what the kernel counts CPU time in."""
OLDEST = (3, 14)
LIMIT_S = 30.0
_STACKS = Path(__file__).with_name("stacks.py")
_UNPRINTABLE = re.compile(r"[^ -~\u00a1-\ud7ff\ue000-\ufffd]")

Stacks = Mapping[int, tuple[Line, ...]]


class _Unseen(Exception):
    """One way to look does not work here; the message says why."""


def look(target: Target, *, between_s: float = BETWEEN_S) -> Look:
    """What ``target`` does now. Takes some ``between_s``; nothing of it is stopped or changed.

    Raises: AttachError where the process ended meanwhile.
    """
    unseen: list[str] = []
    found = None
    if target.version >= OLDEST:
        try:
            found = _by_interpreter(target, between_s, unseen)
        except _Unseen as exc:
            unseen.append(str(exc))
    if found is None:
        try:
            found = _by_py_spy(target, between_s, unseen)
        except _Unseen as exc:
            unseen.append(str(exc))
            found = _by_kernel(target, between_s, unseen)
    if not found.threads:
        raise AttachError(f"Process {target.pid} ended while it was looked at.")
    return found


def _by_interpreter(target: Target, between_s: float, unseen: list[str]) -> Look:
    if target.unaskable:
        raise _Unseen(f"Tasks: {target.unaskable}.")
    before, began = kernel.threads(target.pid), time.monotonic()
    told = _ask(target, between_s)
    after, took_s = kernel.threads(target.pid), time.monotonic() - began
    for what, kind, text in told["faults"]:
        if kind == "PermissionError" or "ermission" in text:
            raise _Unseen(f"Lines and tasks: process {target.pid} may not be read. {permission_advice(target)}")
        if what == "threads_of":
            raise _Unseen(f"Lines: Python {target.python} could not read process {target.pid} ({_printable(text)}).")
    first, later = _stacks(told["first"]), _stacks(told["later"])
    tasks = None if told["tasks"] is None else _tasks(told["tasks"])
    threads = _threads(target.pid, first, later, before, after, took_s, {task.thread for task in tasks or ()})
    if tasks is None:
        loops = {thread.loop for thread in threads}
        unseen.append(
            "Tasks: trio's cannot be read from outside; only asyncio's can."
            if loops == {"trio"} or loops == {None, "trio"}
            else f"Tasks: this process has loaded no asyncio that shows them ({_printable(told['faults'][-1][2])})."
        )
    elif not tasks and any(thread.loop == "trio" for thread in threads):
        tasks = None
        unseen.append("Tasks: trio's cannot be read from outside; only asyncio's can.")
    if any(task.kind == "lock" for task in tasks or ()):
        unseen.append("Who holds a lock: a lock does not say so to anyone outside its process.")
    return _look(target, "interpreter", threads, tasks, between_s, unseen)


def _by_py_spy(target: Target, between_s: float, unseen: list[str]) -> Look:
    before, began = kernel.threads(target.pid), time.monotonic()
    try:
        seen = py_spy.stacks(target.pid)
        time.sleep(between_s)
        again = py_spy.stacks(target.pid)
    except py_spy.Failed as exc:
        raise _Unseen(f"Lines: {exc}.") from exc
    except PermissionError:
        raise _Unseen(f"Lines: process {target.pid} may not be read. {permission_advice(target)}") from None
    after, took_s = kernel.threads(target.pid), time.monotonic() - began
    names = {thread: _printable(name) for thread, (name, _) in seen.items() if name}
    first = {thread: lines for thread, (_, lines) in seen.items()}
    later = {thread: lines for thread, (_, lines) in again.items()}
    threads = _threads(target.pid, first, later, before, after, took_s, set(), names)
    if target.version < OLDEST:
        unseen.append(
            f"Tasks: a suspended task of Python {target.python} cannot be seen from outside; from 3.14 on it can."
        )
    return _look(target, "py-spy", threads, None, between_s, unseen)


def _by_kernel(target: Target, between_s: float, unseen: list[str]) -> Look:
    before, began = kernel.threads(target.pid), time.monotonic()
    time.sleep(between_s)
    after, took_s = kernel.threads(target.pid), time.monotonic() - began
    return _look(target, "kernel", _threads(target.pid, {}, {}, before, after, took_s, set()), None, between_s, unseen)


def _look(
    target: Target,
    means: Means,
    threads: tuple[Thread, ...],
    tasks: tuple[Task, ...] | None,
    between_s: float,
    unseen: list[str],
) -> Look:
    return Look(target.pid, target.command, target.python, means, threads, tasks, between_s, tuple(unseen))


def _ask(target: Target, between_s: float) -> dict[str, Any]:
    # -S and -I: nothing that this user or its folder has installed is run. PYTHON* of ours is not theirs.
    command = [target.interpreter, "-I", "-S", "-B", str(_STACKS), str(target.pid), str(between_s)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=LIMIT_S, stdin=subprocess.DEVNULL, env=environment
        )
        found: dict[str, Any] = json.loads(done.stdout)
    except (OSError, subprocess.TimeoutExpired, ValueError) as exc:
        raise _Unseen(f"Lines and tasks: {target.executable} could not be asked ({type(exc).__name__}).") from exc
    return found


def _stacks(told: Mapping[str, list[Any]] | None) -> dict[int, tuple[Line, ...]]:
    return {int(thread): _lines(frames) for thread, frames in (told or {}).items()}


def _lines(frames: Sequence[Sequence[Any]]) -> tuple[Line, ...]:
    return tuple(Line(_printable(file), int(line), _printable(function)) for file, line, function in frames)


def _tasks(told: Sequence[Mapping[str, Any]]) -> tuple[Task, ...]:
    names = {row["id"]: _printable(row["name"]) for row in told}
    found = []
    for row in told:
        chain = _lines(row["chain"])
        awaiting = tuple(names[one] for one in row["awaited_by"] if one in names)
        found.append(Task(names[row["id"]], row["thread"], chain, awaiting, kind_among(chain), place_among(chain)))
    return tuple(found)


def _threads(
    pid: int,
    first: Stacks,
    later: Stacks,
    before: Mapping[int, kernel.KernelThread],
    after: Mapping[int, kernel.KernelThread],
    took_s: float,
    loops: set[int],
    names: Mapping[int, str] | None = None,
) -> tuple[Thread, ...]:
    """The main thread first. Where Python's threads are known, those that libraries in C have made are left out."""
    found = []
    for number in sorted((first or after).keys() & before.keys(), key=lambda one: (one != pid, one)):
        known, now = before[number], after.get(number)
        spent = None
        if now is not None and now.cpu_s is not None and known.cpu_s is not None:
            spent = min(1.0, (now.cpu_s - known.cpu_s) / took_s)
        stack = first.get(number, ())
        loop = loop_of(stack) or ("asyncio" if number in loops else None)
        name = (names or {}).get(number) or _printable(known.name)
        doing = (now or known).doing
        found.append(Thread(number, name, stack, later.get(number, ()), spent, doing, loop))
    return tuple(found)


def _printable(text: object) -> str:
    """What another process calls its tasks may hold anything."""
    return _UNPRINTABLE.sub("\ufffd", str(text))[:300]
