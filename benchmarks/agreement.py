"""Does `mcp-probe load` agree with k6? Both load one server, in turns, at the same rate; their medians are compared.

    python benchmarks/agreement.py --k6 PATH [--delay-ms 20] [--rate 50] [--seconds 8] [--rounds 5]

k6 counts from when it starts a request, so its median stands beside ours from sending; that from when a request was due
is printed as well. Needs k6 (`go install go.k6.io/k6@v1.8.1`), the `bench` extra and a machine that others leave alone.
"""

from __future__ import annotations

import argparse
import json
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from mcp_probe.workloads.load.export import script_of
from mcp_probe.workloads.load.mix import Call, Mix
from mcp_probe.workloads.load.peer import Target
from mcp_probe.workloads.load.running import run_load

TOLERANCE = 0.1


@dataclass(frozen=True)
class Round:
    """What one generator said of one round."""

    per_s: float
    p50_ms: float
    from_due_ms: float | None = None


def serve(descriptor: int) -> None:
    """A streamable HTTP server on an inherited socket; its one tool takes as long as it is told to."""
    import anyio
    import uvicorn
    from mcp.server import MCPServer

    delays = MCPServer("delays", log_level="ERROR")

    @delays.tool()
    async def wait(delay_ms: float) -> str:
        await anyio.sleep(delay_ms / 1000)
        return "done"

    uvicorn.run(delays.streamable_http_app(json_response=True), fd=descriptor, log_level="error")


@contextmanager
def server() -> Iterator[str]:
    """URL of :func:`serve` in a process of its own."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        descriptor = listener.fileno()
        process = subprocess.Popen([sys.executable, __file__, "--serve", str(descriptor)], pass_fds=[descriptor])
        port = listener.getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.terminate()
        process.wait(30)


def ours(mix: Mix, url: str) -> Round:
    phase = run_load(Target(url=url), mix).open
    if phase.fates["ok"] != phase.due or phase.sent_to_answer.p50 is None:
        raise SystemExit(f"Not every request was answered: {phase.fates}")
    # A round's answers, over the time in which they were due: as k6 counts iterations.
    return Round(phase.fates["ok"] / (phase.window_s + 1 / mix.rate), phase.sent_to_answer.p50, phase.due_to_answer.p50)


def theirs(mix: Mix, url: str, k6: str) -> Round:
    with tempfile.TemporaryDirectory() as folder:
        script, summary = Path(folder, "load.js"), Path(folder, "summary.json")
        script.write_text(script_of("k6", mix, Target(url=url)), encoding="utf-8")
        command = [k6, "run", "--quiet", "--no-usage-report", "--summary-export", str(summary), str(script)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"k6 failed: {done.stderr[-500:]}")
        found = json.loads(summary.read_text())["metrics"]["mcp_latency{scenario:load}"]
    return Round(found["count"] / mix.window_s, found["med"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--k6", default=shutil.which("k6"), help="the k6 program (default: the one on PATH)")
    parser.add_argument("--delay-ms", type=float, default=20)
    parser.add_argument("--rate", type=float, default=50)
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve is not None:
        serve(options.serve)
        return
    if not options.k6:
        raise SystemExit("k6 is not on PATH; name it with --k6.")
    call = Call("tools/call", ({"name": "wait", "arguments": {"delay_ms": options.delay_ms}},))
    mix = Mix((call,), rate=options.rate, seconds=options.seconds, in_flight=0)
    mine: list[Round] = []
    others: list[Round] = []
    with server() as url:
        for number in range(options.rounds):
            mine.append(ours(mix, url))
            others.append(theirs(mix, url, options.k6))
            print(
                f"round {number + 1}: mcp-probe {mine[-1].per_s:.1f}/s, p50 {mine[-1].p50_ms:.2f} ms "
                f"({mine[-1].from_due_ms:.2f} from due); k6 {others[-1].per_s:.1f}/s, p50 {others[-1].p50_ms:.2f} ms",
                flush=True,
            )
    for what, one, other in (
        ("throughput", [each.per_s for each in mine], [each.per_s for each in others]),
        ("p50", [each.p50_ms for each in mine], [each.p50_ms for each in others]),
    ):
        ratio = median(one) / median(other)
        verdict = "agree" if abs(ratio - 1) <= TOLERANCE else "DO NOT AGREE"
        print(f"{what}: {median(one):.2f} and {median(other):.2f}, ratio {ratio:.3f}: {verdict} within {TOLERANCE:.0%}")


if __name__ == "__main__":
    main()
