"""A tool computes for less than a millisecond.

state: running
sdks: mcp1 mcp2 fastmcp3 fastmcp4
transports: stdio http
names: TOOL
numbers: WORDS=300..900
load: TOOL callers 2..3 calls 6..10 pause 10..40
"""

import hashlib


@server.tool()
async def TOOL(text: str) -> str:
    digests = sorted(hashlib.md5(f"{text} {number}".encode()).hexdigest() for number in range(WORDS))
    return f"{text}: {digests[0][:8]}"
