"""A semaphore of one lets a single request to the backend through at a time, though the backend serves many.

cites: open-assistant-org/open-assistant#74 BerriAI/litellm#31641
state: suspended
sdks: mcp1 mcp2 fastmcp3 fastmcp4
transports: stdio http
names: CLIENT SLOTS TOOL part
numbers: PARTS=3..3 PART_MS=38..45
load: TOOL callers 5..6 calls 4
mend: widen
thing: SLOTS or semaphore
holder: TOOL or part
"""

import asyncio

import httpx

CLIENT = httpx.AsyncClient(base_url=SERVICE, timeout=30)
#: sick
SLOTS = asyncio.Semaphore(1)  #!
#: mended
SLOTS = asyncio.Semaphore(40)
#: end


async def part(name: str, number: int) -> str:
    async with SLOTS:  #!
        answer = await CLIENT.get("/PART_MS", params={"name": name, "number": number})  #?
    return "x" if answer.json()["ok"] else "-"


@server.tool()
async def TOOL(text: str) -> str:
    parts = await asyncio.gather(*(part(text, number) for number in range(PARTS)))  #!
    return f"{text}: {''.join(parts)}"
