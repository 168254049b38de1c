"""The event loop joins a thread that waits for a coroutine of that loop: neither ever ends, and no client is answered.

cites: PrefectHQ/prefect#7897, griptape-ai/griptape-nodes-engine#4469
state: blocked
sdks: mcp1 mcp2 fastmcp3 fastmcp4
transports: stdio http
names: REBUILD LOOK rebuilder
numbers: PULL_MS=20..60
load: REBUILD callers 1 calls 1
load: LOOK callers 4..6 calls 1..2 delay 200..400
mend: same-order
thing: join or rebuilder
holder: rebuilder or pull_and_build
gives_up: 3
"""

import asyncio
import threading

import httpx

UPSTREAM = httpx.AsyncClient(timeout=10)


async def pull_rows(text: str) -> int:
    answer = await UPSTREAM.get(f"{SERVICE}/PULL_MS", params={"of": text})
    return len(answer.json())


def pull_and_build(text: str, loop: asyncio.AbstractEventLoop, built: list[str]) -> None:
    rows = asyncio.run_coroutine_threadsafe(pull_rows(text), loop).result()  #?
    built.append(f"{text}: {rows} rows")


@server.tool()
async def REBUILD(text: str) -> str:
    built: list[str] = []
    helper = threading.Thread(
        target=pull_and_build, args=(text, asyncio.get_running_loop(), built), name="rebuilder", daemon=True
    )
    helper.start()
    #: sick
    helper.join()  #!
    #: mended
    await asyncio.to_thread(helper.join)
    #: end
    return built[0]


@server.tool()
async def LOOK(text: str) -> str:
    return " ".join(sorted(text.split()))
