"""The look from outside as text: what the loop does, each task's await chain, the threads, and what was not seen."""

from __future__ import annotations

import dataclasses
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, TextIO

from mcp_probe.launch.outside.shapes import Line, Look, Task, Thread
from mcp_probe.launch.outside.target import shown
from mcp_probe.launch.outside.verdict import Verdict, is_idle, running_task, short, verdicts
from mcp_probe.launch.outside.waits import below_library, is_servers_own
from mcp_probe.report.blocks import Block, Box, Heading, Paragraph, Role, Span, Spans
from mcp_probe.report.console import draw

FORMAT = 1
"""Of :func:`as_json`. 1: the first."""
_SHOWN_NAMES = 3
_LONGEST_NAME = 40
_NAME_PARTS = 4
_SHOWN_GROUPS = 40
_MEANS = {
    "interpreter": "read by the server's own interpreter",
    "py-spy": "read by py-spy",
    "kernel": "known to the kernel only",
}
_WAITS = {
    "lock": "a lock",
    "semaphore": "a semaphore",
    "limiter": "a limiter",
    "condition": "a condition",
    "event": "an event",
    "queue": "a queue",
    "connection-pool": "a connection of a pool",
    "connect": "a connection",
    "http": "an HTTP backend",
    "db": "a database",
    "subprocess": "a subprocess",
    "sleep": "a timer",
    "thread": "a worker thread",
    "task": "other tasks",
    "client": "its client",
}
_FIRST = ("lock", "semaphore", "limiter", "condition", "connection-pool")
_OTHERS = len(_FIRST)
_ROLES: dict[str, Role] = {
    "held": "critical",
    "computes": "critical",
    "waits": "warn",
    "runs": "info",
    "unknown": "info",
}


def as_text(look: Look, stream: TextIO, *, width: int | None = None, color: bool | None = None) -> str:
    """What a terminal gets."""
    return draw(_blocks(look), stream, width=width, color=color)


def as_json(look: Look) -> dict[str, Any]:
    """For programs: the shapes as they are, and the verdicts."""
    said = [{"thread": one.thread.id, "state": one.state, "sentences": one.sentences} for one in verdicts(look)]
    return {"format": FORMAT, **dataclasses.asdict(look), "verdicts": said}


def _blocks(look: Look) -> Iterator[Block]:
    yield Paragraph(
        (Span(f"process {look.pid}", "strong"), Span(f" · Python {look.python} · {shown(look.command)}", "dim"))
    )
    for verdict in verdicts(look):
        yield _box(look, verdict)
    if look.tasks is not None:
        yield from _tasks(look, look.tasks)
    yield from _threads(look)
    if look.unseen:
        yield Heading("Not seen")
        for sentence in look.unseen:
            yield Paragraph((Span(sentence),), indent=2)


def _box(look: Look, verdict: Verdict) -> Box:
    titles = {
        "waits": "The event loop waits",
        "held": "The event loop is blocked",
        "computes": "The event loop computes",
        "runs": "The event loop goes on",
        "unknown": "What the event loop does is not known",
    }
    title = titles[verdict.state]
    if verdict.thread.loop is None:
        title = title.replace("The event loop", "The main thread").replace("the event loop", "the main thread")
    return Box(
        title=title,
        aside=f"two looks, {look.between_s:g} s apart",
        role=_ROLES[verdict.state],
        body=tuple(Paragraph((Span(sentence),)) for sentence in verdict.sentences),
    )


# ---- tasks ----


def _tasks(look: Look, tasks: Sequence[Task]) -> Iterator[Block]:
    yield Heading(f"Tasks: {len(tasks)}", _MEANS[look.means])
    own = [task for task in tasks if task.place is not None]
    rest = [task for task in tasks if task.place is None]
    groups = [list(group) for _, group in groupby(sorted(own, key=_alike), key=_alike)]
    groups.sort(key=lambda group: (_rank(group[0]), -len(group)))
    running = {task for task in (running_task(look, thread) for thread in look.loops) if task is not None}
    for group in groups[:_SHOWN_GROUPS]:
        yield from _task(group, any(task in running for task in group))
    if len(groups) > _SHOWN_GROUPS:
        left = sum(map(len, groups[_SHOWN_GROUPS:]))
        yield Paragraph((Span(f"and {left} more tasks; `--json` has all of them", "dim"),), indent=2)
    if rest:
        yield Paragraph((Span(f"{len(rest)} of the SDK and other libraries", "dim"),), indent=2)
        for _, alike in groupby(sorted(rest, key=_alike), key=_alike):
            some = list(alike)
            inner = _label(some[0].chain[0]) if some[0].chain else "not begun yet"
            yield Paragraph((Span(f"{_names(some)}: {inner}", "dim"),), indent=4)


def _alike(task: Task) -> tuple[Any, ...]:
    return tuple((line.file, line.line, line.function) for line in task.chain)


def _rank(task: Task) -> int:
    return _FIRST.index(task.kind) if task.kind in _FIRST else _OTHERS + (task.kind == "task")


def _task(group: Sequence[Task], runs: bool) -> Iterator[Block]:
    first = group[0]
    waits = "runs" if runs else f"waits for {_WAITS[first.kind]}" if first.kind else "is suspended"
    if len(group) > 1:
        waits = waits.replace("waits", "wait", 1).replace("is suspended", "are suspended")
    role: Role = "warn" if _rank(first) < _OTHERS else "plain"
    title = first.place.function if first.place is not None else _names(group)
    times = f" ×{len(group)}" if len(group) > 1 else ""
    yield Paragraph((Span(f"{title}{times}", "strong"), Span(f" · {waits}", role)), indent=2)
    yield Paragraph(_chain(first.chain), indent=6)
    awaiting = sorted({name for task in group for name in task.awaited_by})
    above = f", awaited by {', '.join(map(_name, awaiting[:_SHOWN_NAMES]))}" if awaiting else ""
    yield Paragraph((Span(f"task {_names(group)}{above}", "dim"),), indent=6)


def _names(group: Sequence[Task]) -> str:
    names = [f"{name} ×{times}" if times > 1 else name for name, times in Counter(_name(t.name) for t in group).items()]
    more = len(names) - _SHOWN_NAMES
    listed = ", ".join(names[:_SHOWN_NAMES])
    return f"{listed} and {more} more" if more > 0 else listed


def _name(name: str) -> str:
    """anyio names tasks by module and function: the function is enough."""
    parts = name.split(".")
    return name if len(name) <= _LONGEST_NAME or " " in name else ".".join(parts[-_NAME_PARTS:])


def _chain(chain: Sequence[Line]) -> Spans:
    """Outermost first. Several lines of libraries in a row are counted; the innermost line is always shown."""
    spans: list[Span] = []
    inner = len(chain) - 1
    lines = list(enumerate(reversed(chain)))
    for own, run in groupby(lines, key=lambda pair: is_servers_own(pair[1])):
        here = list(run)
        if not own and len(here) > 2:
            kept = here[-1:] if here[-1][0] == inner else []
            folded = here[: len(here) - len(kept)]
            packages = sorted({below_library(line.file).split("/")[0].removesuffix(".py") for _, line in folded})
            spans += [Span(" → ", "dim"), Span(f"{len(folded)} lines of {', '.join(packages[:4])}", "dim")]
            here = kept
        for _, line in here:
            spans += [Span(" → ", "dim"), *_labelled(line, own)]
    return tuple(spans[1:])


def _labelled(line: Line, own: bool) -> Spans:
    return (Span(line.function, "name" if own else "dim"), Span(f" {short(line)}", "place" if own else "dim"))


def _label(line: Line) -> str:
    return f"{line.function} {short(line)}"


# ---- threads ----


def _threads(look: Look) -> Iterator[Block]:
    aside = _MEANS["kernel"] if look.means == "kernel" else "" if look.tasks is not None else _MEANS[look.means]
    yield Heading(f"Threads: {len(look.threads)}", aside)
    for group in _grouped(look.threads):
        thread = group[0]
        name = _thread_names(group)
        idle = is_idle(look, thread) if thread.loop else False
        said = "polls for events" if idle else thread.kernel or ""
        same = "" if not thread.stack or thread.is_same or idle else ", moves on"
        cpu = "" if thread.cpu is None or thread.cpu < 0.01 else f", {thread.cpu:.0%} of a CPU"
        loop = f" · event loop ({thread.loop})" if thread.loop else ""
        yield Paragraph((Span(name, "strong"), Span(f"{loop} · {said}{same}{cpu}")), indent=2)
        if thread.stack and not idle:
            yield Paragraph(_chain(thread.stack), indent=6)


def _grouped(threads: Sequence[Thread]) -> Iterator[list[Thread]]:
    """Idle workers of one pool are one line."""
    found: dict[tuple[Any, ...], list[Thread]] = {}
    for thread in threads:
        key = (thread.stack, thread.later, thread.kernel) if thread.stack and not thread.loop else (thread.id,)
        found.setdefault(key, []).append(thread)
    yield from found.values()


def _thread_names(group: Sequence[Thread]) -> str:
    named = [f"{thread.name} ({thread.id})" if thread.name else str(thread.id) for thread in group]
    more = len(named) - _SHOWN_NAMES
    listed = ", ".join(named[:_SHOWN_NAMES])
    return f"{listed} and {more} more" if more > 0 else listed


def program_of(command: tuple[str, ...]) -> str:
    """What people call this process: its script, or the module it runs."""
    for position, word in enumerate(command[1:], 1):
        if word == "-m" and position + 1 < len(command):
            return command[position + 1]
        if not word.startswith("-"):
            return os.path.basename(word)
    return os.path.basename(command[0]) if command else "?"
