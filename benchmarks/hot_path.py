"""``overhead.py --profile-hot-path``: what each hook costs, in nanoseconds of CPU of the thread that pays.

Every scenario runs on a loop of its own, bare and followed in turns; the figure is the difference of the smallest
rounds, and the same difference between bare and bare again stands beside it as the floor. CPU time of the thread and
the smallest round make this usable on a machine that others use too, unlike the benchmark proper.
"""

from __future__ import annotations

import asyncio
import cProfile
import logging
import pstats
import selectors
import time
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import mcp_probe.collector as collector
import mcp_probe.session as session
from mcp_probe.aggregate.fold import Fold
from mcp_probe.capture.current import CURRENT
from mcp_probe.capture.hub import Hub
from mcp_probe.launch.sight import look
from mcp_probe.model import RequestRecord
from mcp_probe.record.assemble import assemble
from mcp_probe.record.file import encode
from mcp_probe.record.raw import RawRequest
from mcp_probe.record.sampling import Groups

ROUNDS = 12
EVENTS = 4000
TASKS = 20
CALLS = 400


Tidy = Callable[[], None]
Depth = Literal["bare", "loop only", "attached"]


@dataclass(frozen=True, slots=True)
class Scenario:
    """``run`` makes ``EVENTS`` events on the running loop; ``owned`` = inside a request.

    ``run`` calls what it is given now and then: it empties the request's marks, which no short request lets pile up.
    """

    name: str
    run: Callable[[Tidy], Coroutine[Any, Any, None]]
    owned: bool = False


async def steps_alone(tidy: Tidy) -> None:
    """One task step and one poll per event."""
    for _ in range(EVENTS // TASKS):
        tidy()
        for _ in range(TASKS):
            await asyncio.sleep(0)


async def steps_together(tidy: Tidy) -> None:
    """One task step per event, a poll for every ``TASKS`` of them."""

    async def some() -> None:
        for _ in range(EVENTS // TASKS):
            tidy()
            await asyncio.sleep(0)

    await asyncio.gather(*(some() for _ in range(TASKS)))


async def plain_callbacks(tidy: Tidy) -> None:
    """Callbacks that are no task steps, ``TASKS`` chains side by side."""
    done = asyncio.get_running_loop().create_future()
    left = EVENTS

    def again() -> None:
        nonlocal left
        left -= 1
        if left > 0:
            loop.call_soon(again)
        elif not done.done():
            done.set_result(None)

    loop = asyncio.get_running_loop()
    for _ in range(TASKS):
        loop.call_soon(again)
    await done


async def wake_ups(tidy: Tidy) -> None:
    """A task woken through a future by another task: two steps and one done-callback per event."""
    loop = asyncio.get_running_loop()
    waiting: list[asyncio.Future[None]] = [loop.create_future()]

    async def wake() -> None:
        for _ in range(EVENTS):
            await asyncio.sleep(0)
            waiting[0].set_result(None)
            await asyncio.sleep(0)

    task = asyncio.ensure_future(wake())
    for _ in range(EVENTS):
        await waiting[0]
        waiting[0] = loop.create_future()
    await task


async def timers(tidy: Tidy) -> None:
    """One timer and the step it wakes per event, ``TASKS`` at a time."""

    async def some() -> None:
        for _ in range(EVENTS // TASKS):
            await asyncio.sleep(1e-9)

    await asyncio.gather(*(some() for _ in range(TASKS)))


SCENARIOS = (
    Scenario("task step of no request, with its poll", steps_alone),
    Scenario("task step of no request, 20 per poll", steps_together),
    Scenario("task step of a request, with its poll", steps_alone, owned=True),
    Scenario("task step of a request, 20 per poll", steps_together, owned=True),
    Scenario("callback that is no task step, 20 per poll", plain_callbacks),
    Scenario("task woken by a task, with its polls", wake_ups),
    Scenario("timer and the step it wakes, 20 per poll", timers),
)


def once(scenario: Scenario, followed: bool) -> float:
    """Nanoseconds of CPU of the loop's thread per event, in a loop of its own."""

    async def main() -> int:
        probe = session.Probe() if followed else None
        tidy: Tidy = [].clear
        try:
            if probe is not None:
                probe._hooks.loops.follow()
            if probe is not None and scenario.owned:
                raw = probe._hub.begin("request", "tools/call", "profiled", "none", probe)
                CURRENT.set(raw)
                tidy = raw.clear_marks
            began = time.thread_time_ns()
            # A task of its own: the step that took the loop in has an unknown beginning.
            await asyncio.ensure_future(scenario.run(tidy))
            return time.thread_time_ns() - began
        finally:
            CURRENT.set(None)
            if probe is not None:
                probe.detach()

    return asyncio.run(main()) / EVENTS


def loop_costs() -> list[tuple[str, float, float]]:
    """(scenario, added nanoseconds, A/A difference)."""
    costs = []
    for scenario in SCENARIOS:
        bare, followed, again = [], [], []
        for _ in range(ROUNDS):
            bare.append(once(scenario, False))
            followed.append(once(scenario, True))
            again.append(once(scenario, False))
        costs.append((scenario.name, min(followed) - min(bare + again), abs(min(again) - min(bare))))
    return costs


def request_costs() -> list[tuple[str, float]]:
    """Nanoseconds to open and to end a request at the requests, without any step."""

    async def main() -> float:
        probe = session.Probe()
        best = float("inf")
        try:
            probe._hooks.loops.follow()
            hub = probe._hub
            for _ in range(ROUNDS):
                began = time.thread_time_ns()
                for _ in range(EVENTS):
                    raw = hub.begin("request", "tools/call", "profiled", "none", probe)
                    hub.requests.finished(raw, began)
                    hub.requests.end(raw, began)
                best = min(best, (time.thread_time_ns() - began) / EVENTS)
                probe.take_finished()
        finally:
            probe.detach()
        return best

    return [("request opened and ended at the requests", asyncio.run(main()))]


async def calls_over_streams(depth: Depth) -> tuple[float, list[tuple[str, float]]]:
    """(loop-thread nanoseconds per call, what the collector pays for each record) of in-memory calls."""
    from benchmarks.subjects import ARGUMENTS, client_of, make_server

    server = make_server("bare")
    probe = session.attach(server) if depth == "attached" else session.Probe() if depth == "loop only" else None
    if probe is not None:
        probe._hooks.loops.follow()
    async with client_of(server) as client:
        for _ in range(CALLS // 4):
            await client.call_tool("add", ARGUMENTS)
        began = time.thread_time_ns()
        for _ in range(CALLS):
            await client.call_tool("add", ARGUMENTS)
        spent = (time.thread_time_ns() - began) / CALLS
        # Before the streams close: that flushes whatever has finished to the fold.
        finished = probe.take_finished() if probe is not None else []
        costs = record_costs(probe._hub, finished) if probe is not None and depth == "attached" else []
    if probe is not None:
        probe.detach()
    return spent, costs


def counted() -> tuple[float, float]:
    """Callbacks and polls of one in-memory call, client included, counted without the probe."""
    callbacks = polls = 0
    run, select = asyncio.Handle._run, selectors.DefaultSelector.select

    def counting_run(handle: Any) -> None:
        nonlocal callbacks
        callbacks += 1
        run(handle)

    def counting_select(selector: Any, timeout: float | None = None) -> Any:
        nonlocal polls
        polls += 1
        return select(selector, timeout)

    vars_of_handle: Any = asyncio.Handle
    vars_of_selector: Any = selectors.DefaultSelector
    vars_of_handle._run, vars_of_selector.select = counting_run, counting_select
    try:
        asyncio.run(calls_over_streams("bare"))
    finally:
        vars_of_handle._run, vars_of_selector.select = run, select
    calls = CALLS + CALLS // 4
    return callbacks / calls, polls / calls


def call_costs() -> tuple[list[tuple[str, float, float]], list[tuple[str, float]], str]:
    """Of a whole in-memory call: what the loop's thread pays, and what the collector pays for its record."""
    kept, collector.DRAIN_S = collector.DRAIN_S, 3600.0
    try:
        bare, loop_only, followed, again = [], [], [], []
        records: list[list[tuple[str, float]]] = []
        for _ in range(ROUNDS):
            bare.append(asyncio.run(calls_over_streams("bare"))[0])
            loop_only.append(asyncio.run(calls_over_streams("loop only"))[0])
            spent, costs = asyncio.run(calls_over_streams("attached"))
            followed.append(spent)
            records.append(costs)
            again.append(asyncio.run(calls_over_streams("bare"))[0])
    finally:
        collector.DRAIN_S = kept
    callbacks, polls = counted()
    base, floor = min(bare + again), abs(min(again) - min(bare))
    loop = [
        ("in-memory call, loop followed, server not attached", min(loop_only) - base, floor),
        ("in-memory call, attached, loop's thread alone", min(followed) - base, floor),
    ]
    note = f"bare {base / 1e3:.0f} µs a call; {callbacks:.1f} callbacks, {polls:.1f} polls"
    return loop, [min(rounds, key=lambda row: row[1]) for rounds in zip(*records, strict=True)], note


def record_costs(hub: Hub, finished: list[RawRequest]) -> list[tuple[str, float]]:
    """Nanoseconds per request for counting it, and for assembling, folding and encoding its record."""
    calls = [raw for raw in finished if raw.name == "add"]

    def made() -> list[RequestRecord]:
        of, also = hub.memory.use_of, hub.measuring.of
        named = hub.awaits.active
        return [assemble(raw, raw.end_ns or 0, memory=of(raw), measures=also(raw), named=named) for raw in calls]

    records, fold, groups = made(), Fold(), Groups()
    work: tuple[tuple[str, Callable[[], Any]], ...] = (
        ("count a request without a record (collector)", lambda: deque(map(groups.add, calls), maxlen=0)),
        ("assemble a record, memory, measures and awaits included (collector)", made),
        ("fold a record (collector)", lambda: deque(map(fold.add, records), maxlen=0)),
        ("encode a record (collector, only with a recording)", lambda: [encode(record) for record in records]),
    )
    costs = []
    for name, run in work:
        began = time.thread_time_ns()
        run()
        costs.append((name, (time.thread_time_ns() - began) / len(calls)))
    return costs


def busiest(top: int = 18) -> list[str]:
    """The probe's functions by own time in an in-memory call; profiling inflates the times.

    Every thread is in it, also the collector's, which tries some of these out when it starts.
    """
    profiler = cProfile.Profile()
    profiler.runcall(asyncio.run, calls_over_streams("attached"))
    package = str(Path(session.__file__).parent)
    calls = CALLS + CALLS // 4
    found = [
        (own / calls * 1e9, count / calls, f"{Path(file).relative_to(package)}:{line} {function}")
        for (file, line, function), (_, count, own, _, _) in pstats.Stats(profiler).stats.items()  # type: ignore[attr-defined]
        if file.startswith(package)
    ]
    return [f"{name:52}{own:>10.0f}{count:>8.1f}" for own, count, name in sorted(found, reverse=True)[:top]]


def hooks_off() -> list[str]:
    """Hooks that do not work here: their cost is missing from the figures."""
    return [f"{hook}: {state}" for hook, state in look().hooks.items() if not state.startswith("active")]


def measure() -> dict[str, Any]:
    """All of it, as JSON: ``added`` = [what, nanoseconds, floor], ``alone`` = [what, nanoseconds]. Takes 20 s."""
    logging.getLogger("mcp_probe").setLevel(logging.CRITICAL)
    whole, records, note = call_costs()
    return {
        "added": [*loop_costs(), *whole],
        "alone": [*request_costs(), *records],
        "note": note,
        "hooks_off": hooks_off(),
    }


def text(found: dict[str, Any]) -> str:
    """For a terminal."""
    lines = [f"! off, and so missing from these figures: {sentence}" for sentence in found["hooks_off"]]
    lines.append(f"{'':52}{'added ns':>10}{'A/A':>8}")
    lines += [f"{name:52}{cost:>+10.0f}{floor:>8.0f}" for name, cost, floor in found["added"]]
    lines += [f"{name:52}{cost:>10.0f}" for name, cost in found["alone"]]
    return "\n".join([*lines, found["note"]])


def busiest_text() -> str:
    """For a terminal."""
    return "\n".join([f"\n{'of one in-memory call, under the profiler':52}{'own ns':>10}{'calls':>8}", *busiest()])
