"""``sdks``: the same tools with mcp 1.x and 2.x and fastmcp 2, 3 and 4, over stdio.

The others than this interpreter's own live in the repository's ``.envs`` (``make envs``); where one is missing, that is
said. Times and CPU are of servers without a probe; servers with one, which are not timed, say where the time goes.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio

from mcp_probe.workloads.bench.context import Bench
from mcp_probe.workloads.bench.serving import ProfiledServer, side_by_side
from mcp_probe.workloads.bench.shapes import Asked, Outcome, Stats
from mcp_probe.workloads.bench.statistics import ratio_of
from mcp_probe.workloads.scenarios.counted_calls import Caller, in_turns, over_stdio, put_calls
from mcp_probe.workloads.scenarios.own_claims import exactly, judged
from mcp_probe.workloads.scenarios.providers import threaded_provider
from mcp_probe.workloads.scenarios.tables import Table

TABLE = "now SDKs"
SERVER = Path(__file__).resolve().parents[1] / "servers" / "any_sdk.py"
ENVS = Path(__file__).resolve().parents[3] / ".envs"
NEW, OLD, ON_TOP = "mcp 2", "mcp 1", "fastmcp 4"


@dataclass(frozen=True, slots=True)
class Arm:
    """One SDK. ``env``: its folder in ``.envs``, ``None``: this interpreter has it."""

    label: str
    sdk: str
    env: str | None = None

    @property
    def python(self) -> Path:
        """The interpreter."""
        return Path(sys.executable) if self.env is None else ENVS / self.env / "bin" / "python"


ARMS = (
    Arm(NEW, "mcp"),
    Arm(OLD, "mcp", "mcp1"),
    Arm(ON_TOP, "fastmcp", "fastmcp4"),
    Arm("fastmcp 3", "fastmcp", "fastmcp3"),
    Arm("fastmcp 2", "fastmcp", "fastmcp2"),
)
QUICK = 3
Connected = tuple[Caller, ProfiledServer]


async def run(bench: Bench) -> Outcome:
    """Under the probe, for names and readings; then bare, by turns."""
    arms = _arms(bench)
    calls, rounds = bench.size(40, 200), bench.size(4, 12)
    bench.step(f"{len(arms)} servers with a probe")
    said: dict[str, dict[str, Any]] = {}
    async with side_by_side([_connected(arm, probe=True) for arm in arms]) as probed:
        for arm, (caller, server) in zip(arms, probed, strict=True):
            await caller.some(calls)
            with server.phase("calls"):
                await caller.some(calls)
            said[arm.label] = await anyio.to_thread.run_sync(caller.counted)
    servers = {arm.label: server for arm, (_, server) in zip(arms, probed, strict=True)}
    bench.step(f"{len(arms)} servers without a probe")
    async with side_by_side([_connected(arm, probe=False) for arm in arms]) as bare:
        callers = {arm.label: caller for arm, (caller, _) in zip(arms, bare, strict=True)}
        taken = await in_turns(bench, callers, calls, rounds)
    whys = {label: server.later("calls", "add") for label, server in servers.items()}
    cpu_us = put_calls(Table(bench, TABLE), callers, taken, rounds, whys)
    _name_claim(bench, said, servers)
    _cost_claims(bench, cpu_us, said, servers)
    return bench.outcome()


def _arms(bench: Bench) -> Sequence[Arm]:
    wanted = ARMS[: bench.size(QUICK, len(ARMS))]
    for arm in wanted:
        if not arm.python.exists():
            bench.lacks(f".envs/{arm.env} of the repository (`make envs`)", f"{arm.label} is left out")
    return [arm for arm in wanted if arm.python.exists()]


@asynccontextmanager
async def _connected(arm: Arm, *, probe: bool) -> AsyncIterator[Connected]:
    async with threaded_provider(str(SERVER), [arm.sdk], probe=probe, python=[str(arm.python)]) as provider:
        yield Caller(over_stdio(provider.client)), provider


def _name_claim(bench: Bench, said: Mapping[str, Mapping[str, Any]], servers: Mapping[str, ProfiledServer]) -> None:
    wrong = []
    for label, truth in said.items():
        found = servers[label].summary().server
        if (found.sdk, found.sdk_version) != (truth["sdk"], truth["version"]):
            wrong.append(f"{found.sdk} {found.sdk_version} instead of {truth['sdk']} {truth['version']}")
    told = ", ".join(f"{truth['sdk']} {truth['version']}" for truth in said.values())
    exactly(
        bench,
        "now-23",
        "the probe names the SDK that a server is made with, and its version",
        said="; ".join(wrong) or told,
        how="each as its interpreter has it installed",
        fine=not wrong,
        why="It asks the installed package, in the server's own interpreter.",
    )


def _cost_claims(
    bench: Bench,
    cpu_us: Mapping[str, Stats],
    said: Mapping[str, Mapping[str, Any]],
    servers: Mapping[str, ProfiledServer],
) -> None:
    claims = (
        ("now-24", "a call costs no more with mcp 2 than with mcp 1", NEW, OLD),
        ("now-25", "a call costs no more with fastmcp 4 than with the SDK that it is made with", ON_TOP, NEW),
    )
    for claim, sentence, over, under in claims:
        if over not in cpu_us or under not in cpu_us:
            continue
        ratio = ratio_of(cpu_us[over], cpu_us[under])
        names = [f"{said[label]['sdk']} {said[label]['version']}" for label in (over, under)]
        judged(
            bench,
            claim,
            sentence,
            Asked("at most"),
            ratio,
            said=f"{cpu_us[over].median:.0f} µs of the server's CPU with {names[0]}, {cpu_us[under].median:.0f} µs "
            f"with {names[1]}: {ratio.value:.2f}×",
            how="the server's CPU time of a call, the first over the second",
            why=f"With {names[0]}: {servers[over].why('calls')} With {names[1]}: {servers[under].why('calls')}",
        )
