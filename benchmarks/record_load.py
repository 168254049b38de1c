"""What `--record` costs on a saturated loop, and whether its counts are exact: interleaved rounds of fresh processes.

Each process serves an in-memory client that sends its next burst as soon as the last is answered, so the loop is never
idle. The client counts its answers itself; what the recording counts must be the same, to one. The tool computes for a
while, so that a bare server answers some 3,000 to 4,000 requests a second: ``--work`` says how long.

``bare`` runs twice a round: the ratio of the two is the floor. ``--quick`` takes a minute. Linux only.
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
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from mcp_probe.workloads.bench.statistics import turn_order

VARIANTS = ("bare", "bare again", "probe", "record", "full", "run", "run record", "run full")
"""``run`` ones: by ``mcp-probe run``, else by ``attach``. ``probe`` and ``run`` record nothing."""
BURST = 16
WORK = 3_000


def serve(variant: str, seconds: float, work: int, recording: Path) -> None:
    """One process: serves for ``seconds``, and prints what its client counted."""
    import anyio
    import mcp_types as types
    from mcp.shared.memory import create_client_server_memory_streams
    from mcp.shared.message import SessionMessage

    import mcp_probe
    from benchmarks.soak import LeanClient, make_server

    server = make_server()
    _let_compute(server, work)
    if variant in ("probe", "record", "full"):
        options = {} if variant == "probe" else {"record": str(recording), "full": variant == "full"}
        mcp_probe.attach(server, **options)
    params = {"name": "add", "arguments": {"a": 1, "b": 2}}
    call = SessionMessage(types.JSONRPCRequest(jsonrpc="2.0", id=1, method="tools/call", params=params))

    async def load() -> dict[str, float]:
        answered = 0
        async with create_client_server_memory_streams() as (near, far), anyio.create_task_group() as group:
            group.start_soon(lambda: server.run(far[0], far[1], server.create_initialization_options()))
            await LeanClient(near).open()
            began, cpu_s = time.perf_counter(), time.process_time()
            while time.perf_counter() - began < seconds:
                for _ in range(BURST):
                    await near[1].send(call)
                for _ in range(BURST):
                    await near[0].receive()
                    answered += 1
            took, cpu_s = time.perf_counter() - began, time.process_time() - cpu_s
            group.cancel_scope.cancel()
        return {"answered": answered, "seconds": took, "cpu_s": cpu_s}

    print(json.dumps(anyio.run(load)), flush=True)


def _let_compute(server: Any, turns: int) -> None:
    """Before its tool answers, it computes for so many ``turns`` of a loop."""
    import mcp_types as types

    from benchmarks.soak import call_tool

    async def computing(ctx: Any, params: Any) -> Any:
        for _ in range(turns):
            pass
        return await call_tool(ctx, params)

    server.add_request_handler("tools/call", types.CallToolRequestParams, computing)


@dataclass(frozen=True, slots=True)
class Turn:
    """What one process did. ``counted``: calls that its recording or report counts; ``None``: it has neither."""

    variant: str
    answered: int
    per_second: float
    cpu_us: float  # of all threads of its process, a call
    counted: int | None
    records: int | None
    bytes: int


def take_turn(variant: str, seconds: float, work: int, folder: Path) -> Turn:
    """A process of its own, and what it left."""
    recording, report = folder / "recording.jsonl", folder / "report.json"
    for path in (recording, report):
        path.unlink(missing_ok=True)
    command = [sys.executable, __file__, "--serve", variant, "--seconds", str(seconds), "--work", str(work)]
    command += ["--recording", str(recording)]
    if variant.startswith("run"):
        given = [] if variant == "run" else ["--record", str(recording), *(["--full"] if "full" in variant else [])]
        command = [sys.executable, "-m", "mcp_probe", "run", "--json", str(report), *given, "--", *command]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    said = json.loads(done.stdout.splitlines()[-1])
    counted, records = _counts(recording, report)
    size = sum(path.stat().st_size for path in folder.glob("recording.jsonl*"))
    answered = said["answered"]
    return Turn(variant, answered, answered / said["seconds"], said["cpu_s"] / answered * 1e6, counted, records, size)


def _counts(recording: Path, report: Path) -> tuple[int | None, int | None]:
    """(calls counted, requests with a record) by the recording, else by the report of the parent."""
    if recording.exists():
        subprocess.run(
            [sys.executable, "-m", "mcp_probe", "report", str(recording), "--json", str(report)],
            check=True,
            capture_output=True,
        )
    if not report.exists():
        return None, None
    found = json.loads(report.read_text())
    calls = [row["count"] for row in found["operations"] if row["name"] == "add"]
    return sum(calls), found["requests"]["recorded"]


def rows_of(turns: Sequence[Turn]) -> list[str]:
    """A line a variant. Shares are medians of the ratios within one round."""
    of = {name: [turn for turn in turns if turn.variant == name] for name in VARIANTS}
    lines = [f"{'':12}{'a second':>10}{'of bare':>9}{'unrecorded':>12}{'CPU us':>9}{'of bare':>9}  counts"]
    for name, taken in of.items():
        if not taken:
            continue
        beside = of["run" if name.startswith("run") else "probe"]
        speed, cpu = median(one.per_second for one in taken), median(one.cpu_us for one in taken)
        line = f"{name:12}{speed:>10,.0f}{_share(taken, of['bare'], 'per_second'):>9}"
        line += f"{_share(taken, beside, 'per_second') if taken[0].bytes else '':>12}"
        lines.append(f"{line}{cpu:>9,.0f}{_share(taken, of['bare'], 'cpu_us'):>9}  {_counted(taken)}")
    return lines


def _share(taken: Sequence[Turn], base: Sequence[Turn], name: str) -> str:
    ratios = [getattr(one, name) / getattr(other, name) for one, other in zip(taken, base, strict=False)]
    return f"{median(ratios):.1%}" if ratios else ""


def _counted(taken: Sequence[Turn]) -> str:
    off = [one.counted - one.answered for one in taken if one.counted is not None]
    said = [] if not off else ["exact"] if not any(off) else [f"off by {off}"]
    records = [one.records / one.answered for one in taken if one.records]
    said += [f"{median(records):.0%} have a record"] if records else []
    size = max(one.bytes / one.answered for one in taken)
    return ", ".join([*said, f"{size:,.0f} bytes a call"] if size else said)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--work", type=int, default=WORK, help="turns of a loop that the tool computes for")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", nargs="*", default=VARIANTS)
    parser.add_argument("--serve", metavar="VARIANT", help=argparse.SUPPRESS)
    parser.add_argument("--recording", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve(arguments.serve, arguments.seconds, arguments.work, arguments.recording)
        return 0
    rounds, seconds = (2, 2.0) if arguments.quick else (arguments.rounds, arguments.seconds)
    turns: list[Turn] = []
    print(f"load {os.getloadavg()[0]:.2f} at the start, {os.cpu_count()} cores, Python {platform.python_version()}")
    with tempfile.TemporaryDirectory(prefix="record-load-") as folder:
        for number in range(rounds):
            for name in turn_order([name for name in VARIANTS if name in arguments.only], number):
                turns.append(take_turn(name, seconds, arguments.work, Path(folder)))
    print("\n".join(rows_of(turns)))
    print(f"load {os.getloadavg()[0]:.2f} at the end")
    return 1 if any(turn.counted not in (None, turn.answered) for turn in turns) else 0


if __name__ == "__main__":
    sys.exit(main())
