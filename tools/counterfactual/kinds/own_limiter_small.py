"""Jobs that wait for a device take all tokens of the server's own limiter, so another tool's quick jobs queue for it.

cites: fastapi/fastapi#4552 discord/access#496
state: thread queue
sdks: mcp1 mcp2 fastmcp3 fastmcp4
transports: stdio http
names: LIMITER METER SUM read_meter checksum
numbers: TOKENS=1..2 METER_MS=110..150
load: METER callers 6..7 calls 3
load: SUM callers 5..6 calls 3..4
mend: widen
thing: LIMITER or limiter or CapacityLimiter
holder: METER or read_meter
"""

import hashlib
import time

import anyio

#: sick
LIMITER = anyio.CapacityLimiter(TOKENS)  #!
#: mended
LIMITER = anyio.CapacityLimiter(40)
#: end


def read_meter(name: str) -> int:
    time.sleep(METER_MS / 1000)  #?
    return len(name) * 7 % 100


def checksum(text: str) -> str:
    return hashlib.sha256(text.encode() * 50).hexdigest()[:12]


@server.tool()
async def METER(text: str) -> str:
    value = await anyio.to_thread.run_sync(read_meter, text, limiter=LIMITER)  #!
    return f"{text}: {value} kWh"


@server.tool()
async def SUM(text: str) -> str:
    return await anyio.to_thread.run_sync(checksum, text, limiter=LIMITER)  #!
