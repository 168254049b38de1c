# mypy: ignore-errors
"""A stdio server that does not end when its client has gone. Usage: server.py thread|job|spin|deaf.

deaf: as thread, and SIGTERM is ignored.
"""

import asyncio
import queue
import signal
import sys
import threading
import time

try:
    from mcp.server import MCPServer as Server
except ImportError:
    from mcp.server.fastmcp import FastMCP as Server

server = Server("notes")
work: queue.Queue = queue.Queue()


def indexer() -> None:
    while True:
        item = work.get()  # nobody tells it to end
        time.sleep(0.001 * len(item))


def watch() -> None:
    time.sleep(600)


@server.tool()
async def note(text: str) -> int:
    work.put(text)
    return len(text)


@server.tool()
async def begin_watch(path: str) -> str:
    asyncio.get_running_loop().run_in_executor(None, watch)
    return "watching"


if __name__ == "__main__":
    kind = sys.argv[1] if len(sys.argv) > 1 else "thread"
    if kind == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if kind in ("thread", "deaf"):
        threading.Thread(target=indexer, name="indexer").start()
    server.run("stdio")
    if kind == "spin":
        while True:  # keep the process alive
            pass
