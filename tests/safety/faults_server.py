# mypy: ignore-errors
"""A server on mcp 1.x or 2.x, on each transport, in which things go wrong that are not the probe's.

Usage: faults_server.py stdio|PORT [SETUP] [attach]. SETUP: ``debug`` (``loop.set_debug(True)``, and every callback is
slow), ``own-tasks`` (a task factory of the user's), ``eager-tasks`` (CPython 3.12), ``tasks-in-python``.
The probe is attached where the module is imported, as in many servers. Children that multiprocessing spawns do it, too.
"""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import resource
import sys
import threading
import time

import anyio

try:
    from mcp.server.mcpserver import Context, MCPServer
except ImportError:
    from mcp.server.fastmcp import Context
    from mcp.server.fastmcp import FastMCP as MCPServer

server = MCPServer("faults", log_level="CRITICAL")
if "attach" in sys.argv:
    import mcp_probe

    probe = mcp_probe.attach(server)

held = 0
all_held = None
logs = []


@server.tool()
async def add(a: int, b: int) -> int:
    await anyio.lowlevel.checkpoint()
    return a + b


@server.tool()
async def hold(number: int, of: int) -> int:
    """Answers once ``of`` calls are in here."""
    global held, all_held
    if all_held is None:
        all_held = anyio.Event()
    held += 1
    if held == of:
        all_held.set()
    await all_held.wait()
    return number


@server.tool()
async def hang(ctx: Context) -> str:
    await ctx.report_progress(0, 1)  # so that the client knows that it has begun
    await anyio.sleep_forever()
    return "never"


def work(number: int, answers) -> None:
    """In a child: a thread, and a loop."""
    thread = threading.Thread(target=asyncio.run, args=(asyncio.sleep(0.001),))
    thread.start()
    thread.join()
    answers.put(number * number)


@server.tool()
async def child(method: str, number: int) -> str:
    """What a child process works out, and how it ended."""

    def fork_bare() -> str:
        ours, theirs = os.pipe()
        pid = os.fork()
        if pid == 0:
            asyncio.run(asyncio.sleep(0.001))
            os.write(theirs, str(number * number).encode())
            os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        answer = os.read(ours, 100).decode()
        os.close(ours)
        os.close(theirs)
        return f"{answer}, exit code {status}"

    def run() -> str:
        context = multiprocessing.get_context(method)
        answers = context.Queue()
        process = context.Process(target=work, args=(number, answers))
        process.start()
        answer = answers.get(timeout=100)
        process.join(100)
        return f"{answer}, exit code {process.exitcode}"

    return await anyio.to_thread.run_sync(fork_bare if method == "os.fork" else run)


@server.tool()
async def step_clock(seconds: float) -> str:
    """The wall clock steps; nothing else does."""
    wall, wall_ns = time.time, time.time_ns
    time.time = lambda: wall() + seconds
    time.time_ns = lambda: wall_ns() + round(seconds * 1e9)
    await anyio.sleep(0.02)
    return "stepped"


@server.tool()
async def fill_the_disk() -> str:
    """From now on no file of this process may grow."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
    return "full"


@server.tool()
async def large(megabytes: int) -> object:
    text = "x" * (megabytes << 20)
    try:
        from mcp_types import CallToolResult, TextContent
    except ImportError:
        return text  # mcp 1.x
    return CallToolResult(content=[TextContent(type="text", text=text)])


@server.tool()
async def peak_memory() -> int:
    """Kilobytes that this process held at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


@server.tool()
async def churn(times: int) -> str:
    """Attaches and detaches beside the calls that run, on a thread of its own. Bare it does nothing."""

    def run() -> None:
        for _ in range(times):
            other = mcp_probe.attach(server, telemetry="off")
            other.detach()

    if "attach" in sys.argv:
        probe.detach()
        await anyio.to_thread.run_sync(run)
        mcp_probe.attach(server)
    return "done"


@server.tool()
async def logged() -> list[str]:
    """What asyncio has complained of, without what debug mode says of each slow callback."""
    return [text for text in logs if not text.startswith("Executing ")]


class Logs(logging.Handler):
    def emit(self, record) -> None:
        logs.append(record.getMessage())


class OwnTask(asyncio.Task):
    """A task of the user's."""


def set_up(loop, setup: str) -> None:
    if setup == "debug":
        loop.set_debug(True)
        loop.slow_callback_duration = 0.0
    elif setup == "own-tasks":
        loop.set_task_factory(lambda loop, coro, **options: OwnTask(coro, loop=loop, **options))
    elif setup == "eager-tasks":
        loop.set_task_factory(asyncio.eager_task_factory)
    elif setup == "tasks-in-python":
        loop.set_task_factory(lambda loop, coro, **options: asyncio.tasks._PyTask(coro, loop=loop, **options))


async def serve(where: str, setup: str) -> None:
    set_up(asyncio.get_running_loop(), setup)
    if where == "stdio":
        await server.run_stdio_async()
        return
    import uvicorn

    config = uvicorn.Config(
        server.streamable_http_app(), host="127.0.0.1", port=int(where), log_level="critical", backlog=20_000
    )
    await uvicorn.Server(config).serve()


def main() -> None:
    where, *options = sys.argv[1:]
    logger = logging.getLogger("asyncio")
    logger.addHandler(Logs())
    logger.propagate = False
    asyncio.run(serve(where, next((one for one in options if one != "attach"), "")))
    os.write(2, b"served\n")


if __name__ == "__main__":
    main()
