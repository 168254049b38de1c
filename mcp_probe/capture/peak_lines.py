"""Finds the line at which a call allocated the memory that it holds now. Part of the leak hunt.

Afterwards it is too late: freed memory has no trace. So a thread asks the calls in flight how much
they hold. If one holds more than any call of its operation before, the thread looks for its lines in tracemalloc's
traces. Traces do not know the owner of a block, and the accelerator does not know where it was allocated; both know its
size. If a call holds more blocks of a size than all lines but one have allocated together, the rest comes from that
line. So a line's bytes are a lower bound. No line is reported if the other lines have too many blocks of this size.

What is held for less than :data:`TICK_S`, or by a C function that does not release the GIL, is not seen.
"""

from __future__ import annotations

import threading
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from mcp_probe import native
from mcp_probe.capture.places import line_among
from mcp_probe.capture.tracemalloc_sites import function_at
from mcp_probe.clock import now_ns
from mcp_probe.record.raw import RawRequest

LEAST_HELD = 8_000_000
"""Bytes: an eighth of the default threshold of `memory-peak`, which is lower if the process has a low memory limit."""

GROWN = 1.25
"""An operation is looked at again when one of its calls holds this many times as much as at the last look."""

TICK_S = 0.02
LOOK_SHARE = 4
"""A look stops the server for 1 s per million living blocks. After it there is none for this many times its length."""

MAX_BLOCKS = 262_144
"""Of one call. If it has more, only this many are looked for."""

MAX_REQUESTS = 65_535
"""Whose blocks are asked for at once: as many as the accelerator can tell apart."""

MAX_OPERATIONS = 200

Peak = tuple[str, str, int, str, int, int]
"""(operation, file, line, function, bytes allocated there at least, bytes that the call held): see ``GrowthSample``."""


def blocks_of(requests: list[RawRequest], most: int) -> list[tuple[int, int, int]]:
    """(address, size, index of the request) of at most so many blocks that these hold; none without the hooks.

    All blocks of the process are looked at once, however many requests these are: at most :data:`MAX_REQUESTS`.
    """
    return [] if native.memory is None else native.memory.blocks(requests, most)


class PeakWatch:
    """See the module's text. ``live`` gives the requests in flight."""

    def __init__(self, live: Callable[[], Iterable[RawRequest]]) -> None:
        self._live = live
        self._held: dict[str, int] = {}  # operation -> what its call held at the last look
        self._found: dict[str, Peak] = {}
        self._free_ns = 0  # no look before this time

    def start(self, is_wanted: Callable[[], bool], fail: Callable[[Exception], None]) -> None:
        """Look while ``is_wanted`` returns true; ``fail`` is told of a fault, which ends it."""

        def run() -> None:
            try:
                while is_wanted():
                    self.look()
                    time.sleep(TICK_S)
            except Exception as exc:  # noqa: BLE001 - costs lines of peaks, never the server
                fail(exc)

        threading.Thread(target=run, name="mcp-probe-peaks", daemon=True).start()

    def look(self) -> None:
        """Find the line of the call in flight that holds the most, compared with its operation's last look."""
        if now_ns() < self._free_ns:
            return
        known = self._held
        rows = ((held_by(raw), raw) for raw in self._live())
        worth = [row for row in rows if row[0] >= max(LEAST_HELD, GROWN * known.get(row[1].operation, 0))]
        held, raw = max(worth, key=lambda row: row[0] / known.get(row[1].operation, 1), default=(0, None))
        if raw is None or (raw.operation not in known and len(known) >= MAX_OPERATIONS):
            return
        began = now_ns()
        known[raw.operation] = held
        sizes = Counter(size for _, size, _ in blocks_of([raw], MAX_BLOCKS))
        line = _line_of(sizes)
        if line is not None:
            (file, number), size = line
            self._found[raw.operation] = (raw.operation, file, number, function_at(file, number), size, held)
        self._free_ns = now_ns() + LOOK_SHARE * (now_ns() - began)

    def peaks(self) -> tuple[Peak, ...]:
        """What has been found so far: the largest of each operation."""
        return tuple(self._found.copy().values())


def held_by(raw: Any) -> int:
    """Bytes of living blocks that ``raw`` owns; 0 where nothing measured it."""
    use = raw.memory()
    return 0 if use is None else max(0, use[3] or 0)


def blocks_held_by(raw: Any) -> int:
    """How many living blocks ``raw`` owns; 0 where nothing measured it."""
    use = raw.memory()
    return 0 if use is None else max(0, use[5] or 0)


def _line_of(sizes: Mapping[int, int]) -> tuple[tuple[str, int], int] | None:
    """The line that allocated most bytes in blocks of ``sizes`` (bytes -> how many), and at least how many bytes."""
    stacks: dict[int, Counter[Any]] = {size: Counter() for size in sizes}  # size -> frames -> blocks
    for row in getattr(tracemalloc.take_snapshot().traces, "_traces", ()):
        if row[0] == 0 and row[1] in stacks:
            stacks[row[1]][row[2]] += 1
    lines: Counter[tuple[str, int]] = Counter()
    for size, counts in stacks.items():
        here: Counter[tuple[str, int] | None] = Counter()
        for frames, count in counts.items():
            here[line_among(frames)] += count
        for place, count in here.items():
            if place is not None:
                lines[place] += size * max(0, sizes[size] - (counts.total() - count))
    place, size = max(lines.items(), key=lambda row: row[1], default=(None, 0))
    return None if place is None or not size else (place, size)
