"""Comparisons that no document makes and that are asked for today. Importing this needs the standard library only."""

from __future__ import annotations

from mcp_probe.workloads.bench.shapes import Workload

TODAY = "now"
"""Stands where the others have the number of their document: in tables (``now results``) and claims (``now-3``)."""

PYTHONS = "pythons"
"""The workload that other interpreters can be given to."""

TITLE = "Questions of today: comparisons that no document makes"


def scenario(name: str, about: str, *documents: str, limits_s: tuple[float, float]) -> Workload:
    """An entry for the module of this name in ``workloads/scenarios``; ``limits_s`` bound a quick and a full run."""
    place = f"mcp_probe.workloads.scenarios.{name.replace('-', '_')}:run"
    return Workload(name, documents, about, place, *limits_s)


QUESTIONS: tuple[Workload, ...] = (
    scenario(
        "result-size",
        "results of 1 kB to 100 MB: bytes, memory, encoding, and who waits for it",
        TODAY,
        limits_s=(300, 900),
    ),
    scenario(
        "event-loops", "asyncio and uvloop under the same server, over stdio and HTTP", TODAY, limits_s=(300, 600)
    ),
    scenario(
        "stateless", "streamable HTTP with a session, without, and with one for every call", TODAY, limits_s=(300, 600)
    ),
    scenario(
        "many-clients", "many clients at once, with a session each and with one for all", TODAY, limits_s=(300, 600)
    ),
    scenario(
        "notifications", "progress and log notifications of a call, none to a thousand", TODAY, limits_s=(300, 600)
    ),
    scenario(
        "round-trips",
        "questions to the client within a call: sampling, elicitation, a second request",
        TODAY,
        limits_s=(300, 600),
    ),
    scenario(
        "workers",
        "uvicorn with 1, 2 and 4 workers: computing, and what becomes of sessions",
        TODAY,
        limits_s=(400, 600),
    ),
    scenario("sdks", "the same tools with mcp 1 and 2 and fastmcp 2, 3 and 4", TODAY, limits_s=(400, 600)),
    scenario(PYTHONS, "the same tools with CPython 3.11, 3.12, 3.13 and 3.14", TODAY, limits_s=(500, 1200)),
    scenario(
        "resumption",
        "a call whose connection breaks, read on from another; what keeping events costs",
        TODAY,
        limits_s=(300, 600),
    ),
    scenario("tls", "plain HTTP/1.1, TLS with HTTP/1.1, and TLS with real HTTP/2", TODAY, limits_s=(300, 600)),
)
