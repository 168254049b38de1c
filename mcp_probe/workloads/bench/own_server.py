"""The documents' comparisons on a user's own server: operations, fan-out, a quick call beside a slow one, the knee.

Read-only unless told otherwise: lists, prompts and resources are read; a tool is called only when it was named, or when
the server says ``readOnlyHint`` and it needs no argument. A command is started under the probe, which says why.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mcp_probe.aggregate.explain import Seen, explain
from mcp_probe.clock import now_ns
from mcp_probe.errors import LaunchError, OptionError, RecordingError
from mcp_probe.model import Frame
from mcp_probe.record.file import read_recording
from mcp_probe.workloads.bench.context import Bench
from mcp_probe.workloads.bench.knee import Level, knee_of, waves_of
from mcp_probe.workloads.bench.machine import ForeignLoad, is_contended
from mcp_probe.workloads.bench.shapes import Outcome, Stats
from mcp_probe.workloads.bench.statistics import describe, little
from mcp_probe.workloads.load.peer import Peer, Target, connect, listed
from mcp_probe.workloads.load.wire import Order, Reply

ANSWER_S = 60.0
"""For any one answer; a server that takes longer is said to hang."""

DRAIN_S = 4.0
FANOUT = (1, 2, 5, 10, 20, 40)
SLOW_MS = 20.0
"""A call shorter than this has no time in which another could be seen to wait for it."""

SWEEPS = 2
"""Of each level the better one counts: what else happens on a machine only ever takes throughput away."""

MOST_READ = 8
"""Prompts, resources and read-only tools of a kind whose latency is taken; the rest is named."""


@dataclass(frozen=True, slots=True)
class OwnServer:
    """What to compare: a server, perhaps the same one over HTTP as well, and a tool that may be called."""

    target: Target
    over_http: Target | None = None  # the same server, where ``target`` is a command
    tool: str | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)
    probe: bool = True


@dataclass(frozen=True, slots=True)
class _Operation:
    label: str
    order: Order


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
        return explain(Seen.of(self._frames, *self._spans[name]), operation)


async def compare(own: OwnServer, bench: Bench) -> Outcome:
    """Runs it all; rows and checks go to ``bench`` as they are found, the probe's reasons when the server has ended.

    Raises:
        LaunchError: the server does not start, or hangs.
        OptionError: the named tool does not exist, or fails.
    """
    phases = _Phases()
    with tempfile.TemporaryDirectory(prefix="mcp-probe-own-") as folder:
        recording = Path(folder, "recording.jsonl")
        target = _under_probe(own.target, recording) if own.probe and own.target.command else own.target
        comparison = _Comparison(own, bench, phases)
        try:
            bench.step("starting the server")
            async with connect(target) as peer:
                await comparison.run(peer)
            await comparison.run_elsewhere()
        finally:
            missing = phases.read(recording) if target is not own.target else ""
            comparison.publish()
            if missing:
                bench.note(missing)
    return bench.outcome()


def _under_probe(target: Target, recording: Path) -> Target:
    probe = [sys.executable, "-m", "mcp_probe", "run", "--record", str(recording)]
    return replace(target, command=(*probe, "--output", str(recording.with_suffix(".txt")), "--", *target.command))


class _Comparison:
    """The measurements, in the order of the page. Rows wait for their reasons until :meth:`publish`."""

    def __init__(self, own: OwnServer, bench: Bench, phases: _Phases) -> None:
        self._own = own
        self._bench = bench
        self._phases = phases
        self._later: list[Callable[[], object]] = []
        self._main: _Operation | None = None
        self._quickest: _Operation | None = None
        self._medians: dict[str, float] = {}
        self._swept: dict[int, str] = {}  # in flight -> phase of its better sweep

    def publish(self) -> None:
        """Hands everything measured so far to the bench."""
        for hand_over in self._later:
            hand_over()
        self._later = []

    def _row(
        self, table: str, label: str, unit: str, measured: Stats | float | None, phase: str = "", **more: Any
    ) -> None:
        operation = more.pop("operation", None)

        def hand_over() -> None:
            why = self._phases.why(phase, operation) if phase else ""
            self._bench.row(table, label, unit, measured, why=why, **more)

        self._later.append(hand_over)

    def _check(self, claim: str, sentence: str, **more: Any) -> None:
        self._later.append(lambda: self._bench.check(claim, sentence, **more))

    def _note(self, sentence: str) -> None:
        self._later.append(lambda: self._bench.note(sentence))

    # --- the comparisons ---

    async def run(self, peer: Peer) -> None:
        """Everything that one connection can show."""
        operations = await self._find(peer)
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

    async def _find(self, peer: Peer) -> list[_Operation]:
        """What may be asked of this server."""
        found: list[_Operation] = []
        if not peer.modern:
            found.append(_Operation("ping", Order("ping", {})))
        offered: dict[str, list[Mapping[str, Any]]] = {}
        for what in ("tools", "prompts", "resources"):
            offered[what] = await listed(peer, what)
            if what in peer.capabilities:
                found.append(_Operation(f"list {what}", Order(f"{what}/list", {})))
        tools = self._tools(offered["tools"])
        prompts = [
            _Operation(f"prompt {prompt['name']}", Order("prompts/get", {"name": prompt["name"], "arguments": {}}))
            for prompt in offered["prompts"]
            if not any(each.get("required") for each in prompt.get("arguments") or ())
        ]
        resources = [
            _Operation(f"read {resource['uri']}", Order("resources/read", {"uri": resource["uri"]}))
            for resource in offered["resources"]
        ]
        for group in (prompts, resources, tools):
            found += group[:MOST_READ]
            if len(group) > MOST_READ:
                self._note(f"Not measured: {', '.join(each.label for each in group[MOST_READ:])}.")
        if not found:
            raise LaunchError(
                "The server offers no tools, prompts or resources, and knows no ping: nothing to compare."
            )
        self._main = tools[0] if tools else None
        return found

    def _tools(self, offered: Sequence[Mapping[str, Any]]) -> list[_Operation]:
        names = [str(tool.get("name")) for tool in offered]
        if self._own.tool is not None:
            if self._own.tool not in names:
                has = f"it has {', '.join(names)}" if names else "it has none"
                raise OptionError(f"The server has no tool {self._own.tool}; {has}.")
            order = Order("tools/call", {"name": self._own.tool, "arguments": dict(self._own.arguments)})
            return [_Operation(f"tool {self._own.tool}", order)]
        safe = [tool for tool in offered if _is_read_only(tool) and not _required(tool)]
        left = [str(tool.get("name")) for tool in offered if tool not in safe]
        if left:
            shown = ", ".join(left[:6]) + (f" and {len(left) - 6} more" if len(left) > 6 else "")
            self._note(
                f"Not called: {shown}. A tool is called only when it is named (--tool, --arguments), or when the "
                "server declares it read-only and it needs no argument."
            )
        return [
            _Operation(f"tool {tool['name']}", Order("tools/call", {"name": tool["name"], "arguments": {}}))
            for tool in safe
        ]

    async def _latencies(self, peer: Peer, operations: list[_Operation]) -> None:
        """002: every operation, one call after another; the operations take turns."""
        rounds = self._bench.size(quick=20, full=200)
        usable = []
        for operation in operations:
            reply = await _answer(peer, operation.order)
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
                    taken[operation.label].append((await _answer(peer, operation.order)).service_ms)
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
                await _answer(peer, main.order)
            one_by_one.append((now_ns() - began) / 1e6)
            with self._phases.named("at once"):
                replies, wall_ms = await _burst(peer, main.order, count)
            _all_well(replies, main)
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
        ends: list[float] = []
        walls: dict[int, float] = {}
        for count in FANOUT:
            self._bench.step(f"{count} calls at once")
            taken, load = [], ForeignLoad()
            for _ in range(rounds + 1):
                with self._phases.named(f"fan-out {count}"):
                    replies, wall_ms = await _burst(peer, main.order, count)
                _all_well(replies, main)
                taken.append(wall_ms)
                ends = sorted(reply.service_ms for reply in replies)
            foreign = load.cores()
            stats = describe(taken, foreign_cores=foreign, contended=is_contended(foreign))
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
        found = waves_of(walls[1], ends)
        self._check(
            "001-1, 001-3",
            "calls in flight at once are handled at once, or in waves of as many as the server has places",
            documented="20 calls: 108 ms without a limit, 521 ms (5 waves) with a pool of 4",
            measured=f"1: {walls[1]:.1f} ms, {FANOUT[-1]}: {walls[FANOUT[-1]]:.1f} ms. {found.sentence}",
            tolerance="ends of the calls cluster at multiples of one call's time",
            verdict=found.verdict,
            value=found.width,
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
                waits.append((await _answer(peer, quick.order)).service_ms)
                await _in_time(slow, main)
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
                    level = await _hold(peer, main.order, in_flight, span_s)
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

    def _sweep_rows(self, main: _Operation, level: Level, foreign: float | None) -> None:
        table = f"concurrency sweep of {main.label} (004)"
        phase = self._swept[level.in_flight]
        busy = is_contended(foreign)
        excused = f"{level.cancelled} calls were given up after {DRAIN_S:g} s" if level.cancelled else ""
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
            table, f"{level.in_flight} in flight, latency", "ms", stats, phase, x=level.in_flight, series=main.label
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
                reply = await _answer(peer, main.order)
                taken.append((now_ns() - began) / 1e6)
            _all_well([reply], main)
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
        async with connect(over_http) as peer:
            _all_well([await _answer(peer, main.order)], main)
            load = ForeignLoad()
            taken = [(await _answer(peer, main.order)).service_ms for _ in range(rounds)]
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


# --- sending --------------------------------------------------------------------------------------


async def _answer(peer: Peer, order: Order) -> Reply:
    """One call, alone.

    Raises: LaunchError where the server has gone or does not answer in time.
    """
    future = peer.post(order, stamped=True)
    await asyncio.wait((future,), timeout=ANSWER_S)
    if not future.done():
        future.cancel()
        raise LaunchError(f"{order.operation} was not answered within {ANSWER_S:g} s.")
    reply = future.result()
    if reply.kind == "transport error":
        raise LaunchError(f"{order.operation} got no answer: {peer.gone() or reply.failure}.")
    return reply


async def _in_time(future: asyncio.Future[Reply], operation: _Operation) -> None:
    await asyncio.wait((future,), timeout=ANSWER_S)
    if not future.done():
        future.cancel()
        raise LaunchError(f"{operation.label} was not answered within {ANSWER_S:g} s.")


async def _burst(peer: Peer, order: Order, count: int) -> tuple[list[Reply], float]:
    """So many at once: their replies, and milliseconds from the first sending to the last answer.

    Raises: LaunchError where one is not answered in time.
    """
    began = now_ns()
    futures = [peer.post(order, stamped=True) for _ in range(count)]
    await asyncio.wait(futures, timeout=ANSWER_S)
    late = [future for future in futures if not future.done()]
    for future in late:
        future.cancel()
    if late:
        raise LaunchError(
            f"{len(late)} of {count} calls of {order.operation} at once were not answered in {ANSWER_S:g} s."
        )
    replies = [future.result() for future in futures]
    return replies, (max(reply.answered_ns for reply in replies) - began) / 1e6


def _all_well(replies: Sequence[Reply], operation: _Operation) -> None:
    bad = [reply for reply in replies if reply.kind != "ok"]
    if bad:
        raise LaunchError(f"{len(bad)} of {len(replies)} calls of {operation.label} failed: {bad[0].failure}.")


async def _hold(peer: Peer, order: Order, in_flight: int, span_s: float) -> Level:
    """Keeps so many in flight for ``span_s`` seconds; what is unanswered :data:`DRAIN_S` later is given up."""
    began = now_ns()
    end = began + round(span_s * 1e9)
    replies: list[Reply] = []
    cancelled = 0

    async def client() -> None:
        nonlocal cancelled
        while (left := end - now_ns()) > 0 and not peer.gone():
            future = peer.post(order, stamped=True)
            await asyncio.wait((future,), timeout=left / 1e9 + DRAIN_S)
            if not future.done():
                future.cancel()
                cancelled += 1
                return
            replies.append(future.result())

    clients: list[Awaitable[None]] = [client() for _ in range(in_flight)]
    await asyncio.gather(*clients)
    good = [reply for reply in replies if reply.kind == "ok"]
    last = max((reply.answered_ns for reply in replies), default=end)
    return Level(
        in_flight=in_flight,
        span_s=(last - began) / 1e9,
        times_ms=tuple(reply.service_ms for reply in good),
        failed=len(replies) - len(good),
        cancelled=cancelled,
    )


def _is_read_only(tool: Mapping[str, Any]) -> bool:
    annotations = tool.get("annotations")
    return isinstance(annotations, Mapping) and annotations.get("readOnlyHint") is True


def _required(tool: Mapping[str, Any]) -> Any:
    schema = tool.get("inputSchema")
    return schema.get("required") if isinstance(schema, Mapping) else None
