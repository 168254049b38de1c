"""Counted instructions as tables, part by part, and the guard's judgement; pure functions of the results' document."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import mean
from typing import Any

from benchmarks.tables import markdown_table

FORMAT = "mcp-probe-instructions/1"
PARTS = ("loop", "streams", "messages", "server", "memory")
"""Arms between bare and probe, each with more than the one before (benchmarks/counted_server.py)."""
GUARDED = ("bare", "probe")
GROWTH_LIMIT = 0.05

COLUMNS = {
    "loop": ("MainThread",),
    "worker threads": ("AnyIO worker thread",),
    "collector": ("mcp-probe-collector",),
    "span export": ("span export",),
}
"""Threads whose instructions belong to calls. The others go by time, which stands nearly still here."""
ARM_NAMES = {
    "bare": "bare",
    "span": "the SDK's span",
    "probe": "**mcp_probe**",
    "span and probe": "the SDK's span, and mcp_probe adding to it",
}
TRANSPORT_NAMES = {"stdio": "stdio", "http": "streamable HTTP", "memory": "in memory, client included"}
STEPS = (
    ("steps and their handles", "the loop is followed; no transport, no thread, no server", "bare", "loop"),
    ("streams", "stand-ins for the SDK's streams, which note nothing; stdio's jobs on threads", "loop", "streams"),
    ("message bookkeeping", "they note: requests begin and end, and own their steps", "streams", "messages"),
    ("middleware and records", '`attach(awaits=False, memory="off", measures="off")`', "messages", "server"),
    ("memory and measures", "`attach(awaits=False)`", "server", "memory"),
    ("awaits", "`attach()`", "memory", "probe"),
)
"""(part, the arm that has it, the arm before, that arm)."""


def instructions(document: Mapping[str, Any], transport: str, arm: str, column: str) -> float:
    """A call's, on the threads of one column: the mean of its processes."""
    processes: list[dict[str, float]] = document["counted"][transport][arm]
    return mean(sum(process.get(thread, 0.0) for thread in COLUMNS[column]) for process in processes)


def total(document: Mapping[str, Any], transport: str, arm: str) -> float:
    """A call's, on all threads that work for calls."""
    return sum(instructions(document, transport, arm, column) for column in COLUMNS)


def spread(document: Mapping[str, Any], transport: str, arm: str) -> float:
    """By which share of their mean the processes of one arm differ, on the loop's thread."""
    found: list[float] = [process["MainThread"] for process in document["counted"][transport][arm]]
    return (max(found) - min(found)) / mean(found)


@dataclass(frozen=True, slots=True)
class Judgement:
    """Whether what the probe adds to the loop's thread has grown; in instructions a call."""

    before: float
    now: float
    bare: float

    @property
    def growth(self) -> float:
        """As a share of what it was."""
        return self.now / self.before - 1

    @property
    def has_grown(self) -> bool:
        """By more than may pass unnoticed."""
        return self.growth > GROWTH_LIMIT

    @property
    def sentence(self) -> str:
        """What to know of it, and what to do about it."""
        verdict = f"{self.growth:+.1%}, at most {GROWTH_LIMIT:+.0%}"
        figures = f"{_thousands(self.now)} thousand instructions a call to {_thousands(self.bare)} (committed: "
        told = f"The probe adds {figures}{_thousands(self.before)}): {verdict}."
        if not self.has_grown:
            return told
        return (
            f"{told} Find what has been added to the request's path, or say why: `make bench-instructions` commits it."
        )


def judge(committed: Mapping[str, Any], found: Mapping[str, Any]) -> Judgement:
    """What the probe adds to a call over stdio, on the loop's thread, as it was and as it is.

    Both as a share of bare: another processor's C library may copy and compare in other instructions.
    """
    bare = instructions(found, "stdio", "bare", "loop")
    scale = bare / instructions(committed, "stdio", "bare", "loop")
    before, now = (
        instructions(one, "stdio", "probe", "loop") - instructions(one, "stdio", "bare", "loop")
        for one in (committed, found)
    )
    return Judgement(before * scale, now, bare)


def _thousands(number: float) -> str:
    return f"{number / 1e3:,.0f}"


def _added(number: float) -> str:
    return f"{number / 1e3:+,.0f}"


def arm_rows(document: Mapping[str, Any], transport: str) -> list[list[str]]:
    """One row per arm: each column, then all of them, with what is added to bare."""
    rows = []
    for arm, name in ARM_NAMES.items():
        if arm not in document["counted"][transport]:
            continue
        figures = [instructions(document, transport, arm, column) for column in COLUMNS]
        cells = [_thousands(figure) if figure else "" for figure in figures]
        added = ""
        if arm != "bare" and "bare" in document["counted"][transport]:
            added = _added(total(document, transport, arm) - total(document, transport, "bare"))
            cells[0] += f" ({_added(figures[0] - instructions(document, transport, 'bare', 'loop'))})"
        rows.append([name, *cells, _thousands(sum(figures)), added])
    return rows


ARM_HEAD = ["", "loop (added)", "worker threads", "collector", "span export", "all", "added"]


def part_rows(document: Mapping[str, Any]) -> list[list[str]]:
    """One row per part over stdio: the loop's and the worker threads' instructions a call, in thousands."""

    def added(column: str, over: str, arm: str) -> str:
        return _added(instructions(document, "stdio", arm, column) - instructions(document, "stdio", over, column))

    rows = [
        [name, how, added("loop", over, arm), added("worker threads", over, arm), added("collector", over, arm)]
        for name, how, over, arm in STEPS
    ]
    whole = [added(column, "bare", "probe") for column in ("loop", "worker threads", "collector")]
    beyond = [
        _added(
            instructions(document, "stdio", "span and probe", column)
            - instructions(document, "stdio", "span", column)
            - instructions(document, "stdio", "probe", column)
            + instructions(document, "stdio", "bare", column)
        )
        for column in ("loop", "worker threads", "collector")
    ]
    return [
        *rows,
        ["**all of these**", "probe less bare", *whole],
        ["telemetry", "span and probe, less span, less all of these", *beyond],
    ]


PART_HEAD = ["part", "the arm that adds it", "loop", "worker threads", "collector"]


def has_parts(document: Mapping[str, Any]) -> bool:
    """Whether all arms were counted that parts need."""
    return {*ARM_NAMES, *PARTS} <= set(document["counted"].get("stdio", {}))


def section(document: Mapping[str, Any]) -> str:
    """The part of the page for one Python."""
    build, machine = document["identity"], document["machine"]
    packages = ", ".join(f"{name} {version}" for name, version in build["packages"].items())
    out = [
        f"### CPython {build['python']}, thousands of instructions a call",
        f"{build['compiler']}, {build['processor']}, {packages}; valgrind {document['valgrind']}; "
        f"mcp_probe at {machine['commit']}, {machine['date']}.",
    ]
    for transport in document["counted"]:
        out += [f"**{TRANSPORT_NAMES[transport]}**", markdown_table(ARM_HEAD, arm_rows(document, transport))]
    if has_parts(document):
        out += ["**stdio, part by part**", markdown_table(PART_HEAD, part_rows(document))]
    return "\n\n".join([*out, agreement(document)])


def agreement(document: Mapping[str, Any]) -> str:
    """How far processes of one arm are apart, in a sentence."""
    cells = [(transport, arm) for transport, arms in document["counted"].items() for arm in arms]
    processes = min(len(document["counted"][transport][arm]) for transport, arm in cells)
    if processes < 2:
        return "Each figure is of one process."
    shares = sorted(spread(document, transport, arm) for transport, arm in cells)
    apart = f"{100 * shares[-1]:.2f} %; the median is {100 * shares[len(shares) // 2]:.2f} %"
    return f"Each figure is of {processes} processes, which differ on the loop's thread by at most {apart}."


def console_text(document: Mapping[str, Any]) -> str:
    """The tables for a terminal."""
    from benchmarks.tables import aligned

    out = []
    for transport, arms in document["counted"].items():
        out += ["", f"{TRANSPORT_NAMES[transport]}, thousands of instructions a call"]
        out += aligned([ARM_HEAD, *arm_rows(document, transport)])
        for arm in (arm for arm in arms if arm in PARTS):
            out.append(
                f"  {arm}: " + ", ".join(_thousands(instructions(document, transport, arm, one)) for one in COLUMNS)
            )
    if has_parts(document):
        out += ["", *aligned([PART_HEAD, *part_rows(document)])]
    return "\n".join([*out, "", agreement(document)]).replace("*", "")
