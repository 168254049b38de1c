"""A callback that waits for a deadline schedules itself for the next turn of the loop until the deadline is there.

cites: agronholm/anyio#1111, ClickHouse/nerve#128
state: spin
sdks: mcp1 mcp2 fastmcp3 fastmcp4
transports: stdio http
names: NOTE
numbers: QUIET_MS=700..1000
load: NOTE callers 2..3 calls 10..14 pause 120..180
measure: cpu
mend: event
thing: flush_when_quiet or call_soon
"""

import asyncio
import json

PENDING: list[str] = []
LAST = {"change": 0.0, "is_waiting": False}


def flush_when_quiet(loop: asyncio.AbstractEventLoop) -> None:
    quiet_from = LAST["change"] + QUIET_MS / 1000
    if loop.time() < quiet_from:
        #: sick
        loop.call_soon(flush_when_quiet, loop)  #!
        #: mended
        loop.call_at(quiet_from, flush_when_quiet, loop)
        #: end
        return
    (FOLDER / "changes.json").write_text(json.dumps(PENDING), encoding="utf-8")
    PENDING.clear()
    LAST["is_waiting"] = False


@server.tool()
async def NOTE(text: str) -> str:
    loop = asyncio.get_running_loop()
    PENDING.append(text)
    LAST["change"] = loop.time()
    if not LAST["is_waiting"]:
        LAST["is_waiting"] = True
        loop.call_soon(flush_when_quiet, loop)
    return f"noted {text}"
