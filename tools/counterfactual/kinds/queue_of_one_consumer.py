"""All jobs go through a queue with one consumer, and wait without end behind the slow ones of another tool.

cites: rachelos/we-mp-rss#395 transformerlab/transformerlab-app#1553
state: suspended
sdks: mcp1 mcp2 fastmcp3 fastmcp4
transports: stdio http
names: CLIENT JOBS CONSUMERS EXPORT STATUS consume submit
numbers: EXPORT_MS=120..170 STATUS_MS=5..12
load: EXPORT callers 3 calls 3..4
load: STATUS callers 4..5 calls 5..6
mend: widen or in-background or gather
thing: JOBS or asyncio.Queue
holder: EXPORT or consume
"""

import asyncio

import httpx

CLIENT = httpx.AsyncClient(base_url=SERVICE, timeout=30)
JOBS: asyncio.Queue = asyncio.Queue()
CONSUMERS: list[asyncio.Task] = []


async def consume() -> None:
    while True:
        path, done = await JOBS.get()
        answer = await CLIENT.get(path)  #?
        if not done.done():
            done.set_result(answer.json()["ok"])


async def submit(path: str) -> bool:
    if not CONSUMERS:
        #: sick
        CONSUMERS.append(asyncio.create_task(consume()))  #!
        #: mended
        CONSUMERS.extend(asyncio.create_task(consume()) for _ in range(12))
        #: end
    done = asyncio.get_running_loop().create_future()
    JOBS.put_nowait((path, done))
    return await done  #!


@server.tool()
async def EXPORT(text: str) -> str:
    return f"{text}: {'exported' if await submit('/EXPORT_MS') else 'empty'}"  #!


@server.tool()
async def STATUS(text: str) -> str:
    return f"{text}: {'up' if await submit('/STATUS_MS') else 'down'}"  #!
