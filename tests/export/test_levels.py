"""Gauges are over the last minute of the stream: a level that came and went is not missed, an old one does not stay."""

from __future__ import annotations

from typing import Any

import pytest

from mcp_probe.export import semantic_conventions as names
from mcp_probe.export.labels import Labels
from mcp_probe.export.observables import SLOT_NS, WINDOW_NS, Levels
from mcp_probe.model import LoopSample
from tests.frames import MS, SECOND, make_loop_sample, make_pool, make_process


def value(levels: Levels, instrument: names.Instrument) -> float:
    (reading,) = levels.read(instrument)
    assert reading[1] == ()
    return reading[0]


def by_label(levels: Levels, instrument: names.Instrument) -> dict[str, float]:
    return {series[0][1]: reading for reading, series in levels.read(instrument)}


def filled(*samples: Any) -> Levels:
    levels = Levels(Labels())
    for sample in samples:
        levels.add(sample)
    return levels


def blocked_every_two_seconds(at_ns: int) -> LoopSample:
    """Half a second of every two is one iteration."""
    return make_loop_sample([500 * MS], span_ns=2 * SECOND, at_ns=at_ns)


def test_arrival_delay_is_what_an_event_at_a_random_instant_would_wait() -> None:
    levels = filled(*(blocked_every_two_seconds(at * 2 * SECOND) for at in range(1, 11)))

    assert value(levels, names.LOOP_UTILIZATION) == pytest.approx(0.25)
    assert value(levels, names.ARRIVAL_DELAY_MEAN) == pytest.approx(0.0625)
    assert value(levels, names.ARRIVAL_DELAY_P50) == 0.0
    assert value(levels, names.ARRIVAL_DELAY_P90) == pytest.approx(0.3, rel=0.01)
    assert value(levels, names.ARRIVAL_DELAY_P99) == pytest.approx(0.48, rel=0.01)
    assert value(levels, names.ARRIVAL_DELAY_MAX) == 0.5


def test_a_loop_whose_polls_cannot_be_seen_says_nothing() -> None:
    levels = filled(make_loop_sample(quality="unavailable"))
    assert levels.read(names.LOOP_UTILIZATION) == levels.read(names.ARRIVAL_DELAY_P99) == []


def test_the_servers_own_loop_is_the_one_that_was_there_longest() -> None:
    levels = filled(
        make_loop_sample([100 * MS], span_ns=SECOND),
        make_loop_sample([90 * MS], span_ns=100 * MS, loop=7),
    )
    assert value(levels, names.LOOP_UTILIZATION) == pytest.approx(0.1)


def test_a_peak_between_two_samples_is_not_missed() -> None:
    levels = filled(
        make_process(at_ns=SECOND, outstanding=1, outstanding_peak=900, backlog_bytes_peak=70_000),
        make_process(at_ns=2 * SECOND, outstanding=0, outstanding_peak=1, backlog_bytes_peak=0),
    )
    assert (value(levels, names.OUTSTANDING), value(levels, names.BACKLOG)) == (900, 70_000)


def test_a_peak_is_gone_after_a_minute() -> None:
    levels = filled(
        make_process(at_ns=SLOT_NS, outstanding_peak=900),
        make_process(at_ns=SLOT_NS + WINDOW_NS - 1, outstanding_peak=2),
    )
    assert value(levels, names.OUTSTANDING) == 900
    levels.add(make_process(at_ns=SLOT_NS + WINDOW_NS, outstanding_peak=2))
    assert value(levels, names.OUTSTANDING) == 2


def test_a_backlog_that_cannot_be_seen_is_no_zero() -> None:
    assert filled(make_process(backlog_bytes_peak=None)).read(names.BACKLOG) == []


def test_executors_have_their_peaks_and_their_limit() -> None:
    levels = filled(
        make_pool(name="anyio_default", max=40.0, borrowed_peak=3, active_peak=2, pending_peak=0),
        make_pool(name="anyio_default", max=40.0, borrowed_peak=40, active_peak=39, pending_peak=12, at_ns=2 * SECOND),
        make_pool(name="threads", max=None, borrowed_peak=1, active_peak=1, pool=2),
    )
    assert by_label(levels, names.EXECUTOR_MAX) == {"anyio_default": 40.0}
    assert by_label(levels, names.EXECUTOR_BORROWED) == {"anyio_default": 40, "threads": 1}
    assert by_label(levels, names.EXECUTOR_ACTIVE) == {"anyio_default": 39, "threads": 1}
    assert by_label(levels, names.EXECUTOR_PENDING) == {"anyio_default": 12, "threads": 0}


def test_the_probes_own_share_is_of_the_window_and_unknown_without_cpu_time() -> None:
    assert filled(make_process(cpu_ns=0, probe_cpu_ns=5)).read(names.PROBE_OVERHEAD) == []
    levels = filled(
        make_process(cpu_ns=900 * MS, probe_cpu_ns=0),
        make_process(cpu_ns=100 * MS, probe_cpu_ns=20 * MS, at_ns=2 * SECOND),
    )
    assert value(levels, names.PROBE_OVERHEAD) == pytest.approx(0.02)


def test_active_requests_follow_the_latest_sample_and_go_back_to_zero() -> None:
    levels = filled(make_process(active=(("tools/call", 3), ("ping", 1), ("evil/one", 2), ("evil/two", 2))))
    assert by_label(levels, names.ACTIVE) == {"tools/call": 3, "ping": 1, names.OTHER: 4}
    levels.add(make_process(at_ns=2 * SECOND, active=(("tools/call", 1),)))
    assert by_label(levels, names.ACTIVE) == {"tools/call": 1, "ping": 0, names.OTHER: 0}


def test_a_method_whose_requests_are_too_short_to_be_met_is_at_zero() -> None:
    levels = filled(make_process())
    levels.know("ping")
    assert by_label(levels, names.ACTIVE) == {"ping": 0}


def test_what_was_dropped_adds_up_by_reason() -> None:
    levels = filled(
        make_process(dropped=(("marks", 3),)), make_process(at_ns=2 * SECOND, dropped=(("marks", 1), ("frames", 2)))
    )
    levels.drop("frames", 5)
    assert by_label(levels, names.PROBE_DROPPED) == {"marks": 4, "frames": 7}


def test_every_gauge_of_the_conventions_is_read_somewhere() -> None:
    levels = filled(
        make_loop_sample([MS]),
        make_pool(),
        make_process(cpu_ns=1, active=(("ping", 1),), dropped=(("marks", 1),), backlog_bytes_peak=0),
    )
    wanted = (*names.LEVELS, names.ACTIVE, names.PROBE_DROPPED)
    assert [instrument.name for instrument in wanted if not levels.read(instrument)] == []
