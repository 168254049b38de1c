"""What is said of CPython's versions, held against servers on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from mcp_probe.aggregate.explain import what_differs
from mcp_probe.aggregate.phrasing import plural
from mcp_probe.workloads.bench.context import Bench
from mcp_probe.workloads.bench.figures import with_unit
from mcp_probe.workloads.bench.serving import ProfiledServer
from mcp_probe.workloads.bench.shapes import Asked, Claim, Stats
from mcp_probe.workloads.bench.statistics import describe, ratio_of
from mcp_probe.workloads.scenarios.interpreters import Interpreter, alike, widest
from mcp_probe.workloads.scenarios.own_claims import exactly

SPEED_UP_12 = (1.75,)
"""Source: What's New In Python 3.12, summary: of asyncio, "some benchmarks showing a 75% speed up"."""
SPEED_UP_14 = (1.1, 1.2)
"""Source: What's New In Python 3.14, optimizations of asyncio: "standard benchmark results have improved by 10-20%"."""


SATURATED = 0.8
MOST_COMPILED = 10
"""Modules more than the other that a start may compile: some half a millisecond each."""


@dataclass(frozen=True, slots=True)
class Measure:
    """What is measured of each version. ``phase`` and ``operation``: of the calls whose readings explain it."""

    metric: str
    unit: str
    phase: str = ""
    operation: str = ""


MEASURES = {
    "cpu_us": Measure("CPU of a call", "µs", "alone", "add"),
    "alone_ms": Measure("a call alone", "ms", "alone", "add"),
    "per_s": Measure("calls a second", "1/s", "at once", "add"),
    "compute_ms": Measure("a call that computes", "ms", "computing", "compute"),
    "start_ms": Measure("start to the first answer", "ms"),
    "resident_mb": Measure("memory after the start", "MB"),
}


@dataclass(slots=True)
class Arm:
    """One interpreter: its server under the probe, and what its bare servers gave, turn by turn.

    ``said`` is what the last process said of itself, ``used_cores`` is of calls at once, more than it could answer.
    """

    one: Interpreter
    server: ProfiledServer
    sent: int
    measures: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in MEASURES})
    used_cores: list[float] = field(default_factory=list)
    stages_ms: list[tuple[float, float, float]] = field(default_factory=list)
    said: dict[str, Any] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    calls: int = 0
    contended: bool = False

    def keep(self, rounds: int) -> None:
        """Only the last ones: those before were to warm up, or spoilt by others' work."""
        for values in (*self.measures.values(), self.used_cores):
            del values[:-rounds]
        del self.stages_ms[:-rounds]

    @property
    def found(self) -> dict[str, Stats]:
        """Statistics of what there is a figure of here."""
        return {name: describe(each, contended=self.contended) for name, each in self.measures.items() if each}

    @property
    def cores(self) -> float:
        """That its server used while more calls waited than it could answer."""
        return median(self.used_cores)

    @property
    def is_saturated(self) -> bool:
        """Whether it was the server that limited its calls."""
        return self.cores >= SATURATED


@dataclass(frozen=True, slots=True)
class Said:
    """A claim about two versions. ``is_newer_over``: the figure of the newer one over that of the older."""

    claim: str
    sentence: str
    asked: Asked
    measure: str
    what: str
    documented: str = ""
    old: tuple[int, int] | None = None
    new: tuple[int, int] | None = None
    is_newer_over: bool = False


SAID = (
    Said(
        "now-33",
        "what asyncio gained in 3.12 makes a call 1.75 times cheaper: {new} and {old}",
        Asked("times", SPEED_UP_12),
        "cpu_us",
        "the server's CPU time of a call",
        "75 % in some benchmarks of asyncio (What's New In Python 3.12)",
        (3, 11),
        (3, 12),
    ),
    Said(
        "now-34",
        "what asyncio gained in 3.14 makes a call 1.1 to 1.2 times cheaper: {new} and {old}",
        Asked("times", SPEED_UP_14),
        "cpu_us",
        "the server's CPU time of a call",
        "10-20 % in standard benchmarks of asyncio (What's New In Python 3.14)",
        (3, 13),
        (3, 14),
    ),
    Said(
        "now-35",
        "a newer CPython answers more calls a second: {new} and {old}",
        Asked("more"),
        "per_s",
        "calls a second, 16 in flight",
        is_newer_over=True,
    ),
    Said(
        "now-36",
        "a newer CPython computes faster: {new} and {old}",
        Asked("more"),
        "compute_ms",
        "a call that runs the same Python",
    ),
    Said(
        "now-37",
        "a newer CPython starts no slower: {new} and {old}",
        Asked("at most"),
        "start_ms",
        "from the start to the first answer",
        is_newer_over=True,
    ),
    Said(
        "now-38",
        "a newer CPython needs no more memory: {new} and {old}",
        Asked("free", load="not"),
        "resident_mb",
        "resident after the first answer, by the kernel",
        is_newer_over=True,
    ),
)


def claims(bench: Bench, arms: Sequence[Arm], floors: Mapping[str, float | None]) -> None:
    """All of them, of the versions that are here."""
    _only_versions_differ(bench, arms)
    _names(bench, arms)
    by_one = {arm.one: arm for arm in arms}
    for said in SAID:
        pair = widest([arm.one for arm in arms], said.old, said.new)
        if pair is not None:
            _compared(bench, said, by_one[pair[0]], by_one[pair[1]], floors[said.measure])


def _only_versions_differ(bench: Bench, arms: Sequence[Arm]) -> None:
    """Of the answers' values the client knows each; it would have stopped at a wrong one."""
    wrong = [f"{arm.one.label}: {each}" for arm in arms for each in arm.wrong]
    first = arms[0].said["packages"]
    common = set(first).intersection(*(arm.said["packages"] for arm in arms))
    for arm in arms:
        packages = arm.said["packages"]
        if arm.said["python"] != arm.one.version:
            wrong.append(f"{arm.one.label} served as {arm.said['python']}")
        unlike = sorted(name for name in first.keys() & packages.keys() if first[name] != packages[name])
        wrong += [f"{arm.one.label} has {name} {packages[name]} instead of {first[name]}" for name in unlike]
    exactly(
        bench,
        "now-31",
        "the same calls got the right answers, once each, from servers that differ in their CPython alone",
        said="; ".join(wrong)
        or f"{sum(arm.calls for arm in arms):,} calls, each counted by its server; mcp {first.get('mcp')} and "
        f"{len(common) - 1} more packages of one version in {plural(len(arms), 'interpreter')}",
        how="each answer and what the client knew, calls answered and sent, versions of the packages",
        fine=not wrong,
        why="Every server is a new process; it says itself what it runs on and what it has counted.",
    )


def _names(bench: Bench, arms: Sequence[Arm]) -> None:
    wrong, seen = [], []
    for arm in arms:
        summary = arm.server.summary()
        counted = sum(len(arm.server.seen(phase).requests) for phase in ("alone", "at once", "computing"))
        seen.append(summary.server.python)
        if seen[-1] != arm.one.version or counted != arm.sent:
            wrong.append(f"{arm.one.label}: {seen[-1]}, {counted} of {arm.sent} calls")
    exactly(
        bench,
        "now-32",
        "the probe names the CPython of each server and counts each of its calls",
        said="; ".join(wrong) or f"{', '.join(seen)}; {sum(arm.sent for arm in arms):,} calls",
        how="as the interpreter says of itself, and as the client sent",
        fine=not wrong,
        why="The probe runs in the server's own interpreter.",
    )


def _compared(bench: Bench, said: Said, old: Arm, new: Arm, floor: float | None) -> None:
    if said.measure not in old.found or said.measure not in new.found:
        return
    over, under = (new, old) if said.is_newer_over else (old, new)
    ratio = ratio_of(over.found[said.measure], under.found[said.measure], floor)
    figures = " and ".join(with_unit(arm.found[said.measure].median, MEASURES[said.measure].unit) for arm in (new, old))
    sentence = said.sentence.format(new=new.one.label, old=old.one.label)
    claim = Claim(said.claim, sentence, said.documented, (said.asked,), f"{said.what}, {_order(said)}")
    names = " and ".join(f"{arm.one.version} ({arm.one.build})" for arm in (new, old))
    told = f"{figures} with {names}: {ratio.value:.2f}×"
    if untold := _untold(said, old, new):
        bench.claim(claim, said=told, untold=f"{untold} {_why(said, old, new)}")
    else:
        bench.claim(claim, ratio, said=told, why=_why(said, old, new))


def _untold(said: Said, old: Arm, new: Arm) -> str:
    """Why nothing can be said of the two, whatever was measured; empty if something can."""
    if not alike(old.one, new.one):
        return "They were not built with the same options: a difference would be of the build as well."
    compiled = [arm.said["uncompiled"] for arm in (new, old)]
    if said.measure == "start_ms" and abs(compiled[0] - compiled[1]) > MOST_COMPILED:
        told = f"{new.one.label} compiled {compiled[0]:,} modules at each start, {old.one.label} {compiled[1]:,}"
        return f"{told}: `python -m compileall` keeps their bytecode."
    if said.measure == "per_s" and not (old.is_saturated and new.is_saturated):
        used = f"{new.one.label} used {new.cores:.2f} cores, {old.one.label} {old.cores:.2f}"
        return f"{used}: something else than the server was the limit."
    return ""


def _order(said: Said) -> str:
    return "the newer over the older" if said.is_newer_over else "the older over the newer"


def _why(said: Said, old: Arm, new: Arm) -> str:
    measure = MEASURES[said.measure]
    if measure.phase:
        names = old.one.label, new.one.label
        return what_differs(old.server.seen(measure.phase), new.server.seen(measure.phase), names, measure.operation)
    if said.measure == "start_ms":
        return f"{new.one.label} imports {new.said['modules']:,} modules, {old.one.label} {old.said['modules']:,}."
    return (
        f"Python's allocator holds {new.said['blocks']:,} blocks with {new.one.label}, "
        f"{old.said['blocks']:,} with {old.one.label}."
    )
