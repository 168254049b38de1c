"""Requests that come faster than they are answered: from frames whose truth is laid out second by second."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from mcp_probe.aggregate.backlog import LISTENS, MOST_BINS, BacklogTally
from mcp_probe.aggregate.findings import verdict_of
from mcp_probe.aggregate.fold import Fold
from mcp_probe.model import BacklogGrowth, Frame, ProcessSample, Summary
from tests.frames import MS, SECOND, make_group, make_header, make_histogram, make_process, make_request


def frames_of(levels: Sequence[int], took_ms: Sequence[int], answers: int = 5) -> list[Frame]:
    """A sample a second with so many in flight; in the second before it so many answers, which took so long."""
    frames: list[Frame] = []
    for second, (level, ms) in enumerate(zip(levels, took_ms, strict=True), 1):
        for number in range(answers):
            end = (second - 1) * SECOND + number * SECOND // answers
            start = end - ms * MS
            frames.append(make_request(1_000 * second + number, "t1", arrival_ns=start, awaiting=ms * MS))
        frames.append(make_process(at_ns=second * SECOND, outstanding=level))
    return frames


def fold_of(frames: Sequence[Frame]) -> Summary:
    fold = Fold()
    fold.add_all([make_header(), *frames])
    return fold.summary()


def is_named(summary: Summary) -> bool:
    return "dispatch-backlog" in {finding.code for finding in summary.findings}


RISING = list(range(4, 44, 5))  # 8 seconds, five more each
SLOWER = [100 * second for second in range(1, 9)]


def test_a_backlog_that_grows_is_named_with_its_rates() -> None:
    """From where a quarter of the way is left behind: the seconds 2 to 8, of which each quarter takes 1.5 s."""
    summary = fold_of(frames_of(RISING, SLOWER))
    growth = summary.outstanding.growth
    assert growth == BacklogGrowth(
        seconds=6.0,
        before=9,
        after=39,
        arrived=60,
        ended=30,
        first_ms=pytest.approx((5 * 300 + 3 * 400) / 8),  # type: ignore[arg-type]
        last_ms=pytest.approx((2 * 700 + 5 * 800) / 7),  # type: ignore[arg-type]
        waited_ms=sum(5_000.0 * second for second in range(1, 7)),
    )
    [finding] = [finding for finding in summary.findings if finding.code == "dispatch-backlog"]
    assert finding.sentence.startswith(
        "For 6.0 s requests came faster than they were answered: 10 a second against 5. "
        "Those in flight grew from 9 to 39, and answers took 771 ms instead of 338 ms (mean); `t1` took most"
    )
    assert finding.evidence["slope_per_s"] == 5.0


def test_what_slows_the_answers_down_is_the_verdict_not_the_backlog_that_it_makes() -> None:
    summary = fold_of(frames_of(RISING, SLOWER))
    [backlog] = [finding for finding in summary.findings if finding.code == "dispatch-backlog"]
    alone = verdict_of(summary, [backlog])
    cause = replace(backlog, code="blocking-call", subject="t2", severity="critical", cost_ms=1.0)
    assert alone.code == "dispatch-backlog"
    assert verdict_of(summary, [backlog, cause]).code == "blocking-call"
    assert verdict_of(summary, [backlog, replace(cause, severity="info")]).code == "dispatch-backlog"


@pytest.mark.parametrize("before", [[0] * 20, [4, 5, 3, 4, 6, 5, 4, 5, 4, 3] * 2])
def test_a_server_that_was_idle_or_well_before_has_a_backlog_then(before: list[int]) -> None:
    assert is_named(fold_of(frames_of([*before, *RISING], [*[100] * 20, *SLOWER])))


def test_a_client_that_waits_for_all_answers_at_the_end_does_not_hide_it() -> None:
    assert is_named(fold_of(frames_of([*RISING, 20, 5, 0, 0, 0, 0, 0, 0], [*SLOWER, *[900] * 8])))


@pytest.mark.parametrize(
    ("why", "levels", "took_ms"),
    [
        ("as many answers as requests", [4, 5, 4, 3, 5, 4, 5, 4], [100] * 8),
        ("a burst, and what it takes to work it off", [40, 35, 30, 25, 20, 15, 10, 5], SLOWER),
        ("a burst in the middle", [4, 4, 4, 4, 40, 30, 20, 10], [100, 100, 100, 100, 200, 400, 600, 800]),
        ("two bursts", [4, 20, 4, 4, 4, 4, 4, 40], SLOWER),
        ("clients that join, with answers as quick as before", RISING, [100] * 8),
        ("three readings", RISING[:3], SLOWER[:3]),
    ],
)
def test_what_is_no_backlog_is_not_named(why: str, levels: list[int], took_ms: list[int]) -> None:
    assert not is_named(fold_of(frames_of(levels, took_ms))), why


def test_clients_that_join_one_by_one_are_no_backlog_though_answers_take_longer() -> None:
    """Three join a second and keep one request in flight each: a small part of what they send."""
    assert not is_named(fold_of(frames_of(range(1, 24, 3), SLOWER, answers=50)))


def test_requests_that_stay_open_by_design_do_not_count() -> None:
    frames = frames_of(RISING, SLOWER)
    listening = [
        replace(frame, active=((LISTENS, frame.outstanding - 1),)) if isinstance(frame, ProcessSample) else frame
        for frame in frames
    ]
    assert fold_of(listening).outstanding.growth is None


def test_calls_that_hang_and_hold_up_no_other_are_no_backlog() -> None:
    assert not is_named(fold_of([*frames_of(RISING, SLOWER, answers=0), *frames_of([0] * 8, [5] * 8)[:40:8]]))


def test_calls_without_a_record_count() -> None:
    frames = frames_of(RISING, SLOWER, answers=0)
    for second, ms in enumerate(SLOWER, 1):
        rows = make_histogram([ms * MS] * 5)
        frames.append(make_group(rows, "t1", first_ns=0, last_ns=(second - 1) * SECOND))
    summary = fold_of(frames)
    assert is_named(summary) and summary.outstanding.growth is not None
    assert summary.outstanding.growth.ended == 30


def test_each_process_has_its_own_and_the_larger_is_told() -> None:
    fold, other = Fold(), Fold()
    fold.add_all([make_header(), *frames_of(RISING, SLOWER)])
    other.add_all([make_header(pid=2), *frames_of([2 * level for level in RISING], SLOWER)])
    fold.merge(other)
    growth = fold.summary().outstanding.growth
    assert growth is not None and growth.after == 78
    assert fold.summary().outstanding.growth == growth, "a summary changes nothing"


def test_there_is_a_bound_and_nothing_is_lost_by_it() -> None:
    tally = BacklogTally()
    for second in range(5 * MOST_BINS):
        tally.add(make_request(second + 1, arrival_ns=second * SECOND, awaiting=MS))
        tally.add_sample(make_process(at_ns=second * SECOND, outstanding=second))
    assert len(tally._ended) <= MOST_BINS
    whole = BacklogTally()
    whole.merge(tally)
    growth = whole.summary()
    assert growth is not None and growth.ended == pytest.approx(growth.seconds, rel=0.01)
