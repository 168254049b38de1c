"""Document 001, section 3: callers of a server that is not running.

Its table was measured on providers that ran already: with a start of 500 ms, no call can take 54 ms. So the
published table stands beside warm rows, which it equals, and beside rows of servers that really have to start:
behind a single-flight gate, and with a start for each caller. A start is counted by the servers themselves.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio

from mcp_probe.aggregate.explain import Seen, explain
from mcp_probe.aggregate.phrasing import plural
from mcp_probe.model import RequestRecord
from mcp_probe.workloads.bench.context import Bench, Ms
from mcp_probe.workloads.bench.serving import ProfiledServer, hold
from mcp_probe.workloads.bench.shapes import Outcome, Stats
from mcp_probe.workloads.bench.statistics import counted, describe, floor_of, measured, ratio_of
from mcp_probe.workloads.client import Call, LoadSession
from mcp_probe.workloads.scenarios.arms import Arm, put_ratio, take_turns
from mcp_probe.workloads.scenarios.documents import doc001 as doc
from mcp_probe.workloads.scenarios.providers import followed
from mcp_probe.workloads.scenarios.tables import Table, burst, calls_of, through_session

SERVER = "mcp_probe.workloads.servers.delays"

Start = Callable[[], Awaitable[LoadSession]]


class Gate:
    """One start for everybody: the first caller starts the server, the others wait for the same start.

    Source: golang.org/x/sync/singleflight.
    """

    def __init__(self, starting: Starting) -> None:
        self._starting = starting
        self._session: asyncio.Future[LoadSession] | None = None

    async def session(self) -> LoadSession:
        """The running server's session; starts it if nobody has."""
        if self._session is None:
            self._session = asyncio.get_running_loop().create_future()
            try:
                self._session.set_result(await self._starting.start())
            except BaseException as exc:
                self._session.set_exception(exc)
                raise
        return await self._session


class Starting:
    """Servers that are started on demand, ended together, and counted by what they wrote themselves.

    Each lives in a task of its own: a transport must be left by the task that entered it.
    """

    def __init__(self, bench: Bench, folder: Path, start_ms: float, *, probe: bool) -> None:
        self._bench = bench
        self._start_ms = start_ms
        self._probe = probe
        self._file = folder / "starts"
        self._over = asyncio.Event()
        self._lives: list[asyncio.Task[None]] = []
        self.servers: list[ProfiledServer] = []

    async def start(self) -> LoadSession:
        """One more server; returns when it has shaken hands. Raises: LaunchError where it does not."""
        options = ("--startup-ms", f"{self._start_ms:g}", "--starts", str(self._file))
        server = self._bench.server(SERVER, *options, probe=self._probe)
        running: asyncio.Future[ProfiledServer] = asyncio.get_running_loop().create_future()
        self._lives.append(asyncio.create_task(hold(server, running, self._over)))
        self.servers.append(await running)
        return self.servers[-1].session

    async def end(self) -> None:
        """Ends all of them."""
        self._over.set()
        await asyncio.gather(*self._lives)

    def count(self) -> int:
        """How many processes have said that they started."""
        return len(self._file.read_text().splitlines()) if self._file.exists() else 0


@asynccontextmanager
async def starting(bench: Bench, start_ms: float, *, probe: bool = False) -> AsyncIterator[Starting]:
    """Nothing runs yet; whatever gets started ends with the block."""
    with tempfile.TemporaryDirectory(prefix="mcp-probe-bench-") as folder:
        servers = Starting(bench, Path(folder), start_ms, probe=probe)
        try:
            yield servers
        finally:
            with anyio.CancelScope(shield=True):
                await servers.end()


@dataclass(frozen=True, slots=True)
class Cold:
    """Rounds of N callers of a server that has to start, and how many processes each round started at most."""

    stats: Stats
    starts: int


async def run(bench: Bench) -> Outcome:
    """Warm rows, which are the document's; then cold ones."""
    work = ColdStart(bench)
    await work.measure_warm()
    await work.measure_cold()
    work.checks()
    return bench.outcome()


class ColdStart:
    """What was measured."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.start_ms = bench.size(quick=150.0, full=doc.START_MS)
        self.one_by_one: dict[int, Arm] = {}
        self.at_once: dict[int, Arm] = {}
        self.gated: dict[int, Cold] = {}
        self.naive: dict[int, Cold] = {}
        self.at_gate: Seen | None = None

    # --- warm: what the document measured ---

    async def measure_warm(self) -> None:
        """Callers of a server that has started, one by one and at once: the lines of section 3.3."""
        note = "a server that runs already, as in the document's suite"
        async with self.bench.server(SERVER) as server:
            one = through_session(server.session)
            for count, known in doc.COLD_START.items():
                name = plural(count, "call")
                serial, at_once = f"{name}, one by one", f"{name}, at once"
                self.bench.step(f"{name} of a running server")
                calls = calls_of("wait", count, doc.COLD_CALL_MS)
                rounds, ways = self.bench.size(quick=1, full=6), {serial: burst(one, calls, one_by_one=True)}
                slow = self.one_by_one[count] = (await take_turns(self.bench, ways, rounds, server))[serial]
                rounds, ways = self.bench.size(quick=2, full=20), {at_once: burst(one, calls)}
                arms = await take_turns(self.bench, ways, rounds, server, twin=at_once)
                quick = self.at_once[count] = arms[at_once]
                table = Table(self.bench, "001 §3.3", note=note, x=count, floor=quick.floor)
                table.put(serial, "ms", slow.stats, known.one_by_one_ms, series="sequential", why=slow.why)
                table.put(at_once, "ms", quick.stats, known.single_flight_ms, series="single-flight", why=quick.why)
                speed_up = table.sub(series="speed-up", why=server.grown(serial, at_once))
                put_ratio(speed_up, f"{name}, speed-up", slow, quick, known.speed_up)

    # --- cold: what it said it measured ---

    async def measure_cold(self) -> None:
        """A new server for every round; then one round that is not timed, under the probe."""
        for count in self.bench.size(quick=(1, 20), full=tuple(doc.COLD_START)):
            self.gated[count] = cold = await self._rounds(count, self.bench.size(quick=2, full=4), gated=True)
            label, known = f"cold, single-flight: {plural(count, 'caller')}", doc.COLD_START[count].single_flight_ms
            table = self._conditions.sub(series="single-flight", x=count, why=self._why)
            table.put(label, "ms", cold.stats, known)
            table.put(f"{label}, starts", "", float(cold.starts), 1, metric="starts")
        for count in self.bench.size(quick=(5,), full=(1, 5, 10)):
            self.naive[count] = cold = await self._rounds(count, self.bench.size(quick=1, full=2), gated=False)
            label = f"cold, a start for each: {plural(count, 'caller')}"
            table = self._conditions.sub(series="naive", x=count)
            table.put(label, "ms", cold.stats)
            table.put(f"{label}, starts", "", float(cold.starts), metric="starts")
        self._speed_up_row()
        self.bench.step("20 callers of one start, under the probe")
        async with starting(self.bench, self.start_ms, probe=True) as servers:
            with followed() as gate:
                await _callers(servers, 20, gated=True, follow=gate.follow)
        self.at_gate = gate.seen
        self._gate_row("at the gate", gate.seen)
        self._gate_row("in the server", servers.servers[0].seen())

    async def _rounds(self, count: int, repeats: int, *, gated: bool) -> Cold:
        """Each round has a server of its own, so none is the first."""
        self.bench.step(f"{plural(count, 'caller')}, {'one start' if gated else 'a start each'}")
        starts = []

        async def once() -> Ms:
            async with starting(self.bench, self.start_ms) as servers:
                wall_ms = await _callers(servers, count, gated=gated)
                starts.append(servers.count())
            return wall_ms

        stats = await self.bench.timed(once, repeats, first_apart=False)
        return Cold(stats, max(starts))

    @property
    def _conditions(self) -> Table:
        said = f"start of {self.start_ms:g} ms and the import of the SDK, then calls of {doc.COLD_CALL_MS:g} ms"
        return Table(self.bench, "001 conditions", note=said, metric="cold start")

    def _speed_up_row(self) -> None:
        """The document's 18.5 times, of servers that do start."""
        first, most = self.gated[1].stats, self.gated[20].stats
        known, note = doc.COLD_START[20].speed_up, "one by one: one cold call, and 19 as the warm rows have them"
        floor, contended = floor_of(first, most), first.contended or most.contended
        ratio = self._conditions.sub(metric="ratio", floor=floor, contended=contended, why=self._why, note=note)
        ratio.put("cold: 20 one by one over 20 at once", "×", self._cold_speed_up(), known)

    def _gate_row(self, label: str, seen: Seen) -> None:
        """What the callers waited for, by a probe on one side."""
        totals = [(request.end_ns - request.arrival_ns) / 1e6 for request in seen.requests if _is_call(request)]
        gate = self._conditions.sub(metric="gate", series=label, why=explain(seen), note="one round, under the probe")
        gate.put(f"cold, single-flight: 20 callers, {label}", "ms", describe(totals, first_apart=False))

    def _why(self) -> str:
        """What the callers waited for; empty where nobody has looked yet."""
        return explain(self.at_gate) if self.at_gate is not None else ""

    # --- claims ---

    def checks(self) -> None:
        """001-6 and its parts: what the document says of starts, and what its table is of."""
        starts = [cold.starts for cold in self.gated.values()]
        walls = {count: cold.stats for count, cold in self.gated.items()}
        self.bench.claim(
            doc.CLAIMS["001-6"],
            [counted(each) for each in starts],
            ratio_of(walls[20], walls[1]),
            said=f"{' / '.join(f'{stats.median:,.0f}' for stats in walls.values())} ms for "
            f"{' / '.join(map(str, walls))} callers; {max(starts)} start",
            why=self._why(),
        )
        self.bench.claim(
            doc.CLAIMS["001-6a"],
            measured(walls[1]),
            said=f"one cold call takes {walls[1].median:,.0f} ms here, with a start of {self.start_ms:g} ms, and 20 "
            f"behind one start are {self._cold_speed_up():.1f}× as fast as one by one",
            why=self._why(),
        )
        alone = ratio_of(self.naive[5].stats, walls.get(5, walls[1]))
        said = f"5 callers: {self.naive[5].starts} starts, {alone.value:.1f}× the time of one start"
        self.bench.claim(doc.CLAIMS["001-6b"], counted(self.naive[5].starts), alone, said=said)
        warm = " / ".join(f"{arm.stats.median:.0f}" for arm in self.at_once.values())
        serial, together = self.one_by_one[20], self.at_once[20]
        times = serial.over(together)
        self.bench.claim(
            doc.CLAIMS["001-6c"],
            times,
            said=f"{serial.stats.median:,.0f} and {together.stats.median:.0f} ms: {times.value:.1f}×; "
            f"{warm} ms for 1 / 5 / 10 / 20 callers, the document's 54 / 56 / 56 / 58",
        )

    def _cold_speed_up(self) -> float:
        """Of servers that do start: one cold call and 19 warm ones, over 20 callers of one start."""
        serial = self.gated[1].stats.median + 19 * (self.one_by_one[20].stats.median / 20)
        return serial / self.gated[20].stats.median


def _is_call(request: RequestRecord) -> bool:
    return request.kind == "function" or request.method == "tools/call"


async def _callers(servers: Starting, count: int, *, gated: bool, follow: Callable[[Start], Start] | None = None) -> Ms:
    """Milliseconds until all callers have their answer; ``follow`` wraps what each of them waits for first."""
    start: Start = Gate(servers).session if gated else servers.start
    if follow is not None:
        start = follow(start)
    call = Call("wait", {"delay_ms": doc.COLD_CALL_MS})

    async def one() -> None:
        session = await start()
        await through_session(session)(call)

    began = time.perf_counter_ns()
    await asyncio.gather(*(one() for _ in range(count)))
    return Ms((time.perf_counter_ns() - began) / 1e6)
