"""A tool counts its calls under a lock that it holds for microseconds, and then awaits a backend without it.

state: suspended
sdks: mcp1 mcp2 fastmcp3 fastmcp4
transports: stdio http
names: CLIENT COUNTS LOCK TOOL
numbers: BACKEND_MS=10..40
load: TOOL callers 2..3 calls 5..8 pause 10..40
"""

import asyncio
from collections import Counter

import httpx

CLIENT = httpx.AsyncClient(base_url=SERVICE, timeout=30)
COUNTS: Counter[str] = Counter()
LOCK = asyncio.Lock()


@server.tool()
async def TOOL(text: str) -> str:
    async with LOCK:
        COUNTS[text[:3]] += 1
    answer = await CLIENT.get("/BACKEND_MS")
    return f"{text}: {answer.status_code}"
