"""A server with a tool for each way to keep memory: fifteen that leak, and eight that only look as if they did.

Each tool keeps what its docstring says. :data:`KINDS` says what a call keeps for ever, where it was allocated, and who
can be told to own it. An innocent is full after :data:`FILLED` calls. ``python benchmarks/memory_kinds.py`` serves on
stdin and stdout. It knows nothing of mcp_probe and needs only the ``mcp`` package.
"""

from __future__ import annotations

import asyncio
import contextvars
import ctypes
import importlib
import logging
import queue
import ssl
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, TypeVar

import httpx
from mcp.server import MCPServer

FILLED = 30
"""Calls after which every innocent keeps no more."""

LARGE = 100_000
"""Bytes a call that the kinds keep whose memory no tool allocates: enough to stand out from the process's noise."""

Owner = Literal["tool", "native", "none"]

server = MCPServer("memory kinds", log_level="WARNING")


@dataclass(frozen=True, slots=True)
class Kind:
    """One way to keep memory: what a call keeps (bytes, about), and who can be told to own it."""

    name: str
    owner: Owner
    call_bytes: int
    allocates: Callable[..., Any]  # the function that one of its lines allocates in

    @property
    def lines(self) -> tuple[str, range]:
        """File and lines of the function that allocates."""
        code = self.allocates.__code__
        last = max((line for _, _, line in code.co_lines() if line is not None), default=code.co_firstlineno)
        return code.co_filename, range(code.co_firstlineno, last + 1)


KINDS: dict[str, Kind] = {}


Tool = TypeVar("Tool", bound=Callable[..., Any])


def kind(owner: Owner, call_bytes: int, allocates: Callable[..., Any] | None = None) -> Callable[[Tool], Tool]:
    """Makes a function a tool, and says what a call of it keeps."""

    def add(function: Tool) -> Tool:
        KINDS[function.__name__] = Kind(function.__name__, owner, call_bytes, allocates or function)
        server.tool()(function)
        return function

    return add


# --- fifteen that leak --------------------------------------------------------------------------------

_history: list[bytes] = []


@kind("tool", 1_000)
async def module_list(number: int) -> int:
    """A list in the module."""
    _history.append(bytes(967))
    return len(_history)


_sessions: dict[int, dict[str, Any]] = {}


@kind("tool", 275)
async def dict_of_small_dicts(number: int) -> int:
    """A record of each call, by its number."""
    _sessions[number] = {"at": number * 1.5, "name": f"call {number}"}
    return len(_sessions)


@lru_cache(maxsize=None)  # noqa: UP033 - the leak
def _unbounded(number: int) -> bytes:
    return bytes(567)


@kind("tool", 700, _unbounded.__wrapped__)
async def unbounded_lru_cache(number: int) -> int:
    """A cache without a bound, and a new key in each call."""
    return len(_unbounded(number))


_callbacks: list[Callable[[], int]] = []


@kind("tool", 1_200)
async def closures_in_a_registry(number: int) -> int:
    """A callback for each call, whose closure holds its payload."""
    payload = [float(number + index) for index in range(32)]
    _callbacks.append(lambda: len(payload))
    return len(_callbacks)


_errors: list[BaseException] = []


@kind("tool", 2_500)
async def kept_tracebacks(number: int) -> int:
    """Exceptions, whose tracebacks hold frames, whose locals hold the payload."""
    payload = bytes(2_000)
    try:
        raise ValueError(len(payload))
    except ValueError as exc:
        _errors.append(exc)
    return len(_errors)


_tasks: list[asyncio.Task[int]] = []


async def _for_ever(payload: bytes) -> int:
    await asyncio.Event().wait()
    return len(payload)


@kind("tool", 6_000)
async def tasks_never_awaited(number: int) -> int:
    """A task for each call, which waits for what never comes."""
    _tasks.append(asyncio.create_task(_for_ever(bytes(2_000))))
    return len(_tasks)


_trail: contextvars.ContextVar[bytes] = contextvars.ContextVar("trail")
_contexts: list[contextvars.Context] = []


@kind("tool", 2_500)
async def context_variables(number: int) -> int:
    """A context variable's value, in a copy of each call's context."""
    _trail.set(bytes(2_000))
    _contexts.append(contextvars.copy_context())
    return len(_contexts)


class Handler:
    """Has a cache that all its instances share, by mistake."""

    seen: dict[int, bytes] = {}  # noqa: RUF012 - the leak

    def handle(self, number: int) -> int:
        """Remembers each number."""
        self.seen[number] = bytes(1_000)
        return len(self.seen)


@kind("tool", 1_100, Handler.handle)
async def class_attributes(number: int) -> int:
    """An attribute of the class where one of the instance was meant."""
    return Handler().handle(number)


_graveyard: list[Any] = []


class Undead:
    """A member of a cycle that its finalizer brings back."""

    def __init__(self) -> None:
        self.payload = bytes(1_500)
        self.itself = self

    def __del__(self) -> None:
        _graveyard.append(self)


@kind("tool", 1_700, Undead.__init__)
async def cycles_with_del(number: int) -> int:
    """Cycles whose `__del__` keeps them."""
    Undead()
    return len(_graveyard)


_local = threading.local()
_threads = ThreadPoolExecutor(max_workers=2)  # anyio's own threads end when they are idle, and their locals with them


def _remember() -> int:
    if not hasattr(_local, "seen"):
        _local.seen = []
    _local.seen.append(bytes(967))
    return len(_local.seen)


@kind("tool", 1_000, _remember)
async def thread_locals(number: int) -> int:
    """A list for each worker thread, which no call clears."""
    return await asyncio.get_running_loop().run_in_executor(_threads, _remember)


_open: list[Any] = []
_tls = ssl.create_default_context()


def _connect() -> httpx.AsyncClient:
    return httpx.AsyncClient(verify=_tls, timeout=5.0)


@kind("tool", 10_000, _connect)
async def unclosed_clients(number: int) -> int:
    """An HTTP client for each call, which is never closed."""
    _open.append(_connect())
    return len(_open)


_logger = logging.getLogger("memory_kinds")
_logger.propagate = False


@kind("tool", 300)
async def handlers_added_per_request(number: int) -> int:
    """A logging handler for each call."""
    _logger.addHandler(logging.NullHandler())
    return len(_logger.handlers)


_libc = ctypes.CDLL(None)
_libc.malloc.restype = ctypes.c_void_p
_libc.malloc.argtypes = [ctypes.c_size_t]
_libc.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]


@kind("native", LARGE)
async def c_through_ctypes(number: int) -> int:
    """Memory of the C library, written to and never freed."""
    _libc.memset(_libc.malloc(LARGE), 1, LARGE)
    return LARGE


_jobs: asyncio.Queue[int] | None = None
_worker: asyncio.Task[None] | None = None
_done: list[bytes] = []


async def _work_off(jobs: asyncio.Queue[int]) -> None:
    while True:
        await jobs.get()
        _done.append(bytes(LARGE))


def start_worker() -> None:
    """Starts the background task in a context of its own, as a lifespan does."""
    global _jobs, _worker
    if _jobs is None:
        _jobs = asyncio.Queue()
        _worker = contextvars.Context().run(asyncio.get_running_loop().create_task, _work_off(_jobs))


@kind("tool", LARGE, _work_off)
async def background_task(number: int) -> int:
    """A task that outlives the calls keeps something for each: for the item that the call has put."""
    start_worker()
    assert _jobs is not None
    _jobs.put_nowait(number)
    return number


_parcels: queue.SimpleQueue[int] = queue.SimpleQueue()
_stored: list[bytes] = []


def _store() -> None:
    while True:
        _parcels.get()
        _stored.append(bytes(LARGE))


_thread = threading.Thread(target=_store, daemon=True)


@kind("tool", LARGE, _store)
async def queue_thread(number: int) -> int:
    """A thread fed by a queue keeps something for each call."""
    if not _thread.is_alive():
        contextvars.Context().run(_thread.start)
    _parcels.put(number)
    return number


# --- eight innocents ----------------------------------------------------------------------------------

_cache: dict[int, bytes] = {}


@kind("none", 0)
async def bounded_cache(number: int) -> int:
    """Keeps the latest results, and drops the oldest of them."""
    _cache[number] = bytes(1_000)
    if len(_cache) > FILLED:
        del _cache[next(iter(_cache))]
    return len(_cache)


@lru_cache(maxsize=FILLED)
def _bounded(number: int) -> bytes:
    return bytes(1_000)


@kind("none", 0)
async def bounded_lru_cache(number: int) -> int:
    """Python's own bounded cache."""
    return len(_bounded(number))


_pins: deque[list[bytes]] = deque(maxlen=FILLED)


@kind("none", 0)
async def fragmentation(number: int) -> int:
    """Keeps every tenth of many blocks for a while, so that the heap has holes."""
    _pins.append([bytes(3_000) for _ in range(200)][::10])
    return len(_pins)


@kind("none", 0)
async def interned_strings(number: int) -> int:
    """Interns names, of which there are so many."""
    _names.add(sys.intern(f"name {number % FILLED} " + "x" * 200))
    return len(_names)


_names: set[str] = set()
_MODULES = tuple(sorted(sys.stdlib_module_names - sys.modules.keys() - {"antigravity", "idlelib", "this", "turtle"}))


@kind("none", 0)
async def lazy_imports(number: int) -> int:
    """Imports one module after the other, until all are there."""
    with suppress(ImportError):  # some are not built here
        importlib.import_module(_MODULES[number % FILLED % len(_MODULES)])
    return number


class Entry:
    """What a weak dictionary may hold."""

    def __init__(self) -> None:
        self.payload = bytes(1_000)


_weak: weakref.WeakValueDictionary[int, Entry] = weakref.WeakValueDictionary()
_held: deque[Entry] = deque(maxlen=FILLED)


@kind("none", 0)
async def weak_dicts(number: int) -> int:
    """Entries that a weak dictionary knows for as long as somebody else holds them."""
    entry = _weak[number] = Entry()
    _held.append(entry)
    return len(_weak)


_pool: list[bytearray] = []


@kind("none", 0)
async def pool_growing_to_its_limit(number: int) -> int:
    """One more connection in each call, up to the pool's limit."""
    if len(_pool) < FILLED:
        _pool.append(bytearray(10_000))
    return len(_pool)


_table: dict[int, bytes] = {}


@kind("none", 0)
async def warm_up(number: int) -> int:
    """A table that has an entry for each key, of which there are so many."""
    key = number % FILLED
    if key not in _table:
        _table[key] = bytes(5_000)
    return len(_table)


if __name__ == "__main__":
    server.run("stdio")
