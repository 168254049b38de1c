"""Which tier of memory measurement is in force, by which back end, and what that says about a request.

One per hub, because a process has one allocator: the highest tier that any attached session wants is in force.
:func:`choose` is the table of tiers; everything that it depends on is handed to it.

Invariant: a request's figures come from one back end. A request that ran while the back end changed has none.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from mcp_probe import native
from mcp_probe.capture.outside_memory import OutsideMemory
from mcp_probe.capture.tiers import Tiered
from mcp_probe.capture.worker import Worker
from mcp_probe.clock import now_ns
from mcp_probe.model import MemoryMethod, MemoryTier, MemoryUse, Tag, draft_of
from mcp_probe.record.raw import RawRequest

if TYPE_CHECKING:
    from mcp_probe.capture.meters import Meter
    from mcp_probe.capture.sizing import Sizer

HOOK = "memory"
TIERS: tuple[MemoryTier, ...] = get_args(MemoryTier)
"""From nothing to everything."""

FREE_LISTS_HIDE = 2048
"""If a call retains fewer bytes, free lists may have hidden as much: 500 B a call were measured as 170."""

_MODES: dict[MemoryMethod, Literal["gross", "hybrid", "shadow"]] = {
    "native-gross": "gross",
    "native-hybrid": "hybrid",
    "native-shadow": "shadow",
}
_NATIVE: dict[MemoryTier, tuple[MemoryMethod, ...]] = {
    "light": ("native-hybrid", "native-gross"),
    "detailed": ("native-shadow", "native-hybrid", "native-gross"),
    "leaks": ("native-shadow",),
}
_OWNING: tuple[MemoryMethod | None, ...] = ("native-hybrid", "native-shadow")
_Row = tuple[str, Tag, "int | None", "int | None"]
_NO_OWNERS: tuple[_Row, ...] = (("peak", "unavailable", None, None), ("retained", "unavailable", None, None))
_ALL = "all Python allocations"
_DraftUse = draft_of(MemoryUse)


@dataclass(frozen=True, slots=True)
class Choice:
    """Back ends to try for a tier, best first, and why there is none better."""

    methods: tuple[MemoryMethod, ...]
    why: str


def choose(tier: MemoryTier, *, accelerator: str, jemalloc: Callable[[], bool], no_tracemalloc: str) -> Choice:
    """What ``tier`` can be measured by.

    Args:
        accelerator: why the allocator hook of the accelerator is not there; empty where it is.
        jemalloc: whether jemalloc was preloaded; asked only where it matters.
        no_tracemalloc: why tracemalloc must not be started; empty where it may.
    """
    if tier == "off":
        return Choice((), "")
    if not accelerator:
        return Choice(_NATIVE[tier], "")
    if tier == "leaks":
        return Choice((), accelerator)
    if tier == "detailed" and not no_tracemalloc:
        return Choice(("tracemalloc",), accelerator)
    why = f"{accelerator}; {no_tracemalloc}" if tier == "detailed" else accelerator
    return Choice(("jemalloc",) if jemalloc() else (), why)


class Memory(Tiered[MemoryTier]):
    """See the module's text. Its methods may be called on any thread, and never raise unless they say so.

    Args:
        say: told the state of the hook ``memory`` each time it changes, as ``Hub.hooks`` holds it.
        fail: told of a fault of ours.
    """

    def __init__(self, say: Callable[[str], None], fail: Callable[[Exception], None]) -> None:
        self._say = say
        self._fail = fail
        super().__init__(TIERS)
        self._since_ns = 0  # the back end has been the same since then
        self._previous: tuple[MemoryMethod | None, str] = (None, "")  # the back end before that
        self._tracing = False  # we have started tracemalloc
        self._hooks: native.Memory | None = None  # the accelerator's, where they are installed
        self._lost = False  # another tool has removed them
        self._outside_memory = OutsideMemory()
        self._outside = ""  # who allocates outside Python's allocators, as far as somebody does
        self._above = ""  # which other tool's hook lies over ours, and what that means
        self.looping = False  # a loop is followed: servers are made, modules imported, and threads come next
        self.tier: MemoryTier = "off"
        self.method: MemoryMethod | None = None  # None: nothing measures requests
        self.scope = ""
        self.why = ""  # why there is no better back end, a sentence
        self.meter: Meter | None = None  # reads counters around steps, where the accelerator does not do it itself
        self.lender: Any = None  # has ``enter`` and ``leave``, for jobs on threads
        self.charge: Callable[[Any], Any] | None = None  # the accelerator's: sets who owns this thread's allocations
        self.sizer: Sizer | None = None
        self.watchdog: Callable[[], Worker | None] = lambda: None
        self.changed: Callable[[], None] = lambda: None  # called when ``meter`` or ``lender`` has changed

    @property
    def state(self) -> str:
        """The tier and what it is measured by, for people."""
        if self.tier == "off":
            return "off"
        by = "payload sizes and the process's RSS only" if self.method is None else f"{self.method}, {self.scope}"
        lower = f"{self._outside} allocates outside of it, so figures are lower bounds" if self._outside else ""
        notes = "; ".join(note for note in (self.why, self._above, lower) if note)
        return f"{self.tier}: {by}" + (f" ({notes})" if notes else "")

    # --- tiers ---

    def loop_begins(self) -> None:
        """A loop is followed from now on.

        Tracing begins only here, before the transport's threads: with tracing, importing the SDK takes ten times as
        long.
        """
        with self._lock:
            if self.looping:
                return
            self.looping = True
            if self.tier == "leaks":
                self._turn_off()  # tracemalloc has to be below our hook
            if self.tier == "leaks" or (self.tier == "detailed" and self.method is None):
                self._lost = True
                self._settle()

    def _settle(self) -> list[str]:
        tier = self._wanted()
        if tier == self.tier and not self._lost:
            if tier == "off":
                self._tell()
            return []
        self._lost = False
        try:
            self._switch(tier)
        except Exception as exc:  # noqa: BLE001 - a fault of ours never reaches the server
            self._turn_off()
            self.tier, self.why = tier, f"switched off after {type(exc).__name__}"
            self._fail(exc)
            return []
        self._tell()
        return []

    def _tell(self) -> None:
        self._say(f"active ({self.state})" if self.tier != "off" else "does not apply: switched off")

    def _switch(self, tier: MemoryTier) -> None:
        before = (self.method, self.scope)
        notes = []
        if tier == "leaks" and self.looping:
            self._turn_off()  # tracemalloc has to be below our hook
            notes.append(_start_leak_tracing())
        choice = choose(
            tier,
            accelerator=_no_accelerator(),
            jemalloc=_has_jemalloc,
            no_tracemalloc=_no_tracemalloc() if tier == "detailed" else "",
        )
        if not (self._hooks and choice.methods and choice.methods[0] in _MODES):  # else hooks only change their mode
            self._turn_off()
        for method in choice.methods:
            try:
                self._start(method)
            except Exception as exc:  # noqa: BLE001 - the next best one may do
                notes.append(_sentence(exc))
            else:
                break
        else:
            self._turn_off()
        self.tier = tier
        self.why = "; ".join(note for note in (choice.why, *notes) if note)
        self.sizer = self._make_sizer(self._hooks) if tier in ("detailed", "leaks") and self._hooks else None
        self._since_ns, self._previous = now_ns(), before
        self.changed()

    def _start(self, method: MemoryMethod) -> None:
        """Raises: an exception that says why ``method`` cannot start."""
        if method in _MODES:
            if native.memory is None:
                raise RuntimeError(native.memory_absence)
            native.memory.install(_MODES[method])
            self._hooks = native.memory
            self.lender, self.charge = NativeLender(native.memory), native.memory.charge
            self.scope = _owners(native.memory.state()["owned_above"])
        elif method == "tracemalloc":
            from mcp_probe.capture.meters import TracemallocMeter

            if not self.looping:
                raise RuntimeError("tracing begins with the event loop")
            import tracemalloc

            if not tracemalloc.is_tracing():
                tracemalloc.start(1)
                self._tracing = True
            self.meter = self.lender = TracemallocMeter(lambda: self.watchdog())
            self.scope = self.meter.scope
        else:
            from mcp_probe.capture.jemalloc import JemallocMeter

            self.meter = self.lender = JemallocMeter()
            self.scope = self.meter.scope
        self.method = method

    def _turn_off(self) -> None:
        if self._hooks is not None:
            hooks, self._hooks = self._hooks, None
            try:
                hooks.uninstall()
            except Exception as exc:  # noqa: BLE001 - a fault of ours never reaches the server
                self._fail(exc)
        self.meter = self.lender = self.sizer = self.charge = None
        self.method, self.scope = None, ""
        if self._tracing:
            import tracemalloc

            from mcp_probe.capture.meters import switchable

            if switchable():  # else tracing goes on: stopping it could crash the process
                tracemalloc.stop()
                self._tracing = False
        self.changed()

    def _make_sizer(self, hooks: native.Memory) -> Sizer | None:
        try:
            from mcp_probe.capture.sizing import Sizer

            return Sizer(self._fail, charge=hooks.charge)
        except ImportError:
            self.why = "; ".join(
                note for note in (self.why, "arguments and results are not sized: pympler is not installed") if note
            )
            return None

    # --- requests ---

    def check(self) -> None:
        """Whether the allocator hook still sees everything: another tool may have taken it off. Collector's thread."""
        if self._hooks is None or self.method not in _MODES:
            return
        try:
            state = self._hooks.state()
            if state["valid"]:
                above = str(state["reason"]) if state.get("covered") else ""
                outside = self._outside_memory.found()
                if (above, outside) != (self._above, self._outside):
                    self._above, self._outside = above, outside
                    self._tell()
                return
            with self._lock:
                self._lost = True
                self.method, self.scope, self.lender, self.charge = None, "", None, None
                self.why = str(state["reason"] or "another tool has taken the allocator hook off")
                self.changed()
            self._say(f"stopped: {self.why}")
        except Exception as exc:  # noqa: BLE001 - a fault of ours costs figures, never the collector
            self._faulty(exc)

    def _faulty(self, exc: Exception) -> None:
        self.method, self._lost = None, True
        self._fail(exc)

    def use_of(self, raw: RawRequest) -> MemoryUse | None:
        """What ``raw`` has used so far; retained is known only after its end. Never raises."""
        method, scope = self.method, self.scope
        began = raw.first_step_ns
        if began is None or began < self._since_ns:
            method, scope = self._before(raw)
        if method is None:
            return None
        try:
            use = self._native_use(raw, method, scope) if method in _MODES else self._metered_use(raw)
            if use is not None and not raw.ended and use.retained is not None:
                use = _unended(use)
            sized: tuple[int | None, int | None] | None = raw.sized
            return use if sized is None or use is None else _with_sizes(use, *sized)
        except Exception as exc:  # noqa: BLE001 - a fault of ours costs figures, never the server
            self._faulty(exc)
            return None

    @property
    def native_since_ns(self) -> int | None:
        """Since when the accelerator has measured as it does now; ``None`` if it does not measure."""
        return self._since_ns if self.method in _MODES else None

    def _before(self, raw: RawRequest) -> tuple[MemoryMethod | None, str]:
        """What measured ``raw``, which began before the back end changed; known only if it ended before that, too."""
        return self._previous if raw.ended and (raw.end_ns or 0) < self._since_ns else (None, "")

    def _metered_use(self, raw: RawRequest) -> MemoryUse | None:
        meter = self.meter
        return None if meter is None else meter.use_of(raw)

    def _native_use(self, raw: RawRequest, method: MemoryMethod, scope: str) -> MemoryUse | None:
        found = raw.memory()
        if found is None:
            return None
        requested, allocations, owned, held, peak, _ = found
        asked: tuple[_Row, ...] = (("requested", "lower", requested, None),) if self._outside else ()
        if method == "native-gross":
            return MemoryUse(method, scope, requested, allocations, None, None, (*asked, *_NO_OWNERS))
        if self._outside:
            retained: _Row = _NO_OWNERS[1] if held is None else ("retained", "lower", held, None)
            least: tuple[_Row, ...] = (*asked, ("peak", "lower", peak, None), retained)
            return MemoryUse(method, scope, requested, allocations, peak, held, least)
        loose = requested - owned
        rows: tuple[_Row, ...] = () if loose <= 0 else (("peak", "bounded", peak, peak + loose),)
        if held is None:  # the hook changed after its end
            rows += (_NO_OWNERS[1],)
        elif loose > 0:
            rows += (("retained", "bounded", held, held + loose),)
        elif held < FREE_LISTS_HIDE:
            rows += (("retained", "lower", held, None),)
        use = _DraftUse(method, scope, requested, allocations, peak, held, rows)
        use.__class__ = MemoryUse
        return use


class NativeLender:
    """Charges a thread's allocations to a request during a job."""

    def __init__(self, hooks: native.Memory) -> None:
        self._charge = hooks.charge

    def enter(self, raw: RawRequest | None) -> Any:
        """Returns what the thread's allocations were charged to."""
        return self._charge(None if raw is None or raw.ended else raw)

    def leave(self, token: Any) -> None:
        """The job is over: charge to the previous owner again."""
        self._charge(token)


def _unended(use: MemoryUse) -> MemoryUse:
    rows = (*(row for row in use.quality if row[0] != "retained"), _NO_OWNERS[1])
    return MemoryUse(use.method, use.scope, use.requested, use.allocations, use.peak, None, rows)


def _with_sizes(use: MemoryUse, arguments: int | None, result: int | None) -> MemoryUse:
    return MemoryUse(
        use.method, use.scope, use.requested, use.allocations, use.peak, use.retained, use.quality, arguments, result
    )


def _no_accelerator() -> str:
    if native.core is None:
        return f"no accelerator: {native.absence}"
    return "" if native.memory is not None else f"the accelerator has no allocator hook: {native.memory_absence}"


def _owners(above: int) -> str:
    """Blocks larger than ``above`` have an owner: all if it is 0 or less, none if no block is that large."""
    return f"{_ALL}, owners > {above} B" if 0 < above < sys.maxsize else _ALL


def _has_jemalloc() -> bool:
    if native.core is not None:  # its steps read no counters of ours
        return False
    from mcp_probe.capture.jemalloc import has_jemalloc

    return has_jemalloc()


def _no_tracemalloc() -> str:
    if native.core is not None:
        return "per step tracemalloc is read without the accelerator only (MCP_PROBE_NATIVE=0)"
    from mcp_probe.capture.meters import why_not_tracemalloc

    return why_not_tracemalloc()


def _start_leak_tracing() -> str:
    """Starts the traces that a leak hunt needs, before anything else of ours. Returns why not, if it is not safe."""
    from mcp_probe.capture.tracemalloc_sites import start_tracing

    return start_tracing() or ""


def _sentence(exc: Exception) -> str:
    return str(exc) or type(exc).__name__
