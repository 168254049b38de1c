"""A background thread asks an empty queue again and again without waiting.

cites: stratosphereips/StratosphereLinuxIPS#16
state: spin
sdks: mcp1 mcp2 fastmcp3 fastmcp4
transports: stdio http
names: OUTBOX DELIVERED deliver_messages TOOL
load: TOOL callers 2..3 calls 10..14 pause 60..100
mend: event
thing: OUTBOX or deliver_messages or get_nowait
holder: deliver_messages
measure: cpu
"""

import queue
import threading

OUTBOX: queue.Queue = queue.Queue()
DELIVERED: list = []


def deliver_messages() -> None:
    while True:
        #: sick
        try:
            message = OUTBOX.get_nowait()  #!
        except queue.Empty:  #!
            continue  #!
        #: mended
        message = OUTBOX.get()
        #: end
        DELIVERED.append(message)


threading.Thread(target=deliver_messages, daemon=True).start()


@server.tool()
async def TOOL(text: str) -> str:
    """Sends a message."""
    OUTBOX.put(text)
    return f"sent {text}"
