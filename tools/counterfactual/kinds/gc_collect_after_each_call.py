"""Each call ends with gc.collect(), which goes through the whole heap though there is nothing to free.

cites: dgtlmoon/changedetection.io#4431, invoke-ai/InvokeAI#5034
state: gc
sdks: mcp1 mcp2 fastmcp3 fastmcp4
transports: stdio http
names: CATALOGUE free_memory describe_entry TOOL
numbers: ENTRIES=28000..42000
load: TOOL callers 3..4 calls 5..7
mend: keep-less
thing: gc.collect or free_memory
"""

import gc

CATALOGUE = [{"id": number, "tags": [number % 7, number % 11]} for number in range(ENTRIES)]


#: sick
def free_memory() -> None:
    gc.collect()  #!


#: end
def describe_entry(text: str) -> str:
    entry = CATALOGUE[len(text) * 7919 % len(CATALOGUE)]
    return f"{text}: {entry['id']} {entry['tags']}"


@server.tool()
async def TOOL(text: str) -> str:
    """Describes an entry of the catalogue."""
    #: sick
    try:
        return describe_entry(text)
    finally:
        free_memory()  #!
    #: mended
    return describe_entry(text)
    #: end
