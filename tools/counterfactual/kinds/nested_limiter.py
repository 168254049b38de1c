"""A worker thread that holds a token of a limiter waits for a job that needs another token of the same limiter.

cites: python-trio/trio-asyncio#143, fastapi/fastapi#5122
state: thread queue
sdks: mcp1 mcp2 fastmcp3 fastmcp4
transports: stdio http
names: TOOL
numbers: SLOTS=2..3 READ_MS=80..140
load: TOOL callers 5..7 calls 1
mend: same-order
thing: SEATS or limiter
holder: TOOL or gather_parts
gives_up: 3
"""

import anyio.from_thread
import anyio.to_thread
import requests

SEATS = anyio.CapacityLimiter(SLOTS)


def read_part(text: str) -> str:
    return text.strip().title()


#: sick
async def part_of(text: str) -> str:
    return await anyio.to_thread.run_sync(read_part, text, limiter=SEATS)  #!


#: end
def gather_parts(text: str) -> str:
    answer = requests.get(f"{SERVICE}/READ_MS", timeout=10)
    #: sick
    part = anyio.from_thread.run(part_of, text)  #!
    #: mended
    part = read_part(text)
    #: end
    return f"{part}: {answer.json()['ok']}"


@server.tool()
async def TOOL(text: str) -> str:
    return await anyio.to_thread.run_sync(gather_parts, text, limiter=SEATS)  #!
