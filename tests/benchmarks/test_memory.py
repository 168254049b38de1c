"""The memory benchmark on literal blocks, one small run of it, and the check of bytes against other counters."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from benchmarks.blocks import Block
from benchmarks.memory_tables import FORMAT, TARGETS, Run, console_text, from_json, section, share
from mcp_probe import native

ROOT = Path(__file__).resolve().parent.parent.parent
MACHINE = {
    "python": "3.13.0",
    "cpu": "a processor",
    "cores": 2,
    "system": "Linux 6.1",
    "packages": {"mcp": "2.3.0"},
    "commit": "abc1234",
    "date": "2026-01-01",
}
SAID = {"disabled_hooks": [], "calls": 10, "measured": 10, "method": "native-hybrid"}


def blocks(row: str, **p50_us: float) -> list[Block]:
    """Six cycles on a machine that gets slower, with the variants so many microseconds over the two equal ones."""
    made = []
    for cycle in range(6):
        for variant, extra in {"bare": 0.0, "bare again": 0.0, **p50_us}.items():
            took = 1000.0 + 50 * cycle + extra
            made.append(Block(row, variant, 0, cycle, 100, took, took + 10, took + 20, foreign_cores=0.0))
    return made


def run_of(*rows: list[Block], left_out: tuple[str, ...] = ()) -> Run:
    said = {found[0].row: SAID for found in rows}
    return Run(MACHINE, {}, tuple(block for found in rows for block in found), said, left_out)


def test_a_tier_is_judged_by_its_share_of_the_call_without_memory() -> None:
    run = run_of(blocks("call", light=11.25, detailed=225.0), blocks("documents", light=22.5, detailed=22.5))
    assert share(run.rows()["call"], "light").us == pytest.approx(1.0)
    states = {(verdict.row, verdict.limit): verdict.state for verdict in run.verdicts()}
    assert states[("call", 3.0)] == "met" and states[("call", 10.0)] == "missed"
    assert states[("documents", 10.0)] == "met"
    assert len(run.verdicts()) == len(TARGETS)


def test_what_is_not_there_is_said_and_a_miss_stands_out() -> None:
    run = run_of(blocks("call", light=100.0), left_out=("memray",))
    assert "memray is not installed here" in console_text(run)
    assert "memray is not installed here" in section(run) and "**missed**" in section(run)
    unmeasured = Run(MACHINE, {}, run.blocks, {"call": {**SAID, "measured": 0}})
    assert "measured 0 of 10 calls" in section(unmeasured)


def test_results_come_back_as_they_were_and_of_another_format_are_refused() -> None:
    run = run_of(blocks("call", light=1.0))
    document = json.loads(json.dumps({"format": FORMAT, **asdict(run)}))
    assert from_json(document) == run
    with pytest.raises(ValueError, match="mcp-probe-memory/9"):
        from_json({**document, "format": "mcp-probe-memory/9"})


@pytest.mark.slow
def test_a_small_run_measures_every_variant(tmp_path: Path) -> None:
    output = tmp_path / "memory.json"
    command = [sys.executable, "benchmarks/memory.py", "--smoke", "--row", "call", "--output", str(output)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    run = from_json(json.loads(output.read_text()))
    assert {"bare", "bare again", "light", "detailed", "tracemalloc"} <= {one.variant for one in run.blocks}
    assert all(one.p50_us > 0 for one in run.blocks)
    assert run.said["call"]["disabled_hooks"] == []
    assert (run.said["call"]["measured"] > 0) == (native.core is not None)


@pytest.mark.skipif(native.core is None, reason=f"no accelerator: {native.absence}")
@pytest.mark.skipif(shutil.which("cc") is None, reason="no compiler here")
def test_bytes_requested_are_those_of_a_preloaded_malloc_to_the_byte() -> None:
    command = [sys.executable, "benchmarks/memory_truth.py", "--no-valgrind"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "24 of 24 equal" in done.stdout
