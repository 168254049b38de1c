"""The workloads by name, and the documents they reproduce. Importing this needs nothing but the standard library."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import TYPE_CHECKING

from mcp_probe.errors import OptionError
from mcp_probe.workloads.bench.shapes import Outcome, Workload

if TYPE_CHECKING:
    from mcp_probe.workloads.bench.context import Bench

RunWorkload = Callable[["Bench"], Awaitable[Outcome]]

Find = Callable[[Workload], RunWorkload]
"""Gives what a workload runs; :func:`load` for the bundled ones."""

TODAY = "now"
"""Stands where the others have the number of their document: in tables (``now results``) and claims (``now-3``)."""

PYTHONS = "pythons"
"""The workload that other interpreters can be given to."""

DOCUMENTS: dict[str, str] = {
    "000": "MiniMCP: sequential and concurrent dispatch of CPU-bound handlers",
    "001": "MCP Hangar: parallel calls over stdio, the hard-coded 4, cold starts",
    "002": "galay-mcp: stdio latencies of a C++ server, operation by operation",
    "003": "asyncio-vs-thread: CPU-bound and I/O-bound work, asyncio against threads",
    "004": "ContextForge: HTTPX client patterns and a concurrency sweep",
}

GROUPS = {**DOCUMENTS, TODAY: "Questions of today: comparisons that no document makes"}
"""What `--document` takes: the documents, and the comparisons of none."""


def _entry(name: str, documents: str, quick_s: float, full_s: float, about: str) -> Workload:
    """One for the module of this name in ``workloads/scenarios``; quick and full runs take at most so many seconds."""
    place = f"mcp_probe.workloads.scenarios.{name.replace('-', '_')}:run"
    return Workload(name, tuple(documents.split()), about, place, quick_s, full_s)


WORKLOADS: tuple[Workload, ...] = (
    _entry("dispatch-micro", "000", 180, 900, "a task per message against one by one: time and memory"),
    _entry("dispatch-stdio", "000 002", 180, 600, "a CPU-bound tool on a real stdio server, one by one and pipelined"),
    _entry("dispatch-wait", "000", 90, 300, "waiting handlers, in memory: where concurrency pays"),
    _entry("fanout", "001", 180, 1200, "N calls at once over one stdio session: flat in N?"),
    _entry("waves", "001", 180, 900, "ceil(N / width) waves at pools of 4, 20 and 40"),
    _entry("overhead", "001", 240, 1800, "what a wrapper, here the probe, adds to a call"),
    _entry("cold-start", "001", 240, 900, "N callers of a server that is not running: single-flight, naive, warm"),
    _entry("multi-server", "001", 120, 600, "one call to each of several servers: max, not sum"),
    _entry("mixed-latency", "001", 120, 600, "quick calls beside slow ones: order, caps, a tool that blocks"),
    _entry("pipeline", "001", 90, 300, "three stages of parallel calls: the critical path"),
    _entry("op-latency", "002", 300, 600, "every operation of a stdio server, and in memory: what is transport"),
    _entry("op-latency-http", "002", 400, 900, "the same operations over streamable HTTP, SSE and JSON answers"),
    _entry("session-reuse", "004", 300, 600, "a session, or a process, per call against one that is kept"),
    _entry("cpu-models", "003", 300, 1200, "CPU-bound work: sync, await, gather, threads; a fresh process each"),
    _entry("cpu-tools", "000 003", 200, 600, "CPU-bound MCP tools, async and in threads"),
    _entry("io-models", "003", 500, 1800, "HTTP fetches: sync, asyncio, threads, hybrids; at equal concurrency"),
    _entry("http-client", "004", 400, 1200, "client patterns: a client per request, shared, limits"),
    _entry("http-sweep", "004", 600, 1800, "concurrency against pool limits: the knee"),
    _entry("result-size", TODAY, 300, 900, "results of 1 kB to 100 MB: bytes, memory, encoding, and who waits for it"),
    _entry("event-loops", TODAY, 300, 600, "asyncio and uvloop under the same server, over stdio and HTTP"),
    _entry("stateless", TODAY, 300, 600, "streamable HTTP with a session, without, and with one for every call"),
    _entry("many-clients", TODAY, 300, 600, "many clients at once, with a session each and with one for all"),
    _entry("notifications", TODAY, 300, 600, "progress and log notifications of a call, none to a thousand"),
    _entry(
        "round-trips", TODAY, 300, 600, "questions to the client within a call: sampling, elicitation, a second request"
    ),
    _entry("workers", TODAY, 400, 600, "uvicorn with 1, 2 and 4 workers: computing, and what becomes of sessions"),
    _entry("sdks", TODAY, 400, 600, "the same tools with mcp 1 and 2 and fastmcp 2, 3 and 4"),
    _entry(PYTHONS, TODAY, 500, 1200, "the same tools with CPython 3.11, 3.12, 3.13 and 3.14"),
    _entry(
        "resumption", TODAY, 300, 600, "a call whose connection breaks, read on from another; what keeping events costs"
    ),
    _entry("tls", TODAY, 300, 600, "plain HTTP/1.1, TLS with HTTP/1.1, and TLS with real HTTP/2"),
)

QUESTIONS = tuple(workload for workload in WORKLOADS if TODAY in workload.documents)
"""Comparisons that no document makes and that are asked for today."""


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
