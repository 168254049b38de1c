"""A middleware writes its request log to two places over the network before it lets the answer go out.

cites: kugel-masa/kugelpos-backend#17
state: in transport
sdks: mcp1 mcp2 fastmcp3 fastmcp4
transports: http
names: WRITES write_request_log with_request_log TOOL OTHER
numbers: LOG_MS=90..120
load: TOOL callers 2 calls 5..7 pause 60..110
load: OTHER callers 1..2 calls 5..7 pause 60..110
mend: in-background
thing: write_request_log or with_request_log
middleware: with_request_log
"""

import asyncio

import httpx

WRITES: set[asyncio.Task] = set()


async def write_request_log(client: httpx.AsyncClient, path: str, status: int) -> None:
    for database in ("commons", "tenant"):
        await client.get(f"{SERVICE}/LOG_MS", headers={"x-log": f"{database} {path} {status}"})  #!


def with_request_log(app):
    client = httpx.AsyncClient(limits=httpx.Limits(max_connections=None, max_keepalive_connections=64))

    async def logged(scope, receive, send):
        if scope["type"] != "http":
            await app(scope, receive, send)
            return

        async def forward(message):
            if message["type"] == "http.response.start":
                #: sick
                await write_request_log(client, scope["path"], message["status"])  #!
                #: mended
                write = asyncio.create_task(write_request_log(client, scope["path"], message["status"]))
                WRITES.add(write)
                write.add_done_callback(WRITES.discard)
                #: end
            await send(message)

        await app(scope, receive, forward)

    return logged


@server.tool()
async def TOOL(text: str) -> str:
    """Turns a text around."""
    return text[::-1]


@server.tool()
async def OTHER(text: str) -> str:
    """Counts the letters of a text."""
    return f"{text}: {len(text)}"
