# mypy: ignore-errors
"""One MCP server with one fault, its mended form or a near miss; or a healthy one. For mcp 1.x, mcp 2.x and fastmcp.

Usage: ``server.py WORKLOAD FORM NAME TRANSPORT PORT QUICK SLOW``: tools are called NAME or begin with it; the last two
are addresses of backends that answer after 20 and 400 ms.
"""

from __future__ import annotations

import asyncio
import collections
import gc
import hashlib
import io
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import asynccontextmanager

import anyio

WORKLOAD, FORM, NAME, TRANSPORT, PORT, QUICK, SLOW = sys.argv[1:]
FAULT, MENDED, NEAR = FORM == "fault", FORM == "mended", FORM == "near"

STARTS = []  # coroutine functions that the lifespan awaits
ENDS = []


def start(function):
    STARTS.append(function)
    return function


def burn(ms):
    """Computes for ``ms`` of this thread's CPU time, however long that takes."""
    until = time.thread_time() + ms / 1e3
    while time.thread_time() < until:
        pass


def in_background(function):
    """Runs a coroutine function from the server's start to its end."""

    @start
    async def begin():
        task = asyncio.create_task(function())

        async def stop():
            task.cancel()

        ENDS.append(stop)


def sleeping(seconds):
    """A tool that does nothing else."""

    async def work() -> str:
        await asyncio.sleep(seconds)
        return "ok"

    return work


def client(**options):
    import httpx

    made = httpx.AsyncClient(timeout=60, **options)
    ENDS.append(made.aclose)
    return made


# --- what holds the loop ------------------------------------------------------------------------------


def blocking_call():
    async def work() -> str:
        if MENDED:
            await anyio.to_thread.run_sync(time.sleep, 0.06)
        else:
            time.sleep(0.06 if FAULT else 0.004)
        return "ok"

    return {"": work}


def cpu_bound_step():
    async def work() -> str:
        for _ in range(12 if MENDED else 1):
            burn(60 if FAULT else 4)
            await asyncio.sleep(0.002)
        return "ok"

    return {"": work}


def head_of_line():
    """One tool holds the loop; the other waits for it. In the near miss they are never called at once."""

    async def holds() -> str:
        if MENDED:
            await anyio.to_thread.run_sync(time.sleep, 0.08)
        else:
            time.sleep(0.08)
        return "ok"

    async def waits() -> str:
        await asyncio.sleep(0.02)
        return "ok"

    return {"_holder": holds, "": waits}


def crowding():
    async def work() -> str:
        for _ in range(48 if MENDED else 240):
            burn(0.2)
            await asyncio.sleep(0.005 if MENDED else 0)
        return "ok"

    return {"": work}


def busy_spin():
    """Polls 40 000 times without a wait; the near miss polls each millisecond."""

    async def work() -> str:
        for _ in range(120_000 if FAULT else 1 if MENDED else 60):
            await asyncio.sleep(0.06 if MENDED else 0.001 if NEAR else 0)
        return "ok"

    return {"": work}


def gc_pause():
    """A heap that takes long to collect; mended, it is frozen. The near miss has a small one."""
    kept = []

    @start
    async def fill():
        gc.disable()
        kept.extend([[index] for index in range(5_000 if NEAR else 1_500_000)])
        if MENDED:
            gc.freeze()
        gc.enable()

    async def work() -> str:
        gc.collect(0 if NEAR else 2)
        await asyncio.sleep(0.01)
        return "ok"

    return {"": work}


# --- what waits for others ------------------------------------------------------------------------------


def serial_handler():
    lock = asyncio.Lock()

    async def work() -> str:
        if not FAULT:
            await asyncio.sleep(0.03 if MENDED else 0.06)
        async with lock:
            await asyncio.sleep(0.03 if FAULT else 0.0005)
        return "ok"

    return {"": work}


def pool_exhausted():
    """In the near miss only two call at once."""
    import httpx

    shared = client(limits=httpx.Limits(max_connections=8 if MENDED else 2))

    async def work() -> str:
        (await shared.get(QUICK)).raise_for_status()
        return "ok"

    return {"": work}


def client_per_request():
    import httpx

    shared = client()

    async def work() -> str:
        if MENDED:
            await shared.get(QUICK)
        else:
            async with httpx.AsyncClient() as own:
                for _ in range(1 if FAULT else 3):
                    await own.get(QUICK)
        return "ok"

    return {"": work}


def serial_awaits():
    shared = client()

    async def work() -> str:
        if MENDED:
            async with anyio.create_task_group() as group:
                for _ in range(6):
                    group.start_soon(shared.get, QUICK)
        else:
            for _ in range(6 if FAULT else 4):
                await shared.get(QUICK)
        return "ok"

    return {"": work}


def slow_backend():
    """Mended: it asks once, as it starts. Near miss: a backend that is quick, in a tool that is slow by itself."""
    shared = client()

    async def ask():
        await shared.get(SLOW)

    if MENDED:
        start(ask)

    async def work() -> str:
        if NEAR:
            await asyncio.sleep(0.15)
            await shared.get(QUICK)
        elif FAULT:
            await ask()
        return "ok"

    return {"": work}


def long_wait():
    """A queue that is fed each 40 ms. The near miss sleeps as long; mended, the queue is fed at once."""
    queue = asyncio.Queue(1)

    @in_background
    async def forever():
        while True:
            await asyncio.sleep(0.04 if FAULT else 0)
            await queue.put(None)

    async def work() -> str:
        if NEAR:
            await asyncio.sleep(0.04)
        else:
            await queue.get()
            if MENDED:
                # Longer than eight calls at once wait to be read and written: 16 ms over HTTP with mcp 1.x.
                await asyncio.sleep(0.06)
        return "ok"

    return {"": work}


def unexplained_wait():
    """A future of its own, beside 40 000 tasks: to find the one that waits takes too long to do it often.

    Mended, it awaits a lock, which a hook names; in the near miss there are no such tasks.
    """
    waiting = []

    @start
    async def crowd():
        gc.disable()
        waiting.extend(asyncio.create_task(asyncio.sleep(3600)) for _ in range(0 if NEAR else 40_000))
        await asyncio.sleep(0.01)
        gc.freeze()  # else the collector looks at them: another fault
        gc.enable()

    async def work() -> str:
        loop = asyncio.get_running_loop()
        if MENDED:
            gate = asyncio.Lock()
            await gate.acquire()
            loop.call_later(0.04, gate.release)
            await gate.acquire()
        else:
            answer = loop.create_future()
            loop.call_later(0.04, answer.set_result, None)
            await answer
        return "ok"

    return {"": work}


# --- first calls --------------------------------------------------------------------------------------


def cold_start():
    """The near miss is as slow now and then."""
    shared, known = client(), []

    async def set_up():
        await shared.get(SLOW)
        known.append("set up")

    if MENDED:
        start(set_up)

    async def work() -> str:
        if not known or (NEAR and len(known) % 10 == 0):
            await set_up()
        known.append("called")
        await asyncio.sleep(0.005)
        return "ok"

    return {"": work}


def cold_start_stampede():
    """In the near miss the first call comes alone."""
    shared, known, lock = client(), [], asyncio.Lock()

    async def set_up():
        if not known:
            await shared.get(SLOW)
            known.append("set up")

    async def work() -> str:
        if MENDED:
            async with lock:
                await set_up()
        else:
            await set_up()
        return "ok"

    return {"": work}


# --- threads ------------------------------------------------------------------------------------------


def executor_saturated():
    """In the near miss only two call at once."""
    limiter = []

    async def work() -> str:
        if not limiter:
            limiter.append(anyio.CapacityLimiter(16 if MENDED else 2))
        await anyio.to_thread.run_sync(time.sleep, 0.03, limiter=limiter[0])
        return "ok"

    return {"": work}


def transport_starvation():
    """The stdio transport of mcp 2.x takes its threads from the default limiter of 40. The near miss leaves it some."""
    limiter = []

    async def work() -> str:
        if MENDED and not limiter:
            limiter.append(anyio.CapacityLimiter(40))
        await anyio.to_thread.run_sync(time.sleep, 0.15, limiter=limiter[0] if MENDED else None)
        return "ok"

    return {"": work}


def abandoned_work():
    """Its client cancels each call. Mended, the job looks whether it should go on; in the near miss it is short."""

    def job():
        until = time.monotonic() + (0.8 if NEAR else 2.0)
        while time.monotonic() < until:
            if MENDED:
                anyio.from_thread.check_cancelled()
            time.sleep(0.01)

    async def work() -> str:
        await anyio.to_thread.run_sync(job, abandon_on_cancel=True)
        return "ok"

    return {"": work}


def computing(threads, function, seldom):
    """Threads, or two processes if none, call ``function`` all the time; in the near miss ``seldom``, now and then."""

    @start
    async def begin():
        begun, over, others = threading.Event(), threading.Event(), []
        if threads and not MENDED:

            def run():
                begun.wait()  # else each start waits for those that compute already: another fault
                while not (over.wait(0.1) if NEAR else over.is_set()):  # a wait gives up the GIL
                    (seldom if NEAR else function)()

            others = [threading.Thread(target=run) for _ in range(threads)]
        elif not MENDED:
            code = f"import time\nwhile True:\n{seldom if NEAR else function}"
            others = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(2)]

        async def stop():
            over.set()
            for one in others:
                one.join() if threads else one.kill()

        ENDS.append(stop)
        for one in others if threads else ():
            one.start()
        begun.set()

    async def work() -> str:
        burn(4)
        await asyncio.sleep(0.005)
        return "ok"

    return {"": work}


def gil_contention():
    return computing(3, lambda: sum(range(20_000)), lambda: sum(range(2_000)))


def own_threads():
    """One CPU for all threads. They hash, for which nobody needs the GIL."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

    def hash_for(rounds):
        return lambda: hashlib.pbkdf2_hmac("sha256", b"", b"", rounds)

    return computing(6, hash_for(20_000), hash_for(500))


def host_pressure():
    """One CPU, and other processes on it."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    return computing(0, " pass", " time.sleep(0.1)")


def dispatch_backlog():
    """Four calls come in each 0.25 s. One of them is answered, or four; all, when no more come."""
    waiting, came = collections.deque(), [0.0]

    @in_background
    async def forever():
        while True:
            await asyncio.sleep(0.25)
            is_over = time.monotonic() - came[0] > 0.6
            for _ in range(len(waiting) if is_over else min(len(waiting), 1 if FAULT else 4)):
                waiting.popleft().set()

    async def work() -> str:
        came[0] = time.monotonic()
        answer = asyncio.Event()
        waiting.append(answer)
        await answer.wait()
        return "ok"

    return {"": work}


# --- memory -------------------------------------------------------------------------------------------


def memory_growth():
    """The near miss is a cache that is full after sixteen calls."""
    kept = collections.deque(maxlen=16 if NEAR else None)

    async def work() -> str:
        made = bytearray(20_000)
        if not MENDED:
            kept.append(made)
        await asyncio.sleep(0.001)
        return "ok"

    return {"": work}


def memory_peak():
    async def work() -> str:
        for _ in range(25 if MENDED else 1):
            made = bytearray(100_000_000 if FAULT else 4_000_000 if MENDED else 40_000_000)
            await asyncio.sleep(0.001)
            del made
        return "ok"

    return {"": work}


def large_payload():
    async def work() -> str:
        await asyncio.sleep(0.05)
        return "x" * (1_500_000 if FAULT else 20_000 if MENDED else 200_000)

    return {"": work}


def schema_lookup():
    """The SDK lists all tools before each call. Mended, it need not; the near miss lists them quickly."""

    return {"": sleeping(0.03)}


def chatty_notifications():
    async def work(ctx) -> str:
        for number in range(160 if FAULT else 4 if MENDED else 15):
            await ctx.session.send_log_message(level="info", data=f"item {number}")
        await asyncio.sleep(0.05)
        return "ok"

    work.__annotations__["ctx"] = context_class()
    return {"": work}


def slow_reader():
    """The fault is the client's, which takes its time between two answers."""

    async def work() -> str:
        await asyncio.sleep(0.005)
        return "x" * 300_000

    return {"": work}


def stdout_pollution():
    async def work() -> str:
        if FAULT:
            print("a line of a log")
        else:
            print("a line of a log", file=sys.stderr if MENDED else io.StringIO())
        await asyncio.sleep(0.04)
        return "ok"

    return {"": work}


def slow_error_logging():
    """Each call fails, and the SDK logs it through rich. Mended, as plain text; in the near miss two calls fail."""
    if MENDED:
        logging.basicConfig()

    async def work() -> str:
        await asyncio.sleep(0.02)
        raise RuntimeError("as it should")

    return {"": work}


def crashed():
    """Its last call ends the process. Mended, it returns; in the near miss the process ends as it is asked to."""

    async def last() -> str:
        if FAULT:
            os._exit(3)
        if NEAR:
            os.kill(os.getpid(), signal.SIGTERM)
        return "ok"

    return {"": sleeping(0.04), "_last": last}


def not_enough_data():
    return {"": sleeping(0.04)}


def unbounded_fan_out():
    async def work() -> str:
        at_once = anyio.Semaphore(100)

        async def one():
            await asyncio.sleep(0.005)
            if MENDED:
                at_once.release()

        async with anyio.create_task_group() as group:
            for _ in range(500 if NEAR else 1_500):
                if MENDED:
                    await at_once.acquire()
                group.start_soon(one)
        return "ok"

    return {"": work}


def serial_client():
    """The fault is the client's: it sends one at a time. Mended, eight; the near miss thinks between its calls."""

    return {"": sleeping(0.02)}


# --- healthy servers ------------------------------------------------------------------------------------


def healthy_cache():
    cache = collections.OrderedDict()

    async def work(key: int = 0) -> str:
        if key not in cache:
            await asyncio.sleep(0.01)
            cache[key] = "x" * 1_000
            if len(cache) > 20:
                cache.popitem(last=False)
        return cache[key]

    return {"": work}


def healthy_pages():
    rows = [f"row {index}" for index in range(50_000)]

    async def work(page: int = 0) -> str:
        await asyncio.sleep(0.01)
        return "\n".join(rows[page * 500 : (page + 1) * 500])

    return {"": work}


def healthy_shared_client():
    shared = client()

    async def work() -> str:
        await shared.get(QUICK)
        return "ok"

    return {"": work}


def healthy_chunks():
    async def work() -> str:
        for _ in range(6):
            burn(1)
            await asyncio.sleep(0.002)
        return "ok"

    return {"": work}


def healthy_busy_loop():
    """A task of the server's own computes half a millisecond each five."""

    @in_background
    async def forever():
        while True:
            burn(0.5)
            await asyncio.sleep(0.005)

    return {"": sleeping(0.01)}


def healthy_sync_tools():
    def work() -> str:
        burn(1)
        return "ok"

    return {"": work}


def healthy_background():
    """A call hands its work to a thread and answers at once."""
    queue = collections.deque()

    def worker():
        while True:
            time.sleep(0.005)
            while queue:
                queue.popleft()
                burn(0.2)

    threading.Thread(target=worker, daemon=True).start()

    async def work() -> str:
        queue.append("work")
        await asyncio.sleep(0.005)
        return "ok"

    return {"": work}


def context_class():
    try:
        from mcp.server.mcpserver import Context
    except ImportError:
        from mcp.server.fastmcp import Context
    return Context


def healthy_sampling():
    """Each call asks its client's model."""
    try:
        from mcp_types import SamplingMessage, TextContent
    except ImportError:
        from mcp.types import SamplingMessage, TextContent

    async def work(ctx) -> str:
        asked = SamplingMessage(role="user", content=TextContent(type="text", text="well?"))
        answer = await ctx.session.create_message(messages=[asked], max_tokens=10)
        return answer.content.text

    work.__annotations__["ctx"] = context_class()
    return {"": work}


def healthy_warm_start():
    """What is costly happens before the first request."""

    @start
    async def warm():
        import decimal  # noqa: F401

        burn(150)

    return {"": sleeping(0.01)}


def healthy_mounted():
    return {"": sleeping(0.01)}


# --- serving ------------------------------------------------------------------------------------------


@asynccontextmanager
async def lifespan(_):
    for function in STARTS:
        await function()
    try:
        yield {}
    finally:
        for function in reversed(ENDS):
            await function()


def mounted(tools, at):
    from fastmcp import FastMCP

    inner, outer = FastMCP("inner"), FastMCP("outer", lifespan=lifespan)
    add_tools(inner, tools)
    outer.mount(inner)
    return lambda: serve(outer, at)


def of_handlers(tools, at):
    """A low-level server over HTTP. It takes 30 ms to list its tools, in the near miss one."""
    import uvicorn
    from mcp.server.lowlevel import Server
    from mcp_types import CallToolResult, ListToolsResult, TextContent, Tool

    schema = {"type": "object", "properties": {"text": {"type": "string"}}}

    async def list_tools(ctx, params):
        await asyncio.sleep(0.001 if NEAR else 0.03)
        return ListToolsResult(tools=[Tool(name=NAME + suffix, input_schema=schema) for suffix in tools])

    async def call_tool(ctx, params):
        text = await tools[params.name.removeprefix(NAME)]()
        return CallToolResult(content=[TextContent(type="text", text=text)])

    look_up = {"get_tool_input_schema": lambda name: schema} if MENDED else {}
    server = Server("matrix", lifespan=lifespan, on_list_tools=list_tools, on_call_tool=call_tool, **look_up)
    return lambda: uvicorn.run(server.streamable_http_app(), **at)


def of_tools(tools, at):
    try:
        from mcp.server import MCPServer
    except ImportError:  # mcp 1.x
        from mcp.server.fastmcp import FastMCP

        server, at = FastMCP("matrix", lifespan=lifespan, **at), {}
    else:
        server = MCPServer("matrix", lifespan=lifespan)
    add_tools(server, tools)
    return lambda: serve(server, at)


def serve(server, at):
    if TRANSPORT == "stdio":
        server.run("stdio")
    else:
        server.run("streamable-http", **at)


def add_tools(server, tools):
    for suffix, function in tools.items():
        server.tool(name=NAME + suffix)(function)


if __name__ == "__main__":
    make = {"healthy_mounted": mounted, "schema_lookup": of_handlers}.get(WORKLOAD, of_tools)
    make(globals()[WORKLOAD](), {"host": "127.0.0.1", "port": int(PORT)})()
