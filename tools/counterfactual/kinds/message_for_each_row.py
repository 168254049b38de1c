"""A tool sends its client a notification for every row, hundreds a call, which all pass the loop and the transport.

cites: jgravelle/jcodemunch-mcp#359 modelcontextprotocol/rust-sdk#388
state: in transport
sdks: mcp1 mcp2 fastmcp3 fastmcp4
transports: stdio http
names: TOOL weighed
numbers: ROWS=120..160
load: TOOL callers 4..5 calls 3..4
mend: send-less
thing: notification or notifications or ctx.info
holder: TOOL
"""

import hashlib


def weighed(text: str, number: int) -> int:
    return hashlib.sha256(f"{text} {number}".encode()).digest()[0]


@server.tool()
async def TOOL(text: str, ctx: Context) -> str:
    total = 0
    for number in range(ROWS):
        total += weighed(text, number)
        #: sick
        await ctx.info(f"row {number + 1} of {ROWS} is done")  #!
        #: mended
        if number % 100 == 0:
            await ctx.info(f"row {number + 1} of {ROWS} is done")
        #: end
    return f"{text}: {total} kg"
