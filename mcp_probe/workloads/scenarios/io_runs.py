"""The runs of ``io-models``: what each is, and how one is measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mcp_probe.workloads.bench.context import Bench
from mcp_probe.workloads.models.model_process import ModelRun, run_model
from mcp_probe.workloads.servers.delay_http import DelayServer, Seen

MODULE = "mcp_probe.workloads.models.io"
FD_LIMIT_DOCUMENTED = 2048
WORKERS_NOTE = "100 coroutines instead of one for each of the URLs"


@dataclass(frozen=True, slots=True)
class Plan:
    """One run. ``documented`` is the key of its table in the document; empty for rows of conditions."""

    x: str
    model: str
    urls: int
    threads: int = 1
    limit: int = 1000
    delay_ms: float = 180.0
    documented: str = ""
    descriptors: int = 0  # 0: as many as the system allows
    together: bool = False
    note: str = ""

    @property
    def concurrency(self) -> int:
        """Requests it may have in flight."""
        if self.model == "sync":
            return 1
        return self.threads if self.model == "threads" else self.limit

    @property
    def ideal_s(self) -> float:
        """What waiting alone would take."""
        return self.urls / min(self.concurrency, self.urls) * self.delay_ms / 1000


@dataclass(frozen=True, slots=True)
class Found:
    """One run, what the server saw of it, and whether others used the machine meanwhile."""

    plan: Plan
    run: ModelRun
    server: Seen
    contended: bool

    @property
    def cpu_ms(self) -> float:
        """CPU per request, of the client."""
        return 1000 * self.run.cpu_seconds / self.plan.urls

    @property
    def reading(self) -> str:
        """What bound this very run, from its own CPU and the server's count."""
        cpu = self.run.cpu_percent
        return (
            f"The client's CPU was {cpu:.0f} % busy, {self.cpu_ms:.2f} ms a request, with at most "
            f"{self.server.in_flight_peak} requests in flight at the server."
        )

    @property
    def failures(self) -> int:
        return sum(self.run.said["failures"].values())


def plans(*, quick: bool) -> list[Plan]:
    """All runs, in order. A quick run has a sixteenth of the URLs and at most half of the threads and connections."""
    count, most = (600, 300) if quick else (10_000, 1_000)
    few, many, many_ms = (20, 60, 20.0) if quick else (100, 1_000, 20.0)
    few_ms = 20.0 if quick else 180.0
    note = f"{most} connections" if quick else ""
    many_threads = f"{most} threads" if quick else ""
    both = f"{most} threads and {note}" if quick else ""
    found = [
        _documented("sync 100", "sync", few, delay_ms=few_ms),
        _documented("sync", "sync", many, delay_ms=many_ms),
        _documented("asyncio", "gather", count, limit=most, note=note),
        _documented("100 threads", "threads", count, threads=100),
        _documented("1000 threads", "threads", count, threads=most, note=many_threads),
        _documented("hybrid 10", "hybrid", count, threads=10, limit=most, note=note),
        _documented("hybrid 100", "hybrid", count, threads=100, limit=most, note=note),
        _documented("hybrid 1000", "hybrid", count, threads=most, limit=most, note=both),
        Plan("asyncio, limit 100", "gather", count, limit=100, note="as many connections as the document's threads"),
        Plan("asyncio, 100 workers", "workers", count, limit=100, note=WORKERS_NOTE),
        *_descriptor_plans(most),
    ]
    if not quick:
        found.insert(3, _documented("asyncio 100000", "gather", 100_000))
        found.append(Plan("10 threads", "threads", 200, 10, note="run, but not shown"))
    return found


def _documented(x: str, model: str, urls: int, **more: Any) -> Plan:
    """A run whose table in the document has this name."""
    return Plan(x, model, urls, documented=x, **more)


def _descriptor_plans(threads: int) -> list[Plan]:
    """A loop in every thread, all of them made before any is used: with the document's limit, and with enough."""
    limited = FD_LIMIT_DOCUMENTED * threads // 1000
    plan = {"model": "hybrid", "urls": 2 * threads, "threads": threads, "limit": threads, "together": True}
    few = Plan(f"hybrid, {limited} files", descriptors=limited, note=f"{threads} loops at once", **plan)  # type: ignore[arg-type]
    enough = Plan("hybrid, files enough", note=f"{threads} loops at once", **plan)  # type: ignore[arg-type]
    return [few, enough]


def arguments(plan: Plan, url: str, libraries: tuple[str, str]) -> list[object]:
    library = libraries[0] if plan.model in ("sync", "threads") else libraries[1]
    fixed: list[object] = ["--model", plan.model, "--url", url, "--library", library, "--limit", plan.limit]
    sizes: list[object] = ["--urls", plan.urls, "--threads", plan.threads, "--descriptors", plan.descriptors]
    return [*fixed, *sizes, *(["--together"] if plan.together else [])]


async def measure(bench: Bench, plan: Plan, server: DelayServer, libraries: tuple[str, str]) -> Found:
    async def once() -> tuple[ModelRun, Seen]:
        server.seen()
        done = await run_model(MODULE, *arguments(plan, server.url, libraries))
        return done, server.seen()

    (done, seen), _, contended = await bench.quiet(once)
    return Found(plan, done, seen, contended)
