"""A program that a tool starts inherits the server's stdin and reads it: it takes the clients' requests and never ends.

cites: modelcontextprotocol/python-sdk#671, patrup/mcp-libre#9, gastownhall/beads#400
state: suspended
sdks: mcp1 fastmcp3
transports: stdio
names: RUN LOOK
load: RUN callers 1..2 calls 1
load: LOOK callers 3..4 calls 2..3 pause 50..100 delay 300..500
mend: devnull
thing: stdin
holder: RUN or run_remote
gives_up: 3
"""

import asyncio
import sys

REMOTE = "import shutil, sys; print(sys.argv[1].upper(), flush=True); shutil.copyfileobj(sys.stdin, sys.stdout)"


async def run_remote(text: str) -> str:
    process = await asyncio.create_subprocess_exec(  #!
        sys.executable,
        "-c",
        REMOTE,
        text,
        #: mended
        stdin=asyncio.subprocess.DEVNULL,
        #: end
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await process.communicate()  #!
    return output.decode().strip()


@server.tool()
async def RUN(text: str) -> str:
    return await run_remote(text)  #!


@server.tool()
async def LOOK(text: str) -> str:
    return " ".join(sorted(text.split()))
