"""A plain tool, run in a worker thread, waits for a device.

state: thread waiting
sdks: mcp2 fastmcp3 fastmcp4
transports: stdio http
names: TOOL
numbers: DEVICE_MS=20..60
load: TOOL callers 2..3 calls 5..8 pause 10..40
"""

import time


@server.tool()
def TOOL(text: str) -> str:
    time.sleep(DEVICE_MS / 1000)
    return f"{text}: {len(text) % 30} degrees"
