"""The leak hunt of ``memory="leaks"``: what the ended calls of each operation still hold after a full collection.

A request that has ended is kept as long as blocks that it allocated are alive, and the hunt counts again and again how
many bytes they still have. This distinguishes a leak from what only looks like one: later calls release the entries of
a full cache, the collection frees cyclic garbage, and only the first call holds what a first call sets up.

Without the accelerator the owner of a block is not known. Then a tool gets the tracemalloc traces that have the tool's
own function among their frames: a lower bound, without an order among its calls.

Everything runs on the collector's thread, or on the one that drains for the last time; one at a time.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from mcp_probe import native
from mcp_probe.capture.grown_lines import FIRST, REST, SAMPLE, SHARES, STAGES, Block, Look, Wanted
from mcp_probe.capture.peak_lines import MAX_REQUESTS, PeakWatch, blocks_held_by, blocks_of, held_by
from mcp_probe.capture.places import Code
from mcp_probe.capture.process_memory import ProcessMemory
from mcp_probe.capture.queued import Errand
from mcp_probe.capture.tracemalloc_sites import (
    Grown,
    Traces,
    Types,
    grown_in,
    sites_of_blocks,
    sites_of_traces,
    tracing_cost,
    tracing_state,
)
from mcp_probe.clock import now_ns
from mcp_probe.model import GrowthSample, GrowthSites
from mcp_probe.record.raw import RawRequest

GROUPS = 16
"""Groups of calls, oldest to newest, that a sample tells apart."""

MAX_KEPT = 8_192
"""Calls of one operation kept because they still hold something; beyond that, every second one stands for two."""

MIN_CALLS = 50
MIN_HELD = 24
"""With fewer calls, or fewer bytes a call, an operation's lines and types are not looked for. Workload: clean tools of
mcp 2.3. Four groups in five hold 0-6 bytes a call."""

STILL_HELD = 0.7
"""Share of the older half's groups: a little less than a leak needs, so that its lines are found in time."""

SITED_AGAIN = 1.25
"""Lines and types are looked for again when the number of calls has grown by this factor."""

MAX_BLOCKS = 65_536
"""The hunt looks at no more calls of one operation than hold so many blocks."""

MAX_OPERATIONS = 200

COLLECT_SHARE = 10
"""After a collection there is none for this many times its length, so the hunt pauses the server 10 % at most."""

LOOK_SHARE = 4
"""The same for samples, and apart from them for lines and types, which take far longer."""

MIN_LOOK_NS = 500_000_000

EXIT_PATIENCE_S = 3.0
"""Extra time that the last look may add to the end of the server: the user asked for its result."""

LAST_LOOK_NS = 1_200_000_000
"""Lines and types that are not known this long after the end was asked for are left as they were at the look before. An
MCP client sends a signal after 2 s, and the process has to end by then."""

MOST_LOOK_NS = 2_000_000_000
"""Any other look for them gives up after this long: calls that end meanwhile wait for it."""

STANDS = 16 / 17
"""A look at a server about to end stands, unless a sixteenth more calls come: then it lets go of what it held."""

LEAST_LOOK_NS = 200_000_000
"""The last look for them takes this long in any case: lines take some 30 us a block."""

SHADOW_SCOPE = "all Python allocations"
TRACES_SCOPE = "Python allocations below the tool's own function, 12 frames deep"


clear_type_cache: Callable[[], object] = (
    getattr(sys, "_clear_internal_caches", None) or getattr(sys, "_clear_type_cache", None) or (lambda: None)
)
"""Has CPython forget up to 4,096 names of attributes that it looked up last. A C library makes a new string for each
look-up (`rpds`, below jsonschema, three a call of mcp 1.x), and the cache keeps it: that is no leak of the call's."""


@dataclass(slots=True)
class Kept:
    """The calls of one operation: how many there were, and those that still hold something."""

    method: str
    name: str
    calls: int = 0
    # (number of the call, stands for, request, what others do for it)
    holders: list[tuple[int, int, Any, Errand | None]] = field(default_factory=list)

    def add(self, raw: Any, errand: Errand | None = None) -> None:
        """One more call has ended. The probe's own notes of it are released, because some were allocated for it."""
        keep = getattr(raw, "keep_memory", None)  # the Python twin owns no blocks
        if keep is not None and raw.memory() is not None:
            self.holders.append((self.calls, 1, keep(), errand))
        self.calls += 1

    def is_suspect(self) -> bool:
        """Whether its lines and types are worth looking for: older calls, besides the first, still hold something."""
        if self.calls < MIN_CALLS:
            return False
        rates = [held / max(1, calls) for calls, held in self.groups()]
        return sum(rate >= MIN_HELD for rate in rates[1 : GROUPS // 2]) >= STILL_HELD * (GROUPS // 2 - 1)

    def groups(self) -> list[tuple[int, int]]:
        """(calls, bytes) of equal shares of the calls, oldest first; forgets those that hold nothing any more."""
        count = min(GROUPS, self.calls)
        counts = [(index + 1) * self.calls // count - index * self.calls // count for index in range(count)]
        held = [0] * count
        still = []
        for number, weight, raw, errand in self.holders:
            size = _held_for(raw, errand)
            if size or (errand is not None and errand.is_due):
                still.append((number, weight, raw, errand))
                held[_group_of(number, self.calls, count)] += size * weight
        if len(still) > MAX_KEPT:
            still = [(number, 2 * weight, raw, errand) for number, weight, raw, errand in still[::2]]
        self.holders = still
        return list(zip(counts, held, strict=True))

    def to_look_at(self, most: int) -> tuple[Wanted, list[tuple[Any, int, int]]]:
        """What a look for lines is to see: at most so many (request, share of the calls, stage), the sample first.

        The first group is left out, as its growth is: a first call's imports hold more than a thousand calls leak.
        """
        numbers = range(first := self.calls // GROUPS, self.calls, -(-(self.calls - first) // SAMPLE))
        later = [holder for holder in self.holders if holder[0] >= first]
        rows: list[tuple[Any, int, int]] = []
        taken = room = 0
        for number, _, raw, errand in sorted(later, key=lambda holder: holder[0] not in numbers):
            owners = [owner for owner in (raw, errand and errand.owner()) if owner]
            room += sum(map(blocks_held_by, owners))
            if (room > MAX_BLOCKS or len(rows) + len(owners) > most) and rows:
                break
            share = (number - first) * SHARES // (self.calls - first)
            rows += [(owner, share, FIRST if number in numbers else REST) for owner in owners]
            taken += 1
        whole = (self.calls - first) * taken // max(1, len(later))
        return Wanted(self.calls, min(len(numbers), whole), whole), rows


def _group_of(number: int, calls: int, count: int) -> int:
    """The group ``number`` is in: group i holds the calls from i * calls // count on."""
    index = number * count // calls
    return index + 1 if index + 1 < count and (index + 1) * calls // count <= number else index


class LeakHunt:
    """See the module's text.

    Args:
        owners: Whether blocks have owners just now (the accelerator's shadow mode is on, and valid).
        functions: The tools' own functions, asked for each time: (tool, code).
        pausing: Called with True before and False after our collection, which is not counted as a pause of the server.
        tracing: Why tracemalloc is not on; empty where it is.
        live: The requests in flight.
        errand_of: What others do for a request that has ended, because of what it put into queues.
    """

    exit_patience_s = EXIT_PATIENCE_S

    def __init__(
        self,
        owners: Callable[[], bool],
        functions: Callable[[], Iterable[Code]] = tuple,
        pausing: Callable[[bool], None] = lambda pausing: None,
        tracing: str = "",
        live: Callable[[], Iterable[RawRequest]] = tuple,
        errand_of: Callable[[Any], Errand | None] = lambda raw: None,
    ) -> None:
        self._owners = owners
        self._functions = functions
        self._pausing = pausing
        self._tracing = tracing
        self._errand_of = errand_of
        self._kept: dict[tuple[str, str], Kept] = {}
        self._traces: Traces | None = Traces() if tracing_state() else None
        self._process = ProcessMemory()
        self._looks: dict[str, Look] = {}  # of each operation, the one to tell of
        self._types: Types = ()  # of the latest look that had the time for them
        self._peaks = PeakWatch(lambda: live() if owners() else ())
        self._codes: tuple[Code, ...] = ()
        self._codes_of = 0  # operations known when they were asked for
        self.collections = 0
        self.collect_ns = 0
        self.collected_ns = 0
        """When the last collection began: calls that ended before it hold no cyclic garbage any more."""
        self._free_ns = 0  # no collection before this time
        self._look_ns = 0  # no sample before this time
        self._lines_ns = 0  # no look for lines before this time
        self._types_ns = 0  # no look for types before this time
        self._looked_at = 0  # calls seen by the last sample
        self._sited_at = 0  # calls seen by the last look at sites
        self._ended_at = 0  # calls seen by the latest final look
        self._asked_ns: int | None = None  # since then somebody waits for a final look
        self._stands_at = 0  # calls seen by the latest look at a server that was about to end

    def watch_peaks(self, is_wanted: Callable[[], bool], fail: Callable[[Exception], None]) -> None:
        """Start a thread that looks for the lines of what calls in flight hold, if lines and owners can be known."""
        if self._traces is not None and native.memory is not None:
            self._peaks.start(is_wanted, fail)

    # --- in ---

    def hurry(self) -> None:
        """A final look is wanted: the one in progress gives up what it has not found yet. Any thread; never waits."""
        self._asked_ns = now_ns()

    def on_own_account(self) -> AbstractContextManager[None]:
        """What the calling thread allocates meanwhile is the probe's own, and no growth of the server."""
        return self._process.on_own_account()

    def settle(self, *, waiting: int, final: bool) -> None:
        """Collect garbage before the ``waiting`` ended requests are read; not too often unless ``final``."""
        now = now_ns()
        if self._has_stood() or (not waiting and not (final and self._calls() > self._ended_at)):
            return
        if now < self._free_ns and not final:
            return
        if self._traces is not None and not self._calls() and not self._owners():
            self._traces.remember()
        self.collected_ns = now
        self._pausing(True)
        try:
            gc.collect()
            clear_type_cache()
        finally:
            self._pausing(False)
        took = now_ns() - now
        self.collections += 1
        self.collect_ns += took
        self._free_ns = now + took + COLLECT_SHARE * took

    def take(self, batch: Iterable[RawRequest]) -> None:
        """These have ended, and their records have been made."""
        for raw in batch:
            if raw.kind == "function":
                continue
            key = (raw.method, raw.operation)
            kept = self._kept.get(key)
            if kept is None:
                if len(self._kept) >= MAX_OPERATIONS:
                    continue
                kept = self._kept[key] = Kept(*key)
            kept.add(raw, self._errand_of(raw))

    # --- out ---

    def frames(self, now: int, *, final: bool, stands: bool = False) -> Iterator[GrowthSample | GrowthSites]:
        """What the hunt has found: at most twice a second, and once more if it is ``final``.

        It ``stands`` where the server is about to let go of all that it keeps.
        """
        asked_ns = self._asked_ns
        if final:
            self._asked_ns = None
        calls = self._calls()
        if self._has_stood() or calls == (self._ended_at if final else self._looked_at):
            return
        if now < self._look_ns and not final:
            return
        if stands:
            self._stands_at = calls
        if final:
            self._ended_at = calls
        owners = self._owners()
        self._looked_at = calls
        began = now_ns()
        grown: tuple[Grown, ...] = ()
        if owners:
            yield self._sample_of_owners(now)
        else:
            for kept in self._kept.values():
                kept.holders.clear()
            grown = () if self._traces is None else tuple(self._traces.grown())
            yield self._sample_of_traces(now, grown)
        self._look_ns = max(now + MIN_LOOK_NS, now_ns() + LOOK_SHARE * (now_ns() - began))
        if calls > self._sited_at and (final or (calls >= SITED_AGAIN * self._sited_at and began >= self._lines_ns)):
            is_late = _later_than(asked_ns or began) if final else self._is_wanted_or_long()
            with self._process.leaving_holes():  # lines are told before types are looked for: the process may end
                yield from self._look_at_sites(now, owners, grown, calls, is_late, final=final)

    def _look_at_sites(
        self,
        now: int,
        owners: bool,
        grown: Sequence[Grown],
        calls: int,
        is_late: Callable[[], bool],
        *,
        final: bool,
    ) -> Iterator[GrowthSites]:
        """Lines, and then types, which take far longer and are looked for less often."""
        began = now_ns()
        for frame in self._sites(now, owners, grown, is_late):
            self._sited_at = calls
            self._lines_ns = now_ns() + LOOK_SHARE * (now_ns() - began)
            yield frame
            if not final and began < self._types_ns:
                return
        self._types_ns = now_ns() + LOOK_SHARE * (now_ns() - began)

    def _is_wanted_or_long(self) -> Callable[[], bool]:
        """Whether a look that is not the last one must stop."""
        is_over = _from_first_asked(lambda now: now + MOST_LOOK_NS)
        return lambda: is_over() or self._asked_ns is not None

    def _has_stood(self) -> bool:
        return STANDS * self._calls() <= self._stands_at > 0

    def _calls(self) -> int:
        return sum(kept.calls for kept in self._kept.values())

    def _sample_of_owners(self, now: int) -> GrowthSample:
        rows = []
        for kept in self._kept.values():
            groups = kept.groups()
            rows.append((kept.method, kept.name, kept.calls, sum(size for _, size in groups), tuple(groups)))
        return self._sample("native-shadow", SHADOW_SCOPE, now, tuple(rows), self._process.read())

    def _sample_of_traces(self, now: int, grown: Sequence[Grown]) -> GrowthSample:
        codes = self._own_codes() if self._traces is not None else ()
        sizes = grown_in(grown, codes)
        known = {code.tool for code in codes}
        rows = tuple(
            (kept.method, kept.name, kept.calls, sizes.get(kept.name, 0), ())
            for kept in self._kept.values()
            if kept.name in known
        )
        return self._sample("tracemalloc", TRACES_SCOPE, now, rows)

    def _sample(self, how: Any, scope: str, now: int, rows: Any, process: Any = None) -> GrowthSample:
        return GrowthSample(
            at_ns=now,
            how=how,
            scope=scope,
            rows=rows,
            collections=self.collections,
            collect_ns=self.collect_ns,
            notes=tuple(self._notes(how, rows)),
            are_lines_known=self._traces is not None,
            allocation_ns=tracing_cost(),
            peaks=self._peaks.peaks(),
            process=process,
        )

    def _notes(self, how: str, rows: Any) -> Iterator[str]:
        if how != "native-shadow":
            why = native.absence or "its memory hooks are not in force"
            yield f"Without the accelerator ({why}) blocks have no owners: growth comes from tracemalloc's traces."
            if self._traces is not None and not rows:
                yield "The tools' own functions are not known: growth is known for the process only."
        if self._traces is None:
            yield f"Lines are not known: tracemalloc is off ({self._tracing or 'it was switched off'})."

    def _sites(
        self, now: int, owners: bool, grown: Sequence[Grown], is_late: Callable[[], bool]
    ) -> Iterator[GrowthSites]:
        if owners:
            suspects = [kept for kept in self._kept.values() if kept.is_suspect()]
            wanted, blocks = _blocks_of(suspects)
            if blocks:
                for frame in sites_of_blocks(now, blocks, wanted, self._looks, self._types, is_late):
                    self._types = frame.types
                    yield frame
        elif self._traces is not None:
            yield sites_of_traces(now, grown, self._own_codes(), self._traces)

    def _own_codes(self) -> tuple[Code, ...]:
        if self._codes_of != len(self._kept):
            self._codes_of = len(self._kept)
            self._codes = tuple(self._functions())
        return self._codes


def _blocks_of(suspects: Sequence[Kept]) -> tuple[dict[str, Wanted], dict[int, Block]]:
    """What they hold, by address: a block of each in turn, so a look that is cut short has seen something of each."""
    wanted: dict[str, Wanted] = {}
    owners: list[tuple[Any, tuple[int, str, int]]] = []
    for kept in suspects:
        wanted[kept.name], rows = kept.to_look_at(MAX_REQUESTS // len(suspects))
        owners += [(raw, (stage, kept.name, share)) for raw, share, stage in rows]
    requests = [raw for raw, _ in owners]
    held: dict[tuple[int, str, int], list[tuple[int, int]]] = {key: [] for _, key in owners}
    for address, size, index in blocks_of(requests, sum(map(blocks_held_by, requests))):
        held[owners[index][1]].append((address, size))
    found: dict[int, Block] = {}
    for now in STAGES:
        turns = [
            [(address, Block(name, size, share, stage)) for address, size in _from_both_ends(blocks)]
            for (stage, name, share), blocks in held.items()
            if stage == now
        ]
        found.update(block for row in zip_longest(*turns) for block in row if block is not None)
    return wanted, found


def _from_both_ends(blocks: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """A large one and a small one in turn: large ones hold most, small ones have the shortest traces."""
    blocks = sorted(blocks, key=lambda block: block[1], reverse=True)
    half = len(blocks) - len(blocks) // 2
    pairs = zip_longest(blocks[:half], reversed(blocks[half:]))
    return [block for pair in pairs for block in pair if block is not None]


def _later_than(asked_ns: int) -> Callable[[], bool]:
    """Whether a last look that was asked for then takes too long."""
    return _from_first_asked(lambda now: max(now + LEAST_LOOK_NS, asked_ns + LAST_LOOK_NS))


def _from_first_asked(end_of: Callable[[int], int]) -> Callable[[], bool]:
    """Whether the time of a look is over: it begins when this is first asked, and ends as ``end_of`` that instant."""
    until: list[int] = []

    def is_over() -> bool:
        now = now_ns()
        until[:] = until or [end_of(now)]
        return now >= until[0]

    return is_over


def _held_for(raw: Any, errand: Errand | None) -> int:
    """Bytes of living blocks that ``raw`` owns, and those that were allocated on its errand."""
    return held_by(raw) + (0 if errand is None else held_by(errand.owner()))
