"""Document 001, section 2.2: what a layer around a call costs, for its framework and for this probe.

Both are measured against the direct client by turns. The framework is the client that the document describes, on
servers of its own; the probe is switched on and off in the process of the direct client's server. A percentage says
little where the calls themselves only sleep, so each row also has microseconds a call, and there is a row of calls
that do not sleep at all: the only one that can show a cost.
"""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

from mcp_probe.aggregate.explain import Seen, explain
from mcp_probe.errors import LaunchError
from mcp_probe.record.file import read_recording
from mcp_probe.workloads.bench.context import Bench, Ms, Timed
from mcp_probe.workloads.bench.serving import side_by_side
from mcp_probe.workloads.bench.shapes import Outcome
from mcp_probe.workloads.client import Call, LoadSession
from mcp_probe.workloads.facade import Facade
from mcp_probe.workloads.scenarios import overhead_rows as rows
from mcp_probe.workloads.scenarios.documents import doc001 as doc
from mcp_probe.workloads.scenarios.overhead_rows import Case, Found
from mcp_probe.workloads.scenarios.providers import threaded_provider
from mcp_probe.workloads.scenarios.tables import Burst, One, burst, calls_of, through_facade, through_session

TOGGLED = "mcp_probe.workloads.servers.toggled"
PLAIN = "mcp_probe.workloads.servers.delays"
THREADS = 20
PROVIDERS = 3
SETTLING = 10
"""Calls after a switch that nobody times."""


async def run(bench: Bench) -> Outcome:
    """The seven rows of the document, those it left out, and the one that can show something."""
    cases = _cases(bench)
    found: dict[str, Found] = {}
    async with _clients(bench) as clients:
        for case in cases:
            bench.step(case.label)
            found[case.key] = await _measure(bench, clients, case)
            rows.case_rows(bench, case, found[case.key])
        await _inject(bench, clients)
    rows.rows_not_run(bench, cases)
    rows.check_overhead(bench, found)
    rows.check_per_call(bench, cases, found)
    return bench.outcome()


def _cases(bench: Bench) -> list[Case]:
    """In the document's order, then what it left out."""
    delay, wide = bench.size(quick=50.0, full=doc.DELAY_MS), bench.size(quick=3, full=16)
    short, by_delay = delay / doc.DELAY_MS, bench.size(quick=3, full=5)
    note = "" if short == 1 else f"calls of {delay:g} ms instead of {doc.DELAY_MS:g}"
    mixed = short / bench.size(quick=2, full=1)
    spread = [calls_of("wait", count, ms * mixed) for count, ms in doc.MIXED]
    mixed_note = "" if mixed == 1 else f"at {mixed:g} of its delays"

    def at_once(count: int) -> Case:
        key = f"S2 N={count}"
        return Case(key, f"{key}, parallel", [calls_of("wait", count, delay)], wide, short, note=note)

    def serial(delay_ms: float, count: int, rounds: int) -> Case:
        key, note = f"S1 {delay_ms:g}", f"{count} calls a round instead of {doc.S1_CALLS}"
        calls, scale = [calls_of("wait", count, delay_ms)], count / doc.S1_CALLS
        return Case(key, f"{key} ms, sequential", calls, rounds, scale, one_by_one=True, note=note)

    one_each = [calls_of("wait", 1, delay)] * PROVIDERS
    return [
        at_once(20),
        at_once(5),
        Case("S3", f"S3 {PROVIDERS} providers, parallel", one_each, wide, short, note=note),
        Case("S5", "S5 mixed latency, parallel", spread, bench.size(quick=2, full=6), mixed, note=mixed_note),
        serial(50, bench.size(quick=2, full=10), by_delay),
        *([] if bench.quick else [serial(200, 5, 4)]),
        at_once(10),
        serial(0, bench.size(quick=30, full=50), bench.size(quick=6, full=30)),
        *([] if bench.quick else [serial(10, 10, by_delay), serial(100, 5, 4)]),
    ]


# --- clients ---


class Clients:
    """The direct client's sessions, the facade's, and the switch of the probe in the direct client's servers."""

    def __init__(self, sessions: Sequence[LoadSession], facades: Sequence[Facade]) -> None:
        self._sessions = sessions
        self.direct: list[One] = [through_session(session) for session in sessions]
        self.facade: list[One] = [through_facade(facade) for facade in facades]

    async def probed(self, calls: Burst, providers: int, folder: Path | None = None) -> Ms:
        """One round with the probe attached, and recording into ``folder`` if there is one.

        Attaching, detaching and the calls after it are not timed: the interpreter has to get used to functions
        that have been replaced, and back.
        """
        try:
            await self._switch(True, providers, folder)
            return await calls()
        finally:
            await self._switch(False, providers, None)

    async def why(self, calls: Burst, providers: int) -> str:
        """One sentence on a round that nobody times, from the last provider, which has the longest calls."""
        with tempfile.TemporaryDirectory(prefix="mcp-probe-bench-") as folder:
            await self.probed(calls, providers, Path(folder))
            seen = Seen.of(read_recording(Path(folder, f"{providers - 1}.jsonl")))
        rounds = [request for request in seen.requests if request.name == "wait"]
        return explain(replace(seen, requests=tuple(rounds[SETTLING:])))

    async def _switch(self, on: bool, providers: int, folder: Path | None) -> None:
        for number, session in enumerate(self._sessions[:providers]):
            record = None if folder is None else str(folder / f"{number}.jsonl")
            answer = await session.call("probe", on=on, record=record)
            if answer.error is not None:
                raise LaunchError(f"The probe could not be switched: {answer.error}")
            for _ in range(SETTLING):
                await session.call("wait", delay_ms=0)


@asynccontextmanager
async def _clients(bench: Bench) -> AsyncIterator[Clients]:
    """Three servers of each kind."""
    bench.step("starting six servers")
    async with AsyncExitStack() as stack:
        toggled = side_by_side([bench.server(TOGGLED, probe=False) for _ in range(PROVIDERS)])
        plain = side_by_side([threaded_provider(PLAIN, probe=False) for _ in range(PROVIDERS)])
        servers, providers = await stack.enter_async_context(toggled), await stack.enter_async_context(plain)
        facades = [Facade(provider.client, THREADS) for provider in providers]
        for facade in facades:
            stack.callback(facade.close)
        clients = Clients([server.session for server in servers], facades)
        for one in (*clients.direct, *clients.facade):
            for _ in range(doc.WARM_UP):
                await one(Call("wait", {"delay_ms": 0}))
        await clients.probed(Burst([(clients.direct[0], Call("wait", {"delay_ms": 0}))]), PROVIDERS)
        yield clients


async def _measure(bench: Bench, clients: Clients, case: Case) -> Found:
    """All three, and the direct one twice, by turns."""
    direct, facade = clients.direct, clients.facade
    ways = {"direct": direct, "direct again": direct, "facade": facade, "probe": direct}
    bursts = {label: case.round_of(each) for label, each in ways.items()}
    turns: dict[str, Timed] = {**bursts, "probe": lambda: clients.probed(bursts["probe"], len(case.calls))}
    measured = await bench.interleaved(turns, case.rounds)
    why = await clients.why(case.round_of(clients.direct), len(case.calls))
    return Found(measured.stats, bursts, why, case.one_by_one)


async def _inject(bench: Bench, clients: Clients) -> None:
    """What work of a known length does to two of the rows: percent at delay 0, and at 20 at once."""
    bench.step("a known cost, injected")
    kinds: dict[str, dict[str, float]] = {"plain": {}, "loaded": {"busy_us": rows.INJECTED_US}}
    for key, count, delay_ms, one_by_one in (
        ("S1 0", 30, 0.0, True),
        ("S2 N=20", 20, bench.size(quick=50.0, full=doc.DELAY_MS), False),
    ):
        bursts = {
            label: burst(clients.direct[0], calls_of("wait", count, delay_ms, **more), one_by_one=one_by_one)
            for label, more in kinds.items()
        }
        both = await bench.interleaved(bursts, bench.size(quick=3, full=20))
        rows.injected_row(bench, key, Found(both.stats, bursts, "", one_by_one))
