"""What a load found: latencies counted from when requests were due, beside what a client that waits would have said.

Percentiles are of the requests that were answered without an error, and of those that were given up unanswered: these
count with the time they had waited, and a percentile that one of them may move is a lower bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any

from mcp_probe.model import Percentiles
from mcp_probe.workloads.load.lateness import within
from mcp_probe.workloads.load.log import Log
from mcp_probe.workloads.load.mix import Mix
from mcp_probe.workloads.load.stalls import Stall
from mcp_probe.workloads.load.tally import ANSWERED, CELLS, Cell, Fate, OfCall, Tally
from mcp_probe.workloads.load.times import Times

FORMAT = "mcp-probe-load/1"

SLICES = 10
"""Parts of the window in which latency is shown over time."""


SHARES = (0.5, 0.9, 0.99, 0.999, 1.0)

CERTAIN = 1.05
"""A percentile that requests given up unanswered could raise by no more than this is not called a lower bound."""


@dataclass(frozen=True, slots=True)
class Latency:
    """Milliseconds, by nearest rank; ``None`` where nothing is known.

    Source of the ranks: Hyndman and Fan (1996), definition 1.
    """

    n: int
    mean: float | None
    p50: float | None
    p90: float | None
    p99: float | None
    p999: float | None
    max: float | None
    lower_bounds: tuple[float, ...] = ()  # of SHARES

    def is_lower(self, share: float) -> bool:
        """Whether the percentile ``share`` is a lower bound, because requests were given up unanswered."""
        return share in self.lower_bounds


NO_LATENCY = Latency(0, None, None, None, None, None, None)


@dataclass(frozen=True, slots=True)
class OperationLoad:
    """One operation of the mix in the open loop."""

    name: str
    due: int
    failed: int
    latency: Latency  # from when it was due


@dataclass(frozen=True, slots=True)
class Slice:
    """A tenth of the window: what was due in it, and how long that waited."""

    start_s: float
    due: int
    sent: int  # requests that were sent in it, whenever they had been due
    answered: int  # answers that came in it, whenever their requests had been due
    p50: float | None
    max: float | None
    lower: bool  # one of them was given up: ``max`` is a lower bound


@dataclass(frozen=True, slots=True)
class Failure:
    """One way in which requests failed."""

    operation: str
    sentence: str
    count: int


@dataclass(frozen=True, slots=True)
class Little:
    """Requests in flight on average, counted and computed: throughput x mean time from sending to answer.

    Source: J. D. C. Little (1961), Operations Research 9, 383.
    """

    counted: float
    computed: float

    @property
    def agree(self) -> bool:
        """Whether the two differ by less than a tenth, or by less than a tenth of a request."""
        return abs(self.counted - self.computed) <= max(0.1 * max(self.counted, self.computed), 0.1)


@dataclass(frozen=True, slots=True)
class Standing:
    """How long the generator's own loop stood still, in seconds; by its beat, not by its requests."""

    count: int
    total_s: float
    longest_s: float
    in_drain_s: float  # after the last request was sent


@dataclass(frozen=True, slots=True)
class Phase:
    """The open or the closed loop. Each rate is of its own span, from the beginning of the window."""

    due: int
    sent: int
    fates: dict[Fate, int]
    offered_per_s: float  # until the last request was due
    sent_per_s: float  # until the last request was sent
    answered_per_s: float  # until the last answer came
    late_at_end_s: float  # how late the last request of the schedule that was sent was sent
    standing: Standing  # of the generator
    due_to_answer: Latency
    sent_to_answer: Latency
    late: Latency  # the generator's own lateness: due to sent
    outstanding_peak: int
    little: Little | None
    window_s: float
    drain_s: float  # how long answers took to come in after the last request was due, or sent if that was later
    interrupted: bool
    growth: float | None = None  # median latency of the last third of what was due over that of the first third
    causes: dict[str, int] = field(default_factory=dict)  # of ``failed``, by kind, the most frequent first
    histogram: str = ""  # of due_to_answer in ns, as HdrHistogram's own programs read it

    @property
    def answered(self) -> int:
        """Answers, whatever they said."""
        return sum(self.fates[fate] for fate in ANSWERED)

    @property
    def failed(self) -> int:
        """Requests that got an error for an answer, or none for a reason that was told."""
        return sum(self.fates[fate] for fate in ("tool error", "protocol error", "transport error"))


@dataclass(frozen=True, slots=True)
class ServerSide:
    """What the probe inside the server saw of the same requests, ms; ``None`` where it could not."""

    count: int
    pipe_wait: Percentiles
    queue_p50: float | None
    handling_p50: float | None
    write_p50: float | None
    total: Percentiles
    verdict: str
    why: str = ""  # one sentence from the readings; empty where they say nothing
    later: bool = False  # requests may have come before they were seen: queue and total may be longer


@dataclass(frozen=True, slots=True)
class Start:
    """What came before the load, and is in none of its figures."""

    sessions: int  # clients of the server; over stdio each has a process of its own
    connect: Latency  # from the start, or the first connection, to the end of the handshake, of each session
    first_call_ms: float | None  # of the call that was made first, alone; None: none was made
    lost: int = 0  # sessions whose server had gone at the end


@dataclass(frozen=True, slots=True)
class LoadResult:
    """One load, complete. Serialised by :func:`mcp_probe.workloads.load.verdict.json_of`."""

    target: str
    transport: str
    protocol: str
    server: str
    mix: Mix
    open: Phase
    closed: Phase | None
    operations: tuple[OperationLoad, ...]
    slices: tuple[Slice, ...]
    failures: tuple[Failure, ...]
    foreign_cores: float | None  # what others used of this machine meanwhile; None: cannot be known here
    machine: dict[str, Any]
    notes: tuple[str, ...] = ()
    server_side: ServerSide | None = None
    stalls: tuple[Stall, ...] = ()  # of the open loop
    start: Start | None = None


def latency_of(times: Times | Sequence[int], gave_up: Times | Sequence[int] = ()) -> Latency:
    """Of answered requests and of those given up unanswered after so long; nanoseconds."""
    answered = times if isinstance(times, Times) else Times(times)
    every = answered.merged(gave_up if isinstance(gave_up, Times) else Times(gave_up))
    n = every.count
    if not n:
        return NO_LATENCY
    ranks = [max(ceil(share * n) - 1, 0) for share in SHARES]
    values = every.at(ranks)
    lower: tuple[float, ...] = ()
    if n > answered.count:
        # However long they would have taken: with patience without end, each would stand behind all answered ones.
        lower = tuple(
            share
            for share, rank, value, other in zip(SHARES, ranks, values, answered.at(ranks), strict=True)
            if rank >= answered.count or other > CERTAIN * value
        )
    p50, p90, p99, p999, longest = (value / 1e6 for value in values)
    return Latency(n, every.total / n / 1e6, p50, p90, p99, p999, longest, lower)


def phase_of(log: Log, drain_limit_s: float) -> Phase:
    """The figures of one loop."""
    tally = log.tally()
    last_due = log.offered_until_ns or log.begun_ns
    last_out = max(last_due, tally.last_sent[1])  # the drain begins here
    window_s = max(last_due - log.begun_ns, 1) / 1e9
    span_s = max(log.ended_ns - log.begun_ns, 1) / 1e9
    counted, served = tally.late.count, tally.served.total
    return Phase(
        due=len(log),
        sent=counted,
        fates=dict(tally.fates),
        offered_per_s=(len(log) - 1) / window_s if len(log) > 1 else 0.0,
        sent_per_s=_rate(counted - 1, log.begun_ns, tally.last_sent[1]),
        answered_per_s=_rate(sum(tally.fates[fate] for fate in ANSWERED), log.begun_ns, tally.last_answer_ns),
        late_at_end_s=max(0, tally.last_sent[1] - tally.last_sent[0]) / 1e9,
        standing=_standing(log, last_out),
        due_to_answer=latency_of(tally.ok, tally.gave_up),
        sent_to_answer=latency_of(tally.sent_ok, tally.sent_gave_up),
        late=latency_of(tally.late),
        outstanding_peak=log.outstanding_peak,
        little=Little(log.outstanding_ns / 1e9 / span_s, served / 1e9 / span_s) if counted else None,
        window_s=window_s,
        drain_s=min(max(0.0, (log.ended_ns - last_out) / 1e9), drain_limit_s),
        interrupted=log.interrupted,
        growth=_growth(_used(tally, last_due)),
        causes=dict(log.causes.most_common()),
        histogram=tally.ok.merged(tally.gave_up).encoded(),
    )


def _rate(count: int, begun_ns: int, until_ns: int) -> float:
    return count / ((until_ns - begun_ns) / 1e9) if count > 0 and until_ns > begun_ns else 0.0


def _standing(log: Log, last_out: int) -> Standing:
    lengths = [end - start for start, end in log.pauses]
    in_drain = within(log.pauses, last_out, max(log.ended_ns, last_out))
    return Standing(len(lengths), sum(lengths) / 1e9, max(lengths, default=0) / 1e9, in_drain / 1e9)


def _used(tally: Tally, last_due: int) -> list[Cell]:
    """The cells in which requests were due: fewer than all where a load ended early."""
    return tally.cells[: min((last_due - tally.begun_ns) // tally.cell_ns + 1, CELLS)]


def _growth(cells: Sequence[Cell]) -> float | None:
    """A backlog that grows makes each request wait longer than the one before; one stall does not, for long.

    Counted from sending: what the generator was late says nothing of the server.
    """
    third = max(len(cells) // 3, 1)
    first, last = (_together([cell.served for cell in part]).median() for part in (cells[:third], cells[-third:]))
    return last / first if first and last is not None else None


def _together(parts: Sequence[Times]) -> Times:
    found = Times()
    for part in parts:
        found = found.merged(part)
    return found


def operations_of(log: Log, mix: Mix) -> tuple[OperationLoad, ...]:
    """A row per operation, in the order of the mix; calls of one name together."""
    tally = log.tally()
    rows: dict[str, list[OfCall]] = {}
    for number, call in enumerate(mix.calls):
        if number in tally.calls:
            rows.setdefault(call.operation, []).append(tally.calls[number])
    return tuple(
        OperationLoad(
            name,
            sum(each.due for each in calls),
            sum(each.failed for each in calls),
            latency_of(_together([each.ok for each in calls]), _together([each.gave_up for each in calls])),
        )
        for name, calls in rows.items()
    )


def slices_of(log: Log) -> tuple[Slice, ...]:
    """The window in equal parts, :data:`SLICES` unless it ended early."""
    if not len(log) or log.offered_until_ns <= log.begun_ns:
        return ()
    tally, width = log.tally(), CELLS // SLICES
    cells = _used(tally, log.offered_until_ns)
    slices = []
    for start in range(0, len(cells), width):
        part = cells[start : start + width]
        latency = latency_of(_together([cell.waited for cell in part]))
        slices.append(
            Slice(
                start * tally.cell_ns / 1e9,
                sum(cell.due for cell in part),
                sum(cell.sent for cell in part),
                sum(cell.answered for cell in part),
                latency.p50,
                latency.max,
                any(cell.lower for cell in part),
            )
        )
    return tuple(slices)


def failures_of(log: Log, mix: Mix, most: int = 8) -> tuple[Failure, ...]:
    """The most frequent first."""
    found = [Failure(mix.calls[call].operation, text, count) for (call, text), count in log.failures.most_common(most)]
    return tuple(found)
