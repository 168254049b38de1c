"""What the loop's thread does, in a sentence: the first thing that somebody with a hung server wants to know."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from mcp_probe.launch.outside.shapes import Line, Look, Task, Thread
from mcp_probe.launch.outside.waits import below_library, place_among, polls

IDLE_CPU = 0.03
"""A loop that polls and uses less of a CPU has nothing to do. One tick of the kernel's clock is 0.033 of 0.3 s."""
BUSY_CPU = 0.5

State = Literal["waits", "held", "computes", "runs", "unknown"]
_IN_KERNEL = ("waits for events",)


@dataclass(frozen=True, slots=True)
class Verdict:
    """``state`` of one loop; ``sentences`` say it, the most important first."""

    state: State
    thread: Thread
    sentences: tuple[str, ...]


def verdicts(look: Look) -> tuple[Verdict, ...]:
    """One for each event loop; for the main thread where no loop can be told."""
    loops = look.loops or look.threads[:1]
    return tuple(_verdict(look, thread) for thread in loops)


def running_task(look: Look, thread: Thread) -> Task | None:
    """The task whose step runs on ``thread``: its coroutine stands in that thread's stack."""
    here = [task for task in look.tasks or () if task.thread == thread.id and task.chain]
    return next((task for task in here if _stands_in(task.chain, thread.stack)), None)


def is_idle(look: Look, thread: Thread) -> bool:
    """Whether the loop of ``thread`` waits for events, at both looks as far as they tell."""
    if thread.stack:
        if running_task(look, thread) is not None:
            return False
        return polls(thread.stack) or (not thread.is_same and polls(thread.later)) or _polls_in_kernel(look, thread)
    return _polls_in_kernel(look, thread)


def _polls_in_kernel(look: Look, thread: Thread) -> bool:
    """uvloop polls below whatever line has started it. Without lines that is all that can be known."""
    is_loop = thread.loop is not None or not thread.stack
    return is_loop and (thread.kernel or "").startswith(_IN_KERNEL) and (thread.is_same or not thread.stack)


def _verdict(look: Look, thread: Thread) -> Verdict:
    who = "The event loop" if thread.loop else "The main thread"
    named = f"{who} (thread {thread.id})"
    if is_idle(look, thread):
        return _waiting(look, thread, named)
    if not thread.stack:
        return Verdict("unknown", thread, (f"{named}: {thread.kernel or 'nothing is known of it'}{_cpu(thread)}.",))
    place = place_among(thread.stack) or thread.stack[0]
    task = running_task(look, thread)
    where = f"{at(place)}{_callee(place, thread.stack)}{_of(task)}"
    if not thread.is_same:
        then = place_among(thread.later) or (thread.later[0] if thread.later else None)
        moved = "" if then is None or then == place else f", then {at(then)}"
        return Verdict("runs", thread, (f"{named} runs: it was in {where}{moved}{_cpu(thread)}.",))
    # Where others take the CPU a line that computes gets little of it; the kernel still says that it wants it.
    if (thread.cpu or 0.0) >= BUSY_CPU or (thread.kernel or "").startswith("runs"):
        said = f"{named} is held by {where}, which computes{_cpu(thread)}."
        return Verdict("computes", thread, (said, "Nothing else on this loop runs until that line returns."))
    kernel = "" if thread.kernel is None else f": the thread {thread.kernel}"
    said = f"{named} is held by {where}, which blocks{kernel}{_cpu(thread)}."
    return Verdict("held", thread, (said, "Nothing else on this loop runs until that line returns."))


def _waiting(look: Look, thread: Thread, named: str) -> Verdict:
    if thread.cpu is not None and thread.cpu >= IDLE_CPU:
        return Verdict("runs", thread, (f"{named} goes on: it waited for events when looked at{_cpu(thread)}.",))
    sentences = [f"{named} waits for events, and has nothing to run{_cpu(thread)}."]
    here = [task for task in look.tasks or () if task.thread == thread.id]
    locked = [task for task in here if task.kind in ("lock", "semaphore", "limiter", "condition")]
    if locked:
        sentences.append(_of_locks(locked, here))
    return Verdict("waits", thread, tuple(sentences))


def _of_locks(locked: list[Task], here: list[Task]) -> str:
    what = "a lock" if all(task.kind == "lock" for task in locked) else "a lock or the like"
    who = f"{len(locked)} tasks wait" if len(locked) > 1 else "1 task waits"
    said = f"{who} for {what}. Who holds it is suspended itself, or gone without having released it."
    others = [task for task in here if task not in locked and task.place is not None]
    if not others and len(locked) > 1:
        said += (
            " No other task of the server's own code is there, so these wait for each other, or for one that is gone."
        )
    return said


def _stands_in(chain: tuple[Line, ...], stack: tuple[Line, ...]) -> bool:
    """A suspended task may be at the same function as one that runs; the whole chain is compared."""
    return any(stack[first : first + len(chain)] == chain for first in range(len(stack)))


def _of(task: Task | None) -> str:
    return "" if task is None else f" (task {task.name})"


def _callee(place: Line, stack: tuple[Line, ...]) -> str:
    inner = stack[0]
    return "" if inner == place else f", in {inner.function} ({below_library(inner.file)}:{inner.line})"


def at(line: Line) -> str:
    """``deadlock_a, hung.py:5``."""
    return f"{line.function}, {short(line)}"


def short(line: Line) -> str:
    """``hung.py:5``, below the working directory or the library's folder."""
    from mcp_probe.report.places import short_path, working_directory

    return f"{short_path(line.file, working_directory())}:{line.line}"


def _cpu(thread: Thread) -> str:
    return "" if thread.cpu is None else f", at {thread.cpu:.0%} of a CPU"
