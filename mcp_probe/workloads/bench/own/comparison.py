"""The documents' comparisons on a user's own server: operations, fan-out, a quick call beside a slow one, the knee.

Read-only unless told otherwise: lists, prompts and resources are read; a tool is called only when it was named, or when
the server says ``readOnlyHint`` and it needs no argument. A command is started under the probe, which says why.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mcp_probe.aggregate.explain import Seen, explain, what_grew
from mcp_probe.clock import now_ns
from mcp_probe.errors import OptionError, RecordingError
from mcp_probe.model import Frame
from mcp_probe.record.file import read_recording
from mcp_probe.workloads.bench.context import Bench
from mcp_probe.workloads.bench.machine import ForeignLoad, is_contended
from mcp_probe.workloads.bench.own.calls import DRAIN_S, all_well, answer, burst, hold, in_time
from mcp_probe.workloads.bench.own.knee import Level, knee_of, waves_of
from mcp_probe.workloads.bench.own.operations import Operation, offer_of
from mcp_probe.workloads.bench.shapes import Outcome, Stats
from mcp_probe.workloads.bench.statistics import describe, little
from mcp_probe.workloads.load.connecting import connect
from mcp_probe.workloads.load.peer import Peer, Target

FANOUT = (1, 2, 5, 10, 20, 40)
SLOW_MS = 20.0
"""A call shorter than this has no time in which another could be seen to wait for it."""

SWEEPS = 2
"""Of each level the better one counts: what else happens on a machine only ever takes throughput away."""


@dataclass(frozen=True, slots=True)
class OwnServer:
    """What to compare: a server, perhaps the same one over HTTP as well, and a tool that may be called."""

    target: Target
    over_http: Target | None = None  # the same server, where ``target`` is a command
    tool: str | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)
    probe: bool = True


class _Phases:
    """When each row was measured, on the clock that the server's probe reads, too."""

    def __init__(self) -> None:
        self._spans: dict[str, tuple[int, int]] = {}
        self._frames: list[Frame] | None = None

    @contextmanager
    def named(self, name: str) -> Iterator[None]:
        began = now_ns()
        try:
            yield
        finally:
            self._spans[name] = (began, now_ns())

    def read(self, recording: Path) -> str:
        """Takes the recording in; a sentence where there is none."""
        try:
            self._frames = list(read_recording(recording))
        except RecordingError:
            return (
                "The probe saw nothing of this server, so no reasons are given: is it one in Python, with an MCP SDK?"
            )
        return ""

    def why(self, name: str, operation: str | None = None) -> str:
        """One sentence on that phase; empty where nobody can say."""
        if self._frames is None or name not in self._spans:
            return ""
        return explain(self._seen(name), operation)

    def grew(self, quick: str, slow: str) -> str:
        """What the calls of one phase took longer for than those of another; empty where nobody can say."""
        known = self._frames is not None and {quick, slow} <= self._spans.keys()
        return what_grew(self._seen(quick), self._seen(slow)) if known else ""

    def _seen(self, name: str) -> Seen:
        return Seen.of(self._frames or (), *self._spans[name])


async def compare(own: OwnServer, bench: Bench) -> Outcome:
    """Runs it all; rows and checks go to ``bench`` as they are found, the probe's reasons when the server has ended.

    Raises:
        LaunchError: the server does not start, or hangs.
        OptionError: the named tool does not exist, or fails.
    """
    phases = _Phases()
    with tempfile.TemporaryDirectory(prefix="mcp-probe-own-") as folder:
        recording = Path(folder, "recording.jsonl")
        target = own.target.under_probe(recording) if own.probe and own.target.command else own.target
        comparison = _Comparison(own, bench, phases)
        try:
            bench.step("starting the server")
            async with connect(target, say=bench.step) as peer:
                await comparison.run(peer)
            await comparison.run_elsewhere()
        finally:
            missing = phases.read(recording) if target is not own.target and comparison.measured else ""
            comparison.publish()
            if missing:
                bench.note(missing)
    return bench.outcome()


class _Comparison:
    """The measurements, in the order of the page. Rows wait for their reasons until :meth:`publish`."""

    def __init__(self, own: OwnServer, bench: Bench, phases: _Phases) -> None:
        self._own = own
        self._bench = bench
        self._phases = phases
        self._later: list[Callable[[], object]] = []
        self._main: Operation | None = None
        self._quickest: Operation | None = None
        self._medians: dict[str, float] = {}
        self._swept: dict[int, str] = {}  # in flight -> phase of its better sweep

    @property
    def measured(self) -> bool:
        """Whether there is anything to give reasons for."""
        return bool(self._later)

    def publish(self) -> None:
        """Hands everything measured so far to the bench."""
        for hand_over in self._later:
            hand_over()
        self._later = []

    def _row(
        self, table: str, label: str, unit: str, measured: Stats | float | None, phase: str = "", **more: Any
    ) -> None:
        operation, quicker = more.pop("operation", None), more.pop("quicker", "")

        def hand_over() -> None:
            why = self._phases.why(phase, operation) if phase else ""
            why = " ".join(filter(None, (why, self._phases.grew(quicker, phase) if quicker else "")))
            self._bench.row(table, label, unit, measured, why=why, **more)

        self._later.append(hand_over)

    def _check(self, claim: str, sentence: str, **more: Any) -> None:
        self._later.append(lambda: self._bench.check(claim, sentence, **more))

    def _note(self, sentence: str) -> None:
        self._later.append(lambda: self._bench.note(sentence))

    # --- the comparisons ---

    async def run(self, peer: Peer) -> None:
        """Everything that one connection can show."""
        offer = await offer_of(peer, self._own.tool, self._own.arguments)
        self._main, operations = offer.main, list(offer.operations)
        for note in offer.notes:
            self._note(note)
        await self._latencies(peer, operations)
        await self._pipelining(peer)
        await self._fanout(peer)
        await self._beside(peer)
        await self._sweep(peer)

    async def run_elsewhere(self) -> None:
        """What needs connections of its own: a session per call, the other transport."""
        await self._sessions()
        if self._own.over_http is not None:
            await self._transports(self._own.over_http)

    async def _latencies(self, peer: Peer, operations: list[Operation]) -> None:
        """002: every operation, one call after another; the operations take turns."""
        rounds = self._bench.size(quick=20, full=200)
        usable = []
        for operation in operations:
            reply = await answer(peer, operation.order)
            if reply.kind == "ok":
                usable.append(operation)
            elif operation is self._main and self._own.tool is not None:
                raise OptionError(f"{operation.label} fails ({reply.kind}): {reply.failure}. Correct its --arguments.")
            else:
                self._note(f"{operation.label} fails and is left out: {reply.failure}.")
        self._main = self._main if self._main in usable else None
        taken: dict[str, list[float]] = {operation.label: [] for operation in usable}
        load = ForeignLoad()
        with self._phases.named("operations"):
            for number in range(rounds):
                self._bench.step(f"every operation, {number + 1} of {rounds}")
                for operation in usable:
                    taken[operation.label].append((await answer(peer, operation.order)).service_ms)
        foreign = load.cores()
        for operation in usable:
            stats = describe(taken[operation.label], foreign_cores=foreign, contended=is_contended(foreign))
            self._medians[operation.label] = stats.median
            self._row(
                "operations (002)",
                operation.label,
                "ms",
                stats,
                "operations",
                operation=operation.order.operation,
                x=operation.label,
                series=self._own.target.transport,
                protocol="" if peer.modern else "handshake",
            )
        ranked = sorted(usable, key=lambda operation: self._medians[operation.label])
        self._quickest = ranked[0] if ranked else None
        self._main = self._main or (ranked[-1] if ranked else None)

    async def _pipelining(self, peer: Peer) -> None:
        """000: the same calls one by one and all at once."""
        main = self._main
        if main is None:
            return
        count = max(5, min(self._bench.size(quick=40, full=200), round(2_000 / max(self._medians[main.label], 0.1))))
        one_by_one: list[float] = []
        at_once: list[float] = []
        load = ForeignLoad()
        for number in range(self._bench.size(quick=3, full=7)):
            self._bench.step(f"{count} calls one by one and at once, round {number + 1}")
            began = now_ns()
            for _ in range(count):
                await answer(peer, main.order)
            one_by_one.append((now_ns() - began) / 1e6)
            with self._phases.named("at once"):
                replies, wall_ms = await burst(peer, main.order, count)
            all_well(replies, main)
            at_once.append(wall_ms)
        foreign = load.cores()
        busy = is_contended(foreign)
        first = describe(one_by_one, foreign_cores=foreign, contended=busy)
        second = describe(at_once, foreign_cores=foreign, contended=busy)
        table = f"{count} × {main.label} (000, 001)"
        self._row(table, "one by one", "ms", first, x="one by one", series=main.label)
        self._row(table, "all at once", "ms", second, "at once", x="all at once", series=main.label)
        gain = first.median / second.median
        self._check(
            "000-7",
            "sending the next call before the last is answered is no slower on this server",
            documented="one by one is 2-2.5x faster (in process, without a transport)",
            measured=f"{first.median:.0f} ms one by one, {second.median:.0f} ms at once: {gain:.2f}x",
            tolerance="at once at least 0.95x as fast",
            verdict="does not hold" if gain < 0.95 else "holds",
            value=gain,
            contended=busy,
        )

    async def _fanout(self, peer: Peer) -> None:
        """001: N calls at once, and whether they are answered in waves."""
        main = self._main
        if main is None:
            return
        rounds = self._bench.size(quick=3, full=9)
        walls: dict[int, float] = {}
        best: dict[int, tuple[float, list[float]]] = {}  # the round that was disturbed least
        busy = False
        for count in FANOUT:
            self._bench.step(f"{count} calls at once")
            taken, load = [], ForeignLoad()
            for _ in range(rounds + 1):
                with self._phases.named(f"fan-out {count}"):
                    replies, wall_ms = await burst(peer, main.order, count)
                all_well(replies, main)
                taken.append(wall_ms)
                ends = [reply.service_ms for reply in replies]
                best[count] = min(best.get(count, (wall_ms, ends)), (wall_ms, ends))
            foreign = load.cores()
            stats = describe(taken, foreign_cores=foreign, contended=is_contended(foreign))
            busy = busy or stats.contended
            walls[count] = stats.median
            self._row(
                f"fan-out of {main.label} (001)",
                f"{count} at once",
                "ms",
                stats,
                f"fan-out {count}" if count > 1 else "",
                x=count,
                series=main.label,
            )
        found = waves_of(best[1][0], best[FANOUT[-1]][1])
        self._check(
            "001-1, 001-3",
            "calls in flight at once are handled at once, or in waves of as many as the server has places",
            documented="20 calls: 108 ms without a limit, 521 ms (5 waves) with a pool of 4",
            measured=f"1: {walls[1]:.1f} ms, {FANOUT[-1]}: {walls[FANOUT[-1]]:.1f} ms. {found.sentence}",
            tolerance="ends of the calls cluster at multiples of one call's time",
            verdict="cannot be tested here" if busy and found.width is None else found.verdict,
            why="Others used this machine, and waves are told by their timing." if busy and found.width is None else "",
            value=found.width,
            contended=busy,
        )

    async def _beside(self, peer: Peer) -> None:
        """001 S5: a quick call sent while a slow one is being answered."""
        main, quick = self._main, self._quickest
        if main is None or quick is None:
            return
        alone = self._medians[main.label]
        claim = ("001-8", "a quick call sent beside a slow one does not wait for it")
        documented = "10 ms beside 500 ms; behind it where calls queue"
        if alone < SLOW_MS or quick is main:
            self._check(
                *claim,
                documented=documented,
                measured=f"the slowest, {main.label}, takes {alone:.1f} ms",
                tolerance="",
                verdict="cannot be tested here",
                why=f"No call takes {SLOW_MS:.0f} ms or more, to send another beside it; name a slow tool with --tool.",
            )
            return
        waits: list[float] = []
        load = ForeignLoad()
        with self._phases.named("beside"):
            for number in range(self._bench.size(quick=5, full=20)):
                self._bench.step(f"a quick call beside a slow one, {number + 1}")
                slow = peer.post(main.order, stamped=True)
                await asyncio.sleep(0.2 * alone / 1e3)
                waits.append((await answer(peer, quick.order)).service_ms)
                await in_time(slow, main)
        foreign = load.cores()
        stats = describe(waits, first_apart=False, foreign_cores=foreign, contended=is_contended(foreign))
        table = "a quick call beside a slow one (001 S5)"
        before = self._medians[quick.label]
        self._row(table, f"{quick.label} alone", "ms", before, x="alone", series=quick.label)
        self._row(
            table,
            f"{quick.label} beside {main.label}",
            "ms",
            stats,
            "beside",
            operation=quick.order.operation,
            x="beside",
            series=quick.label,
        )
        held = stats.median > before + 0.4 * alone
        self._check(
            *claim,
            documented=documented,
            measured=f"{before:.1f} ms alone, {stats.median:.1f} ms beside {main.label} ({alone:.0f} ms)",
            tolerance="less than 0.4 of the slow call is added",
            verdict="does not hold" if held else "holds",
            value=(stats.median - before) / alone,
            contended=stats.contended,
        )

    async def _sweep(self, peer: Peer) -> None:
        """004: throughput and latency by the number of calls in flight, and where more of them stop helping."""
        main = self._main
        if main is None:
            return
        best: dict[int, Level] = {}
        foreign: dict[int, float | None] = {}
        for turn in range(SWEEPS):
            fallen = 0
            in_flight = 1
            while in_flight <= self._bench.size(quick=64, full=256) and not peer.gone():
                self._bench.step(f"concurrency sweep {turn + 1} of {SWEEPS}, {in_flight} in flight")
                load = ForeignLoad()
                span_s = max(self._bench.size(quick=0.5, full=3.0), 4 * self._medians[main.label] / 1e3)
                with self._phases.named(f"sweep {turn} {in_flight}"):
                    level = await hold(peer, main.order, in_flight, span_s)
                if in_flight not in best or level.per_s > best[in_flight].per_s:
                    best[in_flight], foreign[in_flight] = level, load.cores()
                    self._swept[in_flight] = f"sweep {turn} {in_flight}"
                fallen = fallen + 1 if level.per_s < 0.5 * max(each.per_s for each in best.values()) else 0
                if fallen == 2:
                    break  # past the knee, and falling
                in_flight *= 2
        levels = [best[in_flight] for in_flight in sorted(best)]
        for level in levels:
            self._sweep_rows(main, level, foreign[level.in_flight])
        found = knee_of(levels)
        busy = any(is_contended(foreign[level.in_flight]) for level in levels)
        doubt = " Others used this machine meanwhile: sweep again when it is quiet." if busy else ""
        self._note(found.sentence + doubt)
        self._check(
            "004-3",
            "the best concurrency is not the highest",
            documented="1,507/s at 100 in flight, 252/s at 3,000",
            measured=found.measured,
            tolerance="the fewest that give 95 % of the highest throughput, below the most that were tried",
            verdict=found.verdict,
            value=float(found.recommended),
            contended=busy,
        )

    def _sweep_rows(self, main: Operation, level: Level, foreign: float | None) -> None:
        table = f"concurrency sweep of {main.label} (004)"
        phase = self._swept[level.in_flight]
        busy = is_contended(foreign)
        excused = f"{level.cancelled} calls were given up after {DRAIN_S:g} s" if level.cancelled else ""
        if not excused and level.span_s < 4 * level.mean_ms / 1e3:
            excused = "filling up and running dry took most of the time"
        flow = little(level.answered, level.span_s, level.mean_ms / 1e3, level.in_flight, excused)
        stats = (
            describe(level.times_ms, first_apart=False, foreign_cores=foreign, contended=busy)
            if level.times_ms
            else None
        )
        note = f"{level.failed} failed" if level.failed else ""
        self._row(
            table,
            f"{level.in_flight} in flight, throughput",
            "1/s",
            level.per_s,
            metric="throughput",
            x=level.in_flight,
            series=main.label,
            little=flow,
            contended=busy,
            note=note,
        )
        self._row(
            *(table, f"{level.in_flight} in flight, latency", "ms", stats, phase),
            quicker=self._swept[1] if level.in_flight > 1 else "",
            x=level.in_flight,
            series=main.label,
        )

    async def _sessions(self) -> None:
        """004, #1918: a connection of one's own for each call, beside one that is kept."""
        main = self._main
        if main is None:
            return
        stdio = self._own.target.transport == "stdio"
        rounds = self._bench.size(quick=2, full=5) if stdio else self._bench.size(quick=8, full=50)
        taken, load = [], ForeignLoad()
        for number in range(rounds):
            self._bench.step(f"a {'process' if stdio else 'session'} per call, {number + 1} of {rounds}")
            began = now_ns()
            async with connect(self._own.target) as peer:
                reply = await answer(peer, main.order)
                taken.append((now_ns() - began) / 1e6)
            all_well([reply], main)
        foreign = load.cores()
        stats = describe(taken, foreign_cores=foreign, contended=is_contended(foreign))
        table = "session reuse (004)"
        shared = self._medians[main.label]
        self._row(table, "one session for all calls", "ms", shared, x="shared", series=main.label)
        label = "a server process for each call" if stdio else "a connection and session for each call"
        self._row(
            table,
            label,
            "ms",
            stats,
            x="per call",
            series=main.label,
            note=f"{stats.median / shared:,.0f} times as long; start, handshake and one call",
        )

    async def _transports(self, over_http: Target) -> None:
        """002: the same calls over the other transport."""
        main = self._main
        if main is None:
            return
        self._bench.step("the same over HTTP")
        rounds = self._bench.size(quick=20, full=200)
        async with connect(over_http, say=self._bench.step) as peer:
            all_well([await answer(peer, main.order)], main)
            load = ForeignLoad()
            taken = [(await answer(peer, main.order)).service_ms for _ in range(rounds)]
        foreign = load.cores()
        stats = describe(taken, foreign_cores=foreign, contended=is_contended(foreign))
        table = "stdio and HTTP (002)"
        here = self._medians[main.label]
        self._row(table, f"{main.label}, stdio", "ms", here, x="stdio", series=main.label)
        self._row(table, f"{main.label}, HTTP", "ms", stats, x="HTTP", series=main.label)
        self._check(
            "002-5",
            "stdio is faster than HTTP, call by call",
            documented="8.2-10.2x",
            measured=f"{here:.2f} ms over stdio, {stats.median:.2f} ms over HTTP: {stats.median / here:.2f}x",
            tolerance="> 1.2x",
            verdict="holds in shape" if stats.median > 1.2 * here else "does not hold",
            value=stats.median / here,
            contended=stats.contended,
        )
