"""A tool sends all that it has read as a log message to its client, hundreds of kilobytes a call, and answers a line.

cites: adobe/helix-pipeline#331 NousResearch/hermes-agent#57416
state: running
sdks: mcp1 mcp2 fastmcp4
transports: stdio http
names: RECORDS TOOL PING read_records
numbers: COUNT=9000..12000
load: TOOL callers 4..5 calls 4..5
load: PING callers 3..4 calls 5..7
mend: send-less or log-less
thing: notification or notifications or ctx.info
holder: TOOL
"""

import json


def read_records() -> list[dict]:
    return [{"number": n, "name": f"record {n}", "note": 'of the "old" house', "ok": n % 3 == 0} for n in range(COUNT)]


RECORDS = read_records()


@server.tool()
async def TOOL(text: str, ctx: Context) -> str:
    good = sum(record["ok"] for record in RECORDS)
    #: sick
    await ctx.info(json.dumps(RECORDS, indent=2))  #!
    #: mended
    await ctx.info(f"{len(RECORDS)} records")
    #: end
    return f"{text}: {good} good records"


@server.tool()
async def PING(text: str) -> str:
    return f"{text}: here"
