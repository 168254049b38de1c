"""On the event loop, a helper waits for the result of a coroutine of the same loop, which cannot run until it gives up.

cites: NorthlandPositronics/Cogtrix#2152, empicano/aiomqtt#174
state: blocked
sdks: mcp1 mcp2 fastmcp3 fastmcp4
transports: stdio http
names: SYNC LOOK
numbers: PULL_MS=15..30 PATIENCE_MS=450..600
load: SYNC callers 1..2 calls 2
load: LOOK callers 5..6 calls 5..6 pause 40..90
mend: same-order
thing: wait_for_pull or run_coroutine_threadsafe
holder: SYNC
"""

import asyncio
import logging

import httpx

LOGGER = logging.getLogger(__name__)
UPSTREAM = httpx.AsyncClient(timeout=10)


async def pull(text: str) -> bool:
    answer = await UPSTREAM.get(f"{SERVICE}/PULL_MS", params={"of": text})
    return answer.is_success


#: sick
def wait_for_pull(text: str, loop: asyncio.AbstractEventLoop) -> None:
    pulling = asyncio.run_coroutine_threadsafe(pull(text), loop)  #!
    try:
        pulling.result(timeout=PATIENCE_MS / 1000)  #!
    except TimeoutError:
        LOGGER.warning("no news of %s in time", text)


#: mended
async def wait_for_pull(text: str) -> None:
    try:
        await asyncio.wait_for(pull(text), PATIENCE_MS / 1000)
    except TimeoutError:
        LOGGER.warning("no news of %s in time", text)


#: end


@server.tool()
async def SYNC(text: str) -> str:
    #: sick
    wait_for_pull(text, asyncio.get_running_loop())  #!
    #: mended
    await wait_for_pull(text)
    #: end
    return f"asked for {text}"


@server.tool()
async def LOOK(text: str) -> str:
    return " ".join(sorted(text.split()))
