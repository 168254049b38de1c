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
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import anyio

from mcp_probe.aggregate.explain import Seen, explain
from mcp_probe.aggregate.phrasing import plural
from mcp_probe.model import RequestRecord
from mcp_probe.workloads.bench.context import Bench, Ms
from mcp_probe.workloads.bench.serving import ProfiledServer, hold
from mcp_probe.workloads.bench.shapes import Outcome, Stats
from mcp_probe.workloads.bench.statistics import counted, describe, floor_of, measured, ratio_of
from mcp_probe.workloads.client import Call, LoadSession
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
        running: asyncio.Future[LoadSession] = asyncio.get_running_loop().create_future()
        self._lives.append(asyncio.create_task(hold(self._started(), running, self._over)))
        return await running

    async def end(self) -> None:
        """Ends all of them."""
        self._over.set()
        await asyncio.gather(*self._lives)

    def count(self) -> int:
        """How many processes have said that they started."""
        return len(self._file.read_text().splitlines()) if self._file.exists() else 0

    @asynccontextmanager
    async def _started(self) -> AsyncIterator[LoadSession]:
        options = ("--startup-ms", f"{self._start_ms:g}", "--starts", str(self._file))
        async with self._bench.server(SERVER, *options, probe=self._probe) as server:
            self.servers.append(server)
            yield server.session


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


@dataclass
class Cold:
    """Rounds of N callers of a server that has to start."""

    wall_ms: list[float] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    foreign: float | None = None
    contended: bool = False

    def stats(self) -> Stats:
        """Of all rounds: each has a server of its own, so none is the first."""
        return describe(self.wall_ms, first_apart=False, foreign_cores=self.foreign, contended=self.contended)


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
        self.one_by_one: dict[int, Stats] = {}
        self.at_once: dict[int, Stats] = {}
        self.warm_floor: dict[int, float | None] = {}
        self.gated: dict[int, Cold] = {}
        self.naive: dict[int, Cold] = {}
        self.at_gate: Seen | None = None
        self.at_server: Seen | None = None

    # --- warm: what the document measured ---

    async def measure_warm(self) -> None:
        """Callers of a server that has started, one by one and at once."""
        async with self.bench.server(SERVER) as server:
            one = through_session(server.session)
            for count in doc.COLD_START:
                self.bench.step(f"{plural(count, 'call')} of a running server")
                calls = calls_of("wait", count, doc.COLD_CALL_MS)
                ways = {"one by one": burst(one, calls, one_by_one=True), "at once": burst(one, calls)}
                self.one_by_one[count] = await self.bench.timed(ways["one by one"], self.bench.size(quick=1, full=6))
                found = await self.bench.interleaved(
                    {"at once": ways["at once"]}, self.bench.size(quick=2, full=20), twin="at once"
                )
                self.at_once[count], self.warm_floor[count] = found.stats["at once"], found.floor
                for label, way in ways.items():
                    server.mark(f"{count} {label}", way.last_ns)
                self._warm_rows(server, count, found.floor)

    def _warm_rows(self, server: ProfiledServer, count: int, floor: float | None) -> None:
        """A line of section 3.3."""
        note = "a server that runs already, as in the document's suite"
        table = Table(self.bench, "001 §3.3", note=note, x=count, floor=floor)
        known, serial, together = doc.COLD_START[count], self.one_by_one[count], self.at_once[count]
        for way, stats, documented, series in (
            ("one by one", serial, known.one_by_one_ms, "sequential"),
            ("at once", together, known.single_flight_ms, "single-flight"),
        ):
            why = server.later(f"{count} {way}")
            table.put(f"{plural(count, 'call')}, {way}", "ms", stats, documented, series=series, why=why)
        ratio = table.sub(contended=serial.contended or together.contended, metric="ratio", series="speed-up")
        why = server.grown(f"{count} one by one", f"{count} at once")
        ratio.put(f"{plural(count, 'call')}, speed-up", "×", serial.median / together.median, known.speed_up, why=why)

    # --- cold: what it said it measured ---

    async def measure_cold(self) -> None:
        """A new server for every round; then one round that is not timed, under the probe."""
        for count in self.bench.size(quick=(1, 20), full=tuple(doc.COLD_START)):
            self.gated[count] = await self._rounds(count, self.bench.size(quick=2, full=4), gated=True)
            self._gated_rows(count)
        for count in self.bench.size(quick=(5,), full=(1, 5, 10)):
            self.naive[count] = await self._rounds(count, self.bench.size(quick=1, full=2), gated=False)
            self._naive_rows(count)
        self._speed_up_row()
        self.bench.step("20 callers of one start, under the probe")
        async with starting(self.bench, self.start_ms, probe=True) as servers:
            with followed() as gate:
                await _callers(servers, 20, gated=True, follow=gate.follow)
        self.at_gate = gate.seen
        self.at_server = servers.servers[0].seen()
        self._gate_rows()

    async def _rounds(self, count: int, repeats: int, *, gated: bool) -> Cold:
        cold = Cold()
        self.bench.step(f"{plural(count, 'caller')}, {'one start' if gated else 'a start each'}")
        foreign = []
        for _ in range(repeats):

            async def once() -> tuple[float, int]:
                async with starting(self.bench, self.start_ms) as servers:
                    return await _callers(servers, count, gated=gated), servers.count()

            (wall_ms, starts), cores, contended = await self.bench.quiet(once)
            cold.wall_ms.append(wall_ms)
            cold.starts.append(starts)
            cold.contended |= contended
            if cores is not None:
                foreign.append(cores)
        cold.foreign = median(foreign) if foreign else None
        return cold

    @property
    def _conditions(self) -> Table:
        said = f"start of {self.start_ms:g} ms and the import of the SDK, then calls of {doc.COLD_CALL_MS:g} ms"
        return Table(self.bench, "001 conditions", note=said, metric="cold start")

    def _gated_rows(self, count: int) -> None:
        """N callers of one start."""
        cold, table = self.gated[count], self._conditions.sub(series="single-flight", x=count)
        label, known = f"cold, single-flight: {plural(count, 'caller')}", doc.COLD_START[count].single_flight_ms
        table.put(label, "ms", cold.stats(), known, why=self._why)
        table.put(f"{label}, starts", "", float(max(cold.starts)), 1, metric="starts", why=self._why)

    def _naive_rows(self, count: int) -> None:
        """N callers, each with a start of its own."""
        cold, table = self.naive[count], self._conditions.sub(series="naive", x=count)
        label = f"cold, a start for each: {plural(count, 'caller')}"
        table.put(label, "ms", cold.stats())
        table.put(f"{label}, starts", "", float(max(cold.starts)), metric="starts")

    def _speed_up_row(self) -> None:
        """The document's 18.5 times, of servers that do start."""
        first, most = self.gated[1], self.gated[20]
        self._conditions.put(
            "cold: 20 one by one over 20 at once",
            "×",
            self._cold_speed_up(),
            doc.COLD_START[20].speed_up,
            metric="ratio",
            floor=floor_of(first.stats(), most.stats()),
            contended=most.contended or first.contended,
            why=self._why,
            note="one by one: one cold call, and 19 as the warm rows have them",
        )

    def _gate_rows(self) -> None:
        """What the callers waited for, by the probe on both sides."""
        for seen, label in ((self.at_gate, "at the gate"), (self.at_server, "in the server")):
            if seen is not None:
                totals = [(request.end_ns - request.arrival_ns) / 1e6 for request in seen.requests if _is_call(request)]
                self._conditions.put(
                    f"cold, single-flight: 20 callers, {label}",
                    "ms",
                    describe(totals, first_apart=False),
                    series=label,
                    metric="gate",
                    why=explain(seen),
                    note="one round, under the probe",
                )

    def _why(self) -> str:
        """What the callers waited for; empty where nobody has looked yet."""
        return explain(self.at_gate) if self.at_gate is not None else ""

    # --- claims ---

    def checks(self) -> None:
        """001-6 and its parts: what the document says of starts, and what its table is of."""
        starts = {count: max(cold.starts) for count, cold in self.gated.items()}
        walls = {count: cold.stats() for count, cold in self.gated.items()}
        self.bench.claim(
            doc.CLAIMS["001-6"],
            [counted(each) for each in starts.values()],
            ratio_of(walls[20], walls[1]),
            said=f"{' / '.join(f'{stats.median:,.0f}' for stats in walls.values())} ms for "
            f"{' / '.join(map(str, walls))} callers; {max(starts.values())} start",
            why=self._why(),
        )
        self.bench.claim(
            doc.CLAIMS["001-6a"],
            measured(walls[1]),
            said=f"one cold call takes {walls[1].median:,.0f} ms here, with a start of {self.start_ms:g} ms, and 20 "
            f"behind one start are {self._cold_speed_up():.1f}× as fast as one by one",
            why=self._why(),
        )
        alone = self.naive[5].stats()
        one_start = walls.get(5, walls[1])
        self.bench.claim(
            doc.CLAIMS["001-6b"],
            counted(max(self.naive[5].starts)),
            ratio_of(alone, one_start),
            said=f"5 callers: {max(self.naive[5].starts)} starts, {alone.median / one_start.median:.1f}× the time of "
            "one start",
        )
        warm = " / ".join(f"{stats.median:.0f}" for stats in self.at_once.values())
        serial, together = self.one_by_one[20], self.at_once[20]
        self.bench.claim(
            doc.CLAIMS["001-6c"],
            ratio_of(serial, together, self.warm_floor.get(20)),
            said=f"{serial.median:,.0f} and {together.median:.0f} ms: {serial.median / together.median:.1f}×; "
            f"{warm} ms for 1 / 5 / 10 / 20 callers, the document's 54 / 56 / 56 / 58",
        )

    def _cold_speed_up(self) -> float:
        """Of servers that do start: one cold call and 19 warm ones, over 20 callers of one start."""
        serial = median(self.gated[1].wall_ms) + 19 * (self.one_by_one[20].median / 20)
        return serial / median(self.gated[20].wall_ms)


def _is_call(request: RequestRecord) -> bool:
    return request.kind == "function" or request.method == "tools/call"


async def _callers(
    servers: Starting, count: int, *, gated: bool, follow: Callable[[Start], Start] | None = None
) -> float:
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
