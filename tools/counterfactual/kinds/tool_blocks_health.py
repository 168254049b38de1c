"""A tool waits for a device on the event loop, and the health check that an orchestrator asks for waits with it.

cites: boettiger-lab/mcp-data-server#176 appwrite/mcp#63
state: blocked
sdks: mcp1 mcp2 fastmcp3 fastmcp4
transports: http
names: GAUGE read_gauge alive
numbers: GAUGE_MS=55..85
load: GAUGE callers 3..4 calls 6..7
load: GET /health/live callers 3..4 calls 6..8 pause 0..20
mend: to-thread
thing: read_gauge
holder: GAUGE or read_gauge
"""

import time

import anyio
from starlette.requests import Request
from starlette.responses import PlainTextResponse


def read_gauge(name: str) -> float:
    time.sleep(GAUGE_MS / 1000)  #!
    return len(name) * 3 % 40 / 10


@server.tool()
async def GAUGE(text: str) -> str:
    #: sick
    level = read_gauge(text)  #!
    #: mended
    level = await anyio.to_thread.run_sync(read_gauge, text)
    #: end
    return f"{text}: {level} bar"


@server.custom_route("/health/live", methods=["GET"])
async def alive(request: Request) -> PlainTextResponse:
    return PlainTextResponse("ok")
