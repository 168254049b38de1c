"""What ``cpu.py`` has measured, as ratios with intervals; pure functions of the results' document."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, median
from typing import Any

from benchmarks.blocks import Estimate, estimate
from benchmarks.tables import aligned, markdown_table

FORMAT = "mcp-probe-cpu/1"
BARE = ("bare", "bare again")


@dataclass(frozen=True, slots=True)
class Arm:
    """A way to run the server: the variant of ``subjects.py``, and whether `mcp-probe run` starts it."""

    variant: str
    shown: str
    is_run: bool = False


ARMS = {
    "bare": Arm("bare", "bare"),
    "bare again": Arm("bare again", "bare again (the floor)"),
    "span": Arm("sdk-otel", "the SDK's span"),
    "probe": Arm("probe", "**`mcp_probe.attach`**"),
    "run": Arm("bare", "**`mcp-probe run`**", is_run=True),
    "telemetry": Arm("sdk-otel and probe", "the SDK's span, and `attach` adding to it"),
}
TRANSPORT_NAMES = {"stdio": "stdio", "http": "streamable HTTP"}


@dataclass(frozen=True, slots=True)
class Block:
    """One arm's answers in one cycle; CPU is microseconds an answer, idling taken off."""

    transport: str
    in_flight: int
    arm: str
    generation: int
    cycle: int
    answers: int
    per_s: float
    server_cpu_us: float  # all threads
    parent_cpu_us: float  # of `mcp-probe run`, all threads
    foreign_cores: float  # what others burned meanwhile

    @property
    def cpu_us(self) -> float:
        """Of all processes of the arm."""
        return self.server_cpu_us + self.parent_cpu_us


Figure = Callable[[Block], float]


def ratios(blocks: Sequence[Block], arm: str, figure: Figure) -> list[list[float]]:
    """``arm`` by the mean of the bare processes, cycle by cycle, a list per generation; of bare again by bare."""
    base = BARE[:1] if arm == BARE[1] else BARE
    cycles: dict[tuple[int, int], dict[str, float]] = {}
    for block in blocks:
        cycles.setdefault((block.generation, block.cycle), {})[block.arm] = figure(block)
    found: dict[int, list[float]] = {}
    for (generation, _), figures in sorted(cycles.items()):
        if arm in figures and all(name in figures for name in base):
            found.setdefault(generation, []).append(figures[arm] / mean(figures[name] for name in base))
    return list(found.values())


def measured_share(blocks: Sequence[Block], arm: str) -> float:
    """The part of the server's CPU that the bare one does not use: what the report's own figure should be."""
    ratio = estimate(ratios(blocks, arm, lambda block: block.server_cpu_us)).us
    return 1 - 1 / ratio


HEAD = [
    "in flight",
    "answers/s",
    "by bare (95 %)",
    "CPU µs",
    "by bare (95 %)",
    "parent's µs",
    "overhead reported",
    "measured",
]


def rows(document: Mapping[str, Any], transport: str) -> list[list[str]]:
    """One row for each arm at each number of calls in flight."""
    found = []
    blocks = [Block(**block) for block in document["blocks"] if block["transport"] == transport]
    for in_flight in dict.fromkeys(block.in_flight for block in blocks):
        level = [block for block in blocks if block.in_flight == in_flight]
        reported = _reported(document, transport, in_flight)
        for arm in dict.fromkeys(block.arm for block in level):
            mine = [block for block in level if block.arm == arm]
            rate, cpu = (median(figure(block) for block in mine) for figure in (_rate, _cpu))
            cells = [f"{in_flight:,}: {ARMS[arm].shown}", f"{rate:,.0f}", "", f"{cpu:,.0f}", "", "", "", ""]
            if arm != BARE[0]:
                cells[2] = ratio_text(estimate(ratios(level, arm, _rate)))
                cells[4] = ratio_text(estimate(ratios(level, arm, _cpu)))
            if ARMS[arm].is_run:
                cells[5] = f"{median(block.parent_cpu_us for block in mine):,.0f}"
            if arm in reported:
                cells[6:] = [f"{reported[arm]:.1%}", f"{measured_share(level, arm):.1%}"]
            found.append(cells)
    return found


def _rate(block: Block) -> float:
    return block.per_s


def _cpu(block: Block) -> float:
    return block.cpu_us


def _reported(document: Mapping[str, Any], transport: str, in_flight: int) -> dict[str, float]:
    for one in document["reported"]:
        if (one["transport"], one["in_flight"]) == (transport, in_flight):
            return {arm: mean(shares) for arm, shares in one["shares"].items()}
    return {}


def ratio_text(found: Estimate) -> str:
    """With its interval."""
    return f"{found.us:.2f} ({found.low:.2f} … {found.high:.2f})"


def trouble(document: Mapping[str, Any]) -> str | None:
    """What a reader must know before believing the figures."""
    worst = max(block["foreign_cores"] for block in document["blocks"])
    return f"Others used up to {worst:.1f} cores meanwhile: the figures are rough." if worst > 0.25 else None


def section(document: Mapping[str, Any]) -> str:
    """The part of the page for one Python."""
    machine = document["machine"]
    out = [
        f"### CPython {machine['python']}, CPU and answers",
        f"{machine['cpu']}, {machine['cores']} cores, {machine['system']}; mcp {machine['packages'].get('mcp')}; "
        f"mcp_probe at {machine['commit']}, {machine['date']}.",
    ]
    for transport in dict.fromkeys(block["transport"] for block in document["blocks"]):
        out += [f"**{TRANSPORT_NAMES[transport]}**", markdown_table(HEAD, rows(document, transport))]
    if (sentence := trouble(document)) is not None:
        out.append(sentence)
    return "\n\n".join(out)


def console_text(document: Mapping[str, Any]) -> str:
    """The tables for a terminal."""
    out = []
    for transport in dict.fromkeys(block["transport"] for block in document["blocks"]):
        found = [[cell.replace("`", "").replace("*", "") for cell in row] for row in rows(document, transport)]
        out += ["", TRANSPORT_NAMES[transport], *aligned([HEAD, *found])]
    sentence = trouble(document)
    return "\n".join([*out, *([] if sentence is None else ["", f"! {sentence}"])])
