"""A tool waits for its job by counting again and again what is left, with sleep(0) between: the loop is always busy.

cites: python/asyncio#398, home-assistant/core#90891
state: spin
sdks: mcp1 mcp2 fastmcp3 fastmcp4
transports: stdio http
names: CRAWL LOOK
numbers: CRAWL_MS=320..400 PAGES=60000..80000
load: CRAWL callers 2 calls 4
load: LOOK callers 6..7 calls 9..11
mend: event
thing: pages_left
holder: CRAWL
"""

import asyncio

import httpx

CLIENT = httpx.AsyncClient(timeout=20)


def pages_left(states: dict[int, str]) -> int:
    return sum(state == "queued" for state in states.values())  #!


async def fetch_pages(states: dict[int, str]) -> None:
    answer = await CLIENT.get(f"{SERVICE}/CRAWL_MS")
    states.update(dict.fromkeys(states, "fetched" if answer.is_success else "failed"))


@server.tool()
async def CRAWL(text: str) -> str:
    states = dict.fromkeys(range(PAGES), "queued")
    job = asyncio.create_task(fetch_pages(states))
    #: sick
    while not job.done() and pages_left(states):  #!
        await asyncio.sleep(0)  #!
    #: mended
    await asyncio.wait([job])
    #: end
    return f"{text}: {pages_left(states)} left"


@server.tool()
async def LOOK(text: str) -> str:
    return " ".join(sorted(text.split()))
