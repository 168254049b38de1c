"""From callgrind's files to instructions a call, and the guard's judgement; the measured server, without valgrind."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import callgrind
from benchmarks.counted_server import ARMS, RUNGS
from benchmarks.instruction_tables import (
    PARTS,
    agreement,
    console_text,
    instructions,
    judge,
    part_rows,
    section,
    spread,
)
from benchmarks.orders import Ordered

ROOT = Path(__file__).resolve().parent.parent.parent
WORKER = "AnyIO worker thread"
DUMP = """# callgrind format
version: 1
thread: 2

events: Ir
summary: {0}


ob=(2) ???
fn=(562) 0x0000000004ff1000
0 6
totals: {0}
"""
ADDED = {"bare": 0, "loop": 100, "streams": 140, "messages": 200, "server": 260, "memory": 290, "probe": 350}


def document(scale: float = 1.0, **more: float) -> dict[str, Any]:
    """Counts of stdio in which each arm adds what ``ADDED`` says, in thousands, and ``more`` of it."""
    added = {**ADDED, "span": 230, "span and probe": 980}
    counted = {
        arm: [
            {"MainThread": scale * 1e3 * (2_000 + add + more.get(arm, 0)), WORKER: 1e5, "mcp-probe-watchdog": 5e6}
            for _ in range(2)
        ]
        for arm, add in added.items()
    }
    for process in counted["probe"]:
        process["mcp-probe-collector"] = 4e5
    build = {"python": "3.11.7", "compiler": "GCC", "processor": "x86_64", "packages": {"mcp": "2.3.0"}}
    return {
        "machine": {"commit": "abc1234", "date": "2026-01-01"},
        "identity": build,
        "valgrind": "3.19.0",
        "counted": {"stdio": counted},
    }


def test_each_dump_has_the_instructions_of_each_of_its_threads(tmp_path: Path) -> None:
    for number, thread, total in ((1, 1, 70), (1, 2, 7), (2, 1, 80), (10, 1, 90)):
        (tmp_path / f"counted.{number}-{thread:02}").write_text(DUMP.format(total))
    (tmp_path / "counted").touch()
    assert callgrind.dumps_in(tmp_path) == {1: {1: 70, 2: 7}, 2: {1: 80}, 10: {1: 90}}


def test_a_file_without_a_total_is_refused() -> None:
    with pytest.raises(ValueError, match="neither a summary nor totals"):
        callgrind.total_of("# callgrind format\nevents: Ir\n")


def test_threads_of_one_name_are_summed_and_one_that_was_silent_has_nothing() -> None:
    names = {71: "MainThread", 9: WORKER, 14: "mcp-probe-collector", 12: WORKER}
    found = callgrind.by_name({1: 500, 2: 30, 4: 12, 5: 0}, {1: 71, 2: 9, 4: 12}, names)
    assert found == {"MainThread": 500, WORKER: 42, "mcp-probe-collector": 0}


def test_instructions_of_a_thread_without_a_name_are_refused() -> None:
    with pytest.raises(ValueError, match="Thread 3 has executed 8"):
        callgrind.by_name({1: 500, 3: 8}, {1: 71, 3: 75}, {71: "MainThread"})


def test_a_number_that_two_threads_had_belongs_to_the_later_one() -> None:
    log = """==71== Thread 1: status = VgTs_Runnable (lwpid 70)
Thread 1: status = VgTs_Runnable (lwpid 71)
==71==    at 0x4AEA36F: PyThread_acquire_lock_timed (thread_pthread.h:497)
Thread 2: status = VgTs_WaitSys syscall 202 (lwpid 9)
Thread 2: status = VgTs_WaitSys syscall 232 (lwpid 12)
"""
    assert callgrind.threads_in(log) == {1: 71, 2: 12}


def test_what_is_done_once_a_block_is_in_no_call() -> None:
    once, call = {"MainThread": 900, WORKER: 40}, {"MainThread": 20, WORKER: 3}
    short, long = ({name: once[name] + calls * call[name] for name in once} for calls in (10, 20))
    assert callgrind.per_call(short, long, 10) == {"MainThread": 20.0, WORKER: 3.0}


def test_a_thread_that_began_after_the_first_block_counts_from_nothing() -> None:
    assert callgrind.per_call({"MainThread": 10}, {"MainThread": 30, WORKER: 40}, 10) == {"MainThread": 2, WORKER: 4}


@pytest.mark.parametrize(("more", "has_grown"), [(0, False), (17, False), (18, True), (30, True), (-40, False)])
def test_the_guard_fails_from_five_percent_of_what_the_probe_added(more: float, has_grown: bool) -> None:
    judgement = judge(document(), document(probe=more))
    assert judgement.has_grown is has_grown
    assert judgement.growth == pytest.approx(more / 350)


def test_the_guard_says_what_was_added_and_what_to_do() -> None:
    sentence = judge(document(), document(probe=30)).sentence
    assert sentence.startswith(
        "The probe adds 380 thousand instructions a call to 2,000 (committed: 350): +8.6%, at most"
    )
    assert "`make bench-instructions`" in sentence


def test_a_processor_on_which_everything_takes_more_has_not_grown() -> None:
    assert judge(document(), document(scale=1.2)).growth == pytest.approx(0)


def test_parts_add_up_to_the_whole() -> None:
    rows = part_rows(document())
    parts, whole, telemetry = rows[:-2], rows[-2], rows[-1]
    assert sum(int(row[2]) for row in parts) == int(whole[2]) == 350
    assert int(telemetry[2]) == 980 - 230 - 350


def test_threads_that_go_by_time_are_in_no_figure() -> None:
    assert instructions(document(), "stdio", "probe", "loop") == 2_350_000
    line = next(line for line in section(document()).splitlines() if line.startswith("| **mcp_probe**"))
    assert line == "| **mcp_probe** | 2,350 (+350) | 100 | 400 |  | 2,850 | +750 |"


def test_how_far_processes_are_apart_is_said() -> None:
    found = document()
    found["counted"]["stdio"]["span"][0]["MainThread"] *= 1.02
    assert spread(found, "stdio", "span") == pytest.approx(0.0198, abs=1e-4)
    assert "at most 1.98 %; the median is 0.00 %" in agreement(found)
    assert agreement(found) in console_text(found)


def test_a_method_that_is_no_longer_there_cannot_be_taken_out() -> None:
    from benchmarks.counted_server import instead

    class Hooks:
        pass

    with pytest.raises(AttributeError, match="no method 'install'"):
        instead(Hooks, "install", lambda self: None)


def test_every_part_has_an_arm() -> None:
    assert tuple(RUNGS) == PARTS


@pytest.mark.workloads
@pytest.mark.skipif(callgrind.missing() is not None, reason=str(callgrind.missing()))
@pytest.mark.parametrize("arm", ARMS)
def test_every_arm_serves_and_settles_without_valgrind_too(arm: str, tmp_path: Path) -> None:
    command = [sys.executable, "benchmarks/counted_server.py", "memory", "--arm", arm]
    ordered = Ordered(command, callgrind.environment(callgrind.build_clock(tmp_path)))
    with ordered.process:
        try:
            names = list(ordered.ask(calls=5)["threads"].values())
        finally:
            ordered.process.kill()
    assert names[0] == "MainThread"
    assert ("mcp-probe-collector" in names) is (arm not in ("bare", "span"))
    assert ("mcp-probe-awaits" in names) is ("probe" in arm)
    assert ("span export" in names) is ("span" in arm)


@pytest.mark.workloads
@pytest.mark.skipif(callgrind.missing() is not None, reason=str(callgrind.missing()))
def test_a_call_of_bare_is_counted_by_thread(tmp_path: Path) -> None:
    output = tmp_path / "instructions.json"
    command = [sys.executable, "benchmarks/instructions.py", "--processes", "1", "--output", str(output)]
    subprocess.run([*command, "--transport", "stdio", "--arm", "bare"], cwd=ROOT, check=True, timeout=280)
    found = json.loads(output.read_text("utf-8"))
    loop, workers = (instructions(found, "stdio", "bare", column) for column in ("loop", "worker threads"))
    assert 500_000 < loop < 20_000_000
    assert 10_000 < workers < loop
    assert found["plan"]["processes"] == 1
