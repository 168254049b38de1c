"""The workloads by name, and the documents they reproduce. Importing this needs nothing but the standard library."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import TYPE_CHECKING

from mcp_probe.errors import OptionError
from mcp_probe.workloads.bench.questions import QUESTIONS, TITLE, TODAY
from mcp_probe.workloads.bench.shapes import Outcome, Workload

if TYPE_CHECKING:
    from mcp_probe.workloads.bench.context import Bench

RunWorkload = Callable[["Bench"], Awaitable[Outcome]]

Find = Callable[[Workload], RunWorkload]
"""Gives what a workload runs; :func:`load` for the bundled ones."""

DOCUMENTS: dict[str, str] = {
    "000": "MiniMCP: sequential and concurrent dispatch of CPU-bound handlers",
    "001": "MCP Hangar: parallel calls over stdio, the hard-coded 4, cold starts",
    "002": "galay-mcp: stdio latencies of a C++ server, operation by operation",
    "003": "asyncio-vs-thread: CPU-bound and I/O-bound work, asyncio against threads",
    "004": "ContextForge: HTTPX client patterns and a concurrency sweep",
}

GROUPS = {**DOCUMENTS, TODAY: TITLE}
"""What `--document` takes: the documents, and the comparisons of none."""

_SCENARIOS = "mcp_probe.workloads.scenarios"

WORKLOADS: tuple[Workload, ...] = (
    Workload(
        "dispatch-micro",
        ("000",),
        "a task per message against one by one: time and memory",
        f"{_SCENARIOS}.dispatch_micro:run",
        180,
        900,
    ),
    Workload(
        "dispatch-stdio",
        ("000", "002"),
        "a CPU-bound tool on a real stdio server, one by one and pipelined",
        f"{_SCENARIOS}.dispatch_stdio:run",
        180,
        600,
    ),
    Workload(
        "dispatch-wait",
        ("000",),
        "waiting handlers, in memory: where concurrency pays",
        f"{_SCENARIOS}.dispatch_wait:run",
        90,
        300,
    ),
    Workload(
        "fanout", ("001",), "N calls at once over one stdio session: flat in N?", f"{_SCENARIOS}.fanout:run", 180, 1200
    ),
    Workload("waves", ("001",), "ceil(N / width) waves at pools of 4, 20 and 40", f"{_SCENARIOS}.waves:run", 180, 900),
    Workload(
        "overhead", ("001",), "what a wrapper, here the probe, adds to a call", f"{_SCENARIOS}.overhead:run", 240, 1800
    ),
    Workload(
        "cold-start",
        ("001",),
        "N callers of a server that is not running: single-flight, naive, warm",
        f"{_SCENARIOS}.cold_start:run",
        240,
        900,
    ),
    Workload(
        "multi-server",
        ("001",),
        "one call to each of several servers: max, not sum",
        f"{_SCENARIOS}.multi_server:run",
        120,
        600,
    ),
    Workload(
        "mixed-latency",
        ("001",),
        "quick calls beside slow ones: order, caps, a tool that blocks",
        f"{_SCENARIOS}.mixed_latency:run",
        120,
        600,
    ),
    Workload(
        "pipeline", ("001",), "three stages of parallel calls: the critical path", f"{_SCENARIOS}.pipeline:run", 90, 300
    ),
    Workload(
        "op-latency",
        ("002",),
        "every operation of a stdio server, and in memory: what is transport",
        f"{_SCENARIOS}.op_latency:run",
        300,
        600,
    ),
    Workload(
        "op-latency-http",
        ("002",),
        "the same operations over streamable HTTP, SSE and JSON answers",
        f"{_SCENARIOS}.op_latency_http:run",
        400,
        900,
    ),
    Workload(
        "session-reuse",
        ("004",),
        "a session, or a process, per call against one that is kept",
        f"{_SCENARIOS}.session_reuse:run",
        300,
        600,
    ),
    Workload(
        "cpu-models",
        ("003",),
        "CPU-bound work: sync, await, gather, threads; a fresh process each",
        f"{_SCENARIOS}.cpu_models:run",
        300,
        1200,
    ),
    Workload(
        "cpu-tools",
        ("000", "003"),
        "CPU-bound MCP tools, async and in threads",
        f"{_SCENARIOS}.cpu_tools:run",
        200,
        600,
    ),
    Workload(
        "io-models",
        ("003",),
        "HTTP fetches: sync, asyncio, threads, hybrids; at equal concurrency",
        f"{_SCENARIOS}.io_models:run",
        500,
        1800,
    ),
    Workload(
        "http-client",
        ("004",),
        "client patterns: a client per request, shared, limits",
        f"{_SCENARIOS}.http_client:run",
        400,
        1200,
    ),
    Workload(
        "http-sweep", ("004",), "concurrency against pool limits: the knee", f"{_SCENARIOS}.http_sweep:run", 600, 1800
    ),
    *QUESTIONS,
)


def named(names: tuple[str, ...]) -> tuple[Workload, ...]:
    """The workloads of these names, in the registry's order, each once.

    Raises: OptionError for a name that is not one, with the names there are.
    """
    known = {workload.name for workload in WORKLOADS}
    if unknown := [name for name in names if name not in known]:
        raise OptionError(
            f"There is no workload {', '.join(unknown)}. There are: {', '.join(sorted(known))}. "
            "`mcp-probe bench --list` says what each does."
        )
    return tuple(workload for workload in WORKLOADS if workload.name in names)


def of_document(document: str) -> tuple[Workload, ...]:
    """The workloads that reproduce a document, or those of none: ``now``.

    Raises: OptionError for a document there is none of.
    """
    if document not in GROUPS:
        raise OptionError(f"There is no document {document}. There are: {', '.join(GROUPS)}.")
    return tuple(workload for workload in WORKLOADS if document in workload.documents)


def load(workload: Workload) -> RunWorkload:
    """Imports what runs it. Raises: ImportError where a package it cannot do without is missing."""
    module, _, function = workload.place.partition(":")
    found: RunWorkload = getattr(import_module(module), function)
    return found
