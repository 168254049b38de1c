"""What a suspended call waits for, told by the code it is suspended in.

Names that people import (``from asyncio import sleep``) escape a hook on a module; the code object is the same.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from types import CodeType, FrameType, ModuleType
from typing import Any

from mcp_probe.model import AwaitKind

_BY_FUNCTION: dict[tuple[str, str], AwaitKind] = {
    ("asyncio.tasks", "sleep"): "sleep",
    ("anyio._core._eventloop", "sleep"): "sleep",
    ("anyio._core._eventloop", "sleep_until"): "sleep",
    ("anyio._core._eventloop", "sleep_forever"): "sleep",
    ("trio._timeouts", "sleep"): "sleep",
    ("trio._timeouts", "sleep_until"): "sleep",
    ("trio._timeouts", "sleep_forever"): "sleep",
    ("asyncio.base_events", "getaddrinfo"): "connect",
    ("asyncio.base_events", "create_connection"): "connect",
    ("asyncio.base_events", "run_in_executor"): "thread",
    ("asyncio.threads", "to_thread"): "thread",
    ("anyio.to_thread", "run_sync"): "thread",
    ("anyio.to_process", "run_sync"): "subprocess",
    ("trio._threads", "to_thread_run_sync"): "thread",
    ("anyio._core._subprocesses", "run_process"): "subprocess",
    ("trio._subprocess", "run_process"): "subprocess",
    ("anyio._core._sockets", "connect_tcp"): "connect",
    ("anyio.streams.memory", "receive"): "queue",
    ("anyio.streams.memory", "send"): "queue",
    ("trio._channel", "receive"): "queue",
    ("trio._channel", "send"): "queue",
    ("time", "sleep"): "sleep",
    ("threading", "join"): "thread",
    ("threading", "_wait_for_tstate_lock"): "thread",
    ("concurrent.futures._base", "result"): "task",
    ("concurrent.futures._base", "wait"): "task",
    ("concurrent.futures._base", "as_completed"): "task",
    ("socket", "create_connection"): "connect",
    ("socket", "getaddrinfo"): "connect",
    ("os", "waitpid"): "subprocess",
    ("posix", "waitpid"): "subprocess",
}

_BY_MODULE: dict[str, AwaitKind] = {
    "asyncio.queues": "queue",
    "asyncio.subprocess": "subprocess",
    "asyncio.base_subprocess": "subprocess",
    "anyio._core._subprocesses": "subprocess",
    "trio._subprocess": "subprocess",
    "subprocess": "subprocess",
    "queue": "queue",
    "sqlite3": "db",
    "http.client": "http",
    "urllib.request": "http",
}

_BY_CLASS: dict[str, AwaitKind] = {
    "Lock": "lock",
    "StrictFIFOLock": "lock",
    "Semaphore": "semaphore",
    "BoundedSemaphore": "semaphore",
    "CapacityLimiter": "limiter",
    "Condition": "condition",
    "Event": "event",
    "Barrier": "event",
}

_SYNCHRONISATION = frozenset({
    "asyncio.locks", "threading", "anyio._backends._asyncio", "anyio._backends._trio", "anyio._core._synchronization",
    "trio._sync",
})  # fmt: skip

_BY_PACKAGE: dict[str, AwaitKind] = {
    "requests": "http",
    "urllib3": "http",
    "httpx": "http",
    "httpx2": "http",
    "httpcore": "http",
    "httpcore2": "http",
    "aiohttp": "http",
    "elasticsearch": "http",
    "elastic_transport": "http",
    "asyncpg": "db",
    "psycopg": "db",
    "psycopg_pool": "db",
    "sqlalchemy": "db",
    "aiosqlite": "db",
    "redis": "db",
    "motor": "db",
    "pymongo": "db",
    "aiomysql": "db",
    "asyncmy": "db",
    "duckdb": "db",
    "psycopg2": "db",
    "pymysql": "db",
    "MySQLdb": "db",
    "mysql": "db",
    "valkey": "db",
    "clickhouse_connect": "db",
    "clickhouse_driver": "db",
    "neo4j": "db",
    "cassandra": "db",
    "snowflake": "db",
    "oracledb": "db",
    "pyodbc": "db",
    "aioodbc": "db",
    "peewee": "db",
    "docker": "http",
    "aiodocker": "http",
    "mcp": "http",
    "fastmcp": "http",
}

_WAITS_FOR_TASKS = frozenset({
    ("asyncio.taskgroups", "__aexit__"), ("asyncio.tasks", "wait"), ("asyncio.tasks", "_wait"),
    ("asyncio.tasks", "wait_for"), ("asyncio.tasks", "_wait_for_one"), ("asyncio.timeouts", "wait_for"),
    ("anyio._backends._asyncio", "__aexit__"), ("anyio._backends._trio", "__aexit__"),
    ("trio._core._run", "__aexit__"), ("trio._core._run", "_nested_child_finished"),
})  # fmt: skip
"""Calls that wait for tasks. What those wait for is what their caller waits for, if they are the request's own."""


def kind_of(module: str, function: str) -> AwaitKind | None:
    """What a frame of ``function`` in ``module`` that is suspended waits for; ``None``: this one does not tell."""
    name = function.rpartition(".")[2]
    if module.startswith(("mcp.", "fastmcp.")) and not module.startswith(("mcp.client.", "fastmcp.client.")):
        return None
    known = _BY_FUNCTION.get((module, name)) or _BY_MODULE.get(module)
    if known is None and module in _SYNCHRONISATION:
        known = _synchronises(function)
    return known or _BY_PACKAGE.get(module.partition(".")[0])


def _synchronises(function: str) -> AwaitKind | None:
    """anyio keeps its sockets and processes beside its locks: those are none."""
    owner, _, name = function.rpartition(".")
    known = _BY_CLASS.get(owner.rpartition(".")[2].removesuffix("Adapter"))  # of what is made outside a loop
    if known is None and (owner.startswith("_") or not owner) and name in _WAITING:
        return "event"  # of a class that all of them inherit, or before CPython 3.11: the object tells its kind
    return known


_WAITING = frozenset({"acquire", "acquire_on_behalf_of", "wait", "__aenter__"})


def waits_for_tasks(module: str, function: str) -> bool:
    """Whether a suspended frame there waits for tasks."""
    return (module, function.rpartition(".")[2]) in _WAITS_FOR_TASKS


@dataclass(frozen=True, slots=True)
class CallSite:
    """What of a frame says which function its instruction calls; the names are those of a frame."""

    f_code: CodeType
    f_lasti: int
    f_globals: dict[str, Any]
    f_builtins: dict[str, Any]

    def name(self) -> str | None:
        """As :func:`callee_of` has it."""
        key = self.f_code, self.f_lasti
        known = _callees.get(key)  # another thread may clear it meanwhile
        if known is None:
            if len(_callees) >= MAX_CALLEES:
                _callees.clear()
            known = _callees[key] = (callee_of(self, path_of_callee(self)),)
        return known[0]


MAX_CALLEES = 1_024
_callees: dict[tuple[CodeType, int], tuple[str | None]] = {}


def callee_of(frame: FrameType | CallSite, path: tuple[str, ...]) -> str | None:
    """``time.sleep`` where the instruction of ``frame`` calls a function that no frame is of; ``None``: not known.

    ``path`` is that of :func:`path_of_callee`. Only globals and attributes of modules are looked at.
    """
    if not path:
        return None
    thing: Any = frame.f_globals.get(path[0], frame.f_builtins.get(path[0]))
    for name in path[1:]:
        if not isinstance(thing, ModuleType):
            return ".".join(path)
        thing = vars(thing).get(name)
    module, function = getattr(thing, "__module__", None), getattr(thing, "__qualname__", None)
    return f"{module}.{function}" if isinstance(module, str) and isinstance(function, str) else ".".join(path)


def lock_of(path: tuple[str, ...]) -> str | None:
    """How a lock is written that :func:`path_of_callee` takes; ``None`` where it takes none.

    No frame is of what a lock runs. A context manager of C that blocks while it is entered is taken for one.
    """
    return ".".join(path[:-1]) if len(path) > 1 and path[-1] in ("acquire", _ENTER) else None


def global_lock(frame: FrameType, written: str) -> tuple[str, Any] | None:
    """(its class as users know it, the lock) of a module's variable.

    Whoever asks a running frame for its own variables keeps them alive.
    """
    thing = frame.f_globals.get(written)
    label = _LOCKS.get(type(thing))
    return None if label is None else (label, thing)


def is_taken(lock: Any) -> bool:
    """Whether it is a lock of ``threading`` that somebody holds. Before CPython 3.14 an RLock says so only as text."""
    return type(lock) in _LOCKS and repr(lock).startswith("<locked ")


_ENTER = "__enter__"
_LOCKS: dict[type, str] = {type(threading.Lock()): "threading.Lock", type(threading.RLock()): "threading.RLock"}


def path_of_callee(frame: FrameType | CallSite) -> tuple[str, ...]:
    """The names that the callee of a call is written with: those that begin where the call's own text begins.

    Where a ``with`` enters something, its names and ``__enter__``. Empty where they are not known, as in CPython 3.10.
    """
    import dis  # here: a server may not need it

    if not hasattr(frame.f_code, "co_positions"):
        return ()
    found: list[str] = []
    instructions: list[Any] = list(dis.get_instructions(frame.f_code))
    call = next((one for one in reversed(instructions) if one.offset <= frame.f_lasti), None)  # caches lie after it
    if call is None or not call.opname.startswith(("CALL", "PRECALL", "BEFORE_WITH")) or call.positions is None:
        return ()
    before = instructions[instructions.index(call) - 1]
    enters = call.opname == "BEFORE_WITH" or before.opname == "LOAD_SPECIAL"  # the latter from CPython 3.14 on
    text = before.positions if call.opname == "BEFORE_WITH" else call.positions  # that has the whole statement's
    for one in instructions:
        at = one.positions
        if one is call:
            break
        if at is None or (at.lineno, at.col_offset) != (text.lineno, text.col_offset):
            continue
        if one.opname.startswith(("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FAST", "LOAD_DEREF")):
            found = [str(one.argval)]
        elif one.opname.startswith(("LOAD_ATTR", "LOAD_METHOD")) and found:
            found.append(str(one.argval))
        elif one.opname.startswith("CALL") and enters:
            return ()  # what a call has made has no name
    return (*found, _ENTER) if enters and found else tuple(found)


def class_of(thing: Any) -> str | None:
    """``asyncio.Lock`` for an object that is awaited itself, by the name its users know; ``None`` for others."""
    cls = type(thing)
    library = cls.__module__.partition(".")[0]
    if library not in ("asyncio", "anyio", "trio"):
        return None
    return f"{library}.{cls.__name__}" if cls.__name__ in _NAMED else None


def kind_of_class(label: str) -> AwaitKind | None:
    """The kind of an object that :func:`class_of` has named."""
    name = label.rpartition(".")[2]
    return "queue" if name.endswith("Queue") else _BY_CLASS.get(name)


_NAMED = frozenset({*_BY_CLASS, "Queue", "LifoQueue", "PriorityQueue"})
