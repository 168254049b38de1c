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
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.machine import describe_machine
from benchmarks.page import filled
from benchmarks.twins import BUNDLED, REAL, Form, Setting, Transport, Twins
from mcp_probe.errors import ProbeError
from mcp_probe.predict.change import Change
from mcp_probe.predict.outcome import Figures, figures_of
from mcp_probe.predict.recorded import Recorded
from mcp_probe.predict.what_if import answer, window_of
from mcp_probe.record.file import read_recording
from tests.adapters.raw_clients import HttpClient, RawClient, StdioClient
from tests.ports import free_port
from tools.compatibility import table
from tools.interpreters import ROOT

PAGE = ROOT / "docs" / "predicting.md"
KEPT = ROOT / ".cache" / "predictions"
LEAST_S, LEAST_CALLS, LEAST_ROUNDS, MOST_S = 2.0, 240, 100, 30.0
"""A recording of a fault goes on for so long, for so many calls of each tool and so many rounds of them, but no longer.
Its twin is asked as much. All calls of a round wait for one full collection of 60 to 110 ms, and there are some three:
so they are no twentieth of a hundred rounds, and luck does not decide what the 95th percentile is."""

WITHIN = 0.20

Run = dict[str, Any]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.predictions", description=__doc__)
    parser.add_argument("--runs", type=int, default=3, help="of each form of each server (default: 3)")
    parser.add_argument("--minutes", type=float, default=20.0, help="no run begins after this (default: 20)")
    parser.add_argument("--only", nargs="*", default=[], help="names of workloads, or parts of names of real servers")
    parser.add_argument("--transports", default="stdio,http", help="stdio,http")
    parser.add_argument("--kept", type=Path, default=KEPT, help="the folder of the recordings")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/predicting.md")
    options = parser.parse_args(argv)
    until = time.monotonic() + options.minutes * 60
    wanted = [one for one in (*REAL, *BUNDLED) if not options.only or any(part in one.name for part in options.only)]
    for number in range(options.runs):
        for twins, transport in ((one, each) for one in wanted for each in one.transports):
            if transport not in options.transports.split(","):
                continue
            kept = options.kept / twins.name / transport / str(number)
            if (kept / "about.json").exists() or time.monotonic() > until:
                continue
            try:
                run_twins(twins, transport, kept)
            except (AssertionError, OSError, ValueError, subprocess.SubprocessError) as exc:
                print(f"{twins.name} {transport}: the run failed: {exc}", flush=True)
    parts = {
        name: section(judge_all(options.kept, some))
        for name, some in (("predictions", BUNDLED), ("real predictions", REAL))
    }
    for text in parts.values():
        print(text)
    if options.write:
        PAGE.write_text(filled(PAGE.read_text("utf-8"), parts), "utf-8")
    return 0


# --- one run ------------------------------------------------------------------------------------------


def run_twins(twins: Twins, transport: Transport, kept: Path) -> None:
    """Records both, one right after the other. They count once ``about.json`` is there."""
    about = {"load": round(os.getloadavg()[0], 1), "commit": str(describe_machine()["commit"])}
    shutil.rmtree(kept, ignore_errors=True)
    rounds = None
    for form in ("fault", "mended"):
        (kept / form).mkdir(parents=True)
        rounds = record(twins, form, transport, kept / form, rounds)
    (kept / "about.json").write_text(json.dumps(about), "utf-8")


def record(twins: Twins, form: Form, transport: Transport, folder: Path, rounds: int | None) -> int:
    """Records one run in ``folder``. How many rounds it was asked: ``rounds``, if that is given."""
    port = free_port()
    with tempfile.TemporaryDirectory() as name, twins.set_up(form, transport, port, Path(name)) as setting:
        environment = {key: value for key, value in os.environ.items() if not key.startswith("MCP_PROBE_")}
        environment |= {"MCP_PROBE_FULL": "1", **setting.environment}
        client: RawClient
        if transport == "stdio":
            client = StdioClient(list(setting.command), folder, environment)
        else:
            client = HttpClient(list(setting.command), folder, environment, port, "/mcp")
        with client:
            return _asked(client, setting, rounds)


def _asked(client: RawClient, setting: Setting, rounds: int | None) -> int:
    begun, chance, done = time.monotonic(), random.Random(5), 0
    least = min(count for _, _, count in setting.asks)
    asked: list[str] = []
    due = begun
    while rounds > done if rounds is not None else _goes_on(time.monotonic() - begun, done, done * least):
        if setting.mean_gap_s is not None:  # at times that have nothing to do with answers
            due += chance.expovariate(1 / setting.mean_gap_s)
            time.sleep(max(0.0, due - time.monotonic()))
        now = [
            client.call(f"{done} {tool} {nth}", tool, **arguments)
            for tool, arguments, count in setting.asks
            for nth in range(count)
        ]
        if setting.mean_gap_s is None:  # all at once, each time once all are answered
            client.wait_for(*now)
        asked += now
        done += 1
    client.wait_for(*asked)
    return done


def _goes_on(elapsed_s: float, rounds: int, calls: int) -> bool:
    return elapsed_s < LEAST_S or ((calls < LEAST_CALLS or rounds < LEAST_ROUNDS) and elapsed_s < MOST_S)


# --- what came out ------------------------------------------------------------------------------------


def judge_all(kept: Path, some: Sequence[Twins]) -> dict[str, list[Run]]:
    """Each run that is kept, judged by the simulation as it is now."""
    found: dict[str, list[Run]] = {}
    for twins in some:
        for transport in twins.transports:
            for about in sorted((kept / twins.name / transport).glob("*/about.json")):
                fault, mended = (about.parent / form / "recording" for form in ("fault", "mended"))
                run = {**json.loads(about.read_text("utf-8")), **judged(fault, mended, twins.changes)}
                run["changes"] = " ".join(map(str, twins.changes))
                found.setdefault(f"{twins.name}|{transport}", []).append(run)
    return found


def judged(fault: Path, mended: Path, changes: Sequence[Change]) -> Run:
    """(p50, p95) in ms and calls of each tool: as it ``was``, as ``predicted`` from that, and its ``twin``'s.

    What is predicted is missing where the self-check refused; ``refused`` says why.
    """
    operations: dict[str, dict[str, Any]] = {}
    for which, file in (("was", fault), ("twin", mended)):
        for name, some in _durations(file).items():
            operations.setdefault(name, {})[which] = _pair(figures_of(some, 10**9))
            operations[name]["calls"] = len(some)
    try:
        said = answer(window_of(read_recording(fault)), changes)
    except ProbeError as exc:
        return {"refused": str(exc), "operations": operations}
    for name in operations:
        operations[name]["predicted"] = _pair(said.after.operations[name])
    return {"refused": None, "operations": operations}


def _durations(recording: Path) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for one in Recorded.of(read_recording(recording)).records.values():
        if one.kind == "request" and one.method == "tools/call":
            found.setdefault(str(one.name), []).append(one.end_ns - one.arrival_ns)
    return dict(sorted(found.items()))


def _pair(figures: Figures) -> tuple[float, float]:
    return figures.p50_ms, figures.p95_ms


# --- the table ----------------------------------------------------------------------------------------

HEADS = (
    "server",
    "change",
    "tool",
    "calls",
    *(f"{percentile} {what}" for percentile in ("p50", "p95") for what in ("was", "predicted", "twin", "errors")),
)


def section(state: Mapping[str, Sequence[Run]]) -> str:
    """The table, and how many are within the bound.

    Every prediction is held against the median of its twin's runs. What is in the table are medians of the runs; the
    twin's own range stands beside its median, and each run's error is shown, the middle one first.
    """
    rows = []
    middle: list[list[float]] = [[], []]
    single: list[list[float]] = [[], []]
    own: list[float] = []
    for key, runs in state.items():
        name, transport = key.split("|")
        for tool in sorted({each for run in runs for each in run["operations"]}):
            figures = [run["operations"][tool] for run in runs if tool in run["operations"]]
            told = [one for one in figures if "predicted" in one]
            cells = []
            for at in range(2):
                twins = sorted(one["twin"][at] for one in figures)
                truth = median(twins)
                own += [one / truth - 1 for one in twins]
                cells += [f"{median(one['was'][at] for one in figures):,.1f}"]
                if not told:
                    cells += ["refused", _range(truth, twins), ""]
                    continue
                predicted = median(one["predicted"][at] for one in told)
                errors = [one["predicted"][at] / truth - 1 for one in told]
                middle[at].append(predicted / truth - 1)
                single[at] += errors
                cells += [f"{predicted:,.1f}", _range(truth, twins), _errors(predicted / truth - 1, errors)]
            calls = f"{median(one['calls'] for one in figures):,.0f}"
            rows.append((f"`{name}`, {transport}", f"`{runs[0]['changes']}`", tool, calls, *cells))
    if not rows:
        return "Nothing is recorded."
    refused = [(key, run["refused"]) for key, runs in state.items() for run in runs if run["refused"] is not None]
    loads = [run["load"] for runs in state.values() for run in runs]
    lines = [
        f"Within {WITHIN:.0%} of the twin: {_within(middle[0])} at p50 and {_within(middle[1])} at p95. Of the single "
        f"runs, {_within(single[0])} and {_within(single[1])}. Of the percentiles of the twins' own runs, "
        f"{_within(own)} are so near to their median. Times in ms. Load average as the runs began: {min(loads):.1f} to "
        f"{max(loads):.1f}, on two CPUs.",
        "",
        *table(HEADS, rows),
    ]
    if refused:
        lines += ["", f"Refused by the self-check: {len(refused)} of {sum(map(len, state.values()))} recordings.", ""]
        lines += [f"- `{key.replace('|', '`, ')}: {why}" for key, why in refused]
    return "\n".join(lines)


def _within(errors: Sequence[float]) -> str:
    return f"{sum(abs(one) <= WITHIN for one in errors)} of {len(errors)}"


def _range(middle: float, some: Sequence[float]) -> str:
    return f"{middle:,.1f}" if len(some) == 1 else f"{middle:,.1f} ({some[0]:,.1f}…{some[-1]:,.1f})"


def _errors(middle: float, some: Sequence[float]) -> str:
    """The error of the medians; in brackets those of the runs."""
    each = ", ".join(f"{one:+.0%}" for one in sorted(some))
    return f"{middle:+.0%}" if len(some) == 1 else f"**{middle:+.0%}** ({each})"


if __name__ == "__main__":
    raise SystemExit(main())
