"""A recording of any length, without a server or a clock: one event loop served by the rules of a queue.

Calls of ``resize`` keep the loop for 60 ms at one line; everybody else waits for them. ``search`` awaits a backend,
``render`` works in a thread. The same count gives the same frames.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator
from random import Random

from mcp_probe.model import ALL_SEEN, Await, Frame, JobTimes, MemoryUse, RequestRecord, StepRecord, Wait
from tests.frames import (
    MS,
    SECOND,
    US,
    make_end,
    make_header,
    make_loop_sample,
    make_pool,
    make_process,
    make_request,
    make_step,
    make_wait,
)

KINDS = ("lookup", "search", "render", "resize")
SHARES = (70, 20, 8, 2)
RATE_PER_S = 240.0
LINE = ("/srv/shop/server.py", 41, "resize")


def shop(count: int, seed: int = 1) -> Iterator[Frame]:
    """Frames of ``count`` calls, about 240 a second."""
    yield make_header(server="shop", awaits="on", memory="light: native-hybrid")
    random = Random(seed)
    arrival, arrivals = 0, []
    for id in range(1, count + 1):
        arrival += round(random.expovariate(RATE_PER_S) * SECOND)
        arrivals.append((arrival, id, random.choices(KINDS, SHARES)[0]))
    queue = [(ready, id, name, 0) for ready, id, name in arrivals]
    heapq.heapify(queue)
    first: dict[int, tuple[int, int, int, int]] = {}  # arrival, start, length of the first step, what came after it
    now, second = 0, 0
    small: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    busy, jobs, resident = 0, 0, 90_000_000
    while queue:
        ready, id, name, stage = heapq.heappop(queue)
        while max(now, ready) >= (second + 1) * SECOND:
            second += 1
            resident += random.randrange(-40_000, 60_000)
            yield from _samples(second, small, counts, busy, jobs, resident)
            small.clear()
            counts.clear()
            busy = jobs = 0
        start = max(now, ready)
        length = _length(name, stage, random)
        now = start + length
        busy += length
        if length >= MS // 2:
            yield _step(start, now, id, name)
        else:
            small[name] += length
            counts[name] += 1
        if stage == 0:
            outside = _outside(name, random)
            first[id] = (ready, start, length, outside)
            heapq.heappush(queue, (now + outside, id, name, 1))
            jobs += outside if name == "render" else 0
        else:
            yield _record(id, name, first.pop(id), ready, start, now)
    yield make_end(now + MS)


def _length(name: str, stage: int, random: Random) -> int:
    if stage:
        return 200 * US
    return 60 * MS if name == "resize" else round(random.uniform(0.3, 1.2) * MS)


def _outside(name: str, random: Random) -> int:
    """How long it is suspended after its first step."""
    if name == "search":
        return round(random.lognormvariate(3.3, 0.6) * MS)
    return 15 * MS if name == "render" else 2 * MS


def _step(start: int, end: int, id: int, name: str) -> StepRecord:
    if name != "resize":
        return make_step(start, end, id, name)
    file, line, function = LINE
    return make_step(
        start, end, id, name, cause="blocking-call", file=file, line=line, function=function, where="exact", cpu_ns=MS
    )


def _record(id: int, name: str, began: tuple[int, int, int, int], ready: int, start: int, end: int) -> RequestRecord:
    arrival, first, length, outside = began
    waits: list[Wait] = []
    if first - arrival > MS:
        waits.append(make_wait(arrival, first, "queue"))
    if start - ready > MS:
        waits.append(make_wait(ready, start))
    in_thread = name == "render"
    kind, what = ("http", "https://search.example:443") if name == "search" else ("sleep", "sleep")
    awaited = Await(kind, what, "/srv/shop/server.py:60", ready - outside, ready, outside, "exact")  # type: ignore[arg-type]
    return make_request(
        id,
        name,
        arrival_ns=arrival,
        queue_transport=first - arrival,
        busy=length + end - start,
        executor_run=outside if in_thread else 0,
        awaiting=0 if in_thread else outside,
        ready_wait=start - ready,
        write_flush=100 * US,
        steps=2,
        step_max_ns=length,
        waits=tuple(waits),
        loop=0,
        seen=ALL_SEEN,
        jobs=(JobTimes("anyio default", ready - outside, ready - outside, ready, start),) if in_thread else (),
        awaits=() if in_thread else (awaited,),
        memory=MemoryUse("native-hybrid", "all Python allocations", 40_000 + id % 1000, 400, 20_000 + id % 700, 0),
    )


def _samples(
    second: int, small: Counter[str], counts: Counter[str], busy: int, jobs: int, resident: int
) -> Iterator[Frame]:
    at = second * SECOND
    rows = tuple((name, counts[name], small[name]) for name in sorted(small))
    yield make_loop_sample(at_ns=at, poll_ns=max(0, SECOND - busy), small_steps=rows)
    yield make_pool(at_ns=at, active_ns=jobs, active_peak=2, submitted=3, finished=3)
    yield make_process(
        at_ns=at, rss_bytes=resident, gc_pauses=((at - 9 * MS, at - 4 * MS, 2),), gc_ns=5 * MS, gc_count=1
    )
