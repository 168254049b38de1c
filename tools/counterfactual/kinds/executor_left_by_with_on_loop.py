"""A call gives up on its thread after a time-out, but leaving the executor's with statement waits for that thread on the event loop.

cites: marin-community/marin#2769, equinor/ert#4385
state: blocked
sdks: mcp1 mcp2 fastmcp3 fastmcp4
transports: stdio http
names: warm_preview warm_within_budget TOOL STATUS
numbers: SLOW_MS=380..450 BUDGET_MS=25..40
load: TOOL callers 3 calls 3
load: STATUS callers 3..4 calls 5..7 pause 20..40 delay 60..90
mend: share-client or to-thread or hold-less or async-client
thing: ThreadPoolExecutor or shutdown
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import requests


def warm_preview(text: str) -> None:
    requests.get(f"{SERVICE}/SLOW_MS", headers={"x-page": text}, timeout=10)


async def warm_within_budget(text: str) -> None:
    loop = asyncio.get_running_loop()
    #: sick
    with ThreadPoolExecutor(max_workers=1) as pool:  #!
        try:
            await asyncio.wait_for(loop.run_in_executor(pool, warm_preview, text), BUDGET_MS / 1000)
        except asyncio.TimeoutError:
            pass
    #: mended
    pool = ThreadPoolExecutor(max_workers=1)
    try:
        await asyncio.wait_for(loop.run_in_executor(pool, warm_preview, text), BUDGET_MS / 1000)
    except asyncio.TimeoutError:
        pass
    finally:
        pool.shutdown(wait=False)
    #: end


@server.tool()
async def TOOL(text: str) -> str:
    """Opens a page, and has its preview made if that is quick."""
    await warm_within_budget(text)  #!
    return f"{text}: opened"


@server.tool()
async def STATUS(text: str) -> str:
    """Says what the budget for previews is."""
    return f"{text}: BUDGET_MS ms"
