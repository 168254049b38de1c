"""A tool asks a backend for two things at once.

state: suspended
sdks: mcp1 mcp2 fastmcp3 fastmcp4
transports: stdio http
names: CLIENT TOOL
numbers: LEFT_MS=15..40 RIGHT_MS=20..60
load: TOOL callers 2..3 calls 5..8 pause 10..40
"""

import asyncio

import httpx

CLIENT = httpx.AsyncClient(base_url=SERVICE, timeout=30)


@server.tool()
async def TOOL(text: str) -> str:
    left, right = await asyncio.gather(CLIENT.get("/LEFT_MS"), CLIENT.get("/RIGHT_MS"))
    return f"{text}: {left.json()['ok'] and right.json()['ok']}"
