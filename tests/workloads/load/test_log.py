"""A load of hours: its figures are those of the rows that are no longer kept, in memory that does not grow."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from mcp_probe.workloads.load import log as logs
from mcp_probe.workloads.load import times
from mcp_probe.workloads.load.log import Log
from mcp_probe.workloads.load.mix import Call, Mix
from mcp_probe.workloads.load.result import Phase, operations_of, phase_of, slices_of
from mcp_probe.workloads.load.stalls import stalls_of
from mcp_probe.workloads.load.tally import FATES, Fate
from mcp_probe.workloads.load.times import ERROR

MS = 1_000_000
WINDOW_MS = 3000
MIX = Mix((Call("a", ({},)), Call("b", ({},))), rate=10, seconds=WINDOW_MS / 1000)
Row = tuple[int, int, int, int, Fate]


def logged(rows: list[Row], *, kept: bool) -> Log:
    """Rows of call, due, late, took and fate; told to the log in the order of their ends, as a loop does."""
    log = Log(begun_ns=MS, window_ns=None if kept else WINDOW_MS * MS)
    events = sorted(
        [(due + late, 0, number) for number, (_, due, late, _, _) in enumerate(rows)]
        + [(due + late + took, 1, number) for number, (_, due, late, took, _) in enumerate(rows)]
    )
    for at, is_end, number in events:
        call, due, late, _, fate = rows[number]
        if fate == "not sent":
            if is_end:
                log.add(call, MS + due * MS, 0, 0, fate)
        elif is_end:
            log.add(call, MS + due * MS, MS + (due + late) * MS, MS + at * MS, fate)
            log.silences.ended(number, MS + at * MS, given_up=fate == "cancelled")
        else:
            log.silences.sent(number, call, MS + at * MS)
    log.offered_until_ns = MS + WINDOW_MS * MS
    log.ended_ns = log.last_done_ns
    return log


def drawn(seed: int) -> list[Row]:
    """Some dozens of requests, whatever may become of them."""
    chance = random.Random(seed)
    return [
        (
            chance.randrange(2),
            chance.randrange(WINDOW_MS),
            chance.randrange(50),
            chance.randrange(700),
            chance.choice(FATES),
        )
        for _ in range(chance.randrange(30, 80))
    ]


@pytest.mark.parametrize("seed", range(12))
def test_what_is_only_tallied_has_the_figures_of_what_is_kept(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    rows = drawn(seed)
    monkeypatch.setattr(logs, "CHUNK", 10)
    kept, tallied = logged(rows, kept=True), logged(rows, kept=False)
    assert (len(kept), len(kept.call), len(tallied.call)) == (len(rows), len(rows), 10)
    assert len(tallied) == len(rows)
    assert phase_of(tallied, 5.0) == phase_of(kept, 5.0)
    assert operations_of(tallied, MIX) == operations_of(kept, MIX)
    assert stalls_of(tallied, MIX) == stalls_of(kept, MIX)
    assert slices_of(tallied) == slices_of(kept)


@pytest.mark.parametrize("seed", range(12))
def test_in_buckets_figures_are_a_bucket_too_long_at_most(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    rows = drawn(seed)
    kept = phase_of(logged(rows, kept=True), 5.0)
    monkeypatch.setattr(logs, "CHUNK", 10)
    monkeypatch.setattr(times, "EXACT", 5)
    rough = phase_of(logged(rows, kept=False), 5.0)
    for one, other in zip(figures(rough), figures(kept), strict=True):
        assert other * (1 - 1e-9) <= one <= other * (1 + ERROR) + 1e-9
    assert (rough.due_to_answer.max, rough.due_to_answer.n) == (kept.due_to_answer.max, kept.due_to_answer.n)
    assert rough.fates == kept.fates


def figures(phase: Phase) -> Iterator[float]:
    for latency in (phase.due_to_answer, phase.sent_to_answer, phase.late):
        for value in (latency.mean, latency.p50, latency.p90, latency.p99, latency.p999, latency.max):
            if value is not None:
                yield value


def test_a_load_of_hours_needs_no_more_memory_than_one_of_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same window with three times the requests: more of them, and no more numbers are kept."""
    monkeypatch.setattr(logs, "CHUNK", 1_000)
    monkeypatch.setattr(times, "EXACT", 50)

    def kept_of(count: int) -> int:
        log = Log(begun_ns=MS, window_ns=24_000 * MS)
        for number in range(count):
            due = MS + number * 24_000 * MS // count
            took = (1 + number * 7919 % 97) * MS // 100
            log.silences.sent(number, 0, due)
            log.add(number % 2, due, due + MS // 10, due + MS // 10 + took, FATES[number % 5])
            log.silences.ended(number, due + took)
        assert (len(log), len(log.call), len(log.silences.found)) == (count, 1_000, 0)
        tally = log.tally()
        several = [tally.ok, tally.gave_up, tally.sent_ok, tally.sent_gave_up, tally.late, tally.served]
        several += [each for row in tally.calls.values() for each in (row.ok, row.gave_up, row.served)]
        several += [each for cell in tally.cells for each in (cell.waited, cell.served)]
        return sum(each.held() for each in several)

    few, many = kept_of(10_000), kept_of(30_000)
    assert many <= few


def test_rows_are_kept_where_nobody_knows_how_long_the_window_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "CHUNK", 10)
    log = Log(begun_ns=MS)
    for number in range(50):
        log.add(0, MS + number, MS + number, MS + number, "ok")
    assert (len(log.call), log.beyond) == (50, None)
