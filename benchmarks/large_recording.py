"""A recording of as many requests as one likes, and what each command needs to read it: seconds, and resident memory.

Every request has a record, 1,000 of them a second of the recording's clock, which is the most that a file holds: four
tools, one call in ten waits behind a step of another, one in five awaits a backend. Nothing of it is kept in memory.

    python benchmarks/large_recording.py --requests 10000000 --folder /tmp/large

Linux only; 10 million requests take 8 GB of disk, deleted afterwards unless ``--keep`` is given.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from mcp_probe.model import Await, Budget, End, Header, LoopSample, ProcessSample, StepRecord, Wait
from mcp_probe.record.file import encode, preamble
from mcp_probe.testing import make_record

US, MS, SECOND = 1_000, 1_000_000, 1_000_000_000
TOOLS = (("search", 8 * MS), ("render", 3 * MS), ("lookup", MS), ("resize", 20 * MS))
_MARKS = {name: 7_000_000_000_000_000_000 + at for at, name in enumerate(("id", "arrival", "first", "result", "end"))}
_PARTS = {name: 7_100_000_000_000_000_000 + at for at, name in enumerate(("queue", "busy", "awaiting"))}


def lines(requests: int, seed: int = 1) -> Iterator[bytes]:
    """A whole recording."""
    chance = random.Random(seed)
    yield preamble()
    yield encode(_header())
    templates = {
        (tool, kind): _template(tool, is_victim=kind == "waits", is_awaiting=kind == "awaits")
        for tool, _ in TOOLS
        for kind in ("plain", "waits", "awaits")
    }
    at = 0
    for number in range(1, requests + 1):
        at += int(chance.expovariate(1.0) * MS)
        tool, typical = TOOLS[int(chance.random() ** 2 * 4)]
        kind = "waits" if number % 10 == 0 else "awaits" if number % 5 == 1 else "plain"
        queue = 2 * MS if kind == "waits" else 40 * US
        busy, awaiting = int(typical * chance.lognormvariate(0, 0.3)) // 20, typical if kind == "awaits" else 0
        first = at + queue
        end = first + busy + awaiting
        if kind == "waits":
            yield encode(StepRecord(at - MS, at + 2 * MS, number - 1, TOOLS[number // 10 % 4][0], 1))
        values = {"id": number, "arrival": at, "first": first, "result": end, "end": end}
        values |= {"queue": queue, "busy": busy, "awaiting": awaiting}
        yield (templates[tool, kind] % values).encode()
        if number % 1000 == 0:
            yield encode(_loop(at))
            yield encode(_process(at))
    yield encode(End(at + SECOND, "exit"))


def _header() -> Header:
    return Header(
        *("0.1.0", "large", "mcp", "2.3.0", "stdio", "asyncio", "3.13.0", 7, 1_790_000_000.0, 0, 1),
        hooks=(("steps", "active"),),
        accelerator="active",
    )


def _loop(at: int) -> LoopSample:
    iterations = ((200, 900, SECOND // 2),)
    return LoopSample(
        at, SECOND, 1, "asyncio", SECOND // 2, iterations, 2 * MS * SECOND, 3 * MS, (), None, None, None, "exact"
    )


def _process(at: int) -> ProcessSample:
    return ProcessSample(at, SECOND, SECOND // 2, 90_000_000, (), 0, 0, None, None, 9 * MS, MS, (), 3, 9, 1, None)


def _template(tool: str, *, is_victim: bool, is_awaiting: bool) -> str:
    """The line of a record, with ``%(name)d`` where numbers differ."""
    mark, part = _MARKS, _PARTS
    budget = Budget(part["queue"], 0, part["busy"], 0, 0, 0, 0, part["awaiting"], 0, 0, 0, 0)
    waits = (Wait(mark["arrival"], mark["arrival"], mark["first"], "queue"),) if is_victim else ()
    spans = (mark["first"], mark["end"], part["awaiting"])
    awaits = (Await("http", "https://backend", f"{tool}.py:12", *spans, "exact"),) if is_awaiting else ()
    record = make_record(
        tool,
        id=mark["id"],
        arrival_ns=mark["arrival"],
        first_step_ns=mark["first"],
        result_ns=mark["result"],
        end_ns=mark["end"],
        budget=budget,
        steps=3,
        sequential_awaits=1,
        request_bytes=120,
        response_bytes=340,
        waits=waits,
        loop=1,
        awaits=awaits,
    )
    text = encode(record).decode()
    for name, value in {**mark, **part}.items():
        text = text.replace(str(value), f"%({name})d")
    return text


def write(path: Path, requests: int, seed: int) -> None:
    """The recording, line by line."""
    with path.open("wb", buffering=1 << 20) as stream:
        for line in lines(requests, seed):
            stream.write(line)


def measured(name: str, command: list[str]) -> tuple[str, int]:
    """(a line of the table, exit code) of one command."""
    began = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "mcp_probe", *command], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    assert process.stderr is not None
    said = process.stderr.read().decode()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = code = os.waitstatus_to_exitcode(status)
    peak_mb = used.ru_maxrss * 1024 / 1e6
    line = (
        f"{name:22}{time.monotonic() - began:>8,.0f} s{used.ru_utime + used.ru_stime:>8,.0f} s CPU{peak_mb:>8,.0f} MB"
    )
    return f"{line}  exit {code}{'' if not said else '  ' + said.splitlines()[-1][:150]}", code


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=10_000_000)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--only", nargs="*", help="commands: report, html, query, compare, trace")
    parser.add_argument("--keep", action="store_true")
    arguments = parser.parse_args()
    arguments.folder.mkdir(exist_ok=True)
    first, second = (arguments.folder / name for name in ("before.jsonl", "after.jsonl"))
    for seed, path in enumerate((first, second), 1):
        if not path.exists():
            write(path, arguments.requests, seed)
    size = first.stat().st_size
    print(f"{arguments.requests:,} requests, {size / 1e6:,.0f} MB a file; load {os.getloadavg()[0]:.1f}", flush=True)
    page, trace = str(arguments.folder / "page.html"), str(arguments.folder / "trace.json")
    sql = "SELECT operation, count(*), quantile_cont(total_ms, 0.99) FROM requests GROUP BY 1"
    commands = {
        "report": ["report", str(first)],
        "html": ["report", str(first), "--html", page],
        "compare": ["compare", str(first), str(second)],
        "query": ["query", sql, str(first)],
        "trace": ["report", str(first), "--trace", trace],
    }
    for name, command in commands.items():
        if not arguments.only or name in arguments.only:
            print(measured(name, command)[0], flush=True)
    if not arguments.keep:
        subprocess.run(["rm", "-r", str(arguments.folder)], check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
