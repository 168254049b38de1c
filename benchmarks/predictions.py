"""``python -m benchmarks.predictions``: what `mcp-probe what-if` predicts from a faulty server, beside its mended twin.

Both are recorded for real, one right after the other, as often as asked for; a later call goes on where this one ends.
Recordings are kept, so that another simulation needs no new ones. Fills docs/predicting.md.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.machine import describe_machine
from benchmarks.page import filled
from mcp_probe.errors import ProbeError
from mcp_probe.predict.change import Change
from mcp_probe.predict.outcome import figures_of, measured
from mcp_probe.predict.recorded import Recorded
from mcp_probe.predict.what_if import answer, window_of
from mcp_probe.record.file import read_recording
from tests.adapters.raw_clients import HttpClient, RawClient, StdioClient
from tests.adapters.waits.backend import serving
from tests.ports import free_port
from tools.compatibility import table
from tools.interpreters import ROOT

PAGE = ROOT / "docs" / "predicting.md"
KEPT = ROOT / ".cache" / "predictions"
FAULTS = ROOT / "tools" / "findings" / "server.py"
OWN = Path(__file__).with_name("prediction_server.py")
TOOL = "tool"
LEAST_S = 2.0
WITHIN = 0.20

Transport = str


@dataclass(frozen=True, slots=True)
class Twins:
    """A faulty server and its mended twin. ``calls``: suffix of a tool -> how many at once.

    ``gaps_s``: instead, one call after each of these times, whatever is answered; ``mended_gaps_s`` to the twin.
    """

    name: str
    server: Path
    changes: tuple[Change, ...]
    calls: tuple[tuple[str, int], ...] = (("", 6),)
    mended_calls: tuple[tuple[str, int], ...] | None = None
    mean_gap_s: float | None = None
    mended_mean_gap_s: float | None = None
    transports: tuple[Transport, ...] = ("stdio", "http")


TWINS = (
    Twins("blocking_call", FAULTS, (Change("offload", TOOL),), (("", 3),)),
    Twins("head_of_line", FAULTS, (Change("offload", f"{TOOL}_holder"),), (("_holder", 1), ("", 4))),
    Twins("serial_handler", FAULTS, (Change("narrow", "Lock"),)),
    Twins("pool_exhausted", FAULTS, (Change("pool", "httpx", 8),)),
    Twins("client_per_request", FAULTS, (Change("share-client", TOOL),), (("", 2),)),
    Twins("serial_awaits", FAULTS, (Change("gather", TOOL),), (("", 4),)),
    Twins("executor_saturated", FAULTS, (Change("pool", "CapacityLimiter", 16),), (("", 8),)),
    Twins("transport_starvation", FAULTS, (Change("private-pool", TOOL, 40),), (("", 60),), transports=("stdio",)),
    Twins("serial_client", FAULTS, (Change("rate", "", 8),), (("", 1),), (("", 8),)),
    Twins("semaphore", OWN, (Change("pool", "Semaphore", 8),)),
    Twins("executor", OWN, (Change("pool", "ThreadPoolExecutor", 8),)),
    Twins("default_limiter", OWN, (Change("pool", "anyio default", 80),), (("", 60),), transports=("stdio",)),
    Twins("row_of_sleeps", OWN, (Change("gather", TOOL),), (("", 4),)),
    Twins("computing", OWN, (Change("offload", f"{TOOL}_heavy"),), (("_heavy", 1), ("", 4))),
    Twins("half", OWN, (Change("speed-up", TOOL, 0.5),), (("", 4),)),
    Twins("more_load", OWN, (Change("rate", "", 2),), mean_gap_s=0.05, mended_mean_gap_s=0.025),
    Twins("long_lock", OWN, (Change("narrow", "Lock"),), (("_update", 2), ("", 4))),
    Twins("blocked_threads_too", OWN, (Change("offload", TOOL), Change("private-pool", TOOL, 4)), (("", 8),)),
)

Run = dict[str, Any]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.predictions", description=__doc__)
    parser.add_argument("--runs", type=int, default=3, help="of each form of each server (default: 3)")
    parser.add_argument("--minutes", type=float, default=20.0, help="no run begins after this (default: 20)")
    parser.add_argument("--only", nargs="*", default=[], help="names of workloads")
    parser.add_argument("--transports", default="stdio,http", help="stdio,http")
    parser.add_argument("--kept", type=Path, default=KEPT, help="the folder of the recordings")
    parser.add_argument("--write", action="store_true", help="put the table into docs/predicting.md")
    options = parser.parse_args(argv)
    until = time.monotonic() + options.minutes * 60
    wanted = [one for one in TWINS if not options.only or one.name in options.only]
    with ExitStack() as stack:
        quick = stack.enter_context(serving(first_byte=0.02)).address
        slow = stack.enter_context(serving(first_byte=0.4)).address
        for number in range(options.runs):
            for twins, transport in ((one, each) for one in wanted for each in one.transports):
                if transport not in options.transports.split(","):
                    continue
                kept = options.kept / twins.name / transport / str(number)
                if (kept / "about.json").exists() or time.monotonic() > until:
                    continue
                try:
                    run_twins(twins, transport, (quick, slow), kept)
                except (AssertionError, OSError, ValueError) as exc:
                    print(f"{twins.name} {transport}: the run failed: {exc}", flush=True)
    text = section(judge_all(options.kept))
    print(text)
    if options.write:
        PAGE.write_text(filled(PAGE.read_text("utf-8"), {"predictions": text}), "utf-8")
    return 0


# --- one run ------------------------------------------------------------------------------------------


def run_twins(twins: Twins, transport: Transport, backends: tuple[str, str], kept: Path) -> None:
    """Records both, one right after the other. They count once ``about.json`` is there."""
    about = {"load": round(os.getloadavg()[0], 1), "commit": str(describe_machine()["commit"])}
    shutil.rmtree(kept, ignore_errors=True)
    for form in ("fault", "mended"):
        (kept / form).mkdir(parents=True)
        record(twins, form, transport, backends, kept / form)
    (kept / "about.json").write_text(json.dumps(about), "utf-8")


def judge_all(kept: Path) -> dict[str, list[Run]]:
    """Each run that is kept, judged by the simulation as it is now."""
    found: dict[str, list[Run]] = {}
    for twins in TWINS:
        for transport in twins.transports:
            for about in sorted((kept / twins.name / transport).glob("*/about.json")):
                fault, mended = (about.parent / form / "recording" for form in ("fault", "mended"))
                run = {**json.loads(about.read_text("utf-8")), **judged(fault, mended, twins.changes)}
                found.setdefault(f"{twins.name}/{transport}", []).append(run)
    return found


def judged(fault: Path, mended: Path, changes: Sequence[Change]) -> Run:
    """Figures of both recordings and of the prediction from the first.

    Of the twin, which answers more in the same time, as many calls count as are predicted: what a process pays once in
    so many calls (imports, its first full collection) weighs the same in both then.
    """
    twin = Recorded.of(read_recording(mended))
    found: Run = {"refused": None, "operations": {}}
    durations: dict[str, list[int]] = {}
    for one in sorted(twin.records.values(), key=lambda each: each.arrival_ns):
        if one.kind == "request" and one.method == "tools/call":
            durations.setdefault(str(one.name), []).append(one.end_ns - one.arrival_ns)
    try:
        said = answer(window_of(read_recording(fault)), changes)
    except ProbeError as exc:
        return found | {"refused": str(exc)}
    before = measured(said.window.workload)
    for name, some in sorted(durations.items()):
        predicted = said.after.operations[name]
        rows = (figures_of(before[name], 10**9), predicted, figures_of(some[: predicted.calls], 10**9))
        found["operations"][name] = [[round(each.p50_ms, 2), round(each.p95_ms, 2)] for each in rows]
    return found


def record(twins: Twins, form: str, transport: Transport, backends: tuple[str, str], folder: Path) -> Path:
    """The full recording of one run."""
    port = free_port()
    command = [sys.executable, str(twins.server), twins.name, form, TOOL, transport, str(port), *backends]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("MCP_PROBE_")}
    environment |= {"PYTHONPATH": str(ROOT), "MCP_PROBE_FULL": "1"}
    client: RawClient
    if transport == "stdio":
        client = StdioClient(command, folder, environment)
    else:
        client = HttpClient(command, folder, environment, port, "/mcp")
    gap_s = twins.mended_mean_gap_s if form == "mended" else twins.mean_gap_s
    calls = twins.mended_calls if form == "mended" and twins.mended_calls else twins.calls
    with client:
        if gap_s is None:
            in_bursts(client, calls)
        else:
            client.wait_for(*at_random(client, gap_s))
    return client.recording


def in_bursts(client: RawClient, calls: Sequence[tuple[str, int]]) -> None:
    """All at once, again and again, each time once all are answered."""
    begun, burst = time.monotonic(), 0
    while time.monotonic() - begun < LEAST_S:
        asked = [client.call(f"{burst} {suffix} {n}", TOOL + suffix) for suffix, count in calls for n in range(count)]
        client.wait_for(*asked)
        burst += 1


def at_random(client: RawClient, mean_gap_s: float) -> Iterator[str]:
    """One after the other, at times that have nothing to do with answers."""
    chance, due, number = random.Random(5), time.monotonic(), 0
    begun = due
    while due - begun < 2 * LEAST_S:
        due += chance.expovariate(1 / mean_gap_s)
        time.sleep(max(0.0, due - time.monotonic()))
        yield client.call(str(number), TOOL)
        number += 1


# --- the table ----------------------------------------------------------------------------------------


def section(state: Mapping[str, Sequence[Run]]) -> str:
    """The table, and how many are within the bound."""
    rows, good, whole = [], 0, 0
    refused = []
    for key, runs in state.items():
        name, transport = key.split("/")
        twins = next((one for one in TWINS if one.name == name), None)
        option = " ".join(map(str, twins.changes)) if twins is not None else ""
        told = [run for run in runs if run["refused"] is None]
        refused += [f"`{name}`, {transport}: {run['refused']}" for run in runs if run["refused"] is not None]
        for operation in sorted({each for run in told for each in run["operations"]}):
            figures = [run["operations"][operation] for run in told if operation in run["operations"]]
            by_error = sorted(figures, key=lambda one: abs(one[1][1] / one[2][1] - 1))
            before, predicted, twin = by_error[len(by_error) // 2]
            cells = []
            for at in range(2):
                error = predicted[at] / twin[at] - 1
                cells += [f"{before[at]:,.1f}", f"{predicted[at]:,.1f}", f"{twin[at]:,.1f}", f"{error:+.0%}"]
                whole += 1
                good += abs(error) <= WITHIN
            rows.append((f"`{name}`, {transport}", f"`{option}`", operation, str(len(told)), *cells))
    loads = [run["load"] for runs in state.values() for run in runs if "load" in run]
    heads = (
        "server",
        "change",
        "tool",
        "runs",
        *(f"{p} {w}" for p in ("p50", "p95") for w in ("was", "predicted", "twin", "error")),
    )
    between = f"{min(loads, default=0):.1f} to {max(loads, default=0):.1f}"
    lines = [
        f"{good} of {whole} percentiles are within {WITHIN:.0%} of the twin's. Of several runs, the one with the "
        "middle error of p95 is shown, beside its own twin. Times in ms. Load average when they began: "
        f"{between}, on two CPUs.",
        "",
        *table(heads, rows),
    ]
    if refused:
        lines += ["", f"Refused by the self-check: {len(refused)} of {sum(map(len, state.values()))} recordings.", ""]
        lines += [f"- {one}" for one in refused]
    return "\n".join(lines)


if __name__ == "__main__":
    raise SystemExit(main())
