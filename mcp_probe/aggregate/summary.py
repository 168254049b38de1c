"""From totals to the summary that people and scripts read."""

from __future__ import annotations

from dataclasses import dataclass, replace

from mcp_probe.aggregate.at_once import Loads
from mcp_probe.aggregate.awaiting import held_rows
from mcp_probe.aggregate.backlog import BacklogTally
from mcp_probe.aggregate.first_calls import FirstCallsTally
from mcp_probe.aggregate.flight import FlightTotals
from mcp_probe.aggregate.growth import LeakTally
from mcp_probe.aggregate.loop_health import Loops
from mcp_probe.aggregate.operations import Operations
from mcp_probe.aggregate.process_health import ProcessTally
from mcp_probe.aggregate.saturation import Pools
from mcp_probe.aggregate.slow_steps import SlowSteps
from mcp_probe.model import (
    Header,
    ProbeSelf,
    RequestCounts,
    ServerInfo,
    Signals,
    Summary,
    Verdict,
    Window,
)

FORMAT = "mcp_probe.summary/1"
"""Names the structure of :meth:`mcp_probe.model.Summary.to_json`. Keys may be added to it, but not renamed."""

NO_END = (
    "The recording stops without an end: the server was killed, crashed, or is still running. "
    "What it did in its last second may be missing."
)
SECOND_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Stream:
    """One process's stream of frames, as far as it was read."""

    header: Header | None
    first_ns: int
    last_ns: int
    complete: bool
    cut: tuple[int, int] | None = None  # (requests that are missing, limit in bytes) of one of a limited size
    missing: int = 0  # frames that were recorded and are not in the file; negative: there are too many

    @property
    def start_unix(self) -> float:
        """Wall-clock time of its first instant, or 0 where the stream had no header."""
        if self.header is None:
            return 0.0
        return self.header.start_unix + (max(0, self.first_ns - self.header.start_ns) / SECOND_NS if self.cut else 0)

    @property
    def seconds(self) -> float:
        """From the attachment to the last instant in any frame."""
        return max(0, self.last_ns - self.first_ns) / SECOND_NS


class Totals:
    """What streams of frames add up to; merging is addition, in any order."""

    def __init__(self, slow_ns: int, critical_ns: int) -> None:
        self.slow_ns = slow_ns
        self.critical_ns = critical_ns
        self.operations = Operations()
        self.firsts = FirstCallsTally()
        self.backlog = BacklogTally()
        self.slow_steps = SlowSteps(slow_ns, critical_ns)
        self.pools = Pools()
        self.loops = Loops()
        self.loads = Loads()
        self.process = ProcessTally()
        self.flight = FlightTotals()
        self.leaks = LeakTally()
        self.streams: list[Stream] = []
        self.gc_worst_request_share: float | None = None
        self.notes: set[str] = set()

    def merge(self, other: Totals) -> None:
        """Add ``other``, which stays as it is."""
        self.operations.merge(other.operations)
        self.firsts.merge(other.firsts)
        self.backlog.merge(other.backlog)
        self.slow_steps.merge(other.slow_steps, other.firsts.answered_ns)
        self.pools.merge(other.pools)
        self.loops.merge(other.loops)
        self.loads.merge(other.loads)
        self.process.merge(other.process)
        self.flight.merge(other.flight)
        self.leaks.merge(other.leaks)
        self.streams.extend(other.streams)
        self.note_gc_share(other.gc_worst_request_share)
        self.notes |= other.notes

    def note_gc_share(self, share: float | None) -> None:
        """A request lost this share of its time to the collector."""
        if share is not None:
            self.gc_worst_request_share = max(share, self.gc_worst_request_share or 0.0)


def summary_of(totals: Totals, live: bool) -> Summary:
    """Everything but the findings and the verdict. ``live``: the streams go on, so a missing end means nothing."""
    streams = sorted(totals.streams, key=lambda stream: (stream.start_unix, stream.first_ns, stream.last_ns))
    headers = [stream.header for stream in streams if stream.header is not None]
    server = _server(headers)
    operations = totals.operations.summaries(totals.slow_steps, totals.process.detached_ns, totals.firsts)
    ended = all(stream.complete for stream in streams)
    return Summary(
        format=FORMAT,
        probe_version=headers[0].probe_version if headers else "unknown",
        server=server,
        window=_window(streams),
        requests=_counts(totals),
        operations=operations,
        outstanding=replace(totals.process.outstanding(), growth=totals.backlog.summary()),
        blocked_by=(*totals.operations.matrix.rows(), *held_rows(operations)),
        slow_steps=totals.slow_steps.rows(totals.operations.matrix),
        executors=totals.pools.summaries(),
        loop=totals.loops.main().summary(),
        verdict=Verdict("healthy", server.name, ""),
        findings=(),
        probe=_probe(totals, headers),
        signals=_signals(totals),
        complete=ended or live,
        notes=tuple(_notes(totals, streams, ended or live)),
        leaks=totals.leaks.hunt(),
        await_loads=totals.loads.summaries(),
    )


def _server(headers: list[Header]) -> ServerInfo:
    if not headers:
        return ServerInfo("unknown", "unknown", "unknown", "unknown", "unknown", "unknown")
    first = headers[0]
    return ServerInfo(
        first.server,
        first.sdk,
        first.sdk_version,
        first.transport,
        first.loop,
        first.python,
        pid=first.pid if len(headers) == 1 else None,
        behind_proxy=any(header.behind_proxy for header in headers),
    )


def _window(streams: list[Stream]) -> Window:
    """From the first stream's start to the last one's end."""
    if not streams:
        return Window(0.0, 0.0)
    start = min(stream.start_unix for stream in streams)
    return Window(start, max(stream.start_unix - start + stream.seconds for stream in streams))


def _counts(totals: Totals) -> RequestCounts:
    """Requests; where there were none, profiled calls (a server of decorated functions only)."""
    tallies = totals.operations.by_key.values()
    counted = [tally for tally in tallies if tally.kind == "request" and tally.count]
    counted = counted or [tally for tally in tallies if tally.kind == "function"]
    return RequestCounts(
        count=sum(tally.count for tally in counted),
        errors=sum(tally.errors for tally in counted),
        cancelled=sum(tally.cancelled for tally in counted),
        unfinished=sum(tally.unfinished for tally in counted),
        dropped=totals.process.dropped_requests,
        recorded=sum(tally.count - tally.unrecorded for tally in counted),
    )


def _probe(totals: Totals, headers: list[Header]) -> ProbeSelf:
    off = {f"{hook}: {state}" for header in headers for hook, state in header.hooks if not state.startswith("active")}
    drops = [f"{count} dropped: {reason}" for reason, count in sorted(totals.process.dropped.items()) if count]
    notes = dict.fromkeys(note for header in headers for note in header.notes)
    return ProbeSelf(
        overhead_share=totals.process.overhead_share,
        dropped_marks=totals.process.dropped_marks,
        disabled_hooks=tuple(sorted(off)),
        timer_resolution_ns=max((header.timer_resolution_ns for header in headers), default=0),
        notes=(*notes, *drops),
        accelerator="; ".join(sorted({header.accelerator for header in headers if header.accelerator})) or None,
        memory="; ".join(sorted({header.memory for header in headers if header.memory})) or None,
        awaits="; ".join(sorted({header.awaits for header in headers if header.awaits})) or None,
        cpu_ms=totals.process.probe_cpu_ns / 1e6 if totals.process.cpu_ns else None,
        hook_ms=totals.process.hook_ns / 1e6 if totals.process.cpu_ns else None,
    )


def _signals(totals: Totals) -> Signals:
    process, flight, loop = totals.process, totals.flight, totals.loops.main()
    headers = [stream.header for stream in totals.streams if stream.header is not None]
    limits = [header.memory_limit_bytes for header in headers]
    in_flight = flight.max_in_flight
    return Signals(
        # The gauge also counts requests being written, so a client that sends one by one may show 2 there.
        max_in_flight=max(in_flight, process.outstanding_peak) if in_flight > 1 else in_flight,
        serial_gaps=flight.serial_gaps,
        serial_awaiting_share=flight.awaiting_share,
        gc_pause_ms=process.gc.total_ns / 1e6,
        gc_worst_second_ms=process.gc.worst_second_ns / 1e6,
        gc_max_pause_ms=process.gc.max_ns / 1e6,
        gc_max_generation=process.gc.max_generation,
        gc_stretched_ms=process.gc.stretched_ns / 1e6,
        gc_worst_request_share=totals.gc_worst_request_share,
        busy_ms=loop.busy_ns / 1e6,
        loop_cpu_ms=_ms(loop.cpu_ns),
        run_queue_ms=_ms(loop.run_queue_ns),
        off_cpu_ms=_ms(loop.off_cpu_ns),
        gil_wait_ms=_ms(loop.gil_wait_ns),
        other_threads_cpu_ms=_ms(loop.other_threads_cpu_ns),
        throttled_ms=_ms(process.throttled_ns),
        cpu_pressure=process.cpu_pressure,
        rss_bytes_max=process.rss_bytes_max,
        rss_growth_bytes=process.rss.growth,
        rss_still_grows=process.rss.still_grows,
        memory_limit_bytes=min((limit for limit in limits if limit is not None), default=None),
        cpus=max((header.cpus for header in headers if header.cpus is not None), default=None),
        queued_beside_cpus=loop.queued_beside_cpus,
        stdout_foreign_bytes=process.stdout_foreign_bytes,
        stdout_foreign_at=process.stdout_foreign_at,
        stdout_is_wire=process.stdout_is_wire,
        busiest_share=loop.busiest_share if loop.seen else None,
    )


def _notes(totals: Totals, streams: list[Stream], ended: bool) -> list[str]:
    notes = sorted(totals.notes)
    if not streams or any(stream.header is None for stream in streams):
        notes.append("The recording has no header: nothing is known of the server, and no time of day.")
    notes += [missing_sentence(stream.missing) for stream in streams if stream.missing]
    notes += [cut_sentence(*stream.cut) for stream in streams if stream.cut is not None]
    if not ended:
        notes.append(NO_END)
    clipped = sum(tally.partial for tally in totals.operations.by_key.values())
    if clipped:
        notes.append(f"{clipped} requests are partial: the probe was attached while they ran, or lost marks of them.")
    unknown = sorted({name for tally in totals.operations.by_key.values() for name in tally.measures.unknown})
    if unknown:
        notes.append(
            f"The recording has measures that this version of mcp_probe does not know: {', '.join(unknown)}. "
            "They are left out; the version that recorded them shows them."
        )
    return notes


def missing_sentence(missing: int) -> str:
    """The file has fewer or more frames than were recorded."""
    if missing > 0:
        return f"The recording is damaged: {missing:,} of its lines are missing. Figures are too low."
    return f"The recording is damaged: it has {-missing:,} lines too many. Figures are too high."


def cut_sentence(requests: int, limit_bytes: int) -> str:
    """What is missing from a recording of limited size."""
    return (
        f"The recording is cut: {requests:,} earlier requests are not in it, which keeps the newest "
        f"{limit_bytes / 1e6:,.0f} MB (--record-limit). All figures are of what is left."
    )


def _ms(ns: int | None) -> float | None:
    return None if ns is None else ns / 1e6
