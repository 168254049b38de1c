"""Each call makes an httpx client, and with it a TLS context, for one request.

cites: encode/httpx#2298 encode/httpx#3627
state: running
sdks: mcp1 mcp2 fastmcp3 fastmcp4
transports: stdio http
names: CLIENT TOOL weather
numbers: ANSWER_MS=3..8
load: TOOL callers 5..7 calls 8..10
mend: share-client
thing: AsyncClient or TLS or SSL
holder: TOOL or weather
"""

import httpx

#: mended
CLIENT = httpx.AsyncClient(base_url=SERVICE, timeout=30)
#: end


async def weather(place: str) -> bool:
    #: sick
    async with httpx.AsyncClient(base_url=SERVICE, timeout=30) as client:  #!
        answer = await client.get("/ANSWER_MS", params={"place": place})
    #: mended
    answer = await CLIENT.get("/ANSWER_MS", params={"place": place})
    #: end
    return answer.json()["ok"]


@server.tool()
async def TOOL(text: str) -> str:
    return f"{text}: {'sunny' if await weather(text) else 'unknown'}"  #!
