"""A custom HTTP route asks a backend with a blocking client on the event loop, and the tools of all clients wait.

cites: agno-agi/agno#9091 streamlit/streamlit#16414
state: blocked
sdks: mcp1 mcp2 fastmcp3 fastmcp4
transports: http
names: DOUBLE usage_page counted
numbers: USAGE_MS=70..110
load: GET /usage callers 2 calls 7..9 pause 0..10
load: DOUBLE callers 4..5 calls 6..8
mend: to-thread or async-client
thing: usage_page or counted
holder: usage_page or counted
"""

import anyio
import requests
from starlette.requests import Request
from starlette.responses import JSONResponse


def counted(day: str) -> bool:
    answer = requests.get(f"{SERVICE}/USAGE_MS", params={"day": day}, timeout=30)  #!
    return answer.json()["ok"]


@server.custom_route("/usage", methods=["GET"])
async def usage_page(request: Request) -> JSONResponse:
    day = request.query_params.get("day", "today")
    #: sick
    complete = counted(day)  #!
    #: mended
    complete = await anyio.to_thread.run_sync(counted, day)
    #: end
    return JSONResponse({"day": day, "complete": complete})


@server.tool()
async def DOUBLE(text: str) -> str:
    return f"{text} {text}"
