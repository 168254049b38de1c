"""A tool awaits a backend through a client that all calls share.

state: suspended
sdks: mcp1 mcp2 fastmcp3 fastmcp4
transports: stdio http
names: CLIENT TOOL
numbers: BACKEND_MS=20..80
load: TOOL callers 2..3 calls 5..8 pause 10..40
"""

import httpx

CLIENT = httpx.AsyncClient(base_url=SERVICE, timeout=30)


@server.tool()
async def TOOL(text: str) -> str:
    answer = await CLIENT.get("/BACKEND_MS", params={"text": text})
    return f"{text}: {'open' if answer.json()['ok'] else 'closed'}"
