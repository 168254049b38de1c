"""A clean-up ignores the cancellation of its scope, which cancels it again on every turn of the loop until it is done.

cites: IBM/mcp-context-forge#2360, agronholm/anyio#1257, agronholm/anyio#695
state: spin
sdks: mcp1 mcp2 fastmcp3 fastmcp4
transports: stdio http
names: FOLLOW
numbers: FEED_MS=900..1200 READ_MS=60..120 CLOSE_MS=600..800
load: FOLLOW callers 2..3 calls 3..4
measure: cpu
mend: end-it
thing: move_on_after or cancel scope or close_feed
holder: FOLLOW
"""

import asyncio

import anyio
import httpx

UPSTREAM = httpx.AsyncClient(timeout=20)


async def close_feed() -> None:
    closing = asyncio.ensure_future(UPSTREAM.get(f"{SERVICE}/CLOSE_MS"))
    #: sick
    while not closing.done():  #!
        try:
            await asyncio.shield(closing)  #!
        except asyncio.CancelledError:
            continue  #!
    #: mended
    with anyio.CancelScope(shield=True):
        await closing
    #: end


@server.tool()
async def FOLLOW(text: str) -> str:
    with anyio.move_on_after(READ_MS / 1000):  #!
        try:
            await UPSTREAM.get(f"{SERVICE}/FEED_MS")
        finally:
            await close_feed()  #!
    return f"{text}: closed"
