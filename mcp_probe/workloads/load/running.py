"""One load from beginning to end: connect, look before leaping, warm up, open loop, closed loop, and the figures."""

from __future__ import annotations

import asyncio
import signal
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path

from mcp_probe.aggregate.bounded import earlier_ns, seen_in
from mcp_probe.aggregate.explain import Seen, explain
from mcp_probe.clock import now_ns
from mcp_probe.errors import LaunchError, OptionError
from mcp_probe.model import QUEUE, Percentiles, RequestRecord
from mcp_probe.record.file import read_recording
from mcp_probe.workloads.bench.machine import ForeignLoad, describe_machine
from mcp_probe.workloads.load import loops
from mcp_probe.workloads.load.connecting import MOST_SESSIONS, connect_all
from mcp_probe.workloads.load.generator import Turns, closed_loop, open_loop
from mcp_probe.workloads.load.log import Log
from mcp_probe.workloads.load.mix import Call, Mix, named
from mcp_probe.workloads.load.peer import Peer, Target, listed, names, reply_within
from mcp_probe.workloads.load.result import (
    LoadResult,
    ServerSide,
    Start,
    failures_of,
    latency_of,
    operations_of,
    phase_of,
    slices_of,
)
from mcp_probe.workloads.load.stalls import stalls_of

Show = Callable[[str], None]

FIRST_CALL_S = 60.0
"""For the one call of each kind that is made before the load."""

_SPARE_DESCRIPTORS = 64
_MOST_DESCRIPTORS = 65_536


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """How a load is run, beside what it is made of."""

    allow_failures: bool = False  # go on where a call of the mix fails when it is first made
    profile: bool = False  # run the server's command under the probe
    connections: int = 0  # to an HTTP server at most; 0 = as many as descriptors allow
    sessions: int = 1  # clients; over stdio each starts a server of its own


def run_load(target: Target, mix: Mix, options: LoadOptions | None = None, show: Show | None = None) -> LoadResult:
    """Runs it; blocks for about warm-up + twice the window (once without the closed loop) + the time answers take.

    The first Ctrl-C ends the load early and still gives a result, the second one raises KeyboardInterrupt. Must be
    called on the main thread for that, and not inside a running event loop.

    Raises:
        LaunchError: the server does not start, cannot be reached, or a call of the mix fails when it is first made.
        OptionError: the mix names what the server does not have; ``profile`` for a URL.
        MissingExtraError: for HTTP, the ``aiohttp`` package is missing.
    """
    options = options or LoadOptions()
    if options.profile and target.url:
        raise OptionError(
            "A server behind a URL cannot be put under the probe from here. "
            "Start it with `mcp-probe run -- …` yourself: its report will say how long requests waited unread."
        )
    if not 1 <= options.sessions <= MOST_SESSIONS:
        raise OptionError(f"sessions is {options.sessions}; expected 1 to {MOST_SESSIONS:,}.")
    if options.profile and options.sessions > 1:
        raise OptionError(
            f"--profile shows what one server process saw, and --sessions {options.sessions} starts so many of them. "
            "Leave one of the two out."
        )
    tell = show or (lambda what: None)
    if not options.profile:
        return loops.run(_loaded(target, mix, options, tell))[0]
    with tempfile.TemporaryDirectory(prefix="mcp-probe-load-") as folder:
        recording = Path(folder, "recording.jsonl")
        result, log = loops.run(_loaded(target.under_probe(recording), mix, options, tell))
        return replace(result, server_side=_server_side(recording, log))


async def _loaded(target: Target, mix: Mix, options: LoadOptions, show: Show) -> tuple[LoadResult, Log]:
    stop = asyncio.Event()
    notes: list[str] = []
    connections = _connections(options.connections, notes)
    show("starting the server" if target.command else "connecting")
    with _interruptible(stop):
        async with connect_all(target, options.sessions, connections=connections, show=show) as peer:
            first_call_ms = None if options.allow_failures else await check_calls(peer, mix)
            machine = describe_machine()
            log, closed_log, foreign = await _phases(peer, mix, stop, show)
            if gone := await peer.last_words():
                which = "The server" if len(peer) == 1 else f"{peer.lost()} of {len(peer)} servers"
                notes.append(f"{which} went away during the load: {gone}.")
            described = (peer.protocol, peer.server)
            _say_who_waited(connections if target.url else 0, log, notes)
            start = Start(len(peer), latency_of(peer.connect_ns), first_call_ms, peer.lost())
    if stop.is_set():
        notes.append("Interrupted: the figures are of what had been sent by then.")
    result = LoadResult(
        target=target.name,
        transport=target.transport,
        protocol=described[0],
        server=described[1],
        mix=mix,
        open=phase_of(log, mix.drain),
        closed=None if closed_log is None or not closed_log else phase_of(closed_log, mix.drain),
        operations=operations_of(log, mix),
        slices=slices_of(log),
        failures=failures_of(log, mix),
        foreign_cores=foreign,
        machine=machine,
        notes=tuple(notes),
        stalls=stalls_of(log, mix),
        start=start,
    )
    return result, log


async def _phases(peer: Peer, mix: Mix, stop: asyncio.Event, show: Show) -> tuple[Log, Log | None, float | None]:
    turns = Turns(mix.calls)
    if mix.warm_up:
        show(f"warming up, {mix.warm_up:g} s")
        await open_loop(peer, turns, mix.warming(), drain_s=mix.drain, stop=stop)
    load = ForeignLoad()
    whole = max(1, ceil(mix.rate * mix.window_s)) if mix.count is None else mix.count

    shown_ns = 0

    def progress(sent: int, outstanding: int) -> None:
        nonlocal shown_ns
        if now_ns() - shown_ns < 200_000_000:
            return
        shown_ns = now_ns()
        show(f"open loop: {sent:,} of about {whole:,} sent, {outstanding:,} unanswered")

    log = await open_loop(
        peer, turns, mix.schedule(), drain_s=mix.drain, stop=stop, show=progress, window_s=mix.window_s
    )
    foreign = None if peer.pid is None else load.cores()  # behind a URL, the server's own work looks foreign
    closed = None
    if mix.in_flight and not stop.is_set() and not peer.gone():
        show(f"closed loop, {mix.in_flight} in flight")
        # A Poisson schedule of a given count may last longer than its mean.
        window_s = max(mix.window_s, (log.offered_until_ns - log.begun_ns) / 1e9)
        closed = await closed_loop(
            peer, turns, mix.schedule(), in_flight=mix.in_flight, window_s=window_s + 0.001, stop=stop
        )
    return log, closed, foreign


async def check_calls(peer: Peer, mix: Mix) -> float:
    """Makes each call of the mix once, so that a load does not measure how fast a server says no.

    Returns how long the first took, in milliseconds: what a server puts off until it is first called is in that.

    Raises:
        OptionError: the server has no such tool or prompt.
        LaunchError: a call fails, or is not answered within :data:`FIRST_CALL_S`.
    """
    for kind in ("tool", "prompt"):
        wanted = named(mix.calls, kind)
        offered = names(await listed(peer, f"{kind}s")) if wanted else []
        if unknown := sorted(set(wanted) - set(offered)):
            has = f"it has {', '.join(offered)}" if offered else "it has none"
            raise OptionError(f"The server has no {kind} {', '.join(unknown)}; {has}.")
    took_ms = [await _check(peer, call) for call in mix.calls]
    return took_ms[0]


async def _check(peer: Peer, call: Call) -> float:
    reply = await reply_within(peer.post(call.order(0)), FIRST_CALL_S)
    if reply is None:
        raise LaunchError(f"{call.operation} was not answered within {FIRST_CALL_S:g} s, with no other call in flight.")
    if reply.kind != "ok":
        raise LaunchError(
            f"{call.operation} fails ({reply.kind}): {await peer.last_words() or reply.failure}. Correct its "
            "arguments, or say --allow-failures to load it all the same."
        )
    return reply.service_ms


def _connections(asked: int, notes: list[str]) -> int:
    """How many connections may be open at once; raises this process's own limit of descriptors as far as it may."""
    try:
        import resource
    except ImportError:
        return asked
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _MOST_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    most = _MOST_DESCRIPTORS if soft == resource.RLIM_INFINITY else max(1, soft - _SPARE_DESCRIPTORS)
    if asked > most:
        notes.append(f"{most:,} connections at most instead of {asked:,}: `ulimit -n` allows {soft:,} descriptors.")
    return min(asked or most, most)


def _say_who_waited(connections: int, log: Log, notes: list[str]) -> None:
    """A request without a connection waits in the generator, and nothing of that is the server's."""
    if 0 < connections < log.outstanding_peak:
        notes.append(
            f"At most {connections:,} connections were open and up to {log.outstanding_peak:,} requests in flight: the "
            "others waited in the generator for a connection, and that wait is in every figure."
        )


@contextmanager
def _interruptible(stop: asyncio.Event) -> Iterator[None]:
    """The first Ctrl-C sets ``stop``; from then on it is Python's own again."""
    loop = asyncio.get_running_loop()

    def asked() -> None:
        stop.set()
        loop.remove_signal_handler(signal.SIGINT)

    try:
        loop.add_signal_handler(signal.SIGINT, asked)
    except (NotImplementedError, ValueError, RuntimeError):  # no POSIX, or not the main thread
        yield
        return
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)


def _server_side(recording: Path, log: Log) -> ServerSide | None:
    """What the probe saw of the requests of the open loop: those that were written while it lasted."""
    last = log.ended_ns  # of the open loop; the closed one sends after it
    seen = Seen.of(read_recording(recording), log.begun_ns, log.ended_ns or None)
    mine = [each for each in seen.requests if each.sent_ns is not None and log.begun_ns <= each.sent_ns <= last]
    if not mine:
        return None
    finished = [each for each in mine if each.outcome != "unfinished"]
    return ServerSide(
        count=len(mine),
        pipe_wait=_percentiles([max(0, each.arrival_ns - (each.sent_ns or 0)) for each in mine]),
        queue_p50=_percentiles([_sum(each, "queue_transport", "queue_dispatch") for each in mine]).p50,
        handling_p50=_percentiles([_handling(each) for each in finished]).p50,
        write_p50=_percentiles([_sum(each, "write_wait", "write_flush") for each in finished]).p50,
        total=_percentiles([each.end_ns - each.arrival_ns for each in finished]),
        verdict=seen.summary.verdict.sentence,
        why=explain(seen),
        later=any(earlier_ns(each) or not seen_in(each) & QUEUE for each in mine),
    )


def _sum(record: RequestRecord, *parts: str) -> int | None:
    known = [value for part in parts if (value := getattr(record.budget, part)) is not None]
    return sum(known) if known else None


def _handling(record: RequestRecord) -> int | None:
    if record.first_step_ns is None or record.result_ns is None:
        return None
    return record.result_ns - record.first_step_ns


def _percentiles(values: Sequence[int | None]) -> Percentiles:
    """Milliseconds, by nearest rank, of those that are known."""
    ordered = sorted(value for value in values if value is not None)
    if not ordered:
        return Percentiles(None, None, None, None)
    at = [ordered[max(ceil(share * len(ordered)) - 1, 0)] / 1e6 for share in (0.5, 0.95, 0.99, 1.0)]
    return Percentiles(*at)
