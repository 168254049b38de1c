"""An async tool runs a command line program by subprocess.run, and the event loop stands still until it ends.

cites: UMEP-dev/SUEWS#1439
state: blocked
sdks: mcp1 mcp2 fastmcp3 fastmcp4
transports: stdio http
names: convert_by_cli CONVERTER TOOL HEALTH
numbers: CLI_MS=45..80
load: TOOL callers 3..4 calls 4..6
load: HEALTH callers 2..3 calls 6..9 pause 20..40 delay 20..40
mend: async-client or to-thread
thing: subprocess.run
"""

import asyncio
import subprocess

CONVERTER = ["sh", "-c", f"sleep {CLI_MS / 1000}; tr a-z A-Z"]


async def convert_by_cli(text: str) -> str:
    #: sick
    done = subprocess.run(CONVERTER, input=text.encode(), stdout=subprocess.PIPE, check=True)  #!
    return done.stdout.decode().strip()
    #: mended
    child = await asyncio.create_subprocess_exec(
        *CONVERTER, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await child.communicate(text.encode())
    return output.decode().strip()
    #: end


@server.tool()
async def TOOL(text: str) -> str:
    """Converts a text by the command line program."""
    return await convert_by_cli(text)  #!


@server.tool()
async def HEALTH(text: str) -> str:
    """Says whether the converter is configured."""
    return f"{text}: {CONVERTER[0]}"
