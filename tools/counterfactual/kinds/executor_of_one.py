"""Two tools share an executor of one thread, so quick jobs stand behind slow ones that only wait for a spooler.

cites: skypilot-org/skypilot#10313 transformerlab/transformerlab-app#1636
state: thread queue
sdks: mcp1 mcp2 fastmcp3 fastmcp4
transports: stdio http
names: EXECUTOR PRINT SIZE spool measured
numbers: SPOOL_MS=110..140
load: PRINT callers 3..4 calls 4..5
load: SIZE callers 4..5 calls 4..5
mend: widen
thing: EXECUTOR or ThreadPoolExecutor or max_workers
holder: PRINT or spool
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import requests

#: sick
EXECUTOR = ThreadPoolExecutor(max_workers=1)  #!
#: mended
EXECUTOR = ThreadPoolExecutor(max_workers=16)
#: end


def spool(text: str) -> str:
    answer = requests.get(f"{SERVICE}/SPOOL_MS", params={"job": text}, timeout=30)  #?
    return f"{text}: {'printed' if answer.json()['ok'] else 'jammed'}"


def measured(text: str) -> str:
    return f"{text}: {sum(map(ord, text)) % 210} mm"


@server.tool()
async def PRINT(text: str) -> str:
    return await asyncio.get_running_loop().run_in_executor(EXECUTOR, spool, text)  #!


@server.tool()
async def SIZE(text: str) -> str:
    return await asyncio.get_running_loop().run_in_executor(EXECUTOR, measured, text)  #!
