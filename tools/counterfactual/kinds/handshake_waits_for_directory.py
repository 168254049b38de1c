"""The lifespan loads a whole directory, page after page, before the server answers initialize.

cites: korotovsky/slack-mcp-server#271, zinja-coder/apktool-mcp-server#13
state: start
sdks: mcp1 mcp2 fastmcp3 fastmcp4
transports: stdio
names: DIRECTORY COMPLETE load_directory directory_context LOOKUP ECHO
numbers: PAGES=22..23 PAGE_MS=132..140
load: ECHO callers 1..2 calls 2..3
load: LOOKUP callers 1 calls 2 delay 3600..3800
mend: load-later or in-background or gather
thing: load_directory or directory_context
lifespan: directory_context
"""

import asyncio
from contextlib import asynccontextmanager

import httpx

DIRECTORY: dict[str, int] = {}
COMPLETE = asyncio.Event()


async def load_directory() -> None:
    async with httpx.AsyncClient() as client:
        for page in range(PAGES):
            await client.get(f"{SERVICE}/PAGE_MS")  #!
            DIRECTORY.update({f"user {page}.{number}": number for number in range(50)})
    COMPLETE.set()


@asynccontextmanager
async def directory_context():
    #: sick
    await load_directory()  #!
    yield
    #: mended
    loading = asyncio.create_task(load_directory())
    try:
        yield
    finally:
        loading.cancel()
    #: end


@server.tool()
async def LOOKUP(text: str) -> str:
    """Looks a user up."""
    await COMPLETE.wait()
    return f"{text}: {DIRECTORY.get(text, len(DIRECTORY))}"


@server.tool()
async def ECHO(text: str) -> str:
    """Answers what it is given."""
    return text[::-1]
