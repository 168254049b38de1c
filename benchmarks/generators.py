"""Four load generators on one server that stalls a second at known instants: who says what of it, and at what cost?

    python benchmarks/generators.py [--k6 PATH] [--vegeta PATH] [--wrk PATH] [--rate 200] [--seconds 30] [--rounds 3]

Each generator gets the same server afresh (benchmarks/stalling_server.py) and the same request. The truth is computed
from what the server did: with constant arrivals, requests due in a stall wait until its end. wrk has no rate: it sends
when it has an answer. CPU is that of the generator's process, by the kernel. Who is not there is left out.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from mcp_probe.workloads.bench.machine import ForeignLoad
from mcp_probe.workloads.load.export import script_of
from mcp_probe.workloads.load.mix import Mix, tool_call
from mcp_probe.workloads.load.peer import Target
from mcp_probe.workloads.load.wire import encode, headers_of

SERVER = Path(__file__).with_name("stalling_server.py")
CALL = tool_call("echo", None)


@dataclass(frozen=True)
class Said:
    """What one generator said of one run, what it cost, and what was true; ``None``: it does not say."""

    offered_per_s: float | None
    sent_per_s: float | None
    answered_per_s: float
    p50_ms: float
    p99_ms: float
    stalls: str
    true_p99_ms: float | None = None
    true_stalls: str = ""
    cpu_us: float = 0.0  # a request
    foreign: float | None = None


@dataclass(frozen=True)
class Job:
    """One run: where to, how fast, how long, and a folder for files."""

    url: str
    rate: float
    seconds: int
    stall_s: float  # shorter ones than half of it are not named: a busy machine has many of these
    folder: Path
    program: str


def probe(job: Job) -> Said:
    out = job.folder / "probe.json"
    options = ["--rate", f"{job.rate:g}", "--seconds", str(job.seconds), "--warm-up", "0", "--in-flight", "0"]
    run([job.program, "-m", "mcp_probe", "load", "--url", job.url, "--tool", "echo", *options, "--json", str(out)])
    result = json.loads(out.read_text())
    phase, due = result["open"], result["open"]["due_to_answer"]
    stalls = ", ".join(
        f"{'≥' if each['at_least'] else ''}{each['length_s']:.2f} s at {each['start_s']:.1f}"
        for each in result["stalls"]
        if each["length_s"] >= job.stall_s / 2
    )
    above = result["verdict"]["told_up_to_per_s"]
    told = stalls or "none"
    if above is not None:
        told += f"; cannot be told above {above:.0f}/s"
    offered, sent, answered = (phase[f"{name}_per_s"] for name in ("offered", "sent", "answered"))
    return Said(offered, sent, answered, due["p50"], due["p99"], told)


def vegeta(job: Job) -> Said:
    body, targets, results = (job.folder / name for name in ("body.json", "targets", "results.bin"))
    body.write_bytes(encode(1, CALL.order(0), modern=True))
    headers = "\n".join(f"{name}: {value}" for name, value in headers_of(CALL.order(0), modern=True).items())
    targets.write_text(f"POST {job.url}\n{headers}\n@{body}\n")
    length = [f"-rate={job.rate:g}/s", f"-duration={job.seconds}s"]
    run([job.program, "attack", *length, f"-targets={targets}", f"-output={results}"])
    report = subprocess.run([job.program, "report", "-type=json", str(results)], capture_output=True, check=True)
    found = json.loads(report.stdout)
    times = found["latencies"]
    # "rate" is of what was sent; "throughput" of what was answered, until the last answer.
    return Said(None, found["rate"], found["throughput"], times["50th"] / 1e6, times["99th"] / 1e6, "does not say")


def k6(job: Job) -> Said:
    script, summary = job.folder / "load.js", job.folder / "summary.json"
    mix = Mix((CALL,), rate=job.rate, seconds=float(job.seconds), warm_up=0, in_flight=0)
    script.write_text(script_of("k6", mix, Target(url=job.url)))
    run([job.program, "run", "--quiet", "--no-usage-report", "--summary-export", str(summary), str(script)])
    metrics = json.loads(summary.read_text())["metrics"]
    found = metrics["mcp_latency{scenario:load}"]
    dropped = metrics.get("dropped_iterations", {}).get("count", 0)
    told = f"does not say; {dropped} dropped" if dropped else "does not say"
    rate = found["count"] / job.seconds
    return Said((found["count"] + dropped) / job.seconds, rate, rate, found["med"], found["p(99)"], told)


def wrk(job: Job) -> Said:
    script = job.folder / "post.lua"
    lines = ['wrk.method = "POST"', f"wrk.body = [==[{encode(1, CALL.order(0), modern=True).decode()}]==]"]
    lines += [f'wrk.headers["{name}"] = "{value}"' for name, value in headers_of(CALL.order(0), modern=True).items()]
    lines += [
        "done = function(summary, latency, requests)",
        '  io.write(string.format("FOUND %f %f %f\\n", summary.requests / summary.duration * 1e6,',
        "    latency:percentile(50) / 1e3, latency:percentile(99) / 1e3))",
        "end",
    ]
    script.write_text("\n".join(lines))
    said = run([job.program, "-t1", "-c10", f"-d{job.seconds}s", "--timeout", "10s", "-s", str(script), job.url])
    rate, p50, p99 = (float(each) for each in said.split("FOUND", 1)[1].split()[:3])
    return Said(None, rate, rate, p50, p99, "does not say")


def run(command: Sequence[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode and "mcp_probe" not in command:
        raise SystemExit(f"{command[0]} failed: {done.stderr[-500:]}")
    return done.stdout


def measured(generator: Callable[[Job], Said], program: str, options: argparse.Namespace, instants: str) -> Said:
    """One run against a server of its own."""
    with socket.socket() as listener, tempfile.TemporaryDirectory() as folder:
        listener.bind(("127.0.0.1", 0))
        listener.listen(4096)
        command = [sys.executable, str(SERVER), str(listener.fileno()), instants, str(options.stall_s)]
        server = subprocess.Popen(command, pass_fds=[listener.fileno()], stdout=subprocess.PIPE, text=True)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
        try:
            foreign, before = ForeignLoad(), os.times()
            said = generator(Job(url, options.rate, options.seconds, options.stall_s, Path(folder), program))
            after, cores = os.times(), foreign.cores()
        finally:
            server.send_signal(signal.SIGTERM)
            out, _ = server.communicate(timeout=30)
    true = json.loads(out)
    # The server is not waited for before its end, so that children's time is the generator's alone.
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    long = [each for each in true["stalls"] if each[1] >= options.stall_s / 2]
    stalls = ", ".join(f"{length:.2f} s at {start:.1f}" for start, length in long)
    p99 = None if generator is wrk else due_p99_ms(true["stalls"], options)
    return replace(said, cpu_us=1e6 * cpu / max(true["calls"], 1), foreign=cores, true_p99_ms=p99, true_stalls=stalls)


def due_p99_ms(stalls: Sequence[tuple[float, float]], options: argparse.Namespace) -> float:
    """With constant arrivals, and answers at once but for the stalls."""
    waits: list[float] = []
    for number in range(round(options.rate * options.seconds)):
        at = number / options.rate
        ends = [start + length for start, length in stalls if start <= at < start + length]
        waits.append(max(ends, default=at) - at)
    return 1e3 * sorted(waits)[ceil(0.99 * len(waits)) - 1]


def table(rows: dict[str, list[Said]]) -> str:
    def middle(name: str, each: list[Said], form: str) -> str:
        values = [value for one in each if (value := getattr(one, name)) is not None]
        return format(median(values), form) if values else "–"

    lines = [
        "| | offered | sent | answered | p50 | p99 | truth | stalls | truth | CPU a request |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, each in rows.items():
        rates = [middle(f"{part}_per_s", each, ".0f") for part in ("offered", "sent", "answered")]
        times = [f"{middle(part, each, '.2f')} ms" for part in ("p50_ms", "p99_ms")]
        true, cpu = middle("true_p99_ms", each, ".0f"), middle("cpu_us", each, ".0f")
        cells = [name, *rates, *times, f"{true} ms", each[-1].stalls, each[-1].true_stalls, f"{cpu} µs"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines).replace("– ms", "–")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("k6", "vegeta", "wrk"):
        parser.add_argument(f"--{name}", default=shutil.which(name), help="the program (default: the one on PATH)")
    parser.add_argument("--rate", type=float, default=200)
    parser.add_argument("--seconds", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--stall-s", type=float, default=1.0)
    options = parser.parse_args()
    instants = ",".join(f"{share * options.seconds:g}" for share in (0.2, 0.6, 0.9))
    programs = {"mcp-probe load": (probe, sys.executable), "vegeta": (vegeta, options.vegeta), "k6": (k6, options.k6)}
    programs["wrk, 10 connections"] = (wrk, options.wrk)
    rows: dict[str, list[Said]] = {}
    for number in range(options.rounds):
        for name, (generator, program) in programs.items():
            if program:
                rows.setdefault(name, []).append(measured(generator, program, options, instants))
                print(f"round {number + 1}, {name}: {rows[name][-1]}", file=sys.stderr, flush=True)
    condition = f"{options.rate:g}/s for {options.seconds} s, {options.stall_s:g} s without an answer at {instants} s"
    cores = median(one.foreign or 0.0 for each in rows.values() for one in each)
    print(f"{condition}; medians of {options.rounds}; {time.strftime('%Y-%m-%d')}")
    print(f"other processes used {cores:.1f} of {os.cpu_count()} cores\n\n{table(rows)}")


if __name__ == "__main__":
    main()
