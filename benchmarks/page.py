"""The generated parts of ``docs/performance.md``: between the marks, made of the committed results."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from benchmarks import cpu_tables, instruction_tables, memory_tables
from benchmarks.blocks import BARE, FIGURES, Estimate, Verdict, added, level
from benchmarks.tables import ROW_NAMES, Run, from_json, idle_text, markdown_table, share_text, trouble, variants_of

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "performance.md"
RESULTS = ROOT / "benchmarks" / "results"
VARIANT_NAMES = {
    "bare": "bare",
    "bare again": "bare again (the floor)",
    "probe": "**mcp_probe**",
    "probe, pure Python": "mcp_probe without its accelerator",
    "sdk-otel": "the SDK's OpenTelemetry",
    "sdk-otel and probe": "the SDK's OpenTelemetry, and mcp_probe adding to it",
}


def filled(page: str, parts: dict[str, str]) -> str:
    """``page`` with each ``<!-- name:begin -->…<!-- name:end -->`` holding the part of that name.

    Raises: ValueError if the page lacks the marks of a part.
    """
    for name, part in parts.items():
        marks = re.compile(rf"(<!-- {name}:begin -->\n).*?(<!-- {name}:end -->)", re.S)
        found = marks.search(page)
        if found is None:
            raise ValueError(f"The page has no marks for {name!r}.")
        begin, end = found.groups()
        page = f"{page[: found.start()]}{begin}\n{part}\n\n{end}{page[found.end() :]}"
    return page


def parts(results: Path = RESULTS) -> dict[str, str]:
    """What the committed results say, by name of the part."""
    runs = [from_json(json.loads(file.read_text("utf-8"))) for file in sorted(results.glob("overhead-*.json"))]
    soak = results / "soak.json"
    counted = [json.loads(file.read_text("utf-8")) for file in sorted(results.glob("instructions-*.json"))]
    loaded = [json.loads(file.read_text("utf-8")) for file in sorted(results.glob("cpu-*.json"))]
    memory = [json.loads(file.read_text("utf-8")) for file in sorted(results.glob("memory-*.json"))]
    return {
        "overhead": "\n\n".join(map(run_section, runs)) or "No results are committed yet.",
        "hot-path": "\n\n".join(hot_path_section(run) for run in runs if run.hot_path)
        or "No results are committed yet.",
        "instructions": "\n\n".join(map(instruction_tables.section, counted)) or "No results are committed yet.",
        "cpu": "\n\n".join(map(cpu_tables.section, loaded)) or "No results are committed yet.",
        "memory": "\n\n".join(map(memory_section, memory)) or "No results are committed yet.",
        "soak": soak_section(json.loads(soak.read_text("utf-8"))) if soak.exists() else "No results are committed yet.",
    }


def write_page() -> None:
    """Put the committed results into the page."""
    PAGE.write_text(filled(PAGE.read_text("utf-8"), parts()), "utf-8")


def run_section(run: Run) -> str:
    """One Python's tables and verdicts."""
    out = [f"### CPython {run.machine['python']}", machine_sentence(run)]
    for row, blocks in run.rows().items():
        calls = sum(block.calls for block in blocks if block.variant == BARE[0])
        out.append(f"**{ROW_NAMES[row]}**: {calls:,} calls per variant")
        head = ["", "p50 µs", "added (95 %)", "mean µs", "added (95 %)", "CPU µs", "added (95 %)"]
        lines = []
        for variant in variants_of(blocks):
            cells = [VARIANT_NAMES[variant]]
            for figure in FIGURES:
                extra = None if variant == BARE[0] else added(blocks, variant, figure)
                cells.append(f"{level(blocks, [variant], figure):,.0f}")
                cells.append("" if extra is None else added_cell(extra, level(blocks, BARE, figure)))
            lines.append(cells)
        out.append(markdown_table(head, lines))
        if judged := run.verdicts_of(row):
            out.append("\n".join(f"- {verdict_sentence(verdict)}" for verdict in judged))
        share = share_text(run, row, blocks)
        out.append(f"{share[0].upper()}{share[1:]}.")
        if (idle := idle_text(run, row)) is not None:
            out.append(f"{idle}.")
    said = trouble(run)
    if said:
        out.append("Of this run must be known:\n\n" + "\n".join(f"- {sentence}" for sentence in said))
    return "\n\n".join(out)


def added_cell(extra: Estimate, base_us: float) -> str:
    """Difference, interval and share."""
    return f"{extra.text(1)}, {extra.relative_to(base_us).us:+.1f} %"


def verdict_sentence(verdict: Verdict) -> str:
    """One target; a miss stands out."""
    found = verdict.estimate.text(1 if verdict.unit == "µs" else 2, verdict.unit)
    state = verdict.state if verdict.state == "met" else f"**{verdict.state}**"
    return f"{verdict.what}: {found}; target ≤ {verdict.limit:g} {verdict.unit}: {state}"


def machine_sentence(run: Run) -> str:
    """Where and with what it was measured."""
    machine = run.machine
    packages = ", ".join(f"{name} {version}" for name, version in machine["packages"].items() if version)
    return (
        f"{machine['cpu']}, {machine['cores']} cores, {machine['system']}, "
        f"load {machine['load_average_1min']} at the start; "
        f"{packages}; mcp_probe at {machine['commit']}, {machine['date']}."
    )


def hot_path_section(run: Run) -> str:
    """What single hooks cost."""
    found: dict[str, Any] = run.hot_path or {}
    lines = [[name, f"{cost:+,.0f}", f"{floor:,.0f}"] for name, cost, floor in found["added"]]
    lines += [[name, f"{cost:,.0f}", ""] for name, cost in found["alone"]]
    out = [f"### CPython {run.machine['python']}, nanoseconds", markdown_table(["", "added", "floor"], lines)]
    out += [f"Off, and so missing from these figures: {sentence}." for sentence in found["hooks_off"]]
    return "\n\n".join([*out, f"An in-memory call: {found['note']}."])


def soak_section(document: dict[str, Any]) -> str:
    """The readings, thinned to about ten, and the verdict."""
    samples = document["samples"]
    first = samples[0]["rss_mb"]
    step = max(1, len(samples) // 10)
    shown = [sample for place, sample in enumerate(samples, 1) if place == 1 or place % step == 0]
    table = markdown_table(
        ["requests", "resident MB", "since the first reading"],
        [[f"{one['requests']:,}", f"{one['rss_mb']:.1f}", f"{one['rss_mb'] - first:+.2f}"] for one in shown],
    )
    verdict = "flat" if document["flat"] else "**not flat**"
    seen = document["seen"]
    return (
        f"{table}\n\nFurthest from the first reading: {document['drift_mb']:+.2f} MB, "
        f"allowed ±{document['allowed_mb']:g} MB: {verdict}. "
        f"The probe counted {seen['requests']:,} requests, the handshake among them, "
        f"and dropped {seen['dropped']:,}. CPython {document['machine']['python']}, {document['machine']['date']}."
    )


def memory_section(document: dict[str, Any]) -> str:
    """What memory per request costs."""
    return memory_tables.section(memory_tables.from_json(document))
