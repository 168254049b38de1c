"""An httpx client may open so few connections that a few slow requests keep all others waiting for its pool.

cites: encode/httpx#557 encode/httpx#1171
state: suspended
sdks: mcp1 mcp2 fastmcp3 fastmcp4
transports: stdio http
names: CLIENT REPORT LOOKUP ask
numbers: CONNECTIONS=1..2 SLOW_MS=110..160 QUICK_MS=4..12
load: REPORT callers 5..6 calls 3
load: LOOKUP callers 4..5 calls 4..6
mend: widen
thing: CLIENT or connection pool or max_connections
holder: REPORT
"""

import httpx

#: sick
CLIENT = httpx.AsyncClient(base_url=SERVICE, timeout=30, limits=httpx.Limits(max_connections=CONNECTIONS))  #!
#: mended
CLIENT = httpx.AsyncClient(base_url=SERVICE, timeout=30, limits=httpx.Limits(max_connections=50))
#: end


async def ask(path: str, about: str) -> bool:
    answer = await CLIENT.get(path, params={"about": about})  #!
    answer.raise_for_status()
    return answer.json()["ok"]


@server.tool()
async def REPORT(text: str) -> str:
    done = await ask("/SLOW_MS", text)  #?
    return f"{text}: {'ready' if done else 'empty'}"


@server.tool()
async def LOOKUP(text: str) -> str:
    found = await ask("/QUICK_MS", text)  #!
    return f"{text}: {'known' if found else 'unknown'}"
