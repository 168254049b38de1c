# mypy: ignore-errors
"""A server on mcp 1.x or 2.x that has a secret wherever a server can have one: ``planted_server.py stdio|http [PORT]``.

Each secret is ``MARK`` and what kind it is; ``MARK`` is in the environment as PLANTED, so that it is in no file.
"""

import os
import socket
import sqlite3
import subprocess
import sys
import urllib.request
from contextlib import suppress

from pydantic import BaseModel

try:
    from mcp.server.mcpserver import Context, MCPServer
except ImportError:
    from mcp.server.fastmcp import Context
    from mcp.server.fastmcp import FastMCP as MCPServer
from mcp.types import SamplingMessage, TextContent

MARK = os.environ["PLANTED"]
server = MCPServer("planted", instructions=f"{MARK}-instructions", log_level="CRITICAL")


@server.tool(description=f"{MARK}-description")
async def ask(key: str, ctx: Context) -> str:
    with suppress(Exception):
        await ctx.report_progress(1, 2, f"{MARK}-progress-message")
    with suppress(Exception):
        await ctx.info(f"{MARK}-log-message")
    return f"{key} {MARK}-result"


class Form(BaseModel):
    answer: str


@server.tool()
async def ask_client(key: str, ctx: Context) -> str:
    """Asks the client itself, and says what it answered."""
    question = SamplingMessage(role="user", content=TextContent(type="text", text=f"{MARK}-sampling-question"))
    sampled = await ctx.session.create_message(
        [question],
        max_tokens=9,
        system_prompt=f"{MARK}-system-prompt",
        metadata={f"{MARK}-sampling-key": f"{MARK}-sampling-metadata"},
        related_request_id=ctx.request_id,
    )
    elicited = await ctx.elicit(f"{MARK}-elicitation-question", Form)
    return f"{key} {sampled.content.text} {elicited.data.answer}"


@server.tool()
async def ask_roots(key: str, ctx: Context) -> str:
    """Over HTTP it comes on the session's own stream, which the client must have open."""
    return f"{key} {(await ctx.session.list_roots()).roots[0].uri}"


@server.tool()
async def fail(key: str) -> str:
    raise ValueError(f"{key} {MARK}-exception")


@server.tool()
def outside(key: str) -> str:
    """Asks a database, a process, a host and a URL, all with secrets, and blocks meanwhile."""
    database = sqlite3.connect(":memory:")
    database.execute("select ? as x", (f"{key}{MARK}-sql-parameter",))
    database.execute(f"select '{MARK}-sql-statement'")
    subprocess.run([sys.executable, "-c", "pass", f"{MARK}-subprocess"], env={"TOKEN": f"{MARK}-variable"}, check=True)
    with suppress(OSError):
        socket.getaddrinfo(f"{MARK}-host.invalid", 80)
    with suppress(Exception):
        urllib.request.urlopen(
            f"http://u:{MARK}-url-password@127.0.0.1:9/{MARK}-url-path?k={MARK}-url-query", timeout=1
        )
    return "done"


@server.tool()
async def outside_on_loop(key: str) -> str:
    return outside(key)


@server.prompt(description=f"{MARK}-prompt-description")
def greet(key: str) -> str:
    return f"{key} {MARK}-prompt-text"


@server.resource("note://{key}")
def note(key: str) -> str:
    return f"{key} {MARK}-resource-text"


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        server.run()
    else:
        import uvicorn

        uvicorn.run(server.streamable_http_app(), host="127.0.0.1", port=int(sys.argv[2]), log_level="critical")
