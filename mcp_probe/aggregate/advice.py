"""What to do, as far as it depends on what the SDK in use does with a plain ``def``.

Source: mcp 1.30 ``Tool.run`` calls a sync function on the event loop; mcp 2.3 ``func_metadata.call_fn``
and fastmcp 3.4 ``FunctionTool.run`` (its option ``run_in_thread``) call it in a thread of anyio's default limiter.
"""

from __future__ import annotations

import re

from mcp_probe.aggregate.checks.evidence import full_default_limiter
from mcp_probe.aggregate.slow_steps import is_without_gil
from mcp_probe.aggregate.thresholds import FindingOptions
from mcp_probe.model import LOOP_OPERATION, WITHOUT_GIL, OperationSummary, ServerInfo, SlowStep, Summary

_WRAP = "wrap the call in `await anyio.to_thread.run_sync(...)`"
_WRAP_PRIVATELY = (
    "wrap the call in `await anyio.to_thread.run_sync(..., limiter=LIMITER)` with an `anyio.CapacityLimiter` of its own"
)
START_PROGRAM = (
    "Start the program without blocking: `await anyio.run_process([...])`, or "
    "`await asyncio.create_subprocess_exec(...)`."
)
_IN_THREADS_SINCE = {"mcp": 2, "fastmcp": 3}
_SDK_FILE = re.compile(
    r"/(?:site|dist)-packages/"
    r"(mcp|mcp_types|fastmcp|anyio|trio|starlette|sse_starlette|uvicorn|h11|httptools|pydantic|pydantic_core)/"
)
"""What serves messages: a server calls none of these itself while it works."""
_MAKES_CLIENT = re.compile(
    r"^ssl\.(?:create_default_context|SSLContext)|\b(?:create|default)_ssl_context$|(?:Client|Session|Engine)\.__init__$"
    r"|^(?:httpx|aiohttp|openai|anthropic)\b.*\b__init__$|\bcreate_(?:async_)?engine$"
)
"""Functions that make a client, by their names. Before 3.11 a method has no class in its name."""

_DECORATED = {"tools/call": "tool", "prompts/get": "prompt", "resources/read": "resource"}


def runs_sync_in_threads(server: ServerInfo) -> bool | None:
    """Whether this SDK runs a plain ``def`` tool in a thread; ``None`` where its version cannot be read."""
    since = _IN_THREADS_SINCE.get(server.sdk)
    major = server.sdk_version.split(".", 1)[0]
    return int(major) >= since if since is not None and major.isascii() and major.isdigit() else None


def operation_of(summary: Summary, name: str) -> OperationSummary | None:
    """The row called ``name``; if several methods share the name, the one with most calls."""
    rows = [operation for operation in summary.operations if operation.name == name]
    return max(rows, key=lambda operation: operation.count, default=None)


def sdk_of(file: str) -> str | None:
    """The package of the SDK, or of what it runs on, that ``file`` belongs to."""
    found = _SDK_FILE.search(file.replace("\\", "/"))
    return None if found is None else found[1]


def makes_client(called: str) -> bool:
    """Whether a function of this name makes a client, a session, an engine, or what they need."""
    return _MAKES_CLIENT.search(called) is not None


def is_of_client(step: SlowStep) -> bool:
    """Whether it was slow because it made a client."""
    return makes_client(step.library or "") or makes_client(step.function or "")


def off_the_loop(summary: Summary, options: FindingOptions, name: str, step: SlowStep | None = None) -> str:
    """How to get a blocking call of ``name`` off the event loop; ``step`` is the longest at the line that lost most."""
    server = summary.server
    runs, sdk = runs_sync_in_threads(server), f"{server.sdk} {server.sdk_version}"
    is_full = full_default_limiter(summary, options) is not None
    wrap = (_WRAP_PRIVATELY if is_full else _WRAP) + "."
    if is_full:
        plain = f", in which {sdk} would run a plain `def`," if runs else ""
        wrap += f" The threads of the default limiter{plain} are all in use at times."
    file = None if step is None else step.file
    own = None if file is None else sdk_of(file)
    if own is not None:
        return f"It stands in `{own}`, not in the server's own code: look at what makes `{own}` do it."
    if step is not None and (better := _of_library(step)) is not None:
        return better
    if name == LOOP_OPERATION:
        such = "another route of its app, its lifespan" if "http" in server.transport else "its lifespan"
        return f"It is work of the server's own, no request of MCP, such as {such} or a background job. There, {wrap}"
    operation = operation_of(summary, name)
    what = "tool" if operation is None else _DECORATED.get(operation.method)
    if operation is not None and operation.kind == "function":
        what = None
    if what is None:
        return f"Find the blocking call inside it and {wrap}"
    helper = None if step is None else _helper(step)
    if helper is not None:  # what calls it may be a plain `def` already, or await something else
        return f"It blocks in `{helper}`: where `{name}` calls that, {wrap}"
    if runs and is_full:
        return f"In the {what}, {wrap}"
    if runs:
        note = "" if server.sdk == "fastmcp" else "; handlers of a low-level `Server` need the latter"
        return f"Make the {what} a plain `def` ({sdk} runs it in a worker thread), or {_WRAP}{note}."
    if runs is None:
        plain = "" if is_full else " mcp 2 and fastmcp 3 also run a plain `def` in a thread."
        return f"Make it an `async def` and {wrap}{plain}"
    return f"{sdk} runs a plain `def` {what} on the event loop: make it an `async def` and {wrap}"


def _helper(step: SlowStep) -> str | None:
    """The function that the step was in, if it is another than the tool's own."""
    called = (step.function or "").rpartition(".")[2]
    return called if called.isidentifier() and called != step.tool else None


def _of_library(step: SlowStep) -> str | None:
    """What to do about a call that has a better mend than a thread or another process; ``None`` for any other."""
    library = (step.library or "").removesuffix(WITHOUT_GIL)
    if library.startswith("subprocess."):
        return START_PROGRAM
    if is_of_client(step):
        return (
            "Making a client costs that much each time (it loads the certificates anew): make one when the server "
            "starts, in its lifespan, and share it among calls."
        )
    return None


def compute_elsewhere(summary: Summary, options: FindingOptions, name: str, step: SlowStep) -> str:
    """What helps against computing on the event loop, as in ``step`` of ``name``."""
    better = _of_library(step)
    if better is not None:
        return better
    if is_without_gil(step.library):
        mend = off_the_loop(summary, options, name, step)
        return f"It gives up the GIL while it computes, so a thread helps. {mend}"
    alone = "" if summary.signals.max_in_flight > 1 else "; if calls never overlap, serve them one at a time"
    return (
        "Move the work into a process pool, or cut it into chunks with `await anyio.lowlevel.checkpoint()` between "
        f"them. A thread helps only if a C library releases the GIL while it computes (sqlite3, zlib, numpy){alone}."
    )
