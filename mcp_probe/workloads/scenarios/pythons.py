"""``pythons``: the same tools and packages with CPython 3.11, 3.12, 3.13 and 3.14, over stdio.

They are this interpreter, those that ``make pythons`` makes in a checkout, and those of ``--python PATH``; where
a version is missing, that is said. A turn starts a new process and takes every measure of it. The versions take turns,
and the first has two in each round, for the A/A floor. The client knows each answer before it asks, counts its calls,
and reads CPU time and memory from the kernel. Servers under the probe, which are not timed, say where the time goes;
they run without its accelerator, which is built for one version only. How an interpreter was built may count as much
as its version, so a claim is about two that were built with the same options, as far as they tell.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import anyio

from mcp_probe.aggregate.explain import what_differs
from mcp_probe.errors import LaunchError
from mcp_probe.workloads.bench.context import Bench, Ms
from mcp_probe.workloads.bench.machine import process_ns
from mcp_probe.workloads.bench.serving import ProfiledServer, side_by_side
from mcp_probe.workloads.bench.shapes import Outcome, Stats, Why
from mcp_probe.workloads.bench.statistics import ratio_floor
from mcp_probe.workloads.facade import ThreadedClient
from mcp_probe.workloads.scenarios.interpreters import Interpreter, interpreters
from mcp_probe.workloads.scenarios.providers import threaded_provider
from mcp_probe.workloads.scenarios.python_claims import MEASURES, Arm, claims
from mcp_probe.workloads.scenarios.tables import Table
from mcp_probe.workloads.servers.any_sdk import worked
from mcp_probe.workloads.servers.resident import resident_bytes

TABLE = "now CPython"
SERVER = str(Path(__file__).resolve().parents[1] / "servers" / "any_sdk.py")
PURE = {"MCP_PROBE_NATIVE": "0"}
IN_FLIGHT = 16
MEMORY_NOTE = "resident after the first answer, by the kernel"


@dataclass(frozen=True, slots=True)
class Size:
    """Calls of one process. ``turns``: of the loop of one that computes."""

    warm_up: int
    alone: int
    at_once: int
    computing: int
    turns: int


class Checked:
    """A client that knows each answer before it asks, and counts what it sent."""

    def __init__(self, client: ThreadedClient) -> None:
        self._client = client
        self.sent = 0

    def add(self, number: int) -> None:
        """Raises: LaunchError where the answer is wrong."""
        self._ask("add", {"a": number, "b": 1}, number + 1)

    def compute(self, turns: int, expected: int) -> None:
        """Raises: LaunchError where the answer is wrong."""
        self._ask("compute", {"turns": turns}, expected)

    def told(self, tool: str) -> dict[str, Any]:
        """What the server says of itself."""
        found: dict[str, Any] = json.loads(self._client.call(tool, {})["content"][0]["text"])
        return found

    def _ask(self, tool: str, arguments: dict[str, Any], expected: int) -> None:
        answer = self._client.call(tool, arguments)["content"][0]["text"]
        if answer != str(expected):
            raise LaunchError(f"{tool} was answered with {answer}, not {expected}.")
        self.sent += 1


async def run(bench: Bench) -> Outcome:
    """Under the probe, for the readings; then bare, by turns, a new process each."""
    found = interpreters(bench)
    if not found:
        return bench.outcome()
    size = bench.size(Size(60, 60, 160, 8, 20_000), Size(200, 300, 1000, 20, 20_000))
    expected = await anyio.to_thread.run_sync(worked, size.turns)
    bench.step(f"{len(found)} servers with a probe")
    arms = await _profiled(found, size, expected)
    first, rounds = arms[0], bench.size(4, 12)
    again = Arm(first.one, first.server, first.sent)
    bench.step(f"{len(found)} versions by turns")
    turns = {**{arm.one.label: arm for arm in arms}, f"{first.one.label} again": again}
    ways = {label: _turn(arm, size, expected) for label, arm in turns.items()}
    clock = await bench.interleaved(ways, rounds, warm_up=1)
    for label, arm in turns.items():
        arm.keep(rounds)
        arm.contended = clock.stats[label].contended
    floors = {name: _floor(first.found.get(name), again.found.get(name)) for name in MEASURES}
    _rows(bench, arms, floors)
    claims(bench, arms, floors)
    return bench.outcome()


# --- under the probe ------------------------------------------------------------------------------


async def _profiled(found: Sequence[Interpreter], size: Size, expected: int) -> list[Arm]:
    starts = [
        threaded_provider(SERVER, ["mcp"], python=[str(one.python)], environment=PURE, probe=True) for one in found
    ]
    arms = []
    async with side_by_side(starts) as servers:
        for one, server in zip(found, servers, strict=True):
            sent = await anyio.to_thread.run_sync(_driven, server, Checked(server.client), size, expected)
            arms.append(Arm(one, server, sent))
    return arms


def _driven(server: ProfiledServer, client: Checked, size: Size, expected: int) -> int:
    """All kinds of calls, each in a phase of its own; how many calls these were."""
    for number in range(size.warm_up):
        client.add(number)
    before = client.sent
    with server.phase("alone"):
        for number in range(size.alone):
            client.add(number)
    with server.phase("at once"), ThreadPoolExecutor(IN_FLIGHT) as pool:
        list(pool.map(client.add, range(size.at_once)))
    with server.phase("computing"):
        for _ in range(size.computing):
            client.compute(size.turns, expected)
    return client.sent - before


# --- bare -----------------------------------------------------------------------------------------


def _turn(arm: Arm, size: Size, expected: int) -> Callable[[], Any]:
    async def turn() -> Ms:
        began_ns = time.monotonic_ns()
        async with threaded_provider(SERVER, ["mcp"], python=[str(arm.one.python)], probe=False) as server:
            return await anyio.to_thread.run_sync(_measured, server.client, began_ns, size, expected, arm)

    return turn


def _measured(client: ThreadedClient, began_ns: int, size: Size, expected: int, arm: Arm) -> Ms:
    """One process from its start: every measure of it."""
    checked = Checked(client)
    checked.add(1)
    answered_ns = time.monotonic_ns()
    arm.measures["start_ms"].append((answered_ns - began_ns) / 1e6)
    pid = int(checked.told("counted")["pid"])  # what was started may be a launcher
    resident = resident_bytes(pid)
    if resident is not None:
        arm.measures["resident_mb"].append(resident / 1e6)
    for number in range(size.warm_up):
        checked.add(number)
    _alone(checked, pid, size, arm)
    _at_once(checked, pid, size, arm)
    arm.measures["compute_ms"].append(median(_timed(lambda _: checked.compute(size.turns, expected), size.computing)))
    arm.said = checked.told("about")
    began, ready = arm.said["began_ns"], arm.said["ready_ns"]
    arm.stages_ms.append(((began - began_ns) / 1e6, (ready - began) / 1e6, (answered_ns - ready) / 1e6))
    arm.calls += checked.sent
    if arm.said["answered"] != checked.sent:
        arm.wrong.append(f"{arm.said['answered']} calls answered, {checked.sent} sent")
    return Ms((time.monotonic_ns() - began_ns) / 1e6)


def _alone(checked: Checked, pid: int, size: Size, arm: Arm) -> None:
    before = _cpu_ns(checked, pid)
    took = _timed(checked.add, size.alone)
    arm.measures["cpu_us"].append((_cpu_ns(checked, pid) - before) / 1e3 / size.alone)
    arm.measures["alone_ms"].append(median(took))


def _at_once(checked: Checked, pid: int, size: Size, arm: Arm) -> None:
    with ThreadPoolExecutor(IN_FLIGHT) as pool:
        list(pool.map(checked.add, range(IN_FLIGHT)))  # its threads have begun
        before, began = _cpu_ns(checked, pid), time.monotonic_ns()
        list(pool.map(checked.add, range(size.at_once)))
        span_ns = time.monotonic_ns() - began
    arm.measures["per_s"].append(size.at_once * 1e9 / span_ns)
    arm.used_cores.append((_cpu_ns(checked, pid) - before) / span_ns)


def _cpu_ns(checked: Checked, pid: int) -> int:
    """By the kernel from outside; where it offers none, as the server's own process asks it."""
    found = process_ns(pid)
    return int(checked.told("counted")["cpu_ns"]) if found is None else found


def _timed(call: Callable[[int], None], count: int) -> list[float]:
    """Milliseconds of each of ``count`` calls, one after another."""
    took = []
    for number in range(count):
        began = time.perf_counter_ns()
        call(number)
        took.append((time.perf_counter_ns() - began) / 1e6)
    return took


def _floor(one: Stats | None, again: Stats | None) -> float | None:
    """A/A: two times the same version, each turn a process of its own."""
    if one is None or again is None:
        return None
    return ratio_floor([one.median], [again.median])


# --- rows -----------------------------------------------------------------------------------------


def _rows(bench: Bench, arms: Sequence[Arm], floors: Mapping[str, float | None]) -> None:
    first = arms[0]
    for name, measure in MEASURES.items():
        table = Table(bench, TABLE, metric=measure.metric, floor=floors[name])
        for arm in arms:
            label, stats = arm.one.label, arm.found.get(name)
            why, note = _reason(name, arm, first)
            note = note if stats is not None else "the kernel does not offer it here"
            x = label.removeprefix("CPython ")
            table.put(f"{label}: {measure.metric}", measure.unit, stats, x=x, why=why, note=note)
    conditions = Table(bench, f"{TABLE}, conditions")
    for arm in arms:
        packages = arm.said["packages"]
        note = f"{arm.one.version}, built by {arm.one.build}; mcp {packages.get('mcp')}"
        conditions.put(f"{arm.one.label}: packages", "", float(len(packages)), note=note)


def _reason(name: str, arm: Arm, first: Arm) -> tuple[Why | str, str]:
    """Why a row's figure is what it is, and its condition."""
    said, measure = arm.said, MEASURES[name]
    if name == "resident_mb":
        return f"It held {said['modules']:,} modules and {said['blocks']:,} blocks of Python's allocator.", MEMORY_NOTE
    if name == "start_ms":
        began, ready, answered = (median(each) for each in zip(*arm.stages_ms, strict=True))
        why = (
            f"{began:.0f} ms until the server's file ran, {ready:.0f} ms to import the SDK and make the server, "
            f"{answered:.0f} ms to shake hands and answer."
        )
        return why, f"of its {said['modules']:,} modules it compiled {said['uncompiled']:,} anew at each start"
    note = "of calls one after another, by the kernel" if name == "cpu_us" else ""
    if name == "per_s":
        limit = "" if arm.is_saturated else ", so something else was the limit"
        note = f"{IN_FLIGHT} calls in flight; the server used {arm.cores:.2f} cores meanwhile, by the kernel{limit}"
    return _told(arm, first, measure.phase, measure.operation), note


def _told(arm: Arm, first: Arm, phase: str, operation: str) -> Why:
    """Where its time went, and what that differs in from the first arm."""

    def why() -> str:
        own = arm.server.later(phase, operation)()
        if arm is first:
            return own
        names = first.one.label, arm.one.label
        return f"{own} {what_differs(first.server.seen(phase), arm.server.seen(phase), names, operation)}".strip()

    return why
