"""What `--record` costs on a saturated loop, and whether its counts are exact.

Each variant is a process that stays, and serves an in-memory client which sends its next burst as soon as the last is
answered, so the loop is never idle. The processes take turns of a second; between its turns one sleeps. A turn ends
when everything seen in it has been recorded, and that time counts, so no variant leaves work to the next one's turn.
A pause does not let a probe make more records than a loop gets that is always busy (`record/sampling.py`).
Ratios are taken within one cycle of turns; generations start the processes anew.

``bare`` runs twice: ``bare again`` beside ``bare`` is the floor. On a machine that others use, throughput says how much
of it a turn got; CPU time a call says what the server had to do. The tool computes for so long that a bare call takes
1/3000 s of CPU. Each recording must count what its client counted, to one. ``--quick`` takes a minute. Linux only.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.blocks import estimate
from mcp_probe.workloads.bench.statistics import turn_order

VARIANTS = ("bare", "bare again", "probe", "record", "full", "run", "run record", "run full")
"""``run`` ones: by ``mcp-probe run``, else by ``attach``. ``probe`` and ``run`` record nothing."""
BARE = ("bare", "bare again")
BURST = 16


# --- one server -----------------------------------------------------------------------------------


def serve(variant: str, work: int, recording: Path) -> None:
    """One process: for each line on stdin, so many seconds, it serves and prints what its client counted."""
    import anyio
    import mcp_types as types
    from mcp.shared.message import SessionMessage

    import mcp_probe
    from benchmarks.soak import LeanClient, make_server
    from benchmarks.subjects import served

    server = make_server()
    _let_compute(server, work)
    if variant in ("probe", "record", "full"):
        options = {} if variant == "probe" else {"record": str(recording), "full": variant == "full"}
        mcp_probe.attach(server, **options)
    params = {"name": "add", "arguments": {"a": 1, "b": 2}}
    call = SessionMessage(types.JSONRPCRequest(jsonrpc="2.0", id=1, method="tools/call", params=params))

    async def load() -> None:
        async with served(server) as near:
            await LeanClient(near).open()
            begin, catch_up = _of_collector()
            while line := await anyio.to_thread.run_sync(sys.stdin.readline):
                answered, seconds = 0, float(line)
                begin()
                began, cpu_s = time.perf_counter(), time.process_time()
                while time.perf_counter() - began < seconds:
                    for _ in range(BURST):
                        await near[1].send(call)
                    for _ in range(BURST):
                        await near[0].receive()
                        answered += 1
                catch_up()
                took, cpu_s = time.perf_counter() - began, time.process_time() - cpu_s
                print(json.dumps([answered, took, cpu_s]), flush=True)

    anyio.run(load)


def _of_collector() -> tuple[Callable[[], None], Callable[[], None]]:
    """(to be called before a turn, and at its end) where there is a probe.

    A pause lets a probe make more records than a loop gets that is always busy: what it may make is used up before.
    At the end it makes its records of all that it has seen.
    """
    if "mcp_probe.session" not in sys.modules:
        return lambda: None, lambda: None
    from mcp_probe.clock import now_ns
    from mcp_probe.record.sampling import RECORDS_A_DRAIN
    from mcp_probe.session import attached

    (probe,) = attached()

    def begin() -> None:
        for allowance in probe._collector._allowances.values():
            allowance.at(now_ns())
            allowance.take(RECORDS_A_DRAIN)

    return begin, probe._collector.catch_up


def _let_compute(server: Any, turns: int) -> None:
    """Before its tool answers, it computes for so many ``turns`` of a loop."""
    import mcp_types as types

    from benchmarks.soak import call_tool

    async def computing(ctx: Any, params: Any) -> Any:
        for _ in range(turns):
            pass
        return await call_tool(ctx, params)

    server.add_request_handler("tools/call", types.CallToolRequestParams, computing)


# --- turns ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Turn:
    """``cpu_us``: of all threads of its process, a call."""

    answered: int
    per_second: float
    cpu_us: float


@dataclass(frozen=True, slots=True)
class Counts:
    """Of one process in the end. ``counted``: calls in its recording or report; ``None``: it has neither."""

    answered: int
    counted: int | None
    records: int | None
    bytes: int


class Server:
    """One variant's process, from its start to its end."""

    def __init__(self, variant: str, work: int, folder: Path) -> None:
        folder.mkdir(parents=True)
        self._folder = folder
        self._recording, self._report = folder / "recording.jsonl", folder / "report.json"
        command = [sys.executable, __file__, "--serve", variant, "--work", str(work)]
        command += ["--recording", str(self._recording)]
        if variant.startswith("run"):
            given = [] if variant == "run" else ["--record", str(self._recording)]
            given += ["--full"] if "full" in variant else []
            command = [sys.executable, "-m", "mcp_probe", "run", "--json", str(self._report), *given, "--", *command]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self._answered = 0

    def turn(self, seconds: float) -> Turn:
        """Serves for so long. Raises: ValueError if the process has ended."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{seconds}\n")
        self._process.stdin.flush()
        answered, took, cpu_s = json.loads(self._process.stdout.readline())
        self._answered += answered
        return Turn(answered, answered / took, cpu_s / answered * 1e6)

    def end(self) -> Counts:
        """Ends the process as a client does, and reads what it left."""
        self._process.communicate()
        recording, report = self._recording, self._report
        if recording.exists():
            command = [sys.executable, "-m", "mcp_probe", "report", str(recording), "--json", str(report)]
            subprocess.run(command, check=True, capture_output=True)
        size = sum(path.stat().st_size for path in self._folder.glob("recording.jsonl*"))
        if not report.exists():
            return Counts(self._answered, None, None, size)
        found = json.loads(report.read_text())
        calls = sum(row["count"] for row in found["operations"] if row["name"] == "add")
        return Counts(self._answered, calls, found["requests"]["recorded"], size)

    def kill(self) -> None:
        """If it still runs."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()


Cycle = dict[str, Turn]


@contextmanager
def serving(names: Sequence[str], work: int, folder: Path) -> Iterator[dict[str, Server]]:
    """A process of each variant, warmed up."""
    with ExitStack() as stack:
        servers = {}
        for name in names:
            servers[name] = Server(name, work, folder / name.replace(" ", "-"))
            stack.callback(servers[name].kill)
        for server in servers.values():
            server.turn(0.3)
        yield servers


def generation(
    names: Sequence[str], cycles: int, seconds: float, work: int, folder: Path
) -> tuple[list[Cycle], dict[str, Counts]]:
    """(turns of each cycle, what was counted in the end)."""
    with serving(names, work, folder) as servers:
        taken = [{name: servers[name].turn(seconds) for name in turn_order(names, cycle)} for cycle in range(cycles)]
        return taken, {name: server.end() for name, server in servers.items()}


def calibrated(per_second: float, folder: Path) -> int:
    """Turns of the tool's loop with which a bare call takes 1/``per_second`` s of CPU."""
    with serving(["bare"], 0, folder / "without") as bare:
        least_us = min(bare["bare"].turn(0.5).cpu_us for _ in range(3))
    with serving(["bare"], 3_000, folder / "with") as bare:
        some_us = min(bare["bare"].turn(0.5).cpu_us for _ in range(3))
    return max(0, round(3_000 * (1e6 / per_second - least_us) / max(1.0, some_us - least_us)))


# --- figures --------------------------------------------------------------------------------------


def ratios(found: Sequence[Sequence[Cycle]], of: str, base: Sequence[str], figure: str) -> list[list[float]]:
    """``of`` beside the mean of ``base``, less one, in percent, of each cycle of each generation."""
    return [
        [
            100 * (getattr(cycle[of], figure) / mean(getattr(cycle[name], figure) for name in base) - 1)
            for cycle in cycles
        ]
        for cycles in found
    ]


def rows_of(found: Sequence[Sequence[Cycle]], counts: Sequence[dict[str, Counts]]) -> list[str]:
    """A line a variant: medians, and the change against bare within one cycle with its 95 % interval."""
    lines = [
        "| variant | a second | throughput, of bare | of the same without a recording | CPU us a call | CPU, of bare "
        "| counts |",
        "| --- | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    for name in found[0][0]:
        turns = [cycle[name] for cycles in found for cycle in cycles]
        base = BARE[:1] if name in BARE else BARE
        beside = "run" if name.startswith("run ") else "probe" if name in ("record", "full") else ""
        cells = [
            f"{median(turn.per_second for turn in turns):,.0f}",
            "" if name == "bare" else estimate(ratios(found, name, base, "per_second")).text(1, "%"),
            estimate(ratios(found, name, [beside], "per_second")).text(1, "%") if beside in found[0][0] else "",
            f"{median(turn.cpu_us for turn in turns):,.0f}",
            "" if name == "bare" else estimate(ratios(found, name, base, "cpu_us")).text(1, "%"),
            _counted([one[name] for one in counts]),
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def _counted(counts: Sequence[Counts]) -> str:
    off = [one.counted - one.answered for one in counts if one.counted is not None]
    said = [] if not off else ["exact"] if not any(off) else [f"off by {off}"]
    records = [one.records / one.answered for one in counts if one.records]
    said += [f"{median(records):.0%} have a record"] if records else []
    size = max(one.bytes / one.answered for one in counts)
    return ", ".join([*said, f"{size:,.0f} bytes a call"] if size else said)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--generations", type=int, default=3)
    parser.add_argument("--cycles", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=1.0, help="a turn")
    parser.add_argument("--per-second", type=float, default=3_000, help="of bare calls, with a CPU of its own")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", nargs="*", default=VARIANTS)
    parser.add_argument("--serve", metavar="VARIANT", help=argparse.SUPPRESS)
    parser.add_argument("--work", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--recording", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve(arguments.serve, arguments.work, arguments.recording)
        return 0
    generations, cycles = (1, 6) if arguments.quick else (arguments.generations, arguments.cycles)
    names = [name for name in VARIANTS if name in (*BARE, *arguments.only)]
    print(f"load {os.getloadavg()[0]:.2f} at the start, {os.cpu_count()} cores, Python {platform.python_version()}")
    with tempfile.TemporaryDirectory(prefix="record-load-") as name:
        folder = Path(name)
        work = calibrated(arguments.per_second, folder)
        made = [
            generation(names, cycles, arguments.seconds, work, folder / str(number)) for number in range(generations)
        ]
    found, counts = [cycles for cycles, _ in made], [one for _, one in made]
    print("\n".join(rows_of(found, counts)))
    print(f"load {os.getloadavg()[0]:.2f} at the end")
    is_exact = all(one.counted in (None, one.answered) for each in counts for one in each.values())
    return 0 if is_exact else 1


if __name__ == "__main__":
    sys.exit(main())
