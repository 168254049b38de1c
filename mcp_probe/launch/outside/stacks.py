"""Run by the server's own interpreter, which alone knows how its memory is laid out: prints stacks and tasks as JSON.

``-m asyncio pstree`` reads the same module. Its text has no threads, and no numbers of them beside the tasks.
Standard library only, for CPython 3.14 and newer. The other process is not stopped. So what is read while it runs may
not fit together, and is read again then.

Source: asyncio/tools.py, Modules/_remote_debugging, CPython 3.14 and 3.15.
"""

from __future__ import annotations

import importlib
import json
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

ATTEMPTS = 25


def line_of(frame: Any) -> list[Any]:
    """[file, line, function]. CPython 3.15 has the line in a location, which native frames lack."""
    line = getattr(frame, "lineno", None)
    if line is None:
        line = getattr(getattr(frame, "location", None), "lineno", 0)
    return [str(frame.filename), int(line or 0), str(frame.funcname)]


def _unwinder(pid: int, **options: Any) -> Any:
    return importlib.import_module("_remote_debugging").RemoteUnwinder(pid, **options)


def threads_of(pid: int) -> dict[int, list[Any]]:
    """Of each thread its lines, innermost first."""
    found = _unwinder(pid, all_threads=True).get_stack_trace()
    if found and hasattr(found[0], "threads"):  # one for each interpreter, from CPython 3.15 on
        found = [thread for interpreter in found for thread in interpreter.threads]
    return {thread.thread_id: [line_of(frame) for frame in thread.frame_info] for thread in found}


def tasks_of(pid: int) -> list[dict[str, Any]]:
    """Every asyncio task: thread, id, name, its awaits, and the ids of tasks that await it."""
    return [
        {
            "thread": row.thread_id,
            "id": task.task_id,
            "name": str(task.task_name),
            "chain": [line_of(frame) for part in task.coroutine_stack for frame in part.call_stack],
            "awaited_by": [part.task_name for part in task.awaited_by],
        }
        for row in _unwinder(pid).get_all_awaited_by()
        for task in row.awaited_by
    ]


def tried(read: Callable[[int], Any], pid: int, faults: list[list[str]]) -> Any:
    """What ``read`` gives at last; ``None`` where it fails each time."""
    fault: BaseException | None = None
    for _ in range(ATTEMPTS):
        try:
            return read(pid)
        except Exception as exc:  # noqa: BLE001 - whatever it met in memory that changes
            fault = exc
            time.sleep(0.01)
    while fault is not None and fault.__cause__ is not None and not isinstance(fault, PermissionError):
        fault = fault.__cause__
    faults.append([read.__name__, type(fault).__name__, str(fault)])
    return None


def main(pid: int, between_s: float) -> None:
    """Two looks at the threads, and one at the tasks."""
    faults: list[list[str]] = []
    first = tried(threads_of, pid, faults)
    began = time.monotonic()
    tasks = tried(tasks_of, pid, faults)
    time.sleep(max(0.0, between_s - (time.monotonic() - began)))
    later = None if first is None else tried(threads_of, pid, faults)
    sys.stdout.write(json.dumps({"first": first, "later": later, "tasks": tasks, "faults": faults}))


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
