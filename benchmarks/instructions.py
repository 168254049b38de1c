"""Instructions a call, by thread: bare, the SDK's span, the probe and both, on three transports, and part by part.

They do not depend on how busy the machine is. Valgrind's callgrind counts them (benchmarks/callgrind.py). Without
options all of it is counted twice, in some thirty minutes, written to ``benchmarks/results/instructions-<python>.json``
and put into ``docs/performance.md``. ``--check`` counts what a guard needs, and fails where it has grown. Linux only.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import anyio
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from benchmarks import callgrind
from benchmarks.driving import ARGUMENTS
from benchmarks.instruction_tables import FORMAT, GUARDED, PARTS, console_text, judge
from benchmarks.lean_clients import HttpClient
from benchmarks.machine import cpu_ns, describe_machine, python_tag
from benchmarks.orders import Ordered
from benchmarks.page import RESULTS, write_page

SERVER = Path(__file__).with_name("counted_server.py")
ARMS = ("bare", "span", "probe", "span and probe")
TRANSPORTS = ("stdio", "http", "memory")
RUNGS = {"stdio": PARTS}
START_LIMIT_S = 300.0
REST_S, RESTS = 0.002, 3
"""A server is at rest after so many looks in a row, with so long a pause before each."""
PACKAGES = ("mcp", "anyio", "pydantic")


@dataclass(frozen=True, slots=True)
class Plan:
    """How much to count, in each process: after ``warm_up`` calls a block of ``calls``, and one of twice as many."""

    warm_up: int = 60
    calls: int = 80
    processes: int = 2


Counts = dict[str, float]
"""Instructions a call, by thread."""
Settle = Callable[[int], Awaitable[dict[int, str]]]
"""Make so many calls, have the counters written, and return the names of the server's threads by native id."""


async def count(transport: str, arm: str, plan: Plan) -> Counts:
    """Instructions a call, of one process."""
    with tempfile.TemporaryDirectory(prefix="instructions-") as made:
        folder = Path(made)
        program = [sys.executable, str(SERVER), transport, "--arm", arm]
        command = callgrind.command_of(program, folder)
        names: dict[int, str] = {}
        async with SUBJECTS[transport](command, callgrind.environment(callgrind.build_clock(folder))) as settle:
            for calls in (plan.warm_up, plan.calls, 2 * plan.calls):
                names = await settle(calls)
        dumps, natives = callgrind.dumps_in(folder), callgrind.threads_in((folder / "log").read_text("utf-8"))
        # The first dump is of the warm-up. It holds nothing, for nothing was counted yet.
        _, short, long = (callgrind.by_name(dumps[number], natives, names) for number in sorted(dumps))
        return callgrind.per_call(short, long, plan.calls)


@asynccontextmanager
async def stdio_subject(command: list[str], environment: dict[str, str]) -> AsyncIterator[Settle]:
    """A server behind pipes and the SDK's client."""
    parameters = StdioServerParameters(command=command[0], args=command[1:], env=environment)
    async with Client(stdio_client(parameters), cache=None) as client:

        async def ask(tool: str) -> dict[str, Any]:
            result: Any = await client.call_tool(tool, {})
            told: dict[str, Any] = json.loads(result.content[0].text)
            return told

        await client.list_tools()
        yield await _settling(lambda: client.call_tool("add", ARGUMENTS), ask)


@asynccontextmanager
async def http_subject(command: list[str], environment: dict[str, str]) -> AsyncIterator[Settle]:
    """A server behind streamable HTTP, and a client that sends a request at once: two parts may cost a poll more."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        descriptor, port = listener.fileno(), listener.getsockname()[1]
        process = subprocess.Popen([*command, "--descriptor", str(descriptor)], pass_fds=[descriptor], env=environment)
    try:
        client = HttpClient(port)

        async def call() -> None:
            client.burst(1, 1, START_LIMIT_S)

        async def ask(tool: str) -> dict[str, Any]:
            return client.ask(tool)

        yield await _settling(call, ask)
        client.close()
    finally:
        process.kill()
        process.wait()


async def _settling(call: Callable[[], Awaitable[object]], ask: Callable[[str], Awaitable[dict[str, Any]]]) -> Settle:
    """Of a server in another process: ``call`` makes one call, ``ask`` calls a tool that answers with JSON."""

    async def settle(calls: int) -> dict[int, str]:
        for _ in range(calls):
            await at_rest(pid)
            await call()
        await at_rest(pid)
        return _names(await ask("settle"))

    pid = (await ask("prepare"))["pid"]
    return settle


def _names(settled: dict[str, Any]) -> dict[int, str]:
    return {int(native): name for native, name in settled["threads"].items()}


async def at_rest(pid: int) -> None:
    """Until all threads of the server sleep: a call that comes while the last one is being tidied up saves a poll."""
    rests, spent = 0, -1
    while rests < RESTS:
        await anyio.sleep(REST_S)
        before, spent = spent, cpu_ns(pid)
        rests = rests + 1 if spent == before and _sleeps(pid) else 0


def _sleeps(pid: int) -> bool:
    """Source: proc_pid_stat(5), field 3."""
    stats = (file.read_bytes() for file in Path(f"/proc/{pid}/task").glob("*/stat"))
    return all(stat.rpartition(b") ")[2].startswith(b"S") for stat in stats)


@asynccontextmanager
async def memory_subject(command: list[str], environment: dict[str, str]) -> AsyncIterator[Settle]:
    """Client and server in one process."""
    ordered = Ordered(command, environment)

    async def settle(calls: int) -> dict[int, str]:
        return _names(ordered.ask(calls=calls))

    with ordered.process:
        try:
            yield settle
        finally:
            ordered.process.kill()


SUBJECTS = {"stdio": stdio_subject, "http": http_subject, "memory": memory_subject}


def identity() -> dict[str, Any]:
    """The build that counts belong to: others' counts cannot be compared with them."""
    return {
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "compiler": platform.python_compiler(),
        "processor": platform.machine(),
        "optimized": "--enable-optimizations" in (sysconfig.get_config_var("CONFIG_ARGS") or ""),
        "libc": "-".join(platform.libc_ver()),
        "packages": {name: version(name) for name in PACKAGES},
    }


def measure(
    plan: Plan, cells: Sequence[tuple[str, str]], keep: Callable[[dict[str, Any]], object] = lambda document: None
) -> dict[str, Any]:
    """All cells, process after process, so that those of a cell are far apart in time; ``keep`` gets what there is."""
    counted: dict[str, dict[str, list[Counts]]] = {}
    document = {
        "format": FORMAT,
        "machine": describe_machine(),
        "identity": identity(),
        "valgrind": _valgrind_version(),
        "plan": asdict(plan),
        "counted": counted,
    }
    for process in range(plan.processes):
        for transport, arm in cells:
            began = time.monotonic()
            found = anyio.run(count, transport, arm, plan)
            counted.setdefault(transport, {}).setdefault(arm, []).append(found)
            took = f"{time.monotonic() - began:.0f} s"
            print(
                f"{process + 1}/{plan.processes} {transport}, {arm}: {found['MainThread']:,.0f} in {took}",
                file=sys.stderr,
            )
            keep(document)
    return document


def _valgrind_version() -> str:
    told = subprocess.run(["valgrind", "--version"], capture_output=True, text=True, check=True).stdout
    return re.sub(r"^valgrind-", "", told.strip())


def cells_of(transports: Sequence[str], arms: Sequence[str]) -> list[tuple[str, str]]:
    """(transport, arm), with the parts where they are counted."""
    return [(one, arm) for one in transports for arm in (*arms, *(RUNGS.get(one, ()) if arms == ARMS else ()))]


def check() -> int:
    """The guard: 1 where a call over stdio has grown, 0 where it has not, or cannot be compared.

    On a crowded machine one process in many is a poll a call off: a growth counts where new processes confirm it.
    """
    file = RESULTS / f"instructions-{python_tag()}.json"
    if not file.exists():
        return _left_out(f"no counts are committed for Python {python_tag()}")
    committed = json.loads(file.read_text("utf-8"))
    differs = [name for name, value in identity().items() if committed["identity"].get(name) != value]
    if differs:
        return _left_out(f"the committed counts are of another build: {', '.join(differs)}")
    for _ in range(2):
        judgement = judge(committed, measure(Plan(processes=1), [("stdio", arm) for arm in GUARDED]))
        print(judgement.sentence, flush=True)
        if not judgement.has_grown:
            return 0
    return 1


def _left_out(reason: str) -> int:
    print(f"instructions: left out, {reason}")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--check", action="store_true", help="only bare and probe over stdio, against what is committed"
    )
    parser.add_argument("--transport", action="append", choices=TRANSPORTS, help="only this one (repeatable)")
    parser.add_argument("--arm", action="append", help="only this arm or part (repeatable)")
    parser.add_argument("--processes", type=int, default=Plan().processes, help="of each cell")
    parser.add_argument("--output", type=Path, help="write the counts here instead")
    parser.add_argument("--show", type=Path, help="only print the counts in this file")
    arguments = parser.parse_args()
    if arguments.show:
        print(console_text(json.loads(arguments.show.read_text("utf-8"))))
        return 0
    reason = callgrind.missing()
    if reason is not None:
        return _left_out(reason)
    if arguments.check:
        return check()
    cells = cells_of(arguments.transport or TRANSPORTS, arguments.arm or ARMS)
    whole = not (arguments.transport or arguments.arm)
    target = arguments.output or (RESULTS / f"instructions-{python_tag()}.json" if whole else None)

    def keep(document: dict[str, Any]) -> None:
        if target is not None:
            target.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", "utf-8")

    print(console_text(measure(Plan(processes=arguments.processes), cells, keep)))
    if whole and arguments.output is None:
        write_page()
    return 0


if __name__ == "__main__":
    sys.exit(main())
