"""Finds where retained memory was allocated, and what it is, from tracemalloc's traces and the living objects.

tracemalloc is started once, before threads, and never stopped: CPython before 3.12.9 and 3.13.2 crashes where it is
switched while a worker thread allocates without the GIL (github.com/python/cpython/issues/128679).
"""

from __future__ import annotations

import gc
import linecache
import marshal
import re
import sys
import threading
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from types import ModuleType
from typing import Any

from mcp_probe.capture import heap
from mcp_probe.capture.grown_lines import Block, Lines, Look, Wanted, count_line, latest_of, look_of, top_lines
from mcp_probe.capture.places import Code, is_plumbing, line_among
from mcp_probe.model import GrowthSites

FRAMES = 12
"""Frames kept of each allocation."""

MOST = 5
"""Types reported for one operation, and for the process."""

MIN_OBJECTS = 10
"""A type has grown only if at least this many of its objects stay."""

MEASURED = 3
"""Objects of a type that are measured with their whole graph, down to :data:`GRAPH_DEPTH`: up to 0.5 s each."""
GRAPH_DEPTH = 4

_DEFINITION = re.compile(r"\s*(?:async\s+def|def|class)\s+(\w+)")

_HAS_GC, _PRE_HEADER = 1 << 14, 1 << 3 | 1 << 4
_HEADER = 16
_BUFFERS = (bytearray, bytes, dict, frozenset, list, set, str, tuple)
"""The size of these types, separately allocated parts included, can be read without running other code."""

_ATOMS = (bool, bytearray, bytes, complex, float, int, str)

_UNTRACKED = (tuple, dict)
"""Containers that the collector does not monitor while they refer to no container."""

CHUNK = 200
"""Containers looked at before another thread may run."""


def start_tracing() -> str:
    """Start tracemalloc for good, unless that is not safe here. Returns why it is not; empty where it runs."""
    if tracing_state():
        return ""
    if tracemalloc.is_tracing():
        return f"somebody has started it with {tracemalloc.get_traceback_limit()} frames, too few to find a line"
    others = [
        thread.name
        for thread in threading.enumerate()
        if thread.ident != threading.get_ident() and not thread.name.startswith("mcp-probe")
    ]
    if others and not is_start_safe(sys.version_info[:3]):
        version = ".".join(map(str, sys.version_info[:3]))
        return (
            f"CPython {version} can crash where it is started beside other threads, and {others[0]!r} runs already; "
            "attach before threads are started, or use `mcp-probe run`, or 3.12.9, 3.13.2 or newer"
        )
    _asizeof()
    _trace_of()
    before = _allocation_ns()
    tracemalloc.start(FRAMES)
    _costs[:] = [(before, _allocation_ns())]
    return ""


_costs: list[tuple[float, float]] = []


def tracing_cost() -> tuple[float, float] | None:
    """What allocating and freeing an object took before tracing began, and with it, ns; ``None``: it was on already."""
    return _costs[0] if _costs else None


def _allocation_ns(depth: int = FRAMES, rounds: int = 7, objects: int = 500) -> float:
    """The fastest of ``rounds``, below as many frames as are kept. Takes 10 ms with tracing on a slow machine."""
    if depth:
        return _allocation_ns(depth - 1, rounds, objects)
    best = float("inf")
    for _ in range(rounds):
        began = time.perf_counter_ns()
        for _ in range(objects):
            object()
        best = min(best, time.perf_counter_ns() - began)
    return best / objects


@cache
def _asizeof() -> Callable[..., int] | None:
    """pympler's function, if it is installed. Imported before tracing begins: with tracing, it would take seconds."""
    try:
        from pympler.asizeof import asizeof
    except Exception:  # noqa: BLE001 - whatever is wrong with it, the server runs without
        return None
    sizer: Callable[..., int] = asizeof
    return sizer


@cache
def _trace_of() -> Callable[[int, int], Any] | None:
    """What tells the frames of a block by (domain, address), innermost first; ``None`` where CPython has no such.

    Source: ``_PyTraceMalloc_GetTraceback`` in CPython 3.10-3.13, exported for its own test modules.
    """
    try:
        import ctypes

        found = ctypes.pythonapi._PyTraceMalloc_GetTraceback
        found.restype, found.argtypes = ctypes.py_object, (ctypes.c_uint, ctypes.c_size_t)
    except Exception:  # noqa: BLE001 - whatever is wrong with it, objects have traces, too
        return None
    trace_of: Callable[[int, int], Any] = found
    return trace_of


def is_start_safe(version: Sequence[int]) -> bool:
    """Whether this CPython can start it while other threads run. Source: gh-128679, its changelog entries."""
    number = tuple(version[:3])
    return number >= (3, 13, 2) or (3, 12, 9) <= number < (3, 13)


def tracing_state() -> bool:
    """Whether traces are kept, deep enough to find a tool in them."""
    return tracemalloc.is_tracing() and tracemalloc.get_traceback_limit() >= 2


Frames = tuple[tuple[str, int], ...]
"""(file, line) of each frame, innermost first."""

Grown = tuple[Frames, int, int]
"""(where, bytes, blocks)"""

Blocks = Mapping[int, Block]
"""By address."""

Types = tuple[tuple[str, str, int, "int | None", "int | None"], ...]
"""As in :class:`~mcp_probe.model.GrowthSites`."""


class Traces:
    """What was allocated since :meth:`remember` and still lives, by place."""

    def __init__(self) -> None:
        self._before = marshal.dumps(
            {}
        )  # as bytes: otherwise a hundred thousand tuples would be among the living objects to look at
        self._types: Counter[type] = Counter()

    def remember(self) -> None:
        """Take what is there now as the baseline."""
        self._before = marshal.dumps(_sizes())
        self._types = _histogram()

    def grown(self) -> Iterator[Grown]:
        """What has changed since the baseline; a negative figure means less."""
        before: dict[Frames, tuple[int, int]] = marshal.loads(self._before)
        now = _sizes()
        for frames, (size, count) in now.items():
            old_size, old_count = before.get(frames, (0, 0))
            if size != old_size:
                yield frames, size - old_size, count - old_count
        for frames, (size, count) in before.items():
            if frames not in now:
                yield frames, -size, -count

    def new_types(self) -> Iterator[tuple[type, int]]:
        """Types with more objects tracked by the garbage collector than at the baseline."""
        now = _histogram()
        now.subtract(self._types)
        return ((cls, count) for cls, count in now.most_common(4 * MOST) if count >= MIN_OBJECTS)


def _sizes() -> dict[Frames, tuple[int, int]]:
    """Living bytes and blocks by where they were allocated."""
    found: dict[Frames, tuple[int, int]] = {}
    if not tracing_state():
        return found
    # The rows as tracemalloc keeps them, (domain, size, frames, …): its public view makes two objects of each.
    rows: Iterable[Any] = getattr(tracemalloc.take_snapshot().traces, "_traces", ())
    for row in rows:
        if row[0] == 0:
            size, count = found.get(row[2], (0, 0))
            found[row[2]] = (size + row[1], count + 1)
    return found


def _histogram() -> Counter[type]:
    return Counter(heap.types())


def grown_in(grown: Iterable[Grown], codes: Sequence[Code]) -> dict[str, int]:
    """Bytes that grew below each tool's own function."""
    found: dict[str, int] = {}
    for frames, size, _ in grown if codes else ():
        for tool in _tools_in(frames, codes):
            found[tool] = found.get(tool, 0) + size
    return found


def _tools_in(frames: Frames, codes: Sequence[Code]) -> set[str]:
    return {
        code.tool for file, line in frames for code in codes if code.file == file and code.first <= line <= code.last
    }


# --- sites ------------------------------------------------------------------------------------------


def sites_of_traces(now: int, grown: Iterable[Grown], codes: Sequence[Code], traces: Traces) -> GrowthSites:
    """Lines that grew, by the tools that called them; types of the whole process."""
    lines: Lines = {}
    for frames, size, count in grown:
        for tool in _tools_in(frames, codes) or {""}:
            _add(lines, tool, line_among(frames), size, count)
    types = tuple(("", _name_of(cls), count, None, None) for cls, count in traces.new_types() if not _is_ours(cls))
    return _sites(now, {"": Look(0, 0, lines)}, types[:MOST])


def sites_of_blocks(
    now: int,
    blocks: Blocks,
    wanted: Mapping[str, Wanted],
    looks: dict[str, Look],
    known: Types = (),
    is_late: Callable[[], bool] = lambda: False,
) -> Iterator[GrowthSites]:
    """Lines that allocated ``blocks`` beside the types already ``known``, then the same with types as they are now.

    Types take far longer: a second per 100 000 living objects while tracemalloc runs, but others run meanwhile. What
    is not done once ``is_late`` returns true is given up. ``looks`` are those to tell of, and are kept up to date.
    """
    objects: Lines | None = {}
    if tracing_state() and _trace_of() is not None:
        objects = None
        found = _looks_of(blocks, wanted, is_late)
        for name in looks.keys() - wanted.keys():  # it holds next to nothing any more
            del looks[name]
        looks.update((name, latest_of(looks.get(name), look)) for name, look in found.items())
        if found:
            yield _sites(now, looks, known)
    types = _types_of(blocks, is_late, objects if tracing_state() else None)
    if types is not None:
        if objects is not None:
            looks.update(_looks_at(objects, wanted))
        yield _sites(now, looks, types)


def _looks_of(blocks: Blocks, wanted: Mapping[str, Wanted], is_late: Callable[[], bool]) -> dict[str, Look]:
    """By the blocks' own traces, some 20 us each, as far as it came until it was late; empty if it never began."""
    trace_of: Any = _trace_of()
    found: dict[str, dict[int, Lines]] = {}
    missed = Counter((block.operation, block.stage) for block in blocks.values())
    places: dict[Frames, tuple[str, int] | None] = {}
    for address, block in blocks.items():
        if is_late():
            break
        lines = found.setdefault(block.operation, {}).setdefault(block.stage, {})
        frames = trace_of(0, address)
        if frames is not None:
            if frames not in places:
                places[frames] = line_among(frames)
            _add(lines, block.operation, places[frames], block.size, 1, block.share)
        missed[block.operation, block.stage] -= 1
    late = {name: [stage for (of, stage), count in missed.items() if of == name and count] for name in found}
    return {name: look_of(wanted[name], stages, late[name]) for name, stages in found.items()}


def _looks_at(objects: Lines, wanted: Mapping[str, Wanted]) -> Iterator[tuple[str, Look]]:
    for name, each in wanted.items():
        yield name, Look(each.calls, each.whole, {line: held for line, held in objects.items() if line[0] == name})


def _types_of(blocks: Blocks, is_late: Callable[[], bool], lines: Lines | None) -> Types | None:
    """Of the objects that stand in ``blocks``; adds the lines of their traces to ``lines``, if given."""
    types: dict[tuple[str, type], list[int]] = {}
    samples: dict[tuple[str, type], list[Any]] = {}
    for block, found in living(blocks):
        if is_late():
            return None
        cls = type(found)
        if block is None or _is_ours(cls):
            continue
        operation = block.operation
        size = sys.getsizeof(found) if cls in _BUFFERS else cls.__basicsize__
        row = types.setdefault((operation, cls), [0, 0, 0])
        row[0] += 1
        row[1] += size
        row[2] = max(row[2], size)
        few = samples.setdefault((operation, cls), [])
        if len(few) < MEASURED:
            few.append(found)
        traceback = tracemalloc.get_object_traceback(found) if lines is not None else None
        if traceback is not None and lines is not None:
            frames = tuple((frame.filename, frame.lineno) for frame in reversed(traceback))
            _add(lines, operation, line_among(frames), size, 1, block.share)
    return tuple(_top_types(types, samples, is_late))


def _sites(now: int, looks: Mapping[str, Look], types: Any) -> GrowthSites:
    lines = {line: held for look in looks.values() for line, held in look.lines.items()}
    told = tuple(
        (operation, file, line, function_at(file, line), held.bytes, held.blocks)
        for (operation, file, line), held in top_lines(lines)
    )
    files = dict.fromkeys(line[1] for line in told)
    return GrowthSites(
        now,
        told,
        types,
        tuple(file for file in files if not is_plumbing(file)),
        tuple((name, look.calls, look.seen) for name, look in looks.items() if name),
    )


def living(blocks: Blocks) -> Iterator[tuple[Block | None, Any]]:
    """(block, object) of each living object that stands in one of ``blocks``; (``None``, ``None``) now and then.

    The collector knows containers only, and not all of them, so what they refer to is looked at, too. Modules are left
    out: their dicts are known, and ``_asyncio`` of the first releases of 3.12 hands out freed objects. These are freed
    again, and the next collection never ends (CPython gh-122695).
    """
    maybe: set[int] = set()
    for start in range(0, len(addresses := list(blocks)), CHUNK):
        yield None, None  # who asks may have enough: with tracing, 65,536 blocks take seconds here
        some = addresses[start : start + CHUNK]
        maybe.update(block + offset for block in some for offset in (0, _HEADER, 2 * _HEADER))
    seen: set[int] = set()
    objects = heap.objects()
    tuples: set[int] = set()
    for start in range(0, len(objects), CHUNK):
        yield None, None  # who asks may have enough
        found = [each for each in objects[start : start + CHUNK] if not issubclass(type(each), ModuleType)]
        while found:
            for each in [each for each in found if id(each) in maybe]:
                block = blocks.get(id(each) - _before(type(each)))
                if block is not None and id(each) not in seen:
                    seen.add(id(each))
                    yield block, each
            # Untracked objects refer to no container, and tuples are looked into once, so this ends.
            below = [each for each in gc.get_referents(*found) if not gc.is_tracked(each) or _is_new(each, tuples)]
            found = [each for each in below if (type(each) in _UNTRACKED and each) or id(each) in maybe]


def _is_new(found: Any, tuples: set[int]) -> bool:
    if type(found) is not tuple or id(found) in tuples:
        return False
    tuples.add(id(found))
    return True


def _before(cls: type) -> int:
    """Bytes of the block that stand before an object of ``cls``. Source: CPython, Include/internal/pycore_gc.h."""
    if not cls.__flags__ & _HAS_GC:
        return 0
    return 2 * _HEADER if cls.__flags__ & _PRE_HEADER and sys.version_info >= (3, 11) else _HEADER


def _add(
    lines: Lines, operation: str, place: tuple[str, int] | None, size: int, blocks: int, share: int | None = None
) -> None:
    if place is not None:
        count_line(lines, (operation, *place), size, blocks, share)


def function_at(file: str, line: int) -> str:
    """Name of the function that ``line`` stands in, from the indentation above it; empty where there is no source.

    It does not parse the file: with tracemalloc running, the syntax tree of a long module takes seconds.
    """
    lines = linecache.getlines(file)[:line]
    if not lines:
        return ""
    names: list[str] = []
    indent = _indent_of(lines[-1]) if _DEFINITION.match(lines[-1]) is None else _indent_of(lines[-1]) + 1
    for text in reversed(lines):
        here = _indent_of(text)
        if here >= indent or not text.strip():
            continue
        found = _DEFINITION.match(text)
        if found is not None:
            names.insert(0, found[1])
            indent = here
        if not here:
            break
    return ".".join(names)


def _indent_of(text: str) -> int:
    return len(text) - len(text.lstrip())


def _top_types(
    types: Mapping[tuple[str, type], Sequence[int]],
    samples: Mapping[tuple[str, type], Sequence[Any]],
    is_late: Callable[[], bool],
) -> Iterator[tuple[str, str, int, int | None, int | None]]:
    told: Counter[str] = Counter()
    # Ranked without the largest of each: one dict of the whole process would outweigh a thousand small ones.
    for (operation, cls), (count, size, _) in sorted(types.items(), key=lambda row: row[1][2] - row[1][1]):
        if told[operation] < MOST:
            told[operation] += 1
            is_suspect = told[operation] == 1 and count >= MIN_OBJECTS and cls not in _ATOMS
            each = _graph_size(samples[operation, cls]) if is_suspect and not is_late() else None
            yield operation, _name_of(cls), count, size, each


def _graph_size(objects: Sequence[Any]) -> int | None:
    """Mean size of the graphs of ``objects``, measured by pympler; ``None`` where it is not installed, or fails."""
    asizeof = _asizeof()
    if asizeof is None:
        return None
    try:
        return sum(asizeof(found, limit=GRAPH_DEPTH) for found in objects) // len(objects)
    except Exception:  # noqa: BLE001 - it calls methods of the server's objects, which may raise anything
        return None


def _name_of(cls: type) -> str:
    try:
        module, name = cls.__module__, cls.__qualname__
    except Exception:  # noqa: BLE001 - a metaclass may raise
        return "unknown"
    return name if module == "builtins" else f"{module}.{name}"


def _is_ours(cls: type) -> bool:
    name = _name_of(cls)
    return name.startswith("mcp_probe.") and not name.startswith("mcp_probe.workloads.")
