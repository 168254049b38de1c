"""Jobs of a thread pool give parts of their work to the same pool and wait for them, until all of its threads wait for parts that no thread is left to do.

cites: xorq-labs/xorq#2243
state: thread waiting
sdks: mcp1 mcp2 fastmcp3 fastmcp4
transports: stdio http
names: WORKERS SECTIONS render_section assemble_report REPORT
numbers: INDEX_MS=40..60 PART_MS=10..20 THREADS=3..4
load: REPORT callers 6..7 calls 1
mend: same-order or widen
thing: WORKERS or thread pool or ThreadPoolExecutor
holder: assemble_report or REPORT
gives_up: 2
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import requests

WORKERS = ThreadPoolExecutor(max_workers=THREADS)
#: mended
SECTIONS = ThreadPoolExecutor(max_workers=THREADS)
#: end


def render_section(text: str, number: int) -> str:
    requests.get(f"{SERVICE}/PART_MS", timeout=10)
    return f"{number}. {text}"


def assemble_report(text: str) -> str:
    requests.get(f"{SERVICE}/INDEX_MS", timeout=10)
    #: sick
    parts = [WORKERS.submit(render_section, text, number) for number in range(2)]  #!
    return "; ".join(part.result() for part in parts)  #!
    #: mended
    parts = [SECTIONS.submit(render_section, text, number) for number in range(2)]
    return "; ".join(part.result() for part in parts)
    #: end


@server.tool()
async def REPORT(text: str) -> str:
    """Writes a report of two sections."""
    return await asyncio.get_running_loop().run_in_executor(WORKERS, assemble_report, text)  #!
