"""What a run of the memory benchmark found, as tables and sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.blocks import BARE, Block, Estimate, Verdict, added, judge, level, undisturbed
from benchmarks.tables import markdown_table

FORMAT = "mcp-probe-memory/1"
NAMES = {
    "bare": 'probe, `memory="off"`',
    "bare again": "the same again (the floor)",
    "light": '**`memory="light"`** (the default)',
    "detailed": '**`memory="detailed"`**',
    "tracemalloc": '`memory="off"`, under tracemalloc (1 frame)',
    "memray": '`memory="off"`, under memray (Python allocators)',
}
ROWS = {
    "call": "a tool that adds two numbers",
    "documents": "a tool that reads a document and packs a report",
    "objects": "a tool that does nothing but make and drop small objects",
}
TARGETS = (
    ("call", "light", 3.0),
    ("documents", "light", 2.0),
    ("call", "detailed", 10.0),
    ("documents", "detailed", 10.0),
)
"""Percent of the median call without memory. Source: docs/performance.md. The third row, the worst case, has none."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run, raw."""

    machine: dict[str, Any]
    plan: dict[str, Any]
    blocks: tuple[Block, ...]
    said: dict[str, dict[str, Any]]  # per row: what the probe said of itself
    left_out: tuple[str, ...] = ()  # tracers that are not installed

    def rows(self) -> dict[str, list[Block]]:
        """Blocks by row, without the cycles that others disturbed where enough remain."""
        found: dict[str, list[Block]] = {}
        for block in self.blocks:
            found.setdefault(block.row, []).append(block)
        return {row: undisturbed(blocks) for row, blocks in found.items()}

    def verdicts(self) -> list[Verdict]:
        """Every target that was measured."""
        rows = self.rows()
        return [
            judge(row, f"{ROWS[row]}, {tier}", share(rows[row], tier), limit, "%")
            for row, tier, limit in TARGETS
            if any(block.variant == tier for block in rows.get(row, ()))
        ]


def share(blocks: Sequence[Block], variant: str) -> Estimate:
    """What a variant adds to the median call, in percent of it."""
    return added(blocks, variant, "p50_us").relative_to(level(blocks, BARE, "p50_us"))


def cells_of(run: Run) -> dict[str, list[list[str]]]:
    """The table of each row."""
    tables: dict[str, list[list[str]]] = {}
    for row, blocks in run.rows().items():
        variants = list(dict.fromkeys(block.variant for block in blocks))
        for variant in variants:
            cells = [NAMES[variant], f"{level(blocks, [variant], 'p50_us'):,.0f}"]
            if variant == BARE[0]:
                cells += ["", ""]
            else:
                mean = added(blocks, variant, "mean_us").relative_to(level(blocks, BARE, "mean_us"))
                cells += [percent(share(blocks, variant)), percent(mean)]
            tables.setdefault(row, []).append(cells)
    return tables


def percent(found: Estimate) -> str:
    """With its interval; whole percent where it is large."""
    places = 1 if abs(found.us) < 100 else 0
    return f"{found.us:+,.{places}f} % ({found.low:+,.{places}f} … {found.high:+,.{places}f})"


HEAD = ("", "p50 µs", "added (95 %)", "of the mean")


def console_text(run: Run) -> str:
    """The tables and the verdicts."""
    out = [f"Python {run.machine['python']}, {run.machine['cpu']} × {run.machine['cores']}"]
    for row, lines in cells_of(run).items():
        table = [HEAD, *([line[0].replace("`", "").replace("*", ""), *line[1:]] for line in lines)]
        widths = [max(len(line[at]) for line in table) for at in range(len(HEAD))]
        out.append(f"\n{ROWS[row]}")
        out += ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in table]
    out += ["", *map(sentence_of, run.verdicts()), *trouble(run)]
    return "\n".join(out)


def sentence_of(verdict: Verdict) -> str:
    """One target."""
    return f"{verdict.what}: {verdict.estimate.text(2, '%')}, target at most {verdict.limit:g} %: {verdict.state}"


def trouble(run: Run) -> list[str]:
    """What a reader must know of this run."""
    out = [f"{name} is not installed here, so it was left out" for name in run.left_out]
    for row, said in run.said.items():
        if said["disabled_hooks"] or not said["measured"]:
            out.append(
                f"{row}: the probe measured {said['measured']} of {said['calls']} calls, {said['disabled_hooks']}"
            )
    bad = {(one.row, one.generation, one.cycle) for blocks in run.rows().values() for one in blocks if one.contended}
    if bad:
        out.append(f"others used the machine in {len(bad)} cycles: the figures are rough")
    return out


def section(run: Run) -> str:
    """One Python's tables and verdicts, for the page."""
    machine = run.machine
    out = [
        f"### CPython {machine['python']}, memory",
        f"{machine['cpu']}, {machine['cores']} cores, {machine['system']}; mcp {machine['packages'].get('mcp')}; "
        f"mcp_probe at {machine['commit']}, {machine['date']}.",
    ]
    for row, lines in cells_of(run).items():
        out += [f"**{ROWS[row][0].upper()}{ROWS[row][1:]}**", markdown_table(HEAD, lines)]
    states = [f"- {sentence_of(one)}".replace(one.state, f"**{one.state}**", 1) for one in run.verdicts()]
    out.append("\n".join(states))
    if said := trouble(run):
        out.append("Of this run must be known:\n\n" + "\n".join(f"- {sentence}" for sentence in said))
    return "\n\n".join(out)


def from_json(document: dict[str, Any]) -> Run:
    """Raises: ValueError where the document is of another format."""
    if document.get("format") != FORMAT:
        raise ValueError(f"The results have the format {document.get('format')!r}; expected {FORMAT!r}.")
    blocks = tuple(Block(**block) for block in document["blocks"])
    return Run(document["machine"], document["plan"], blocks, document["said"], tuple(document["left_out"]))
