"""``cpu-models``: document 003's CPU-bound tables, a fresh process for every run, with the byte check value."""

from __future__ import annotations

import os
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, replace

from mcp_probe.workloads.bench.context import Bench
from mcp_probe.workloads.bench.figures import sentence as as_sentence
from mcp_probe.workloads.bench.shapes import Measured, Outcome, Stats
from mcp_probe.workloads.bench.statistics import counted, describe, measured, quickest, ratio_floor, ratio_of
from mcp_probe.workloads.models.model_process import ModelRun, ask_model, explain_models, run_model
from mcp_probe.workloads.models.urls import expected_bytes
from mcp_probe.workloads.scenarios.documents import doc003 as doc
from mcp_probe.workloads.scenarios.tables import Table

MODULE = "mcp_probe.workloads.models.cpu"
TABLE = "003 CPU-bound"
HIDDEN = "003 conditions"
EXPLAINED_URLS = 16_000


@dataclass(frozen=True, slots=True)
class Model:
    """One way of doing the work. ``x`` is its place in the document's plots."""

    name: str
    x: str
    threads: int = 1
    conditions: str = ""  # why it is no row of the document's


SYNC, AGAIN, AWAIT = Model("sync", "sync"), Model("sync", "sync again"), Model("await", "asyncio")
TEN = Model("threads", "10 threads", 10)
GATHER = Model("gather", "asyncio, a task per URL", 1, "the document awaits its coroutines one by one")
MORE = tuple(Model("threads", f"{count} threads", count, "run, but not shown") for count in (2, 4, 6, 8))


@dataclass(slots=True)
class Runs:
    """Every run of one model."""

    model: Model
    runs: list[ModelRun]
    foreign: list[float]
    contended: bool = False

    def stats(self, figure: str) -> Stats:
        """Statistics of one figure over the runs; all are of fresh processes, so none is kept apart."""
        values = [getattr(run, figure) for run in self.runs]
        foreign = statistics.fmean(self.foreign) if self.foreign else None
        return describe(values, first_apart=False, foreign_cores=foreign, contended=self.contended)

    def known(self, figure: str) -> Stats | None:
        """As :meth:`stats`; ``None`` where this machine does not tell, or a run was too short for it."""
        return None if any(getattr(run, figure) is None for run in self.runs) else self.stats(figure)

    @property
    def cpu_seconds(self) -> list[float]:
        """Of each run. The least is of the one that the rest of the machine disturbed least."""
        return [run.cpu_seconds for run in self.runs]

    def median(self, figure: str) -> float:
        return float(statistics.median(getattr(run, figure) for run in self.runs))


async def run(bench: Bench) -> Outcome:
    """003's CPU-bound section: three tables, three plots, and what they leave out."""
    urls, rounds = bench.size(16_000, doc.CPU_URLS), bench.size(3, 4)
    documented = (SYNC, AWAIT, TEN)
    bench.step("what the probe says of each")
    whys = await explain_models(MODULE, {model.x: _arguments(model, EXPLAINED_URLS) for model in documented})
    taken = await _rounds(bench, [SYNC, AGAIN, AWAIT, TEN], urls, rounds)
    floor = ratio_floor([one.seconds for one in taken["sync"].runs], [one.seconds for one in taken["sync again"].runs])
    for model in documented:
        _documented_rows(bench, taken[model.x], urls, floor, whys[model.x])
    _ratios(bench, taken, floor, whys)
    for model in [GATHER] if bench.quick else [GATHER, *MORE]:
        taken |= await _rounds(bench, [model], urls, bench.size(1, 2))
        for metric in ("time", "memory"):
            _figure_row(Table(bench, HIDDEN, x=model.x), taken[model.x], urls, metric)
    if not bench.quick:
        bench.note("Threads own a share of the URLs each, so the sum over 6 or 8 threads is of a few URLs fewer.")
    _switches(bench, taken)
    await _memory(bench, taken)
    _claims(bench, taken, floor, whys)
    _byte_check(bench, list(taken.values()), urls)
    return bench.outcome()


def _arguments(model: Model, urls: int) -> list[object]:
    return ["--model", model.name, "--urls", urls, "--threads", model.threads]


async def _rounds(bench: Bench, models: list[Model], urls: int, rounds: int) -> dict[str, Runs]:
    """All models take turns."""
    taken = {model.x: Runs(model, [], []) for model in models}
    for turn in range(rounds):
        for model in (*models[turn % len(models) :], *models[: turn % len(models)]):
            bench.step(f"{model.x}, run {turn + 1} of {rounds}")
            found, foreign, contended = await bench.quiet(lambda m=model: run_model(MODULE, *_arguments(m, urls)))  # type: ignore[misc]
            runs = taken[model.x]
            runs.runs.append(found)
            runs.foreign += [] if foreign is None else [foreign]
            runs.contended |= contended
    return taken


# --- rows ---

FIGURES = {
    "time": ("seconds", "s", "execution time"),
    "CPU": ("cpu_percent", "%", "CPU, process, mean"),
    "CPU max": ("cpu_percent_max", "%", "CPU, process, maximum"),
    "system CPU": ("system_percent", "%", "CPU, system, mean"),
    "system CPU max": ("system_percent_max", "%", "CPU, system, maximum"),
    "memory": ("rss_mb", "MB", "memory, resident"),
}


def _documented_rows(bench: Bench, runs: Runs, urls: int, floor: float, why: str) -> None:
    x, threads, documented = runs.model.x, runs.model.threads, doc.CPU_BOUND[runs.model.x]
    table = Table(bench, TABLE, x=x, why=why)
    for metric in FIGURES:
        _figure_row(table, runs, urls, metric, documented[metric], floor=floor if metric == "time" else None)
    scale, note = expected_bytes(urls, threads) / expected_bytes(doc.CPU_URLS, threads), "exact to the byte"
    sums = table.sub(scale=scale, metric="bytes", series="bytes processed", note=note if x == "sync" else "")
    sums.put(f"{x}: bytes processed", "bytes", runs.runs[0].said["bytes"], documented["bytes"])
    table.put(f"{x}: CPU cores", "", os.cpu_count() or 1, doc.CORES, metric="cores")
    if threads > 1:
        table.put("10 threads: threads", "", threads, 10, metric="threads")


def _figure_row(
    table: Table, runs: Runs, urls: int, metric: str, documented: float | None = None, floor: float | None = None
) -> None:
    figure, unit, what = FIGURES[metric]
    found, notes = runs.known(figure), [runs.model.conditions]
    if metric == "time" and urls != doc.CPU_URLS:
        notes.append(f"{urls:,} URLs instead of {doc.CPU_URLS:,}")
    if found is None:
        notes = ["the run is shorter than a window of 0.2 s" if metric.endswith("max") else "not told on this system"]
    scales = {"time": urls / doc.CPU_URLS, "system CPU": doc.CORES / (os.cpu_count() or 1)}
    scale, note = scales.get(metric.removesuffix(" max"), 1.0), "; ".join(filter(None, notes))
    place = doc.charted(metric, what)
    table.put(f"{runs.model.x}: {what}", unit, found, documented, scale=scale, floor=floor, note=note, **place)


def _ratios(bench: Bench, taken: Mapping[str, Runs], floor: float, whys: Mapping[str, str]) -> None:
    table = Table(bench, TABLE, metric="ratio", series="over sync")
    for x in ("asyncio", "10 threads"):
        documented = doc.CPU_BOUND[x]["time"] / doc.CPU_BOUND["sync"]["time"]
        ratio = ratio_of(taken[x].stats("seconds"), taken["sync"].stats("seconds"), floor)
        table.put(f"{x} over sync, execution time", "×", ratio, documented, x=x, why=whys[x])


def _switches(bench: Bench, taken: Mapping[str, Runs]) -> None:
    note = "voluntary and involuntary; the document names them as the cause and did not count them"
    table = Table(bench, HIDDEN, metric="switches", note=note)
    for x, runs in taken.items():
        table.put(f"{x}: context switches", "", runs.median("switches"), x=x)


async def _memory(bench: Bench, taken: Mapping[str, Runs]) -> None:
    """Where asyncio's additional memory comes from."""
    said = await ask_model(MODULE, "--model", "import")
    if said["before_bytes"] is None:
        why = "this system does not tell a process's resident memory through /proc"
        for claim in ("003-4", "003-4a"):
            bench.claim(doc.CLAIMS[claim], said="-", untold=why)
        return
    imported = (said["imported_bytes"] - said["before_bytes"]) / 1e6
    running = (said["running_bytes"] - said["imported_bytes"]) / 1e6
    more = taken["asyncio"].median("rss_max_mb") - taken["sync"].median("rss_max_mb")
    told = f"+{more:.1f} MB: the import {imported:+.1f}, the running loop {running:+.1f}"
    note = "a fresh interpreter, before and after the statement"
    bench.row(HIDDEN, "memory of `import asyncio` alone", "MB", imported, metric="memory", x="import", note=note)
    bench.row(HIDDEN, "memory of a running event loop on top", "MB", running, metric="memory", x="running loop")
    documented = doc.CPU_BOUND["asyncio"]["memory"] - doc.CPU_BOUND["sync"]["memory"]
    table = Table(bench, TABLE, metric="memory", x="difference", why=told)
    table.put("asyncio over sync, memory", "MB", more, documented)
    grown = ratio_of(taken["asyncio"].stats("rss_max_mb"), taken["sync"].stats("rss_max_mb"))
    why = f"importing asyncio alone takes {imported:.1f} MB, in a process of its own"
    bench.claim(doc.CLAIMS["003-4"], Measured(more, floor=grown.floor), said=told, why=why)
    fits = 0 <= running <= running + imported
    bench.claim(
        doc.CLAIMS["003-4a"],
        *([Measured(running / (running + imported), floor=grown.floor)] if fits and imported > 0 else []),
        said=told,
        untold="the parts, which are of a process of their own, do not fit their sum",
    )


# --- claims ---


def _claims(bench: Bench, taken: Mapping[str, Runs], floor: float, whys: Mapping[str, str]) -> None:
    for claim, x in (("003-1", "asyncio"), ("003-2", "10 threads")):
        _ratio_claim(bench, taken, claim, x, floor, whys.get(x, ""))
    models = ("sync", "asyncio", "10 threads")
    busy = [measured(taken[x].stats("cpu_percent")) for x in models]
    said = " / ".join(f"{each.value:.0f} %" for each in busy)
    why = whys.get("10 threads", "")
    if all(run.said["gil"] for run in taken["10 threads"].runs):
        bench.claim(doc.CLAIMS["003-3"], busy, said=said, why=why)
    else:
        bench.claim(doc.CLAIMS["003-3"], said=said, untold=WITHOUT_GIL, why=why)


WITHOUT_GIL = "this interpreter has no global interpreter lock, so threads share the work among the cores"


def _ratio_claim(bench: Bench, taken: Mapping[str, Runs], claim: str, x: str, floor: float, why: str) -> None:
    """Judged by the clock; where others used the machine by CPU time, of the least disturbed run of each."""
    wall = ratio_of(taken[x].stats("seconds"), taken["sync"].stats("seconds"), floor)
    sync, again = (taken[each].cpu_seconds for each in ("sync", "sync again"))
    cpu = quickest(taken[x].cpu_seconds, sync)
    cpu = replace(cpu, floor=max(cpu.floor or 1.0, ratio_floor([min(sync)], [min(again)])))
    by_cpu = wall.contended and all(run.said["gil"] for run in taken[x].runs)
    said = f"{wall.value:.2f}× by the clock, {cpu.value:.2f}× by CPU time"
    whys = [why, "Judged by CPU time: others used the machine meanwhile." if by_cpu else ""]
    if not all(run.said["gil"] for run in taken[x].runs):
        whys.append(as_sentence(WITHOUT_GIL))
    found = cpu if by_cpu else wall
    bench.claim(doc.CLAIMS[claim], found, said=said, why=" ".join(filter(None, whys)))


def _byte_check(bench: Bench, every: list[Runs], urls: int) -> None:
    """The check value: each model must have counted exactly what arithmetic says."""
    wrong = [
        f"{runs.model.x}: {run.said['bytes']:,} instead of {expected_bytes(urls, runs.model.threads):,}"
        for runs in every
        for run in runs.runs
        if run.said["bytes"] != expected_bytes(urls, runs.model.threads)
    ]
    total = sum(len(runs.runs) for runs in every)
    full = f"{expected_bytes(doc.CPU_URLS):,} and {expected_bytes(doc.CPU_URLS, 10):,}"
    said = wrong[0] if wrong else f"{total} of {total} runs exact; at 100,000 URLs it is {full}"
    bench.claim(doc.CLAIMS["003-bytes"], counted(len(wrong)), said=said)
