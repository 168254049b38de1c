"""A logging handler sends each record by HTTP and waits for the answer, in the event loop's thread.

cites: NousResearch/hermes-agent#58683 home-assistant/core#4901
state: blocked
sdks: mcp1 mcp2 fastmcp3 fastmcp4
transports: stdio http
names: LOG LINES TOOL PING Shipper
numbers: SHIP_MS=20..28
load: TOOL callers 5..6 calls 4..5
load: PING callers 3..4 calls 6..8
mend: log-less or in-background or to-thread
thing: Shipper or LOG or logging handler
holder: TOOL or Shipper
"""

import logging
import logging.handlers
import queue

import requests


class Shipper(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.session = requests.Session()

    def emit(self, record: logging.LogRecord) -> None:
        self.session.get(f"{SERVICE}/SHIP_MS", params={"line": self.format(record)}, timeout=30)  #!


LOG = logging.getLogger("audit")
LOG.setLevel(logging.INFO)
LOG.propagate = False
#: sick
LOG.addHandler(Shipper())  #!
#: mended
LINES: queue.SimpleQueue = queue.SimpleQueue()
LOG.addHandler(logging.handlers.QueueHandler(LINES))
logging.handlers.QueueListener(LINES, Shipper()).start()
#: end


@server.tool()
async def TOOL(text: str) -> str:
    LOG.info("asked for %s", text)  #!
    total = sum(map(ord, text))
    LOG.info("answered %s with %d", text, total)  #!
    return f"{text}: {total}"


@server.tool()
async def PING(text: str) -> str:
    return f"{text}: here"
