"""Comparisons that no document makes and that are asked for today. Importing this needs the standard library only."""

from __future__ import annotations

from mcp_probe.workloads.bench.shapes import Workload

TODAY = "now"
"""Stands where the others have the number of their document: in tables (``now results``) and claims (``now-3``)."""

PYTHONS = "pythons"
"""The workload that other interpreters can be given to."""

TITLE = "Questions of today: comparisons that no document makes"

_SCENARIOS = "mcp_probe.workloads.scenarios"

QUESTIONS: tuple[Workload, ...] = (
    Workload(
        "result-size",
        (TODAY,),
        "results of 1 kB to 100 MB: bytes, memory, encoding, and who waits for it",
        f"{_SCENARIOS}.result_size:run",
        300,
        900,
    ),
    Workload(
        "event-loops",
        (TODAY,),
        "asyncio and uvloop under the same server, over stdio and HTTP",
        f"{_SCENARIOS}.event_loops:run",
        300,
        600,
    ),
    Workload(
        "stateless",
        (TODAY,),
        "streamable HTTP with a session, without, and with one for every call",
        f"{_SCENARIOS}.stateless:run",
        300,
        600,
    ),
    Workload(
        "many-clients",
        (TODAY,),
        "many clients at once, with a session each and with one for all",
        f"{_SCENARIOS}.many_clients:run",
        300,
        600,
    ),
    Workload(
        "notifications",
        (TODAY,),
        "progress and log notifications of a call, none to a thousand",
        f"{_SCENARIOS}.notifications:run",
        300,
        600,
    ),
    Workload(
        "round-trips",
        (TODAY,),
        "questions to the client within a call: sampling, elicitation, a second request",
        f"{_SCENARIOS}.round_trips:run",
        300,
        600,
    ),
    Workload(
        "workers",
        (TODAY,),
        "uvicorn with 1, 2 and 4 workers: computing, and what becomes of sessions",
        f"{_SCENARIOS}.workers:run",
        400,
        600,
    ),
    Workload(
        "sdks",
        (TODAY,),
        "the same tools with mcp 1 and 2 and fastmcp 2, 3 and 4",
        f"{_SCENARIOS}.sdks:run",
        400,
        600,
    ),
    Workload(
        PYTHONS,
        (TODAY,),
        "the same tools with CPython 3.11, 3.12, 3.13 and 3.14",
        f"{_SCENARIOS}.pythons:run",
        500,
        1200,
    ),
    Workload(
        "resumption",
        (TODAY,),
        "a call whose connection breaks, read on from another; what keeping events costs",
        f"{_SCENARIOS}.resumption:run",
        300,
        600,
    ),
    Workload(
        "tls",
        (TODAY,),
        "plain HTTP/1.1, TLS with HTTP/1.1, and TLS with real HTTP/2",
        f"{_SCENARIOS}.tls:run",
        300,
        600,
    ),
)
