"""``workers``: the same server in 1, 2 and 4 processes of uvicorn, which share a socket.

A connection belongs to the worker that accepted it, so the client makes sure that each worker has as many. Every answer
says which process it comes from: the truth for what the probe of each process counts.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial

import anyio

from mcp_probe.errors import LaunchError
from mcp_probe.workloads.bench.context import Bench, Ms, Timed
from mcp_probe.workloads.bench.serving import ProfiledServer, side_by_side
from mcp_probe.workloads.bench.shapes import Asked, Claim, Outcome, Stats
from mcp_probe.workloads.bench.statistics import ratio_of, scaled
from mcp_probe.workloads.raw_http import RawSession
from mcp_probe.workloads.scenarios.own_claims import exactly
from mcp_probe.workloads.scenarios.tables import Table

SERVER = "mcp_probe.workloads.servers.workers"
TABLE = "now workers"
CONNECTIONS = 4
CPU_MS, WAIT_MS = 5.0, 20.0
HOLD_MS = 150.0
"""How long a worker computes so that another one accepts the next connection."""

FIND_LIMIT_S = 120.0
KINDS = {"compute": f"{CPU_MS:g} ms of computing", "wait": f"{WAIT_MS:g} ms of waiting"}
ARGUMENTS = {"compute": {"cpu_ms": CPU_MS}, "wait": {"delay_ms": WAIT_MS}}


@dataclass(slots=True)
class Arm:
    """One server of so many workers; ``answered``: how many calls of the counted round came from which process."""

    workers: int
    server: ProfiledServer
    sessions: list[RawSession] = field(default_factory=list)
    pids: set[int] = field(default_factory=set)
    answered: Counter[int] = field(default_factory=Counter)

    @property
    def label(self) -> str:
        """In tables."""
        return f"{self.workers} worker{'s' if self.workers > 1 else ''}"


async def run(bench: Bench) -> Outcome:
    """All servers by turns; then one counted round each, and a session that meets another worker."""
    counts = bench.size([1, 2], [1, 2, 4])
    bench.step("starting uvicorn")
    starts = [bench.server(SERVER, "--workers", str(count), transport="json", connect=False) for count in counts]
    async with side_by_side(starts) as servers:
        arms = [Arm(count, server) for count, server in zip(counts, servers, strict=True)]
        with ExitStack() as stack:
            for arm in arms:
                bench.step(f"connecting to {arm.label}")
                await anyio.to_thread.run_sync(_connect, arm, stack)
            found = {}
            for tool in KINDS:
                bench.step(f"{KINDS[tool]} in each call")
                found[tool] = await _timed(bench, arms, tool)
            for arm in arms:
                with arm.server.phase("counted"):
                    arm.answered = await anyio.to_thread.run_sync(_round, arm.sessions, "compute", 5)
            status = await anyio.to_thread.run_sync(_elsewhere, arms[-1])
    _compute_claim(bench, arms, found["compute"])
    _count_claim(bench, arms)
    _session_claim(bench, arms[-1], status)
    return bench.outcome()


# --- connections ----------------------------------------------------------------------------------


def _connect(arm: Arm, stack: ExitStack) -> None:
    """As many connections to each worker. Raises: LaunchError where not every worker takes one in time."""
    found: dict[int, list[RawSession]] = {}
    deadline = time.monotonic() + FIND_LIMIT_S
    each = CONNECTIONS // arm.workers
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        while len(found) < arm.workers or any(len(sessions) < each for sessions in found.values()):
            if time.monotonic() > deadline:
                raise LaunchError(f"Of {arm.workers} workers only {len(found)} took a connection.")
            full = [sessions[0] for sessions in found.values() if len(sessions) >= each]
            held = [pool.submit(partial(session.call, "compute", cpu_ms=HOLD_MS)) for session in full]
            time.sleep(HOLD_MS / 5e3 if held else 0)
            session = RawSession(arm.server.url or "", modern=True)
            pid = int(session.call("compute", cpu_ms=0).text())
            for one in held:
                one.result()
            mine = found.setdefault(pid, [])
            if len(mine) < each:
                mine.append(stack.enter_context(session))
            else:
                session.close()
    arm.sessions = [session for sessions in found.values() for session in sessions]
    arm.pids = set(found)


def _round(sessions: Sequence[RawSession], tool: str, calls: int) -> Counter[int]:
    """Every connection makes ``calls`` calls, all connections at once: how many each process answered."""

    def some(session: RawSession) -> list[int]:
        return [int(session.call(tool, **ARGUMENTS[tool]).text()) for _ in range(calls)]

    with ThreadPoolExecutor(len(sessions)) as pool:
        return Counter(pid for pids in pool.map(some, sessions) for pid in pids)


async def _timed(bench: Bench, arms: Sequence[Arm], tool: str) -> dict[str, Stats]:
    calls = bench.size(10, 40)

    def turn(arm: Arm) -> Timed:
        async def one() -> Ms:
            began = time.perf_counter_ns()
            await anyio.to_thread.run_sync(_round, arm.sessions, tool, calls)
            return Ms((time.perf_counter_ns() - began) / 1e6 / (calls * len(arm.sessions)))

        return one

    for arm in arms:
        with arm.server.phase(tool):
            await turn(arm)()
    taken = await bench.interleaved({arm.label: turn(arm) for arm in arms}, bench.size(4, 10), twin=arms[0].label)
    table = Table(bench, TABLE, metric=KINDS[tool], floor=taken.floor, note=f"of {CONNECTIONS} connections at once")
    for arm in arms:
        stats, why = taken.stats[arm.label], arm.server.later(tool, tool)
        table.put(f"{arm.label}, {KINDS[tool]}: a call", "ms", stats, series=KINDS[tool], x=arm.workers, why=why)
    return taken.stats


def _elsewhere(arm: Arm) -> tuple[int, int]:
    """Statuses of a call in a session: on its own worker, and on another one."""
    by_pid: dict[int, RawSession] = {}
    for session in arm.sessions:
        by_pid.setdefault(int(session.call("compute", cpu_ms=0).text()), session)
    own, *others = by_pid.values()
    own.modern = False
    own.open()
    here = own.call("compute", cpu_ms=0).status
    for other in others:
        other.modern, other.session_id = False, own.session_id
    there = [other.call("compute", cpu_ms=0).status for other in others]
    return here, max(there, default=0)


# --- claims ---------------------------------------------------------------------------------------


def _compute_claim(bench: Bench, arms: Sequence[Arm], found: dict[str, Stats]) -> None:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    gains = {arm.workers: ratio_of(found[arms[0].label], found[arm.label]) for arm in arms[1:]}
    shares = [scaled(gain, 1 / min(workers, cores)) for workers, gain in gains.items()]
    told = ", ".join(f"{workers} workers {gain.value:.2f}×" for workers, gain in gains.items())
    bench.claim(
        Claim(
            "now-20",
            "N workers compute N times as much, as far as there are cores",
            "",
            (Asked("at least", (0.7,), "blurs"),),
            "as much as one, over N or the number of cores",
        ),
        shares,
        said=f"{told}; {cores} cores",
        why=f"1 worker: {arms[0].server.why('compute')} {arms[-1].label}: {arms[-1].server.why('compute')}",
    )


def _count_claim(bench: Bench, arms: Sequence[Arm]) -> None:
    wrong, told = [], []
    for arm in arms:
        seen = arm.server.seen_by_process("counted")
        counted = Counter({each.summary.server.pid or 0: len(each.only("compute").requests) for each in seen})
        told.append(" + ".join(f"{count}" for count in arm.answered.values()))
        if +counted != arm.answered:
            wrong.append(f"{arm.label}: {dict(counted)} counted, {dict(arm.answered)} answered")
    exactly(
        bench,
        "now-21",
        "each worker has a probe of its own, which counts the calls of its own process",
        said="; ".join(wrong) or f"{'; '.join(told)} calls, each counted in the process that answered it",
        how="process by process, as the answers say where they come from",
        fine=not wrong,
        why=f"The server of {arms[-1].label} left {len(arms[-1].server.seen_by_process())} recordings.",
    )


def _session_claim(bench: Bench, arm: Arm, statuses: tuple[int, int]) -> None:
    here, there = statuses
    exactly(
        bench,
        "now-22",
        "a session lives in one worker: where another one gets its call, it is unknown",
        said=f"status {here} at its own worker, {there} at another of {arm.workers}",
        how="200 and 404",
        fine=(here, there) == (200, 404),
        why="Serve without sessions (stateless, or protocol 2026-07-28), or pin sessions to workers in front of them.",
    )
