"""Where in the code a step is: the line its author would look at, and what that line calls.

Only the step's own frames of a stack are read, not those of the code that started the loop. The place is the innermost
line of the user's own code. If the server is installed as a package, there is no such line. Then the place is the
innermost line of the package that the handler is in: of the function that the SDK calls, where that can be seen, else
of the outermost package. Libraries that it calls are named, not blamed.

A program frozen by PyInstaller does not say which of its modules were installed. Only its entry script is known to be
the user's own; its other modules are treated as packages.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Any

from mcp_probe import native

MAX_DEPTH = 400
_COLLECTION_HANGS = sys.version_info < (3, 12, 1)
_SUBINTERPRETERS = ("_interpreters", "_xxsubinterpreters")

_STDLIB = os.path.dirname(os.__file__)
_SCRIPTS = os.path.join(sys.prefix, "Scripts" if sys.platform == "win32" else "bin")
_REAL_SCRIPTS = os.path.realpath(_SCRIPTS)
_SCRIPT_FOLDERS = (_SCRIPTS, _REAL_SCRIPTS)
"""Scripts there were written by an installer."""
_LONGEST_PATH = 4_096
_SCRIPT_LINKS = frozenset(
    way
    for path in sys.orig_argv[1:]
    if len(path) < _LONGEST_PATH and os.path.dirname(os.path.realpath(path)) == _REAL_SCRIPTS
    for way in (path, os.path.abspath(path))
)
"""Other ways to them, as the command line has them. Asked once: no loop waits for a file system."""
_OWN = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_OWN_PATHS = (_OWN, f"mcp_probe{os.sep}")  # the second in a program frozen by PyInstaller
_WORKLOADS = tuple(f"{path}workloads{os.sep}" for path in _OWN_PATHS)
_INFRASTRUCTURE = frozenset((
    "mcp", "mcp_types", "fastmcp", "anyio", "asyncio", "trio", "uvloop", "starlette", "fastapi", "uvicorn", "pydantic",
    "pydantic_core", "sse_starlette", "opentelemetry", "outcome", "sniffio", "h11", "httptools",
    "sentry_sdk", "ddtrace", "logfire", "wrapt", "tenacity", "nest_asyncio", "nest_asyncio2",
))  # fmt: skip

_SDKS = frozenset(("mcp", "fastmcp"))
_BACKENDS = frozenset(("sqlalchemy", "greenlet", "aiosqlite", "asyncpg", "psycopg", "psycopg_pool", "redis"))
"""Libraries that wait for databases, in tasks and threads of their own, too: no line of theirs is the user's."""
_FREEZER = ("pyimod", "pyi_rth_", "PyInstaller", "_pyi_")
MAX_WRAPPERS = 32

_LOOP_FILES = (
    "asyncio/base_events.py", "asyncio/events.py", "asyncio/runners.py", "trio/_core/_run.py", "uvloop/__init__.py",
    "anyio/_backends/_asyncio.py",  # has a runner of its own on CPython 3.10
    "mcp_probe/adapters/asyncio_handles.py", "mcp_probe/adapters/asyncio_loop.py", "mcp_probe/adapters/uvloop_loop.py",
)  # fmt: skip

_LOOP_FUNCTIONS = frozenset({"_run", "run", "run_forever", "unrolled_run"})
"""Functions in these files that run steps. Steps call other functions in them (``run_in_executor``, ``checkpoint``).
``_run_once`` runs steps wherever it stands: nest_asyncio and others have their own."""

_USER, _PACKAGE, _STANDARD, _PLUMBING, _HIDDEN = range(5)


@dataclass(frozen=True, slots=True)
class Place:
    """One line; ``library`` is the foreign function it was in, or ``import of X`` while it imported."""

    file: str
    line: int
    function: str
    library: str | None = None


@dataclass(frozen=True, slots=True)
class Code:
    """A tool's own function: the tool, the file, and its first and last line."""

    tool: str
    file: str
    first: int
    last: int


def place_of(frame: Any, of_request: bool = False) -> Place | None:
    """The place of the step that has ``frame`` as its innermost frame. Any thread that holds the GIL.

    The tool of a request may have no frame (Cython), or none with a file (``exec``): then a step ``of_request`` has no
    place, for the innermost line that can be seen is the SDK's, which only calls it.
    """
    frames = own_frames(frame)
    importing, frames = _without_import(frames)
    if not frames:
        return None
    index = _index_of_place(frames)
    if index is None or (of_request and _kind(frames[index].f_code.co_filename)[0] not in (_USER, _PACKAGE)):
        return None
    library = importing or _callee(frames, index)
    code = frames[index].f_code
    return Place(code.co_filename, frames[index].f_lineno, getattr(code, "co_qualname", code.co_name), library)


def frame_of(thread_id: int) -> Any:
    """The innermost frame of a thread, ``None`` where it is over or cannot be looked at. Any thread.

    Without the accelerator this calls ``sys._current_frames``, which makes frame objects for the threads of every
    interpreter. From CPython 3.12 on another interpreter frees them with the wrong allocator, and the process aborts.
    So once there was another interpreter, no frame is looked at any more.

    CPython 3.11 makes these frame objects while it holds the lock on its list of threads. If that triggers a collection
    that frees a ``threading.local``, the collection waits for that lock for ever, with the GIL: none may begin.
    Nor may one begin while the frames of its callers are made: its Python code (``gc.callbacks``, finalizers) lets
    the thread go on and leave the frame that is just being made, and the process ends. So all of them are made here.
    Source: github.com/python/cpython/issues/106883.
    """
    if native.core is not None:
        return native.core.frame_of(thread_id)
    if _others.seen():
        return None
    if not _COLLECTION_HANGS or not gc.isenabled():
        return sys._current_frames().get(thread_id)
    gc.disable()
    try:
        frame = at = sys._current_frames().get(thread_id)
        depth = 0
        while at is not None and depth < MAX_DEPTH:
            at = at.f_back
            depth += 1
        return frame
    finally:
        gc.enable()


class _Others:
    """Whether this process has, or had, interpreters besides the main one. Asks modules that CPython itself imports."""

    def __init__(self) -> None:
        self._seen = False

    def seen(self) -> bool:
        """Looks again at each call until there was one."""
        for name in () if self._seen else _SUBINTERPRETERS:
            module: Any = sys.modules.get(name)
            self._seen = self._seen or (module is not None and len(module.list_all()) > 1)
        return self._seen


_others = _Others()


def place_of_caller() -> str | None:
    """``file:line`` of the user's own code that is calling, for naming what it makes or uses first."""
    place = place_of(sys._getframe(1))
    return None if place is None else f"{place.file}:{place.line}"


def line_among(frames: Sequence[tuple[str, int]]) -> tuple[str, int] | None:
    """The one of ``frames`` (innermost first) its author would look at; ``None`` if one of ours is further in."""
    ranks = [_kind(file)[0] for file, _ in frames]
    for (file, line), rank in zip(frames, ranks, strict=True):
        if file.startswith(_OWN_PATHS) and not file.startswith(_WORKLOADS):
            return None
        if rank == _USER:
            return file, line
    best = min(range(len(ranks)), key=ranks.__getitem__, default=None)
    return None if best is None else frames[best]


def place_among(frames: list[Any]) -> tuple[str, int] | None:
    """(``file:line``, its index) of the one of ``frames`` (innermost first) that its author would look at.

    ``None`` if all of them are plumbing.
    """
    index = _index_of_place(frames) if frames else None
    if index is None or is_plumbing(frames[index].f_code.co_filename):
        return None
    code = frames[index].f_code
    return f"{code.co_filename}:{frames[index].f_lineno}", index


def calling_frame(frame: Any, libraries: frozenset[str]) -> Any:
    """The frame of the user's own code that calls into ``libraries``, of ``frame`` and its callers; or ``None``."""
    frames = [one for one in own_frames(frame) if _kind(one.f_code.co_filename)[1] not in libraries]
    index = _index_of_place(frames) if frames else None
    if index is None or is_plumbing(frames[index].f_code.co_filename):
        return None
    return frames[index]


def users_frame() -> Any:
    """The innermost frame of the user's own code that is calling, seen through greenlets; ``None`` without one.

    In a server that is installed as a package that is the frame :func:`place_among` would find.
    """
    frame: Any = sys._getframe(1)
    inside = _greenlet()
    frames: list[Any] = []
    depth = 0
    while frame is not None and depth < MAX_DEPTH:
        code = frame.f_code
        part = _parts.get(code.co_filename)
        if part is None:
            part = _parts[code.co_filename] = _part_of(code.co_filename)
        if part == _OF_USER:
            return frame
        if (part == _MAY_RUN_STEPS or code.co_name == "_run_once") and runs_steps(code):
            break
        if part == _OF_OTHERS:
            frames.append(frame)
        frame = frame.f_back
        depth += 1
        while frame is None and inside is not None:  # the frames of a greenlet end where it was switched to
            inside = inside.parent
            frame = getattr(inside, "gr_frame", None)
    index = _index_of_place(frames) if frames else None
    return None if index is None or is_plumbing(frames[index].f_code.co_filename) else frames[index]


_OF_USER, _OF_OTHERS, _OF_NOBODY, _MAY_RUN_STEPS = range(4)
_parts: dict[str, int] = {}
"""By file: whether a frame of it is the user's, may be the innermost one that is known, or is never looked for."""


def _part_of(file: str) -> int:
    if may_run_steps(file):
        return _MAY_RUN_STEPS
    kind, package = _kind(file)
    if is_own(file) or package in _BACKENDS or kind == _HIDDEN:
        return _OF_NOBODY
    return _OF_USER if kind == _USER else _OF_OTHERS


def _greenlet() -> Any:
    get = getattr(sys.modules.get("greenlet"), "getcurrent", None)
    return None if get is None else get()


def is_own(file: str) -> bool:
    """Whether ``file`` is part of the probe."""
    return file.startswith(_OWN_PATHS) and not file.startswith(_WORKLOADS)


def is_users(file: str) -> bool:
    """Whether ``file`` is the user's own code, and no installed package."""
    return _kind(file)[0] == _USER


def is_plumbing(file: str) -> bool:
    """Whether ``file`` is part of Python, of the SDK, or of what both run on."""
    return _kind(file)[0] not in (_USER, _PACKAGE)


def may_run_steps(file: str) -> bool:
    """Whether frames of ``file`` may be those for which :func:`runs_steps` holds."""
    return file.endswith(_LOOP_FILES)


def runs_steps(code: CodeType) -> bool:
    """Whether a frame of ``code`` is the loop's: what it calls is a step, and what is further out is none of its."""
    return code.co_name == "_run_once" or (code.co_name in _LOOP_FUNCTIONS and code.co_filename.endswith(_LOOP_FILES))


def own_frames(frame: Any) -> list[Any]:
    """The step's frames without ours, innermost first."""
    frames = []
    depth = 0
    while frame is not None and depth < MAX_DEPTH:
        code = frame.f_code
        if runs_steps(code):
            break
        if not code.co_filename.startswith(_OWN_PATHS) or code.co_filename.startswith(_WORKLOADS):
            frames.append(frame)
        frame = frame.f_back
        depth += 1
    return frames


def _without_import(frames: list[Any]) -> tuple[str | None, list[Any]]:
    """While a module is being imported, the place is the line that imports it, not a line in its body."""
    for index in range(len(frames) - 1, -1, -1):
        code = frames[index].f_code
        if code.co_name == "_find_and_load" and code.co_filename.startswith("<frozen importlib"):
            name = frames[index].f_locals.get("name")
            outside = frames[index + 1 :]
            while outside and outside[0].f_code.co_filename.startswith("<frozen importlib"):
                outside = outside[1:]
            return f"import of {name}", outside
    return None, frames


def _index_of_place(frames: list[Any]) -> int | None:
    """``None``: the function that the SDK calls has no frame (Cython), so whatever has one is a library."""
    kinds = [_kind(frame.f_code.co_filename) for frame in frames]
    ranks = [rank for rank, _ in kinds]
    if _USER in ranks:
        return ranks.index(_USER)
    if _PACKAGE in ranks:
        outermost = max(index for index, rank in enumerate(ranks) if rank == _PACKAGE)
        kind = _kind_of_handler(frames[outermost + 1 :]) or kinds[outermost]
        return kinds.index(kind) if kind[0] == _PACKAGE and kind in kinds else None
    return next((ranks.index(rank) for rank in (_PLUMBING, _STANDARD) if rank in ranks), 0)


def _kind_of_handler(frames: list[Any]) -> tuple[int, str] | None:
    """Of the tool's own function, which the SDK's innermost frame has in ``fn`` or ``self.fn``; ``None``: it has not.

    Nor has it the author's function where that is one of the SDK itself, which passes calls on.
    """
    for frame in frames:
        if _kind(frame.f_code.co_filename)[1] in _SDKS:
            seen = frame.f_locals
            function = seen.get("fn") or getattr(seen.get("self"), "__dict__", {}).get("fn")
            if function is not None:
                code = code_of(function)
                kind = (_HIDDEN, "") if code is None else _kind(code.co_filename)
                return None if kind[0] == _PLUMBING else kind
    return None


def code_of(function: Any) -> CodeType | None:
    """The code that the author of ``function`` wrote, below decorators and partials."""
    for _ in range(MAX_WRAPPERS):
        inner = getattr(function, "func", None) or getattr(function, "__wrapped__", None)
        if inner is None:
            break
        function = inner
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    if code is None:  # an object that can be called
        code = getattr(vars(type(function)).get("__call__"), "__code__", None)
    return code if isinstance(code, CodeType) else None


def _callee(frames: list[Any], index: int) -> str | None:
    """What the place calls, if that is other people's code."""
    if not index:
        return None
    called = frames[index - 1]
    rank, package = _kind(called.f_code.co_filename)
    if rank == _HIDDEN or (rank, package) == _kind(frames[index].f_code.co_filename):
        return None
    return f"{called.f_globals.get('__name__', package)}.{getattr(called.f_code, 'co_qualname', called.f_code.co_name)}"


_kinds: dict[str, tuple[int, str]] = {}


def _kind(filename: str) -> tuple[int, str]:
    """(whose code it is, the package it belongs to)."""
    kind = _kinds.get(filename)
    if kind is None:
        kind = _kinds[filename] = _classify(filename)
    return kind


def _classify(filename: str) -> tuple[int, str]:
    path = filename.replace("\\", "/")
    for marker in ("/site-packages/", "/dist-packages/"):
        if marker in path:
            package = path.rsplit(marker, 1)[1].split("/", 1)[0].removesuffix(".py")
            return (_PLUMBING if package in _INFRASTRUCTURE else _PACKAGE), package
    if path.startswith("<"):
        return _HIDDEN, ""
    if filename.startswith(_STDLIB):
        return (_HIDDEN if "/asyncio/" in path else _STANDARD), ""
    if filename in _SCRIPT_LINKS or os.path.dirname(filename) in _SCRIPT_FOLDERS:
        return _PLUMBING, ""
    if getattr(sys, "frozen", False) and not os.path.isabs(filename):
        return _cut_kind(path)
    return _USER, ""


def _cut_kind(path: str) -> tuple[int, str]:
    """Whose ``path`` is in a frozen program: PyInstaller cuts the folder off every module, Python's own too."""
    package = path.split("/", 1)[0].removesuffix(".py")
    if package == "asyncio":
        return _HIDDEN, ""
    if package in sys.stdlib_module_names or package.startswith(_FREEZER):
        return _STANDARD, ""
    if package in _INFRASTRUCTURE:
        return _PLUMBING, package
    entry = getattr(sys.modules.get("__main__"), "__file__", None)
    return (_USER, "") if entry and os.path.basename(entry) == path else (_PACKAGE, package)
