"""A periodic job of the event loop counts all events anew each time, and the calls queue up behind it.

cites: agronholm/apscheduler#998, Rapptz/discord.py#9800
state: behind
sdks: mcp1 mcp2 fastmcp3 fastmcp4
transports: stdio http
names: EVENTS TOTALS JOBS refresh_totals refresh_forever totals_context RECORD TOP
numbers: REPEATS=2400..2800 EVERY_MS=30..45
load: RECORD callers 2..3 calls 9..11 pause 15..35
load: TOP callers 1..2 calls 9..11 pause 15..35
mend: to-thread or to-process or compute-less or cache
thing: refresh_totals or refresh_forever
holder: refresh_totals or refresh_forever
lifespan: totals_context
"""

import asyncio
from collections import Counter
from contextlib import asynccontextmanager

EVENTS = [f"event {number}" for number in range(211)] * REPEATS
TOTALS: Counter = Counter()
JOBS: list[asyncio.Task] = []


def refresh_totals() -> None:
    #: sick
    TOTALS.clear()
    for event in EVENTS:  #!
        TOTALS[event.strip().lower()] += 1  #!
    #: mended
    for event in EVENTS[TOTALS.total() :]:
        TOTALS[event.strip().lower()] += 1
    #: end


async def refresh_forever() -> None:
    while True:
        refresh_totals()  #!
        await asyncio.sleep(EVERY_MS / 1000)


@asynccontextmanager
async def totals_context():
    if not JOBS:
        JOBS.append(asyncio.create_task(refresh_forever()))
    yield


@server.tool()
async def RECORD(text: str) -> str:
    """Records an event."""
    EVENTS.append(f"event {len(text) % 7}")
    return f"recorded {text}"


@server.tool()
async def TOP(text: str) -> str:
    """Says how many kinds of events there are."""
    return f"{text}: {len(TOTALS)} kinds"
