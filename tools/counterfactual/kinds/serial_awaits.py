"""A tool asks a backend for item after item, each awaited before the next is asked, though none needs another.

cites: SAP/cloud-sdk-python#334 turnstonelabs/turnstone#73
state: suspended
sdks: mcp1 mcp2 fastmcp3 fastmcp4
transports: stdio http
names: CLIENT TOOL detail
numbers: ITEMS=6..8 DETAIL_MS=90..110
load: TOOL callers 3..4 calls 4
mend: gather or batch
thing: detail
holder: TOOL
"""

import asyncio

import httpx

CLIENT = httpx.AsyncClient(base_url=SERVICE, timeout=30)


async def detail(key: str, number: int) -> int:
    answer = await CLIENT.get("/DETAIL_MS", params={"key": key, "number": number})  #!
    return number if answer.json()["ok"] else 0


@server.tool()
async def TOOL(text: str) -> str:
    #: sick
    details = []
    for number in range(ITEMS):  #!
        details.append(await detail(text, number))  #!
    #: mended
    details = await asyncio.gather(*(detail(text, number) for number in range(ITEMS)))
    #: end
    return f"{text}: {sum(details)}"
