"""The workloads by name, and the documents they reproduce. Importing this needs nothing but the standard library."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import TYPE_CHECKING

from mcp_probe.errors import OptionError
from mcp_probe.workloads.bench.questions import QUESTIONS, TITLE, TODAY, scenario
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

WORKLOADS: tuple[Workload, ...] = (
    scenario("dispatch-micro", "a task per message against one by one: time and memory", "000", limits_s=(180, 900)),
    scenario(
        "dispatch-stdio",
        "a CPU-bound tool on a real stdio server, one by one and pipelined",
        "000",
        "002",
        limits_s=(180, 600),
    ),
    scenario("dispatch-wait", "waiting handlers, in memory: where concurrency pays", "000", limits_s=(90, 300)),
    scenario("fanout", "N calls at once over one stdio session: flat in N?", "001", limits_s=(180, 1200)),
    scenario("waves", "ceil(N / width) waves at pools of 4, 20 and 40", "001", limits_s=(180, 900)),
    scenario("overhead", "what a wrapper, here the probe, adds to a call", "001", limits_s=(240, 1800)),
    scenario(
        "cold-start",
        "N callers of a server that is not running: single-flight, naive, warm",
        "001",
        limits_s=(240, 900),
    ),
    scenario("multi-server", "one call to each of several servers: max, not sum", "001", limits_s=(120, 600)),
    scenario(
        "mixed-latency", "quick calls beside slow ones: order, caps, a tool that blocks", "001", limits_s=(120, 600)
    ),
    scenario("pipeline", "three stages of parallel calls: the critical path", "001", limits_s=(90, 300)),
    scenario(
        "op-latency", "every operation of a stdio server, and in memory: what is transport", "002", limits_s=(300, 600)
    ),
    scenario(
        "op-latency-http", "the same operations over streamable HTTP, SSE and JSON answers", "002", limits_s=(400, 900)
    ),
    scenario("session-reuse", "a session, or a process, per call against one that is kept", "004", limits_s=(300, 600)),
    scenario(
        "cpu-models", "CPU-bound work: sync, await, gather, threads; a fresh process each", "003", limits_s=(300, 1200)
    ),
    scenario("cpu-tools", "CPU-bound MCP tools, async and in threads", "000", "003", limits_s=(200, 600)),
    scenario(
        "io-models", "HTTP fetches: sync, asyncio, threads, hybrids; at equal concurrency", "003", limits_s=(500, 1800)
    ),
    scenario("http-client", "client patterns: a client per request, shared, limits", "004", limits_s=(400, 1200)),
    scenario("http-sweep", "concurrency against pool limits: the knee", "004", limits_s=(600, 1800)),
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
