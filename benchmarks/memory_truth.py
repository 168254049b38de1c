"""Whether the bytes that requests are said to have asked for are those that the C library was asked for, to the byte.

Under ``PYTHONMALLOC=malloc`` each of Python's allocations is one of the C library's. Two counters that know nothing of
the hooks stand beside them: a preloaded ``malloc`` that counts by thread (it needs a C compiler), and valgrind's total
heap usage, of whole processes (where valgrind is installed). ``python benchmarks/memory_truth.py``; 0: all are equal.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from mcp_probe import native

hooks: Any = native.memory

COUNTER = Path(__file__).with_name("malloc_counter.c")
TEXT = json.dumps([{"id": number, "name": f"item {number}", "tags": ["a", "b"]} for number in range(300)])
MODES = ("gross", "hybrid", "shadow")


def documents() -> Any:
    """Parsed, regrouped and written again: mostly small objects."""
    rows = json.loads(TEXT)
    groups: dict[str, list[Any]] = {}
    for row in rows:
        groups.setdefault(row["name"][-1], []).append({**row, "label": f"{row['name']}:{row['id']}"})
    return json.dumps(groups)


def large_blocks() -> Any:
    """Blocks from one byte to some megabytes, some of which grow."""
    kept = [bytearray(size) for size in (1, 511, 512, 513, 4096, 100_000, 3_000_000)]
    for block in kept:
        block.extend(bytes(len(block)))
    return kept


def without_the_gil() -> Any:
    """What zlib asks for while it works without the GIL."""
    return zlib.decompress(zlib.compress(TEXT.encode() * 20))


def failing() -> Any:
    """What cannot be had, and nothing."""
    try:
        return bytearray(1 << 60)
    except MemoryError:
        return [bytes(0), bytearray(0), {}, []]


WORK: dict[str, Callable[[], Any]] = {
    "documents": documents,
    "large blocks": large_blocks,
    "without the GIL": without_the_gil,
    "what fails": failing,
}


def request() -> Any:
    """A request that nothing has been charged to."""
    assert native.core is not None
    return native.core.Request(1, "request", "tools/call", "t", "stdio")


class Counter:
    """The preloaded counter's figures of the calling thread."""

    def __init__(self) -> None:
        library = ctypes.PyDLL(None)
        self._bytes, self._calls = library.counted_bytes, library.counted_calls
        self._bytes.restype = self._calls.restype = ctypes.c_ulonglong

    def of(self, work: Callable[[], Any]) -> tuple[int, int, int, int]:
        """(bytes, allocations) by the hooks, and the same by the counter, around one piece of work."""
        raw = request()
        charge = hooks.charge
        bytes_before, calls_before = self._bytes(), self._calls()
        charge(raw)
        kept = work()
        charge(None)
        bytes_after, calls_after = self._bytes(), self._calls()
        del kept
        requested, allocations = raw.memory()[:2]
        return requested, allocations, bytes_after - bytes_before, calls_after - calls_before


def preloaded_rows() -> list[dict[str, Any]]:
    """A row per piece of work, mode and thread; in a process that the counter was preloaded into."""
    counter, rows = Counter(), []

    def row(mode: str, name: str, where: str) -> None:
        for _ in range(3):  # the interpreter may keep something of its own from a first call
            counter.of(WORK[name])
            empty = counter.of(lambda: None)
            whole = counter.of(WORK[name])
        hooks, calls, counted, counted_calls = (a - b for a, b in zip(whole, empty, strict=True))
        rows.append(
            {"work": name, "mode": mode, "where": where, "hooks": hooks, "counter": counted}
            | {"allocations": calls, "counter_calls": counted_calls}
        )

    for mode in MODES:
        hooks.install(mode)
        for name in WORK:
            row(mode, name, "main thread")
            worker = threading.Thread(target=row, args=(mode, name, "worker thread"))
            worker.start()
            worker.join()
    hooks.uninstall()
    return rows


def valgrind_child(times: int, mode: str) -> None:
    """Do all the work so many times, and tell the sum in a form whose size does not depend on it."""
    hooks.install(mode)
    raw = request()
    names = list(WORK)
    for number in range(1 + times):  # the first is a warm-up, in either process
        hooks.charge(raw if number else None)
        for name in names:
            WORK[name]()
        hooks.charge(None)
    requested, allocations = raw.memory()[:2] if times else (0, 0)
    os.write(1, struct.pack("<QQ", requested, allocations))
    hooks.uninstall()


def child(*arguments: str, prefix: tuple[str, ...] = (), **environment: str) -> subprocess.CompletedProcess[bytes]:
    """This file in a process of its own, under the C library's allocator."""
    return subprocess.run(
        [*prefix, sys.executable, __file__, *arguments],
        env={**os.environ, "PYTHONMALLOC": "malloc", "PYTHONHASHSEED": "0", "MCP_PROBE_NATIVE": "", **environment},
        capture_output=True,
        check=True,
        timeout=900,
    )


def against_counter() -> list[dict[str, Any]]:
    """The rows of a process with the preloaded counter."""
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "counter.so"
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(COUNTER)], check=True)
        found: list[dict[str, Any]] = json.loads(child("--preloaded", LD_PRELOAD=str(library)).stdout)
    return found


def against_valgrind(mode: str) -> dict[str, Any]:
    """Once and three times the work: by how much the totals of valgrind and of the hooks differ between the two."""
    totals = []
    for times in ("1", "3"):
        prefix = ("valgrind", "--tool=memcheck", "--leak-check=no", "--undef-value-errors=no")
        done = child("--times", times, "--mode", mode, prefix=prefix)
        heap = re.search(rb"total heap usage: ([\d,]+) allocs, [\d,]+ frees, ([\d,]+) bytes", done.stderr)
        if heap is None:
            raise RuntimeError(f"valgrind did not tell its total heap usage: {done.stderr[-500:]!r}")
        calls, counted = (int(number.replace(b",", b"")) for number in heap.groups())
        totals.append((*struct.unpack("<QQ", done.stdout), counted, calls))
    (bytes1, calls1, counted1, counted_calls1), (bytes3, calls3, counted3, counted_calls3) = totals
    return {
        "work": "all, twice more",
        "mode": mode,
        "where": "valgrind",
        "hooks": bytes3 - bytes1,
        "counter": counted3 - counted1,
        "allocations": calls3 - calls1,
        "counter_calls": counted_calls3 - counted_calls1,
    }


def is_equal(row: dict[str, Any]) -> bool:
    """To the byte, and to the allocation."""
    same: bool = row["hooks"] == row["counter"] and row["allocations"] == row["counter_calls"]
    return same


def line_of(row: dict[str, Any]) -> str:
    """A row of the table: the hooks' figure beside the counter's, of bytes and of allocations."""
    size = f"{row['hooks']:>12,} B {row['counter']:>12,} B"
    calls = f"{row['allocations']:>7,} calls {row['counter_calls']:>7,} calls"
    verdict = "equal" if is_equal(row) else "NOT EQUAL"
    return f"{row['mode']:<7} {row['work']:<16} {row['where']:<14} {size}  {calls}  {verdict}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--preloaded", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--times", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--mode", default="gross", choices=MODES, help=argparse.SUPPRESS)
    parser.add_argument("--no-valgrind", action="store_true", help="only the preloaded counter, in a second")
    arguments = parser.parse_args()
    if native.core is None:
        print(f"There is no accelerator here, and so nothing to check: {native.absence}.")
        return 2
    if arguments.preloaded:
        print(json.dumps(preloaded_rows()))
        return 0
    if arguments.times is not None:
        valgrind_child(arguments.times, arguments.mode)
        return 0
    rows = against_counter() if shutil.which("cc") else []
    if shutil.which("valgrind") and not arguments.no_valgrind:
        rows += [against_valgrind(mode) for mode in MODES]
    for row in rows:
        print(line_of(row))
    wrong = [row for row in rows if not is_equal(row)]
    missing = [tool for tool in ("cc", "valgrind") if not shutil.which(tool)]
    print(f"{len(rows) - len(wrong)} of {len(rows)} equal" + (f"; not here: {', '.join(missing)}" if missing else ""))
    return 1 if wrong or not rows else 0


if __name__ == "__main__":
    sys.exit(main())
