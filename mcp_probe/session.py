"""One attached probe: its options, its buffer, its collector; attach, snapshot, detach.

A session receives finished requests from any thread into a bounded buffer, and its collector thread
turns them into frames several times a second: steps first, so that a request finds its blockers
already there. Frames go to a fold (for ``snapshot``) and to a sink (a recording, or the channel of
``mcp-probe run``).
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from mcp_probe.adapters.all_hooks import Hooks
from mcp_probe.adapters.exits import is_made_by_multiprocessing
from mcp_probe.adapters.hook import guarded
from mcp_probe.adapters.mcp2 import ServerHooks
from mcp_probe.at_exit import AtExit
from mcp_probe.capture.current import CURRENT
from mcp_probe.capture.guard import Guard
from mcp_probe.capture.live_requests import Finished
from mcp_probe.capture.tracing import RECENT, Tracing
from mcp_probe.clock import now_ns, wall_anchor
from mcp_probe.errors import OptionError, ProbeError, UnsupportedServerError
from mcp_probe.header import Known, changes_with, header_of, package_of
from mcp_probe.inert import Inert, pass_through
from mcp_probe.model import End, Frame, FrameListener, Header, MemoryTier, OpenRequest, RequestGroup, RequestRecord
from mcp_probe.options import Options, check_tier
from mcp_probe.process import PROCESS
from mcp_probe.record.file import FrameSink, encode
from mcp_probe.record.listeners import Listeners
from mcp_probe.record.parts import RecordingWriter, bytes_of
from mcp_probe.record.raw import RawRequest

if TYPE_CHECKING:
    from mcp_probe.aggregate.fold import Fold
    from mcp_probe.export.telemetry import Telemetry
    from mcp_probe.live.channel import LiveChannel
    from mcp_probe.live.dump_signal import DumpSignal
    from mcp_probe.live.flight import FlightRecorder
    from mcp_probe.model import Finding, Summary

logger = logging.getLogger("mcp_probe")
P = ParamSpec("P")
T = TypeVar("T")

BUFFER = 16_384
"""Finished requests waiting for the collector, woken at half of them; more are counted and get no record."""
_NO_TRANSPORTS = ("function", "unknown")
_OF_REQUESTS = (RequestRecord, RequestGroup, OpenRequest)


class Probe:
    """One attached probe. Made by :func:`attach`, or directly for the middleware form.

    ``Probe(slow_step_ms=…)`` installs the process-wide hooks at once and claims what its
    :attr:`middleware` sees.

    A fault of ours leaves a probe that sees nothing (:mod:`mcp_probe.inert`); it is logged, and what was hooked is put
    back. Whoever makes a probe of a class of its own is told of the fault instead.

    Raises: OptionError for bad options.
    """

    automatic = False
    """Nobody asked for it by name: an explicit :func:`attach` takes its servers over."""
    reads_environment = True
    """What ``MCP_PROBE_*`` say counts, unless the options say otherwise."""

    def __init__(self, **options: Any) -> None:
        self.options = Options.from_environment(options) if self.reads_environment else Options(**options)
        try:
            self._start()
        except BaseException as exc:
            self._undo()
            if isinstance(exc, ProbeError) or not isinstance(exc, Exception) or type(self) is not Probe:
                raise
            vars(self).clear()
            self.__class__ = InertProbe
            Inert.__init__(self, exc)  # type: ignore[arg-type]

    def _start(self) -> None:
        self._memory = self.options.memory
        self.attached = True
        self._changing = threading.RLock()  # of which servers it is attached to
        self._servers: list[tuple[weakref.ref[Any], Hooks]] = []  # a server dies when nobody else holds it
        self._stuck: list[str] = []
        self._live: LiveChannel | None = None
        self._flight: FlightRecorder | None = None
        self._dump_signal: DumpSignal | None = None
        self._done = False  # the last frame has been emitted
        self._tracing: Tracing | None = None
        self._told_dropped: dict[str, int] = {}
        self._known = Known(*wall_anchor(), full=self.options.full)
        self._emitted = 0  # frames, headers left out
        self._told_name = ""  # what its server calls itself
        self._sinks: list[FrameSink] = []
        self._listeners = Listeners(lambda exc: self._hub.fail("telemetry", exc))
        self._fold: Fold | None = None
        self._folding = threading.RLock()  # the collector's thread adds to it, any other may ask it
        self._header: Header | None = None
        self._header_of: tuple[object, ...] = ()  # what it was made of
        self.keep_summary()
        # A child that multiprocessing spawns imports the parent's main module, and attaches where that does.
        self._silent = is_made_by_multiprocessing()  # until a request comes
        if self.options.record is not None:
            path, given = self.options.record, self.options.record_limit
            limit = None if given is None else bytes_of(given)
            self.add_sink(Recording(path, limit) if self._silent else open_recording(path, limit))
        flight = None if self.options.flight is None else flight_folder(self.options.flight)
        self._hooks = PROCESS.enter(self)
        self._hub = self._hooks.hub
        if self.options.resources:
            self._hooks.check_resources()
        self.guard = Guard("profile", self._hub.fail)
        self._loose = ServerHooks(self._hub, self._hooks.loops, self._hooks.asgi, self)
        self._collector = PROCESS.collector_of(self._hub)
        self._finished = Finished(BUFFER, self._collector.wake)
        self.finish: Callable[[RawRequest], None] = self._finished.put  # a request of ours has ended: any thread
        self._collector.add(self)
        self.at_exit = AtExit(self._end, self.options.report, self._hub.fail)
        self._telemetry = self._make_telemetry()
        if flight is not None:
            self._flight = self._make_flight(flight)
        if self.options.live:
            self._live = self._make_live()
        if self._live is not None or self._flight is not None:
            self._hub.leaving.append(self._process_ends)
        parts = (self.options.report, self.options.record, self._flight, self._live)
        if any(part is not None for part in parts):
            self.at_exit.arm()

    # --- what users call ---

    @property
    def middleware(self) -> Any:
        """For ``MCPServer(middleware=[probe.middleware])``: the SDK's own extension point (mcp 2.x)."""
        return self._unless_at_fault(self._joined_middleware, pass_through)

    def _joined_middleware(self) -> Any:
        self._begin()
        return self._loose.middleware

    def streams(self, read_stream: Any, write_stream: Any) -> tuple[Any, Any]:
        """The stream pair of a bare transport loop, followed: ``server.run(*probe.streams(*streams), …)`` (mcp 2.x)."""
        pair = read_stream, write_stream
        return self._unless_at_fault(partial(self._followed_streams, *pair), pair)

    def _followed_streams(self, read_stream: Any, write_stream: Any) -> tuple[Any, Any]:
        self._begin()
        if not self._hooks.can_follow_streams(is_attached=bool(self._servers)):
            return read_stream, write_stream
        return self._loose.streams.followed(read_stream, write_stream)

    def asgi(self, app: Any) -> Any:
        """An ASGI app whose MCP exchanges are followed from the outermost call on."""
        return self._unless_at_fault(partial(self._wrapped_app, app), app)

    def _wrapped_app(self, app: Any) -> Any:
        self._begin()
        return self._hooks.wrap_asgi(app)

    def _unless_at_fault(self, make: Callable[[], T], instead: T) -> T:
        """Returns what ``make`` does; after a fault of ours, which is logged, ``instead``. Raises: ProbeError."""
        try:
            return make()
        except ProbeError:
            raise
        except Exception as exc:  # noqa: BLE001 - a fault of ours never reaches the server
            self.guard.fault(exc)
            return instead

    def profile(self, function: Callable[P, Awaitable[T]]) -> Callable[P, Coroutine[Any, Any, T]]:
        """Decorator: report every call of an async function as an operation of its own.

        Inside a request the call is part of that request and has its own row besides.
        """
        name = getattr(function, "__qualname__", repr(function))

        @wraps(function)
        async def profiled(*args: P.args, **kwargs: P.kwargs) -> T:
            entered = self._enter_function(name)
            if entered is None:
                return await function(*args, **kwargs)
            try:
                result: T = await entered[1].followed(function(*args, **kwargs), entered[0])
            except BaseException as exc:
                self._leave_function(entered, exc)
                raise
            self._leave_function(entered, None)
            return result

        return profiled

    def snapshot(self) -> Summary:
        """What is known so far, requests in flight included as unfinished. Blocks until the collector has caught up.

        Raises: ProbeError after ``detach`` of a probe that kept no summary.
        """
        if self._fold is None:
            raise ProbeError("This probe keeps no summary: its frames go to the process that started it.")
        live = not self._done
        if live:
            self._collector.catch_up()
        with self._folding:
            summary = self._fold.summary(live=live)
        return self._with_deliveries(summary)

    @property
    def memory(self) -> MemoryTier:
        """The tier of memory measurement; set it to switch a running server, on any thread.

        Another attached probe may have asked for more: the highest is in force. Requests that run while it changes
        have no figures.

        Raises: OptionError where it is set to no tier.
        """
        return self._memory

    @memory.setter
    def memory(self, tier: MemoryTier) -> None:
        check_tier(tier)
        self._memory = tier
        if self.attached:
            self._collector.catch_up()  # what has ended was measured by the back end that it began with
            self._hub.memory.want(self, tier)

    def detach(self) -> None:
        """Restore every object touched; hooks that somebody wrapped over become pass-throughs.

        Idempotent, on any thread, also while requests run. A second caller waits for the first, but not on an
        event loop's thread: there it waits for nothing but a drain that is under way.
        """
        if not self._changing.acquire(blocking=not self._hub.runs_loop()):
            return
        try:
            if self.attached:
                self._detach()
        finally:
            self._changing.release()

    def _detach(self) -> None:
        self.attached = False
        for leave in (self._leave_watchers, self._leave_collector, self._leave_servers, self._leave_process):
            leave()
        for sentence in self._stuck:
            logger.warning("mcp_probe: %s", sentence)

    def _undo(self) -> None:
        """Detach after a fault in the middle of attaching: a part that is not there has nothing to be undone."""
        self.attached = False
        parts = (
            self._leave_watchers,
            self._leave_collector,
            self._leave_servers,
            self._leave_process,
            self._leave_files,
        )
        for leave in parts:
            with suppress(Exception):
                leave()

    def _leave_watchers(self) -> None:
        self._stop_watching("its probe was detached", waits=not self._hub.runs_loop())

    def _leave_collector(self) -> None:
        self._collector.remove(self, "detached")
        self._finished.close()
        if self._telemetry is not None and self._telemetry.deliver in self._hub.ending:
            self._hub.ending.remove(self._telemetry.deliver)
        if self._process_ends in self._hub.leaving:
            self._hub.leaving.remove(self._process_ends)
        if self.options.report is None:
            self.at_exit.disarm()

    def _leave_servers(self) -> None:
        for _, hooks in self._servers:
            self._stuck += hooks.restore()
        self._servers.clear()
        self._loose.restore()
        if self._tracing is not None and self._hub.pools.carry == self._tracing.carry:
            self._hub.pools.carry = None

    def _leave_process(self) -> None:
        self._stuck += PROCESS.leave(self)

    def _leave_files(self) -> None:
        """Write nothing more: what there was to write was not written."""
        for sink in self._sinks:
            sink.close()
        self.at_exit.disarm()

    def abandon(self) -> None:
        """This is a forked child: be detached, and write nothing of what the parent will write."""
        self._changing = threading.RLock()
        self._folding = threading.RLock()
        self.attached = False
        self._finished.forget()
        self._done = True
        for sink in self._sinks:
            if isinstance(sink, (RecordingWriter, Recording)):
                sink.close()
        self._sinks.clear()
        for part in (self._live, self._flight):
            if part is not None:
                part.abandon()
        if self._dump_signal is not None:
            self._dump_signal.restore()
        self._listeners.forget()
        for _, hooks in self._servers:
            hooks.restore()
        self._servers.clear()
        self._loose.restore()
        self.at_exit.disarm()

    def succeed(self) -> None:
        """Make a successor for servers that the forked child may create; an attached server needs none."""

    def __repr__(self) -> str:
        state = "attached" if self.attached else "detached"
        return f"<Probe of {self._known.name or 'no server'}, {state}>"

    # --- plumbing ---

    def attach(self, server: Any) -> None:
        """Attach to one more server. Idempotent. Raises: UnsupportedServerError."""
        found = self._hooks.hooks_for(server, self)
        if found is None:
            raise UnsupportedServerError(
                f"attach() was given a {type(server).__module__}.{type(server).__qualname__}; expected an MCPServer or "
                "low-level Server of mcp 2.x, a FastMCP or Server of mcp 1.x, or a FastMCP of fastmcp 2-4. "
                "Pass the server object itself, before it runs."
            )
        lowlevel, hooks = found
        with self._changing:
            self._servers = [(known, other) for known, other in self._servers if known() is not None]
            if not self.attached or any(known() is lowlevel for known, _ in self._servers):
                return
            self._servers.append((weakref.ref(lowlevel), hooks))  # first: half of them may be installed
            hooks.install(lowlevel)
            if self._tracing is not None:
                hooks.trace(self._tracing)
        known = self._known
        name = known.name or str(getattr(server, "name", None) or getattr(lowlevel, "name", None) or "server")
        self._known = replace(known, name=name, package=known.package or package_of(server))
        self._begin()

    @property
    def tell(self) -> Callable[[str], str] | None:
        """Makes the text of a resource (``report``, ``findings``); ``None``: the option ``resources`` is off."""
        return self._told if self.options.resources else None

    def _told(self, kind: str) -> str:
        from mcp_probe.report.resources import TEXTS

        return TEXTS[kind](self.snapshot())

    @property
    def stuck(self) -> tuple[str, ...]:
        """Sentences for what a detach could not put back."""
        return tuple(self._stuck)

    def release(self, server: Any) -> None:
        """Leave ``server`` to another probe, before it runs."""
        found = self._hooks.hooks_for(server, self)
        with self._changing:
            for known, hooks in list(self._servers):
                if found is not None and known() is found[0]:
                    self._servers.remove((known, hooks))
                    self._stuck += hooks.restore()

    def trace_with(self, tracing: Tracing) -> None:
        """Add to requests' spans, or open them, with ``tracing``; once, for all servers of this probe.

        Call it before mcp 2.x servers run, or on their loop: it changes their middleware.
        """
        if self._hub.runs_loop():
            with self._changing:
                return self._trace_with(tracing)
        while not self._changing.acquire(timeout=0.05):
            if not self.attached:  # who detaches waits for the collector's thread, which may be this one
                return
        try:
            self._trace_with(tracing)
        finally:
            self._changing.release()

    def _trace_with(self, tracing: Tracing) -> None:
        if self._tracing is not None or not self.attached:
            return
        self._tracing = tracing
        if self._hub.recent is None:
            self._hub.recent = deque(maxlen=RECENT)
        self._hub.pools.carry = tracing.carry
        self._loose.trace(tracing)
        for _, hooks in self._servers:
            hooks.trace(tracing)

    def attach_every_server(self) -> None:
        """Attach to each MCP server this process creates from now on."""
        self._hooks.every_server(self.attach)

    def serves(self, server: Any) -> bool:
        """Whether ``server`` (or the low-level server behind it) is attached to this probe."""
        found = self._hooks.hooks_for(server, self)
        return found is not None and any(known() is found[0] for known, _ in self._servers)

    def keep_summary(self) -> None:
        """Fold frames as they come, so that ``snapshot`` can answer."""
        if self._fold is None:
            from mcp_probe.aggregate.fold import Fold

            self._fold = Fold(slow_step_ms=self.options.slow_step_ms)

    def note_transport(self, transport: str) -> None:
        """A request came over ``transport``."""
        known = self._known
        if transport not in known.transports and transport not in _NO_TRANSPORTS:
            self._known = replace(known, transports=known.transports | {transport})

    def note_server(self, name: str) -> None:
        """A server has told a client its ``name`` (``serverInfo``); what the first one said stays."""
        self._told_name = self._told_name or name

    def is_read(self) -> bool:
        """Frames leave the process as they come."""
        return bool(self._sinks) or (self._live is not None and self._live.watched)

    def add_sink(self, sink: FrameSink) -> None:
        """Send frames to ``sink`` too, from the next drain on."""
        self._sinks.append(sink)

    def add_listener(self, listener: FrameListener) -> None:
        """Hand every frame to ``listener`` too, the header first; it is closed with the probe. Any thread."""
        self._listeners.add(listener)

    @property
    def slow_request_ms(self) -> float | None:
        """From where on a request is slow; ``None``: compared with others."""
        return self.options.slow_request_ms

    @property
    def wants_timelines(self) -> bool:
        """Each request's record is followed by what it did, one by one."""
        return self.options.full

    def take_finished(self) -> list[RawRequest]:
        """Finished requests, oldest first."""
        return self._finished.take()

    def take_groups(self) -> list[RequestGroup]:
        """Requests that have ended while there was no room for them."""
        return self._finished.take_groups()

    def backlog(self) -> int:
        """Finished requests not yet taken."""
        return len(self._finished)

    def live(self) -> list[RawRequest]:
        """Requests of ours that have not ended."""
        return [raw for raw in list(self._hub.requests.live.copy().values()) if raw.session is self]

    def emit(self, frames: Iterable[Frame]) -> None:
        """Hand frames to the fold and to every sink. Collector's thread."""
        batch = list(frames)
        if not batch:
            return
        if self._header is None and not self._ready_for_header(batch):
            return
        if self._told_name and self._known.name != self._told_name:
            self._known = replace(self._known, name=self._told_name)
        self._emitted += len(batch)
        changes = changes_with(self._known, self._hub)
        if changes != self._header_of:
            self._header_of = changes
            header = header_of(self._known, self._hub)
            if header != self._header:
                self._header = header
                batch.insert(0, header)
        if type(batch[-1]) is End:  # an End is emitted alone
            batch[-1] = replace(batch[-1], frames=self._emitted - 1)
        if self._fold is not None:
            with self._folding:
                self._fold.add_all(batch)
        if self._sinks or self._flight is not None:
            lines = [encode(frame) for frame in batch]
            if self._flight is not None:
                self._flight.take(batch, lines)
            for sink in list(self._sinks):
                try:
                    sink.write(lines)
                except Exception as exc:  # noqa: BLE001 - one sink's fault costs no other sink its frames
                    self._sinks.remove(sink)
                    self._hub.fail("recording", exc)
        if self._listeners:
            self._listeners.take(batch)

    @property
    def fold(self) -> Fold | None:
        """The running aggregate, if one is kept."""
        return self._fold

    def dropped(self) -> dict[str, int]:
        """Losses so far, by reason."""
        losses = {
            "too many live requests": self._hub.requests.overflow,
            "executor transitions": self._hub.pools.dropped,
        }
        return {reason: count for reason, count in losses.items() if count}

    def newly_dropped(self) -> tuple[tuple[str, int], ...]:
        """Losses since the last call, by reason."""
        now, before = self.dropped(), self._told_dropped
        self._told_dropped = now
        return tuple(
            sorted((why, count - before.get(why, 0)) for why, count in now.items() if count > before.get(why, 0))
        )

    def close_sinks(self) -> None:
        """No more frames will come."""
        self._done = True
        for sink in self._sinks:
            try:
                sink.close()
            except Exception as exc:  # noqa: BLE001
                self._hub.fail("recording", exc)
        self._sinks.clear()
        self._finished.forget()
        self._listeners.close(self.options.otlp_exit_ms / 1e3 if self.options.otlp else 0.0)

    def _ready_for_header(self, batch: list[Frame]) -> bool:
        if self._silent and any(isinstance(frame, _OF_REQUESTS) for frame in batch):
            self._silent = False
            self._begin()
        return not self._silent

    @guarded
    def _enter_function(self, name: str) -> tuple[RawRequest, Any, Any] | None:
        monitor = self._hooks.loops.follow() if self.attached else None
        if monitor is None:
            return None
        raw = self._hub.begin("function", name, None, "function", self)
        return raw, monitor, monitor.enter(raw)

    @guarded
    def _leave_function(self, entered: tuple[RawRequest, Any, Any], exc: BaseException | None) -> None:
        raw, monitor, token = entered
        monitor.leave(raw, token)
        if exc is not None:
            raw.outcome = "error" if isinstance(exc, Exception) else "cancelled"
            raw.error = type(exc).__qualname__
        now = now_ns()
        self._hub.requests.finished(raw, now)
        self._hub.requests.end(raw, now)

    def _make_telemetry(self) -> Telemetry | None:
        mode, options = self.options.telemetry, self.options
        if mode == "off":
            return None
        if mode == "relay":
            from mcp_probe.export.generated_ids import GeneratedIds

            self.trace_with(GeneratedIds(capture_content=tuple(options.capture_content), redact=options.redact))
            return None
        from mcp_probe.export.exporters import TelemetrySettings
        from mcp_probe.export.telemetry import Telemetry

        settings = TelemetrySettings(
            otlp=options.otlp if mode == "auto" else False,
            exports=mode == "auto",
            exit_s=options.otlp_exit_ms / 1e3,
            slow_step_ms=options.slow_step_ms,
            slow_request_ms=options.slow_request_ms,
            detail=options.detail,
            replay_histograms=options.replay_histograms,
            await_hosts=options.await_hosts,
            capture_content=tuple(options.capture_content),
            redact=options.redact,
        )
        telemetry = Telemetry(settings, trace=self.trace_with, found=self._deliver_at_exit)
        self.add_listener(telemetry)
        if options.otlp:
            self._hub.ending.append(telemetry.deliver)
            self._hub.exit_s = max(self._hub.exit_s, options.otlp_exit_ms / 1e3)
        return telemetry

    def _process_ends(self) -> None:
        """A signal is about to end it: a loop that runs here has nothing more to do, so it may wait."""
        self._stop_watching("a signal ends its process", waits=True)

    def _stop_watching(self, reason: str, *, waits: bool) -> None:
        """Nobody watches, and nothing is kept any more."""
        if self._live is not None:
            self._live.close(reason, waits=waits)
        if self._flight is not None:
            self._flight.close(waits=waits)
        if self._dump_signal is not None:
            self._stuck += self._dump_signal.restore()

    def _begin(self) -> None:
        """It has a server, or will have one."""
        if self._telemetry is not None:
            self._telemetry.begin(self._known.name)
        if self._live is not None and not self._silent:
            self._live.open()

    def findings(self) -> tuple[Finding, ...]:
        """What is raised now; nothing where no summary is kept. Not on a loop's thread."""
        if self._fold is None:
            return ()
        with self._folding:
            return self._fold.summary(live=not self._done).findings

    def _make_flight(self, folder: str) -> FlightRecorder:
        from mcp_probe.live.dump_signal import HOOK, DumpSignal
        from mcp_probe.live.flight import FlightRecorder
        from mcp_probe.live.triggers import Triggers

        options, hub = self.options, self._hub
        slow_ns = None if options.slow_request_ms is None else round(options.slow_request_ms * 1e6)
        triggers = Triggers(options.flight_factor, slow_ns)
        catch_up = self._collector.catch_up
        flight = FlightRecorder(folder, options.flight_seconds, triggers, hub, self, catch_up, hub.fail)
        if options.dump_signal:
            self._dump_signal = DumpSignal(flight.ask)
            hub.tell(HOOK, self._dump_signal.install())
        return flight

    def _make_live(self) -> LiveChannel:
        from mcp_probe.live.channel import HOOK, LiveChannel
        from mcp_probe.live.source import LiveSource

        hub = self._hub
        source = LiveSource(hub, self, lambda: header_of(self._known, hub), self._collector.wake, self._flight)
        self.add_listener(source.recent)
        return LiveChannel(source, hub.fail, partial(hub.tell, HOOK))

    def _with_deliveries(self, summary: Summary) -> Summary:
        deliveries = self._telemetry.deliveries() if self._telemetry is not None else ()
        if not deliveries:
            return summary
        from mcp_probe.export.delivery import with_deliveries

        return with_deliveries(summary, deliveries)

    def _deliver_at_exit(self) -> None:
        """Providers have been found: deliver before they shut down."""
        if self.attached:
            self.at_exit.come_first()

    def _end(self) -> Summary | None:
        """The process ends: hand on what there is. Returns what is to be reported; not if another process does it."""
        self._stop_watching("its process ends", waits=not self._hub.runs_loop())
        self._collector.remove(self, "exit")
        return None if self.options.report is None or self._fold is None or self._silent else self.snapshot()


def attach(server: Any, **options: Any) -> Probe:
    """Attach a probe to an MCP server, before or while it runs.

    Args:
        server: MCPServer or low-level Server (mcp 2.x), FastMCP or Server (mcp 1.x), FastMCP (fastmcp 2-4).
        **options: see :class:`Options`; also read from ``MCP_PROBE_*``.

    Attaching the same server again returns the same probe. Requests already in flight are not seen. After a fault of
    ours the server runs without us: the fault is logged, and the probe sees nothing.

    Raises:
        UnsupportedServerError: the object is no MCP server we know.
        OptionError: an option is unknown or out of range.
    """
    try:
        return _attach(server, options)
    except ProbeError:
        raise
    except Exception as exc:  # noqa: BLE001 - a fault of ours never reaches the server
        return InertProbe(exc)


def _attach(server: Any, options: dict[str, Any]) -> Probe:
    with PROCESS.lock:
        automatic = [session for session in PROCESS.sessions if session.automatic and session.serves(server)]
    for session in automatic:  # one that is just being detached waits for the lock
        session.release(server)
    with PROCESS.lock:
        for session in PROCESS.sessions:
            if session.serves(server):
                found: Probe = session
                return found
        probe = Probe(**options)
        try:
            probe.attach(server)
        except ProbeError:
            probe.detach()
            raise
        except BaseException:
            probe._undo()
            raise
        return probe


class InertProbe(Inert, Probe):
    """A probe after a fault of ours: it sees nothing, and everything that a server asks of it works."""


def open_recording(path: str, limit_bytes: int | None = None) -> RecordingWriter:
    """A recording at ``path``. Raises: OptionError where it cannot be written."""
    try:
        writer = RecordingWriter(path, limit_bytes)
    except OSError as exc:
        raise OptionError(
            f"record={path!r}: the file cannot be written ({exc.strerror}). "
            "Give a path in a folder that exists and that you may write to."
        ) from exc
    if writer.path != path:
        logger.warning(
            "mcp_probe: another process or probe writes to %s; this one's recording is %s", path, writer.path
        )
    return writer


def flight_folder(path: str) -> str:
    """The folder of flight recordings. Raises: OptionError where it cannot be used."""
    from mcp_probe.live.flight_files import folder_of

    return folder_of(path)


class Recording:
    """A sink that makes its file for the first frames it gets."""

    def __init__(self, path: str, limit_bytes: int | None = None) -> None:
        self._path = path
        self._limit = limit_bytes
        self._writer: RecordingWriter | None = None

    def write(self, lines: list[bytes]) -> None:
        """Append ``lines``. Raises: OptionError, OSError."""
        if self._writer is None:
            self._writer = open_recording(self._path, self._limit)
        self._writer.write(lines)

    def close(self) -> None:
        """No more lines will come."""
        if self._writer is not None:
            self._writer.close()


def attach_everywhere(sink: FrameSink, **options: Any) -> Probe:
    """Attach to every MCP server this process creates, and send all frames to ``sink``.

    Used inside the child of ``mcp-probe run``. Frames go out from the collector's thread at least
    every 0.8 s; an ``End`` frame at a clean exit.
    """
    probe = ForwardingProbe(sink, **options)
    probe.at_exit.arm()
    return probe


class AutomaticProbe(Probe):
    """A probe of every MCP server this process creates, until :func:`attach` takes a server over."""

    automatic = True

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.attach_every_server()

    def succeed(self) -> None:
        """A forked worker may be the one that creates the server."""
        AutomaticProbe(**asdict(self.options))


class ForwardingProbe(Probe):
    """A probe that keeps no summary: its frames go to another process, from its first request on."""

    def __init__(self, sink: FrameSink, **options: Any) -> None:
        self._forward_to = sink
        super().__init__(**options)
        self.attach_every_server()

    def keep_summary(self) -> None:
        """Nothing is folded here, the parent does it; but a flight recorder is told of findings here."""
        self.add_sink(self._forward_to)
        if self.options.flight is not None:
            super().keep_summary()

    def _told(self, kind: str) -> str:
        """The process that gets the frames knows; nothing that could tell is loaded here."""
        ask: Callable[[str], str] | None = getattr(self._forward_to, "ask", None)
        if ask is None:
            raise ProbeError("Whoever gets this probe's frames answers no questions.")
        self._collector.catch_up()
        return ask(kind)

    def _ready_for_header(self, batch: list[Frame]) -> bool:
        return super()._ready_for_header(batch) and bool(self._servers)

    def succeed(self) -> None:
        """Each process that creates a server reports: the sink connects anew once this child has one."""
        attach_everywhere(self._forward_to, **asdict(self.options))


class VisitingProbe(Probe):
    """A probe that `mcp-probe attach` has brought into a server that runs: its frames go to that command.

    Raises: OptionError for bad options.
    """

    reads_environment = False

    def __init__(self, sink: FrameSink, **options: Any) -> None:
        self._forward_to = sink
        super().__init__(**options)
        self.at_exit.arm()

    def keep_summary(self) -> None:
        """Nothing is folded here; the command that attached does it."""
        self.add_sink(self._forward_to)


def attached() -> tuple[Probe, ...]:
    """Every probe that is attached in this process."""
    return tuple(PROCESS.sessions)


def current_operation() -> str | None:
    """Name of the operation the caller works for, or ``None``."""
    raw = CURRENT.get()
    return None if raw is None or raw.ended else raw.operation
