"""Document 004's client patterns: workers in a closed loop against one URL, in a process of its own.

Prints one line of JSON with a result per level asked for. Run as
``python -m mcp_probe.workloads.models.http_load --library httpx2 --url http://… --levels '[{"concurrency": 50}]'``.
With ``--record`` the same requests are made under a probe, with ``--profile`` under the interpreter's profiler:
both for an explanation and never for a time.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import importlib
import inspect
import json
import pstats
import ssl
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from typing import Any, Literal

from mcp_probe.workloads.bench.statistics import percentile
from mcp_probe.workloads.models.io import limit_descriptors, probed
from mcp_probe.workloads.servers.delay_http import counts

Pattern = Literal["per_request", "unverified", "one_context", "no_keepalive", "default", "limits", "http2", "raw"]
OWN_CLIENT: frozenset[Pattern] = frozenset({"per_request", "unverified", "one_context"})
TIMEOUTS = {"connect": 10.0, "read": 30.0, "write": 30.0, "pool": 30.0}
KEEPALIVE_EXPIRY_S = 30.0


@dataclass(frozen=True, slots=True)
class Level:
    """One level: how many workers, over what kind of client, for how long."""

    pattern: Pattern = "limits"
    concurrency: int = 50
    connections: int = 100
    keepalive: int = 50
    seconds: float = 0.5
    drain_s: float = 1.0  # what is unanswered then is cancelled


Once = Callable[[], Awaitable[tuple[str, int]]]
"""One request: its HTTP version, and how many nanoseconds of it were the request itself."""


def client_of(httpx: Any, level: Level, context: ssl.SSLContext | None) -> Any:
    """A client as the pattern wants it."""
    timeout = httpx.Timeout(**TIMEOUTS)
    if level.pattern in ("per_request", "default"):
        return httpx.AsyncClient(timeout=timeout)
    if level.pattern == "unverified":
        return httpx.AsyncClient(timeout=timeout, verify=False)
    if level.pattern == "one_context":
        return httpx.AsyncClient(timeout=timeout, verify=context)
    if level.pattern == "no_keepalive":
        return httpx.AsyncClient(timeout=timeout, limits=httpx.Limits(max_keepalive_connections=0))
    limits = httpx.Limits(
        max_connections=level.connections,
        max_keepalive_connections=level.keepalive,
        keepalive_expiry=KEEPALIVE_EXPIRY_S,
    )
    return httpx.AsyncClient(timeout=timeout, limits=limits, http2=level.pattern == "http2")


@asynccontextmanager
async def requests_of(httpx: Any, url: str, level: Level) -> AsyncIterator[Once]:
    """Yields what a worker does over and over."""
    if level.pattern in OWN_CLIENT:
        context = ssl.create_default_context()

        async def own() -> tuple[str, int]:
            async with client_of(httpx, level, context) as client:
                began = time.perf_counter_ns()
                response = await client.get(url)
                took = time.perf_counter_ns() - began
            response.raise_for_status()
            return response.http_version, took

        yield own
        return
    async with client_of(httpx, level, None) as client:

        async def shared() -> tuple[str, int]:
            began = time.perf_counter_ns()
            response = await client.get(url)
            response.raise_for_status()
            return response.http_version, time.perf_counter_ns() - began

        yield shared


@asynccontextmanager
async def raw_requests(url: str) -> AsyncIterator[Once]:
    """The least a client can do, a connection per worker: what the server is capable of."""
    host, _, port = url.split("/")[2].partition(":")
    request = f"GET /health HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()
    idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
    every: list[asyncio.StreamWriter] = []

    async def once() -> tuple[str, int]:
        began = time.perf_counter_ns()
        if idle:
            reader, writer = idle.pop()
        else:
            reader, writer = await asyncio.open_connection(host, int(port))
            every.append(writer)
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0])
        await reader.readexactly(length)
        idle.append((reader, writer))
        return head[:8].decode(), time.perf_counter_ns() - began

    yield once
    for writer in every:
        writer.close()


class Tally:
    """What the workers of one level did."""

    def __init__(self) -> None:
        self.latencies_ns: list[int] = []
        self.cycles_ns: list[int] = []  # with making and closing the client
        self.errors: Counter[str] = Counter()
        self.versions: Counter[str] = Counter()
        self.started = 0  # workers that came to send anything at all before the time was over

    async def work(self, once: Once, until_ns: int) -> None:
        """One worker."""
        self.started += time.perf_counter_ns() < until_ns
        while time.perf_counter_ns() < until_ns:
            began = time.perf_counter_ns()
            try:
                version, took_ns = await once()
            except Exception as exc:  # noqa: BLE001 - whatever a client raises is a failed request
                self.errors[type(exc).__name__] += 1
            else:
                self.latencies_ns.append(took_ns)
                self.cycles_ns.append(time.perf_counter_ns() - began)
                self.versions[version] += 1


async def measure(httpx: Any, url: str, level: Level, wrap: Callable[[str, Once], Once]) -> dict[str, Any]:
    """Runs one level; its total time includes the drain, as the document's does.

    The request that gets the library's late imports over with is in the server's counts, and in nothing else.
    """
    port = int(url.split("/")[2].partition(":")[2])
    counts(port)
    tally = Tally()
    opened = raw_requests(url) if level.pattern == "raw" else requests_of(httpx, url, level)
    async with opened as plain:
        await plain()  # the libraries import half of themselves with their first request
        once = wrap(level.pattern, plain)
        began_ns, cpu_ns = time.perf_counter_ns(), time.process_time_ns()
        until_ns = began_ns + round(level.seconds * 1e9)
        workers = [asyncio.create_task(tally.work(once, until_ns)) for _ in range(level.concurrency)]
        _, pending = await asyncio.wait(workers, timeout=level.seconds + level.drain_s)
        for worker in pending:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        seconds = (time.perf_counter_ns() - began_ns) / 1e9
        cpu_s = (time.process_time_ns() - cpu_ns) / 1e9
    return {**_result(tally, seconds, cpu_s, len(pending)), "server": asdict(counts(port))}


def _result(tally: Tally, seconds: float, cpu_s: float, cancelled: int) -> dict[str, Any]:
    ordered = sorted(one / 1e6 for one in tally.latencies_ns)
    count = len(ordered)
    figures = {name: percentile(ordered, share) for name, share in QUANTILES.items()} if ordered else {}
    return {
        "answered": count,
        "errors": dict(tally.errors),
        "cancelled": cancelled,
        "started": tally.started,
        "seconds": seconds,
        "cpu_seconds": cpu_s,
        "rps": count / seconds,
        "mean_ms": sum(ordered) / count if count else None,
        "max_ms": ordered[-1] if ordered else None,
        **figures,
        "cycle_mean_ms": sum(tally.cycles_ns) / count / 1e6 if count else None,
        "versions": sorted(tally.versions),
    }


QUANTILES = {"p50_ms": 0.5, "p95_ms": 0.95, "p99_ms": 0.99}


def construction_ms(httpx: Any, rounds: int) -> dict[str, float]:
    """Median time to make a client: as it comes, unverified, and with a TLS context that exists already."""
    context = ssl.create_default_context()
    found: dict[str, float] = {}
    for pattern in ("per_request", "unverified", "one_context"):
        taken = []
        for _ in range(rounds):
            began = time.perf_counter_ns()
            client_of(httpx, Level(pattern=pattern), context)
            taken.append((time.perf_counter_ns() - began) / 1e6)
        found[pattern] = percentile(sorted(taken), 0.5)
    return found


def default_limits(httpx: Any) -> dict[str, Any]:
    """What the library does when nobody says anything of limits."""
    limits = inspect.signature(httpx.AsyncClient.__init__).parameters["limits"].default
    return {
        name: getattr(limits, name) for name in ("max_connections", "max_keepalive_connections", "keepalive_expiry")
    }


def profiled_shares(run: Callable[[], object]) -> dict[str, float]:
    """Share of the profiled time inside (with what they call) the functions that this document's claims are about.

    By their own names in httpcore, httpcore2 and ssl; 0 for one that was not called. Time in the poll is left out.
    """
    profile = cProfile.Profile()
    profile.enable()
    try:
        run()
    finally:
        profile.disable()
    entries = pstats.Stats(profile).stats.items()  # type: ignore[attr-defined]
    idle = sum(row[2] for (_, _, name), row in entries if "poll" in name and "method" in name)
    total = sum(row[2] for _, row in entries) - idle
    named = {name: sum(row[3] for (_, _, called), row in entries if name in called) for name in PROFILED_FUNCTIONS}
    return {name: spent / total for name, spent in named.items()} if total > 0 else {}


PROFILED_FUNCTIONS = ("_assign_requests_to_connections", "load_verify_locations", "load_default_certs")


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs every level asked for, one after another."""
    parser = argparse.ArgumentParser(description="HTTP client patterns in a closed loop.")
    parser.add_argument("--library", required=True)
    parser.add_argument("--url", required=True)
    parser.add_argument("--levels", type=json.loads, default=[])
    parser.add_argument("--construct", type=int, default=0, help="time the making of this many clients of each kind")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--record")
    options = parser.parse_args(arguments)
    limit_descriptors(0)
    httpx = importlib.import_module(options.library)
    levels = [Level(**level) for level in options.levels]
    said: dict[str, Any] = {"version": httpx.__version__, "default_limits": default_limits(httpx)}
    if options.construct:
        said["construction_ms"] = construction_ms(httpx, options.construct)
    if options.profile:
        said["shares"] = [
            profiled_shares(lambda one=level: asyncio.run(measure(httpx, options.url, one, lambda name, once: once)))  # type: ignore[misc]
            for level in levels
        ]
    else:
        with probed(options.record, slow_step_ms=2.0) as wrap:  # a TLS context takes 5 to 20 ms
            said["levels"] = [asyncio.run(measure(httpx, options.url, level, wrap)) for level in levels]
    sys.stdout.write(json.dumps(said) + "\n")


if __name__ == "__main__":
    main()
