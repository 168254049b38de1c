"""Stalls from records whose truth is constructed, and the silences that are none."""

from __future__ import annotations

import json
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_probe.workloads.load.log import Log
from mcp_probe.workloads.load.mix import Call, Mix
from mcp_probe.workloads.load.page import page
from mcp_probe.workloads.load.peer import Target
from mcp_probe.workloads.load.running import run_load
from mcp_probe.workloads.load.stalls import Stall, stalls_of, stalls_told
from mcp_probe.workloads.load.tally import Fate
from mcp_probe.workloads.load.verdict import json_of, judged
from tests.workloads.load.raw import mix_of, tool
from tests.workloads.load.test_result import MS, log_of, result_of

Rows = list[tuple[int, int, int, Fate]]
MIX = Mix((Call("quick", ({},)), Call("slow", ({},))), rate=20, seconds=30)


def stalled_log(stalls: list[tuple[int, int]], *, every_ms: int, until_ms: int, service_ms: int = 2) -> Log:
    """A server that answers nothing in [start, end) of each stall, and everything that waited right after."""

    def answered(due: int) -> int:
        done = due + service_ms
        for start, end in stalls:
            if start <= done < end:
                done = end
        return done

    return log_of([(0, due, answered(due), "ok") for due in range(0, until_ms, every_ms)])


def test_a_server_that_stalls_at_known_instants_is_said_to_have_done_so() -> None:
    log = stalled_log([(6000, 7000), (18000, 19000), (27000, 28000)], every_ms=50, until_ms=30_000)
    found = stalls_of(log, MIX)
    assert [(round(each.start_s, 1), round(each.length_s, 2)) for each in found] == [(6, 1), (18, 1), (27, 1)]
    assert [each.waiting for each in found] == [21, 21, 21]  # 20 a second, the first and the last instant included
    assert stalls_told(found) == "The server stalled 1.0 s at 6, 18 and 27 s."


@settings(deadline=None, max_examples=25)
@given(
    st.lists(st.tuples(st.integers(300, 2000), st.integers(400, 3000)), min_size=1, max_size=6),
    st.integers(5, 50),
    st.integers(1, 9),
)
def test_a_stall_is_never_longer_than_the_truth_and_short_by_one_distance_at_most(
    parts: list[tuple[int, int]], every_ms: int, service_ms: int
) -> None:
    truth, at = [], 0
    for length, distance in parts:
        at += distance + 20 * every_ms  # so that most requests are answered soon
        truth.append((at, at + length))
        at += length + 20 * every_ms
    usual = at + 40 * sum(length for length, _ in parts)
    log = stalled_log(truth, every_ms=every_ms, until_ms=usual, service_ms=service_ms)
    found = stalls_of(log, MIX)
    assert len(found) == len(truth)
    for stall, (start, end) in zip(found, truth, strict=True):
        assert start - service_ms <= 1e3 * stall.start_s + 1e-6
        assert (end - start) - every_ms - service_ms <= 1e3 * stall.length_s + 1e-6
        assert 1e3 * stall.length_s <= (end - start) + service_ms + 1e-6


def test_a_server_with_nothing_to_do_does_not_stall() -> None:
    rows: Rows = [(0, due, due + 2, "ok") for due in (*range(0, 2000, 50), *range(9000, 11_000, 50))]
    assert stalls_of(log_of(rows), MIX) == ()


def test_one_slow_request_beside_others_that_are_answered_is_no_stall() -> None:
    log = log_of([*((0, due, due + 2, "ok") for due in range(0, 9000, 50)), (1, 3000, 8000, "ok")])
    assert stalls_of(log, MIX) == ()


def test_one_slow_request_alone_is_no_stall() -> None:
    log = log_of([*((0, due, due + 2, "ok") for due in range(0, 3000, 50)), (0, 3000, 8000, "ok")])
    assert stalls_of(log, MIX) == ()


def test_an_operation_that_always_takes_a_second_is_no_stall() -> None:
    """Nothing is answered in the first second of either half, though up to twenty wait."""
    rows: Rows = [(1, due, due + 1000, "ok") for due in (*range(0, 3000, 50), *range(9000, 12_000, 50))]
    assert stalls_of(log_of(rows), MIX) == ()


def test_an_operation_that_is_never_answered_is_no_stall() -> None:
    rows: Rows = [
        *((0, due, due + 2, "ok") for due in range(0, 2000, 50)),
        *((1, due, 9000, "cancelled") for due in (5, 9)),
    ]
    assert stalls_of(log_of(rows), MIX) == ()


def test_a_server_that_falls_behind_is_no_stall() -> None:
    """One call after another, 400 ms each: every distance between answers is long, and none is longer than usual."""
    log = log_of([(0, 100 * number, 400 * (number + 1), "ok") for number in range(60)])
    assert stalls_of(log, MIX) == ()


def test_a_silence_that_ends_with_a_pause_of_the_generators_is_known_up_to_the_pause() -> None:
    log = stalled_log([(6000, 7000)], every_ms=50, until_ms=12_000)
    log.pauses = [(MS + 6010 * MS, MS + 7000 * MS)]
    assert stalls_of(log, MIX) == ()
    log.pauses = [(MS + 3000 * MS, MS + 3100 * MS), (MS + 6500 * MS, MS + 6990 * MS)]
    (found,) = stalls_of(log, MIX)
    assert (round(found.length_s, 2), found.at_least) == (0.5, True)
    assert stalls_told([found]) == "The server stalled at least 0.50 s at 6 s."


def test_a_pause_within_a_silence_takes_nothing_off() -> None:
    """What had come within the pause would have been read after it, and nothing was."""
    log = stalled_log([(6000, 7000)], every_ms=50, until_ms=12_000)
    log.pauses = [(MS + 6100 * MS, MS + 6500 * MS), (MS + 6500 * MS, MS + 6900 * MS), (MS + 7100 * MS, MS + 7300 * MS)]
    (found,) = stalls_of(log, MIX)
    assert (round(found.length_s, 2), found.at_least) == (1.0, False)


def test_a_server_that_dies_answers_nothing_from_then_on() -> None:
    rows: Rows = [(0, due, due + 2, "ok") for due in range(0, 4000, 50)]
    rows_after: Rows = [(0, due, 11_000, "cancelled") for due in range(4000, 6000, 50)]
    found = stalls_of(log_of([*rows, *rows_after]), MIX)
    assert [(each.start_s, each.over, each.waiting) for each in found] == [(4.0, False, 40)]
    assert stalls_told(found) == "From 4 s on the server answered nothing more."


def test_a_server_that_answered_nothing_at_all_has_no_stall() -> None:
    assert stalls_of(log_of([(0, due, 9000, "cancelled") for due in range(0, 4000, 50)]), MIX) == ()


@pytest.mark.parametrize(
    ("stalls", "said"),
    [
        ([], ""),
        ([(6, 0.3)], "The server stalled 0.30 s at 6 s."),
        ([(6, 1), (8.26, 2)], "The server stalled 2 times, 3.0 s in all: 1.0 s at 6 s and 2.0 s at 8.3 s."),
        (
            [(second, 0.5) for second in range(8)],
            "The server stalled 8 times, 4.0 s in all, the longest: "
            "0.50 s at 0 s, 0.50 s at 1 s, 0.50 s at 2 s, 0.50 s at 3 s, 0.50 s at 4 s and 0.50 s at 5 s.",
        ),
    ],
)
def test_stalls_are_said_in_one_sentence(stalls: list[tuple[float, float]], said: str) -> None:
    assert stalls_told([Stall(start, length, 9) for start, length in stalls]) == said


def test_page_and_json_say_it() -> None:
    from dataclasses import replace

    log = stalled_log([(6000, 7000)], every_ms=50, until_ms=30_000)
    result = replace(result_of(log), stalls=stalls_of(log, MIX))
    assert judged(result).name == "keeps up, with stalls"
    assert "The server stalled 1.0 s at 6 s." in page(result, width=100, color=False)
    assert json.loads(json.dumps(json_of(result)))["stalls"][0]["length_s"] == pytest.approx(1.0, abs=0.01)


SLEEPER = """
import json, sys, threading, time
pausing = threading.Lock()
def pause():
    for second in (2.0, 5.0):
        time.sleep(max(0, begun + second - time.monotonic()))
        with pausing:
            time.sleep(1.0)
begun = None
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    name = message["method"]
    found = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
    found = {"tools": [{"name": "echo", "inputSchema": {}}]} if name == "tools/list" else found
    if name == "tools/call":
        found = {"content": []}
        if begun is None:  # the one before the load
            begun = time.monotonic()
            threading.Thread(target=pause, daemon=True).start()
    with pausing:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": found}), flush=True)
"""


@pytest.mark.workloads
def test_a_real_server_that_stalls_twice_is_told_with_its_seconds() -> None:
    target = Target(command=(sys.executable, "-c", SLEEPER))
    result = run_load(target, mix_of(tool("echo"), rate=50, seconds=8))
    long = [each for each in result.stalls if each.length_s > 0.7]
    assert [(round(each.start_s), round(each.length_s)) for each in long] == [(2, 1), (5, 1)]
    assert result.open.fates["ok"] == 400
