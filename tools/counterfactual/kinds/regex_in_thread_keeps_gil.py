"""A search by re goes to a worker thread to spare the event loop, but re keeps the GIL for its whole quadratic search.

cites: blacklanternsecurity/bbot#1184
state: no gil
sdks: mcp1 mcp2 fastmcp3 fastmcp4
transports: stdio http
names: ADDRESS PAGE find_addresses SCAN PEEK
numbers: WORDS=4200..5000
load: SCAN callers 2 calls 5..7
load: PEEK callers 3 calls 8..10 pause 10..20 delay 20..40
mend: to-process or compute-less
thing: ADDRESS or find_addresses or findall
holder: SCAN or find_addresses
"""

import asyncio
import re

#: sick
ADDRESS = re.compile(r"[\w.-]+@[\w.-]+\.internal")
#: mended
ADDRESS = re.compile(r"(?<![\w.-])[\w.-]+@[\w.-]+\.internal")
#: end
PAGE = "write to ops@mail.internal or\n" + "0123456789abcdef-" * (WORDS // 17) + "\nto desk@hall.internal\n"


def find_addresses(text: str) -> str:
    found = ADDRESS.findall(PAGE + text)  #!
    return ", ".join(found)


@server.tool()
async def SCAN(text: str) -> str:
    """Finds the addresses in the page."""
    return await asyncio.to_thread(find_addresses, text)  #!


@server.tool()
async def PEEK(text: str) -> str:
    """Shows the beginning of the page."""
    return f"{text}: {PAGE[:20]}"
