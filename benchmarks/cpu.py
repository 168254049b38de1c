"""CPU of a server and how much it answers, at 1 to 1,000 calls in flight: bare, the SDK's span, the probe each way.

The CPU is that of all threads of the server's process, read from outside; of `mcp-probe run` also that of its parent.
The arms are processes that take turns. Ratios are taken within a cycle, to the mean of both bare ones. ``--quick``
takes some three minutes and only prints; without it the run takes some fifteen, writes
``benchmarks/results/cpu-<python>.json`` and puts its table into ``docs/performance.md``. Linux only.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.cpu_tables import ARMS, FORMAT, Block, console_text
from benchmarks.driving import command
from benchmarks.lean_clients import LIMIT_S, HttpClient, LeanClient, StdioClient
from benchmarks.machine import ForeignLoad, cpu_ns, describe_machine, python_tag
from benchmarks.page import RESULTS, write_page
from mcp_probe.workloads.bench.statistics import turn_order

TRANSPORTS = ("stdio", "http")
IN_FLIGHT = (1, 32, 100, 1_000)
DESCRIPTORS = 16_384
"""A thousand connections of each arm, and some."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How much to measure at each number of calls in flight. A burst ends after ``calls`` calls or ``burst_s``."""

    generations: int = 2  # of processes
    cycles: int = 3
    rounds: int = 2  # of bursts in a cycle
    calls: int = 1_500
    burst_s: float = 0.5
    warm_up: int = 300
    warm_up_s: float = 2.0
    settle_s: float = 2.1  # longer than the collector sleeps: what it has to do for a cycle is charged to the cycle
    idle_s: float = 2.1


QUICK = Plan(generations=1, cycles=2, rounds=1, calls=600, burst_s=0.5, warm_up=100, warm_up_s=0.5, idle_s=1.0)
SMOKE = Plan(1, 1, 1, calls=10, burst_s=5.0, warm_up=5, warm_up_s=5.0, settle_s=0.02, idle_s=0.02)


class Server:
    """A running arm. ``pids``: the server's process, then that of `mcp-probe run` where there is one."""

    def __init__(self, client: LeanClient, process: subprocess.Popen[bytes]) -> None:
        self.client = client
        self._process = process
        client.burst(1, 1, LIMIT_S)
        serving = int(client.ask("describe")["pid"])
        self.pids = (serving,) if serving == process.pid else (serving, process.pid)

    def cpu_ns(self) -> list[int]:
        """So far, of each process."""
        return [cpu_ns(pid) for pid in self.pids]

    def reported_share(self) -> float | None:
        """The overhead that the probe reports of itself; ``None`` where there is none, or it reports at its end."""
        share: float | None = self.client.ask("describe").get("overhead_share")
        return share


@contextmanager
def started(transport: str, arms: Sequence[str], folder: Path) -> Iterator[dict[str, Server]]:
    """All arms, which start side by side."""
    with ExitStack() as stack:
        processes = [stack.enter_context(_process(transport, arm, folder)) for arm in arms]
        servers = {}
        for arm, (process, port) in zip(arms, processes, strict=True):
            client = StdioClient(process) if port is None else HttpClient(port)
            stack.callback(client.close)
            servers[arm] = Server(client, process)
        yield servers


@contextmanager
def _process(transport: str, arm: str, folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], int | None]]:
    """(process, its port)"""
    variant, is_run = ARMS[arm].variant, ARMS[arm].is_run
    prefix = [sys.executable, "-m", "mcp_probe", "run", "--output", os.devnull, "--json", str(report_of(folder)), "--"]
    before = prefix if is_run else []
    if transport == "stdio":
        program = [*before, *command("stdio", variant)]
        process = subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        port = None
    else:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen(1_024)
            descriptor, port = listener.fileno(), listener.getsockname()[1]
            program = [*before, *command("http", variant, "--descriptor", str(descriptor))]
            process = subprocess.Popen(program, pass_fds=[descriptor])
    try:
        yield process, port
    finally:
        if transport == "http":
            process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()


def report_of(folder: Path) -> Path:
    """Where `mcp-probe run` puts its summary."""
    return folder / "run.json"


def measure_level(transport: str, in_flight: int, plan: Plan) -> tuple[list[Block], dict[str, list[float]]]:
    """All blocks of one number of calls in flight, and by arm the shares that the probe reported of itself."""
    blocks: list[Block] = []
    reported: dict[str, list[float]] = {}
    for generation in range(plan.generations):
        with tempfile.TemporaryDirectory(prefix="bench-cpu-") as made:
            folder = Path(made)
            with started(transport, tuple(ARMS), folder) as servers:
                for server in servers.values():
                    server.client.burst(in_flight, plan.warm_up, plan.warm_up_s)
                time.sleep(plan.settle_s)
                idle = _idle_ns_per_s(servers, plan.idle_s)
                for cycle in range(plan.cycles):
                    blocks += _cycle((transport, in_flight), (generation, cycle), servers, plan, idle)
                for arm, server in servers.items():
                    if (share := server.reported_share()) is not None:
                        reported.setdefault(arm, []).append(share)
            share = json.loads(report_of(folder).read_text("utf-8"))["probe"]["overhead_share"]
            if share is not None:
                reported.setdefault("run", []).append(share)
    return blocks, reported


def _idle_ns_per_s(servers: Mapping[str, Server], seconds: float) -> dict[str, list[float]]:
    """CPU of each process while nobody calls."""
    before, began = {arm: server.cpu_ns() for arm, server in servers.items()}, time.monotonic()
    time.sleep(seconds)
    passed = time.monotonic() - began
    return {arm: [ns / passed for ns in _since(before[arm], server)] for arm, server in servers.items()}


def _since(before: Sequence[int], server: Server) -> list[int]:
    return [now - then for now, then in zip(server.cpu_ns(), before, strict=True)]


def _cycle(
    row: tuple[str, int],
    place: tuple[int, int],
    servers: Mapping[str, Server],
    plan: Plan,
    idle: dict[str, list[float]],
) -> list[Block]:
    """A block of each arm, in bursts that take turns. Each process's CPU while it is idle is taken off."""
    load = ForeignLoad([pid for server in servers.values() for pid in server.pids])
    answers, took = dict.fromkeys(servers, 0), dict.fromkeys(servers, 0.0)
    before, began = {arm: server.cpu_ns() for arm, server in servers.items()}, time.monotonic()
    for turn in range(plan.rounds):
        for arm in turn_order(list(servers), turn + place[0] * plan.cycles * plan.rounds + place[1] * plan.rounds):
            burst = servers[arm].client.burst(row[1], plan.calls, plan.burst_s)
            answers[arm] += burst.answers
            took[arm] += burst.took_s
    time.sleep(plan.settle_s)
    passed, foreign = time.monotonic() - began, load.cores()
    blocks = []
    for arm, server in servers.items():
        spent = [ns - rest * passed for ns, rest in zip(_since(before[arm], server), idle[arm], strict=True)]
        served, parent = (ns / answers[arm] / 1e3 for ns in (*spent, 0.0)[:2])
        rate = answers[arm] / took[arm]
        blocks.append(
            Block(
                *row, arm, *place, answers[arm], round(rate, 2), round(served, 2), round(parent, 2), round(foreign, 3)
            )
        )
    return blocks


def measure(plan: Plan, transports: Sequence[str], levels: Sequence[int]) -> dict[str, Any]:
    """Everything, as the document that is kept."""
    machine = describe_machine()
    blocks: list[Block] = []
    reported = []
    for transport in transports:
        for in_flight in levels:
            began = time.monotonic()
            found, shares = measure_level(transport, in_flight, plan)
            blocks += found
            reported.append({"transport": transport, "in_flight": in_flight, "shares": shares})
            print(f"{transport}, {in_flight} in flight: {time.monotonic() - began:.0f} s", file=sys.stderr)
    return {
        "format": FORMAT,
        "machine": machine,
        "plan": asdict(plan),
        "reported": reported,
        "blocks": [asdict(block) for block in blocks],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="some three minutes; prints only")
    parser.add_argument("--smoke", action="store_true", help="ten calls each, for tests: its figures mean nothing")
    parser.add_argument("--transport", action="append", choices=TRANSPORTS, help="only this one (repeatable)")
    parser.add_argument("--in-flight", action="append", type=int, help="only so many calls in flight (repeatable)")
    parser.add_argument("--output", type=Path, help="write the results here instead")
    parser.add_argument("--show", type=Path, help="only print the results in this file")
    arguments = parser.parse_args()
    if arguments.show:
        print(console_text(json.loads(arguments.show.read_text("utf-8"))))
        return
    for name in [name for name in os.environ if name.startswith("MCP_PROBE_")]:
        del os.environ[name]
    allow_descriptors()
    plan = SMOKE if arguments.smoke else QUICK if arguments.quick else Plan()
    found = measure(plan, arguments.transport or TRANSPORTS, arguments.in_flight or IN_FLIGHT)
    print(console_text(found))
    whole = not (arguments.smoke or arguments.quick or arguments.transport or arguments.in_flight)
    target = arguments.output or (RESULTS / f"cpu-{python_tag()}.json" if whole else None)
    if target is not None:
        target.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", "utf-8")
    if whole and arguments.output is None:
        write_page()


def allow_descriptors() -> None:
    """This process and those that it starts may open as many as the system lets them."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS if most == resource.RLIM_INFINITY else min(DESCRIPTORS, most)
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


if __name__ == "__main__":
    main()
