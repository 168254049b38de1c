"""Results of the overhead benchmark: as the console's table, and to and from the JSON file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from benchmarks.blocks import (
    BARE,
    FIGURES,
    Block,
    Verdict,
    added,
    idle_verdicts,
    level,
    own_share,
    undisturbed,
    verdicts,
)

FORMAT = "mcp-probe-overhead/1"
COLUMNS = ("variant", "p50 µs", "added µs (95 %)", "%", "mean µs", "added", "CPU µs", "added µs (95 %)", "%")
ROW_NAMES = {
    "memory": "in memory, over streams",
    "stdio": "stdio, SDK client",
    "http": "streamable HTTP, SDK client",
    "http-lean": "streamable HTTP at its leanest, raw client",
}


@dataclass(frozen=True, slots=True)
class Run:
    """One run of the benchmark, raw."""

    machine: dict[str, Any]
    plan: dict[str, Any]
    blocks: tuple[Block, ...]
    said: dict[str, list[dict[str, Any]]]  # per row: what each probed process said of itself

    hot_path: dict[str, Any] | None = None

    def rows(self) -> dict[str, list[Block]]:
        """Blocks by row, in the order measured, without the cycles that others disturbed where enough remain."""
        found: dict[str, list[Block]] = {}
        for block in self.blocks:
            found.setdefault(block.row, []).append(block)
        return {row: undisturbed(blocks) for row, blocks in found.items()}

    def verdicts(self) -> list[Verdict]:
        """Every target this run can speak to."""
        return [verdict for row in self.rows() for verdict in self.verdicts_of(row)]

    def verdicts_of(self, row: str) -> list[Verdict]:
        """Those of one row."""
        told = [one["idle_cpu_ms_per_s"] for one in self.said.get(row, ()) if "idle_cpu_ms_per_s" in one]
        return [*verdicts(row, self.rows()[row]), *idle_verdicts(row, told)]

    def self_measured(self, row: str) -> float | None:
        """Mean of the overhead that the probed processes reported, a share of their CPU."""
        shares = [one["overhead_share"] for one in self.said.get(row, ()) if one.get("overhead_share") is not None]
        return sum(shares) / len(shares) if shares else None


def idle_text(run: Run, row: str) -> str | None:
    """What the processes cost while nobody calls them; ``None`` in results from before it was measured."""
    told = [one["idle_cpu_ms_per_s"] for one in run.said.get(row, ()) if "idle_cpu_ms_per_s" in one]
    if not told:
        return None
    rates = ", ".join(f"{name} {median(one[name] for one in told):.2f}" for name in told[0])
    return f"CPU while idle, ms per second, which is not in the figures above: {rates}"


def variants_of(blocks: Sequence[Block]) -> list[str]:
    """In the order they were first run."""
    return list(dict.fromkeys(block.variant for block in blocks))


def table(blocks: Sequence[Block]) -> list[list[str]]:
    """One line of cells per variant, as in ``COLUMNS``."""
    lines = []
    for variant in variants_of(blocks):
        cells = [variant]
        for figure in FIGURES:
            cells.append(f"{level(blocks, [variant], figure):.1f}")
            if variant == BARE[0]:
                cells += [""] if figure == "mean_us" else ["", ""]
                continue
            extra = added(blocks, variant, figure)
            if figure == "mean_us":
                cells.append(f"{extra.us:+.1f}")
            else:
                cells += [extra.text(1), f"{extra.relative_to(level(blocks, BARE, figure)).us:+.2f}"]
        lines.append(cells)
    return lines


def verdict_text(verdict: Verdict) -> str:
    """Target, finding and how sure it is, in one line."""
    found = verdict.estimate.text(1 if verdict.unit == "µs" else 2, verdict.unit)
    return f"{verdict.what}: {found}, target at most {verdict.limit:g} {verdict.unit}: {verdict.state}"


def share_text(run: Run, row: str, blocks: Sequence[Block]) -> str:
    """The probe's own figure beside the one measured from outside."""
    said = run.self_measured(row)
    own = "not known" if said is None else f"{100 * said:.1f} %"
    return (
        f"overhead as the probe itself reports it {own}, measured from outside {100 * own_share(blocks):.1f} % of CPU"
    )


def trouble(run: Run) -> list[str]:
    """What a reader must know before believing the numbers."""
    sentences = []
    for row, blocks in run.rows().items():
        kept = sum(block.contended for block in blocks)
        left_out = sum(block.row == row for block in run.blocks) - len(blocks)
        if kept:
            sentences.append(f"{row}: {kept} of {len(blocks)} blocks ran beside other load; too few others were left")
        if left_out:
            sentences.append(f"{row}: {left_out} blocks are left out, since their cycles ran beside other load")
    if reruns := sum(block.reruns for block in run.blocks):
        sentences.append(f"{reruns} blocks were thrown away and run again because of other load")
    for row, answers in run.said.items():
        off = sorted({hook for answer in answers for hook in answer.get("disabled_hooks", ())})
        dropped = sum(answer.get("dropped") or 0 for answer in answers)
        sentences += [f"{row}: hook off: {hook}" for hook in off]
        sentences += [f"{row}: the probe dropped {dropped} of its records"] if dropped else []
    return sentences


def console_text(run: Run) -> str:
    """The whole result for a terminal of about 110 columns."""
    machine = run.machine
    packages = ", ".join(f"{name} {version}" for name, version in machine["packages"].items() if version)
    place = f"{machine['cpu']} x {machine['cores']}, load {machine['load_average_1min']}"
    lines = [f"Python {machine['python']}, {place}", packages]
    for row, blocks in run.rows().items():
        calls = sum(block.calls for block in blocks if block.variant == BARE[0])
        count = sum(block.variant == BARE[0] for block in blocks)
        lines += ["", f"{ROW_NAMES[row]}   ({count} blocks, {calls} calls per variant)"]
        lines += aligned([list(COLUMNS), *table(blocks)])
        lines += [f"  {verdict_text(verdict)}" for verdict in run.verdicts_of(row)]
        lines.append(f"  {share_text(run, row, blocks)}")
        if (idle := idle_text(run, row)) is not None:
            lines.append(f"  {idle}")
    lines += ["", *(f"! {sentence}" for sentence in trouble(run))]
    return "\n".join(lines).rstrip()


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns padded to their widest cell, first one to the left."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(["  " + row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip() for row in rows]


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """First column to the left, the others to the right."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def to_json(run: Run) -> dict[str, Any]:
    """The file format; ``results`` and ``verdicts`` are for readers, ``from_json`` computes them anew."""
    return {
        "format": FORMAT,
        "machine": run.machine,
        "plan": run.plan,
        "results": {row: _results(blocks) for row, blocks in run.rows().items()},
        "verdicts": [asdict(verdict) for verdict in run.verdicts()],
        "said_by_the_probe": run.said,
        "hot_path": run.hot_path,
        "blocks": [asdict(block) for block in run.blocks],
    }


def json_text(document: dict[str, Any]) -> str:
    """A run's document as the text of a file, a line per block."""
    blocks = ",\n  ".join(map(json.dumps, document["blocks"]))
    text = json.dumps({**document, "blocks": []}, indent=1, ensure_ascii=False)
    return text.replace('"blocks": []', f'"blocks": [\n  {blocks}\n ]') + "\n"


def _results(blocks: Sequence[Block]) -> dict[str, Any]:
    return {
        variant: {
            figure: {
                "median": level(blocks, [variant], figure),
                "added": None if variant == BARE[0] else asdict(added(blocks, variant, figure)),
            }
            for figure in FIGURES
        }
        for variant in variants_of(blocks)
    }


def from_json(found: dict[str, Any]) -> Run:
    """Raises: ValueError for another format."""
    if found.get("format") != FORMAT:
        raise ValueError(f"The file's format is {found.get('format')!r}; expected {FORMAT!r}.")
    blocks = tuple(Block(**block) for block in found["blocks"])
    return Run(found["machine"], found["plan"], blocks, found["said_by_the_probe"], found["hot_path"])
