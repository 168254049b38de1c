"""A background task looks into a queue on every turn of the loop instead of waiting for an item: one CPU is always busy.

cites: python/asyncio#398, snstac/pytak#22, ml-explore/mlx-lm#1500
state: spin
sdks: mcp1 mcp2 fastmcp3 fastmcp4
transports: stdio http
names: POST
numbers: EACH_MS=10..30
load: POST callers 2..3 calls 12..15 pause 130..180
measure: cpu
mend: event
thing: dispatch or EVENTS
holder: dispatch
lifespan: dispatching
"""

import asyncio
import queue
from contextlib import asynccontextmanager

import httpx

HOOK = httpx.AsyncClient(timeout=10)
#: sick
EVENTS: queue.SimpleQueue = queue.SimpleQueue()
#: mended
EVENTS: asyncio.Queue = asyncio.Queue()
#: end


async def dispatch() -> None:
    while True:
        #: sick
        try:
            event = EVENTS.get_nowait()  #!
        except queue.Empty:
            await asyncio.sleep(0)  #!
            continue
        #: mended
        event = await EVENTS.get()
        #: end
        await HOOK.get(f"{SERVICE}/EACH_MS", params={"event": event})


@asynccontextmanager
async def dispatching():
    task = asyncio.create_task(dispatch(), name="dispatch")
    try:
        yield
    finally:
        task.cancel()


@server.tool()
async def POST(text: str) -> str:
    #: sick
    EVENTS.put(text)
    #: mended
    EVENTS.put_nowait(text)
    #: end
    return f"queued {text}"
