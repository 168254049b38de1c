# mypy: ignore-errors
"""A tool that runs a program without saying what its stdin is. (stdio)"""

import asyncio
import subprocess
import sys

try:
    from mcp.server import MCPServer as Server
except ImportError:
    from mcp.server.fastmcp import FastMCP as Server

import anyio

server = Server("shell")
SUM = [sys.executable, "-c", "import sys; print(len(sys.stdin.read()))"]  # asks, as git, ffmpeg and ssh do


@server.tool()
async def count(path: str) -> str:
    """In a thread: the loop stays free."""
    done = await anyio.to_thread.run_sync(lambda: subprocess.run(SUM, capture_output=True, text=True, check=False))
    return done.stdout


@server.tool()
async def count_async(path: str) -> str:
    process = await asyncio.create_subprocess_exec(*SUM, stdout=asyncio.subprocess.PIPE)
    out, _ = await process.communicate()
    return out.decode()


@server.tool()
async def count_anyio(path: str) -> str:
    return (await anyio.run_process(SUM, check=False)).stdout.decode()


@server.tool()
def count_sync(path: str) -> str:
    return subprocess.run(SUM, capture_output=True, text=True, check=False).stdout


@server.tool()
async def price(item: str) -> int:
    return len(item)


if __name__ == "__main__":
    server.run("stdio")
