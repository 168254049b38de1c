"""Long polls by asyncio.to_thread take all threads of the loop's default executor, and short calls wait for a free one.

cites: hatchet-dev/hatchet#4803
state: thread queue
sdks: mcp1 mcp2 fastmcp3 fastmcp4
transports: stdio http
names: await_change stored_note WATCHERS WATCH SHORT
numbers: POLL_MS=380..480
load: WATCH callers 12..14 calls 1
load: SHORT callers 5..6 calls 3..4 delay 60..120
mend: widen or async-client
thing: default executor or to_thread or thread pool
holder: WATCH or await_change
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import requests

NOTES = FOLDER / "notes.txt"
NOTES.write_text("remember the milk\n" * 20)
#: mended
WATCHERS = ThreadPoolExecutor(max_workers=32)
#: end


def await_change(text: str) -> str:
    answer = requests.get(f"{SERVICE}/POLL_MS", timeout=10)  #?
    return f"{text} changed: {answer.json()['ok']}"


def stored_note(text: str) -> str:
    lines = NOTES.read_text().split("\n")
    return f"{text}: {lines[len(text) % 20]}"


@server.tool()
async def WATCH(text: str) -> str:
    """Waits until something changes."""
    #: sick
    return await asyncio.to_thread(await_change, text)  #!
    #: mended
    return await asyncio.get_running_loop().run_in_executor(WATCHERS, await_change, text)
    #: end


@server.tool()
async def SHORT(text: str) -> str:
    """Reads a note."""
    return await asyncio.to_thread(stored_note, text)  #!
