"""What the whole process shares: live requests, monitors, pools, the watchdog, and which hooks work.

Hooks on process-wide objects serve every attached probe at once, so what they write to is kept here,
once per process. Sessions come and go; the hub is empty again when the last one has gone.
"""

from __future__ import annotations

import gc
import logging
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import ref

from mcp_probe.capture.await_looks import AwaitLooks
from mcp_probe.capture.awaits import Awaits
from mcp_probe.capture.current import CURRENT
from mcp_probe.capture.executor import Pools
from mcp_probe.capture.foreign_output import ForeignOutput
from mcp_probe.capture.guard import Guard
from mcp_probe.capture.live_requests import LiveRequests
from mcp_probe.capture.loop_monitor import LoopMonitor, StepSink
from mcp_probe.capture.measuring import Around, Measuring, around
from mcp_probe.capture.memory_tier import HOOK as MEMORY
from mcp_probe.capture.memory_tier import Memory
from mcp_probe.capture.outbound import Outbound
from mcp_probe.capture.pipe_looks import PipeLooks
from mcp_probe.capture.queued import Queued
from mcp_probe.capture.watchdog import STOP_S, Watchdog
from mcp_probe.clock import now_ns
from mcp_probe.model import STEPS, WAKE_UPS, RequestKind
from mcp_probe.record.raw import RawRequest

if TYPE_CHECKING:
    from mcp_probe.capture.leak_hunt import LeakHunt
    from mcp_probe.capture.places import Code

logger = logging.getLogger("mcp_probe")
M = TypeVar("M", bound=LoopMonitor)

RING = 16_384
GC_RING = 4_096
LONG_PAUSE_NS = 1_000_000
LAST_LOOK_S = 1.5
"""A little more than a hunt's look for lines takes at most. An MCP client sends a signal 2 s after it has hung up."""


class Hub:
    """See the module's text. One per process; tests may make their own."""

    def __init__(self, slow_step_ns: int = 10_000_000) -> None:
        self.slow_step_ns = slow_step_ns
        self.requests = LiveRequests()
        self.pools = Pools(self.fail)
        self.slow: deque[Any] = deque(maxlen=RING)
        self.recent: deque[Any] | None = None  # the latest of them that were drained; spans look here for blockers
        self.monitors: dict[int, LoopMonitor] = {}
        self.retired: list[LoopMonitor] = []
        self.loop_names: dict[str, None] = {}  # of every loop that was followed
        self.watchdog = Watchdog(slow_step_ns, self.fail, self._pipes)
        self.awaits = Awaits(lambda: self.monitors)
        self.outbound = Outbound(self.awaits)
        self.queued = Queued(self.monitor)
        self.looks = AwaitLooks(self.requests.live, lambda: self.monitors.values(), self.awaits, self.fail)
        self.hooks: dict[str, str] = {}
        self.memory = Memory(partial(self._note, MEMORY), partial(self.fail, MEMORY))
        self.memory.watchdog = lambda: self.watchdog.thread
        self.memory.changed = self._use_memory
        self.measuring = Measuring(self)
        self.measuring.changed = self._use_meters
        self.kept_marks = 0  # see StepSink; of loops that are met from now on
        self.hunt: LeakHunt | None = None
        self.functions_of_tools: Callable[[], Iterable[Code]] = tuple
        self.collecting = False  # the hunt runs a collection, which is not counted as a pause of the server
        self.transports: dict[str, None] = {}  # of the channels there have been
        self.behind_proxy = False  # HTTP requests have come with a proxy's headers
        self._channels: list[ref[Any]] = []
        self.closing: list[Callable[[], None]] = []  # called as a transport closes; they wait for nothing
        self.looking: list[Callable[[], threading.Event | None]] = []  # called as a server's input ends
        self.ending: list[Callable[[], None]] = []  # called once on the collector's thread as an application closes
        self.leaving: list[Callable[[], None]] = []  # called as a signal is about to end the process
        self.hand_over: Callable[[float], None] = lambda seconds: None  # waits for what ``closing`` has asked for
        self.exit_s = 0.0  # how long ``ending`` may take
        self._ends = False
        self._lock = threading.Lock()  # for ``monitors``; held only while they change
        self._closed = False
        self._gc_guard = Guard("gc", self.fail, self.unwatch_gc)
        self.pauses: deque[tuple[int, int, int, int | None]] = deque(maxlen=GC_RING)
        self.stdout = ForeignOutput()
        self.gc_ns = 0
        self.gc_count = 0
        self._gc_began = 0
        self._gc_cpu: int | None = None
        self._ordinals = 0

    # --- hooks: working or not ---

    def working(self, hook: str) -> None:
        """``hook`` is installed."""
        self.hooks.setdefault(hook, "active")

    def missing(self, hook: str, why: str) -> None:
        """``hook`` cannot be installed here; logged once on the ``mcp_probe`` logger."""
        if self.hooks.get(hook) != why:
            self.hooks[hook] = why
            logger.warning("mcp_probe: %s is off: %s", hook, why)

    def tell(self, hook: str, why: str | None) -> None:
        """``hook`` works, or why it does not."""
        if why is None:
            self.working(hook)
        else:
            self.missing(hook, why)

    def _note(self, hook: str, state: str) -> None:
        """Set the state of ``hook``, which may change more than once; logged if the hook has stopped."""
        if state.startswith("active") or not self.hooks.get(hook, "").startswith("disabled"):
            self.hooks[hook] = state
        if state.startswith("stopped"):
            logger.warning("mcp_probe: %s %s", hook, state)

    def _use_memory(self) -> None:
        """Tell everything that allocates for requests how memory is measured from now on."""
        if self.memory.tier != "leaks":
            self.hunt = None
        elif self.hunt is None and self.memory.looping:
            hunt = self.hunt = self._make_hunt()
            hunt.watch_peaks(lambda: self.hunt is hunt, partial(self.fail, "lines of peaks"))
        self.pools.charge = self.memory.charge
        self.queued.use(self.memory.charge, owns=self.hunt is not None and self.memory.method == "native-shadow")
        self.requests.sizer = self.memory.sizer
        self._use_meters()

    def _use_meters(self) -> None:
        """Tell loops and pools what is read around steps and jobs from now on."""
        self.pools.lenders = tuple(one for one in (self.memory.lender, self.measuring.meter) if one is not None)
        for monitor in self.monitors.values():
            monitor.meter = self._meter()

    def _meter(self) -> Around | None:
        return around((self.memory.meter, self.measuring.meter))

    def _make_hunt(self) -> LeakHunt:
        from mcp_probe.capture.leak_hunt import LeakHunt
        from mcp_probe.capture.tracemalloc_sites import start_tracing

        def pausing(begins: bool) -> None:
            self.collecting = begins

        return LeakHunt(
            owners=lambda: self.memory.method == "native-shadow",
            functions=lambda: self.functions_of_tools(),
            pausing=pausing,
            tracing=start_tracing(),
            live=lambda: list(self.requests.live.values()),
            errand_of=self.queued.errand_of,
        )

    def fail(self, hook: str, exc: Exception) -> None:
        """``hook`` raised: whoever calls this has already turned it off.

        What the exception says stays out of the recording: it may quote the message that it failed on.
        """
        if self.hooks.get(hook, "active").startswith("active"):
            self.hooks[hook] = f"disabled after {type(exc).__name__}{_place_of(exc)}"
            logger.warning("mcp_probe: hook %s is disabled", hook, exc_info=exc)

    def transport_closed(self) -> None:
        """A transport has shut down: ask the collector to hand on what was seen. Never raises; never waits."""
        for flush in list(self.closing):
            Guard("collector", self.fail).call(flush)

    async def input_ended(self) -> None:
        """No more calls come: a leak hunt looks once more, before the server lets go of what its lifespan keeps.

        The loop runs on until it has, for at most :data:`LAST_LOOK_S`. Never raises but what cancels the caller.
        """
        looks = [Guard("leak hunt", self.fail).call(look) for look in list(self.looking)]
        if any(looks):
            from anyio import sleep

            until = time.monotonic() + LAST_LOOK_S
            while any(look and not look.is_set() for look in looks) and time.monotonic() < until:
                await sleep(LAST_LOOK_S / 100)

    def application_closed(self) -> None:
        """An HTTP application has shut down: telemetry is sent, too. Never raises; never waits."""
        self._ends = True
        self.transport_closed()

    def deliver(self) -> None:
        """Send telemetry if an application has closed. Blocks; collector's thread."""
        ends, self._ends = self._ends, False
        for deliver in list(self.ending) if ends else ():
            Guard("telemetry", self.fail).call(deliver)

    def process_ends(self, seconds: float) -> None:
        """A signal is about to end the process: have everything handed on, within ``seconds`` plus ``exit_s``."""
        for leave in list(self.leaving):
            Guard("live channel", self.fail).call(leave)
        self.transport_closed()
        self.hand_over(seconds + self.exit_s)

    def runs_loop(self) -> bool:
        """Whether the calling thread runs an event loop: then nothing of ours may wait there."""
        monitor = self.monitors.get(threading.get_ident())
        if monitor is not None and monitor.alive and monitor.is_running():
            return True
        asyncio = sys.modules.get("asyncio")
        return asyncio is not None and asyncio._get_running_loop() is not None

    # --- monitors ---

    def monitor(self) -> LoopMonitor | None:
        """The monitor of the calling thread's loop."""
        return self.monitors.get(threading.get_ident())

    def add_monitor(self, make: Callable[[StepSink], M]) -> M:
        """``make`` the monitor of the calling thread's loop. After :meth:`close` the monitor is dead."""
        self.memory.loop_begins()
        self._ordinals += 1
        sink = StepSink(
            self._ordinals,
            self.slow,
            self.slow_step_ns,
            self.requests.settle,
            self.fail,
            self._lost_sight_of,
            self.kept_marks,
        )
        monitor = make(sink)
        monitor.meter = self._meter()
        self.requests.unstepped_show &= monitor.shows
        with self._lock:
            if self._closed:
                monitor.alive = False
                return monitor
            self.monitors = {**self.monitors, monitor.thread_id: monitor}
            self.loop_names[monitor.name] = None
        monitor.meter = self._meter()  # another thread may have changed the tier before it was listed
        self.watchdog.add(monitor)
        if self.awaits.active:
            self._look()
        return monitor

    def follow_awaits(self) -> None:
        """Name what requests wait for, from now on."""
        self.awaits.active = True
        if self.monitors:
            self._look()

    def _look(self) -> None:
        self.requests.looks = self.looks
        self.looks.start()

    def resume_monitor(self, monitor: LoopMonitor) -> None:
        """``monitor`` is the one that runs on its thread now; several loops may take turns there."""
        with self._lock:
            if self.monitors.get(monitor.thread_id) is not monitor and monitor.alive:
                self.monitors = {**self.monitors, monitor.thread_id: monitor}

    def drop_monitor(self, monitor: LoopMonitor) -> None:
        """Its loop is over or the hooks are gone."""
        monitor.alive = False
        with self._lock:
            self.monitors = {key: value for key, value in self.monitors.items() if value is not monitor}
        self.watchdog.remove(monitor)
        self.retired.append(monitor)

    def _lost_sight_of(self, ordinal: int) -> None:
        """The hooks of this loop have failed while requests run on it."""
        self.requests.unstepped_show &= ~(STEPS | WAKE_UPS)
        for raw in list(self.requests.live.values()):
            if raw.loop is None or raw.loop == ordinal:
                raw.partial = True
                raw.seen &= ~(STEPS | WAKE_UPS)

    def close(self) -> None:
        """Stop following loops. Waits for the watchdog's thread, but not on a loop's own thread."""
        self.requests.closed = True
        waits = not self.runs_loop()
        with self._lock:
            self._closed = True
        self.watchdog.stop(STOP_S if waits else 0.0)
        self.looks.stop(STOP_S if waits else 0.0)
        self.awaits.clear()
        self.outbound.clear()
        self.queued.clear()
        for monitor in list(self.monitors.values()):
            self.drop_monitor(monitor)

    def abandon(self) -> None:
        """As :meth:`close`, in a forked child: our threads do not exist, and a lock may have been held at the fork."""
        self._lock = threading.Lock()
        self.watchdog.abandon()
        self.looks.abandon()
        self.close()

    def _pipes(self) -> tuple[PipeLooks, ...]:
        stamps = [channel.stamps for channel in self.channels if channel.stamps is not None]
        return tuple([each.looks for each in stamps if not each.stopped])

    def ready(self) -> tuple[int, int, int]:
        """(earliest, ready, since) of the step running on this thread; now where none is tracked."""
        monitor = self.monitor()
        if monitor is None or not monitor.since:
            now = now_ns()
            return now, now, now
        return monitor.earliest, monitor.ready, monitor.since

    # --- channels ---

    def add_channel(self, channel: Any) -> None:
        """A transport with reads of its own has opened ``channel``. Whoever serves it keeps it alive."""
        self.transports[channel.transport] = None
        self._channels = [*(one for one in self._channels if one() is not None), ref(channel)]

    @property
    def channels(self) -> list[Any]:
        """Those that were added and still serve."""
        return [channel for one in self._channels if (channel := one()) is not None]

    # --- requests begun in the middle of a step ---

    def begin(self, kind: RequestKind, method: str, name: str | None, transport: str, session: Any) -> RawRequest:
        """A request that starts here and now, on the calling task."""
        raw = self.requests.open(kind, method, name, transport)
        raw.session = session
        parent = CURRENT.get()
        if parent is not None and not parent.ended:
            raw.parent = parent
        self.requests.note_peak(0)
        return raw

    # --- garbage collector ---

    def watch_gc(self) -> None:
        """Time collector pauses from now on."""
        if self._on_gc not in gc.callbacks:
            gc.callbacks.append(self._on_gc)
            self.working("gc")

    def unwatch_gc(self) -> None:
        """Stop timing collector pauses."""
        if self._on_gc in gc.callbacks:
            gc.callbacks.remove(self._on_gc)

    def _on_gc(self, phase: str, info: dict[str, int]) -> None:
        self._gc_guard.call(self._note_gc, phase, info)  # the garbage collector would print a fault each time

    def _note_gc(self, phase: str, info: dict[str, int]) -> None:
        if self.collecting:
            return
        if phase == "start":
            # Most collections are of the youngest, which take some 20 us: reading the clock twice would show there.
            self._gc_cpu = time.thread_time_ns() if info.get("generation") else None
            self._gc_began = now_ns()
            return
        began, self._gc_began = self._gc_began, 0
        if not began:
            return
        end = now_ns()
        self.gc_ns += end - began
        self.gc_count += 1
        monitor = self.monitors.get(threading.get_ident())
        if monitor is not None:
            monitor.pause(began, end)
        if end - began >= LONG_PAUSE_NS:
            cpu = None if self._gc_cpu is None else time.thread_time_ns() - self._gc_cpu
            self.pauses.append((began, end, info.get("generation", -1), cpu))
            for other in self.monitors.values():
                if other is not monitor:
                    other.pause_elsewhere(began, end)


def _place_of(exc: Exception) -> str:
    """Where ``exc`` was raised, as `` in file:line``; empty where that is not known."""
    traceback = exc.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    if traceback is None:
        return ""
    return f" in {os.path.basename(traceback.tb_frame.f_code.co_filename)}:{traceback.tb_lineno}"
