"""What the probe costs a server with many requests in flight: stdio, a tool that waits for a place (gated_server.py).

Each variant is a process of its own, all connected at once; in each cycle they take turns, and the order turns, too.
``--against TREE`` measures the probe of another checkout beside this one's. ``--quick`` takes a minute. Linux only.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import anyio
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from benchmarks.tables import markdown_table

ROOT = Path(__file__).resolve().parent.parent
SERVER = Path(__file__).with_name("gated_server.py")
IN_FLIGHT = (8, 64)
LEAD_IN_S = 0.3
REST_S = 1.0
"""After a burst: what the collector still does is the burst's."""
SHOWN = {
    "bare": "bare",
    "bare again": "bare again (the floor)",
    "attached": "`mcp_probe.attach`",
    "run": "`mcp-probe run`",
    "record": "**`mcp-probe run`, recording**",
}


@dataclass(frozen=True)
class Variant:
    """One way to run the server; ``tree`` is the checkout that the probe comes from."""

    name: str
    tree: Path = ROOT

    @property
    def shown(self) -> str:
        """For a table."""
        return SHOWN[self.name] if self.tree == ROOT else f"{SHOWN[self.name]}, the other tree"

    def command(self, folder: str) -> StdioServerParameters:
        """How it is started."""
        program = [sys.executable, str(SERVER)]
        if self.name in ("run", "record"):
            files = ["--output", f"{folder}/{id(self)}.txt"]
            files += ["--record", f"{folder}/{id(self)}.jsonl"] if self.name == "record" else []
            program = [sys.executable, "-m", "mcp_probe", "run", *files, "--", *program]
        elif self.name == "attached":
            program.append("--attach")
        environment = {**os.environ, "PYTHONPATH": str(self.tree)}
        return StdioServerParameters(command=program[0], args=program[1:], env=environment, cwd=self.tree)


@dataclass(frozen=True)
class Burst:
    """One variant's figures in one cycle; CPU in microseconds for each answer."""

    answers: int
    per_s: float
    p50_ms: float
    cpu_us: dict[str, float] = field(default_factory=dict)


class Served:
    """A server with a client."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def burst(self, in_flight: int, seconds: float) -> Burst:
        """Keep so many calls in flight for so long."""
        await self._calls(in_flight, LEAD_IN_S)
        described = await self.described()
        before = self._cpu(described)
        began = time.perf_counter()
        taken = await self._calls(in_flight, seconds)
        took = time.perf_counter() - began
        await anyio.sleep(REST_S)
        after = self._cpu(described)
        cpu = {name: (after[name] - before[name]) / len(taken) / 1e3 for name in after}
        return Burst(len(taken), len(taken) / took, statistics.median(taken) * 1e3, cpu)

    async def described(self) -> dict[str, Any]:
        """Its process, and the threads in it that are not the probe's."""
        result: Any = await self._client.call_tool("describe", {})
        found: dict[str, Any] = json.loads(result.content[0].text)
        return found

    async def _calls(self, in_flight: int, seconds: float) -> list[float]:
        until = time.perf_counter() + seconds
        taken: list[float] = []

        async def calls() -> None:
            while (began := time.perf_counter()) < until:
                result = await self._client.call_tool("work", {})
                assert not result.is_error
                taken.append(time.perf_counter() - began)

        async with anyio.create_task_group() as group:
            for _ in range(in_flight):
                group.start_soon(calls)
        return taken

    @staticmethod
    def _cpu(described: dict[str, Any]) -> dict[str, int]:
        """Nanoseconds so far, by whose threads."""
        pid, parent = described["pid"], described["parent"]
        threads = _threads_cpu_ns(pid)
        known = {number: ns for number, ns in threads.items() if number in described["threads"]}
        return {
            "loop": threads[pid],
            "worker threads": sum(known.values()) - threads[pid],
            "the probe's threads": sum(threads.values()) - sum(known.values()),
            "`mcp-probe run`": 0 if parent == os.getpid() else sum(_threads_cpu_ns(parent).values()),
        }


def _threads_cpu_ns(pid: int) -> dict[int, int]:
    """Source: Documentation/scheduler/sched-stats.rst, ``/proc/<pid>/schedstat``."""
    found = {}
    for thread in Path(f"/proc/{pid}/task").iterdir():
        try:
            found[int(thread.name)] = int((thread / "schedstat").read_text().split()[0])
        except OSError:  # it has just ended
            continue
    return found


@asynccontextmanager
async def served(variant: Variant, folder: str) -> AsyncIterator[Served]:
    """A process of this variant."""
    async with Client(stdio_client(variant.command(folder)), cache=None) as client:
        yield Served(client)


async def measure(variants: list[Variant], cycles: int, seconds: float) -> dict[int, dict[Variant, list[Burst]]]:
    """By calls in flight."""
    found: dict[int, dict[Variant, list[Burst]]] = {number: {one: [] for one in variants} for number in IN_FLIGHT}
    with tempfile.TemporaryDirectory(prefix="in-flight-") as folder:
        async with AsyncExitStack() as stack:
            servers = {one: await stack.enter_async_context(served(one, folder)) for one in variants}
            for cycle in range(cycles):
                first = cycle % len(variants)
                for number in IN_FLIGHT:
                    for one in variants[first:] + variants[:first]:
                        found[number][one].append(await servers[one].burst(number, seconds))
    return found


def text_of(found: dict[int, dict[Variant, list[Burst]]]) -> str:
    """For a terminal, and for the page: medians over cycles, and the range of the rate."""
    whose = list(next(iter(next(iter(found.values())).values()))[0].cpu_us)
    rows = []
    for number, variants in found.items():
        for variant, bursts in variants.items():
            rates = [burst.per_s for burst in bursts]
            cpu = [f"{statistics.median(burst.cpu_us[name] for burst in bursts):,.0f}" for name in whose]
            rate = f"{statistics.median(rates):,.0f} ({min(rates):,.0f} … {max(rates):,.0f})"
            rows.append([f"{number}: {variant.shown}", rate, f"{_median_ms(bursts):,.0f}", *cpu])
    return markdown_table(["in flight", "answers/s", "p50 ms", *(f"CPU µs: {name}" for name in whose)], rows)


def _median_ms(bursts: Iterable[Burst]) -> float:
    return statistics.median(burst.p50_ms for burst in bursts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cycles", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=3.0, help="of one burst")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument(
        "--against", type=Path, metavar="TREE", help="a checkout whose probe is measured beside this one"
    )
    arguments = parser.parse_args()
    variants = [Variant(name) for name in SHOWN]
    if arguments.against is not None:
        variants += [Variant(name, arguments.against.resolve()) for name in ("attached", "record")]
    cycles, seconds = (1, 1.0) if arguments.quick else (arguments.cycles, arguments.seconds)
    print(text_of(anyio.run(measure, variants, cycles, seconds)))


if __name__ == "__main__":
    main()
