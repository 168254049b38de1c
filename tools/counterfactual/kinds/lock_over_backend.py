"""A lock of asyncio is held while a backend answers, so calls that have nothing in common wait for each other.

cites: modelcontextprotocol/python-sdk#2660
state: suspended
sdks: mcp1 mcp2 fastmcp3 fastmcp4
transports: stdio http
names: LOCK CLIENT SEEN TOOL quote
numbers: HOLD_MS=55..80
load: TOOL callers 6..8 calls 3..4
mend: hold-less
thing: LOCK or asyncio.Lock
holder: TOOL
"""

import asyncio

import httpx

CLIENT = httpx.AsyncClient(base_url=SERVICE, timeout=30)
LOCK = asyncio.Lock()
SEEN: dict[str, int] = {}


async def quote(key: str) -> bool:
    answer = await CLIENT.get("/HOLD_MS", params={"key": key})  #?
    return answer.json()["ok"]


@server.tool()
async def TOOL(text: str) -> str:
    #: sick
    async with LOCK:  #!
        SEEN[text] = SEEN.get(text, 0) + 1
        ok = await quote(text)  #!
    #: mended
    async with LOCK:
        SEEN[text] = SEEN.get(text, 0) + 1
    ok = await quote(text)
    #: end
    return f"{text}: {'quoted' if ok else 'refused'}"
