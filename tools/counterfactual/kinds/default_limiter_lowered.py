"""The default limit of worker threads is set so low that blocking tools take all threads and quick ones queue.

cites: danielgatis/rembg#290 discord/access#496
state: thread queue
sdks: mcp2 fastmcp3 fastmcp4
transports: stdio http
names: SCAN CODE settings scanned
numbers: TOKENS=1..2 SCAN_MS=110..150
load: SCAN callers 6..7 calls 3
load: CODE callers 5..6 calls 3..4
mend: widen
thing: limiter or total_tokens or worker threads
holder: SCAN or scanned
lifespan: settings
"""

import time
import zlib
from contextlib import asynccontextmanager

import anyio


@asynccontextmanager
async def settings():
    #: sick
    anyio.to_thread.current_default_thread_limiter().total_tokens = TOKENS  #!
    #: mended
    anyio.to_thread.current_default_thread_limiter().total_tokens = 60
    #: end
    yield


def scanned(name: str) -> int:
    time.sleep(SCAN_MS / 1000)  #?
    return len(name) % 12 + 1


@server.tool()
def SCAN(text: str) -> str:
    return f"{text}: {scanned(text)} pages"


@server.tool()
def CODE(text: str) -> str:
    return f"{zlib.crc32(text.encode() * 100):08x}"
