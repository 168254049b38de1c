"""The checker of traces finds what is wrong, one fault at a time."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from tests.report.trace_checker import faults

Events = list[dict[str, Any]]

SOUND: Events = [
    {"ph": "M", "name": "thread_name", "pid": 1, "tid": 1, "args": {"name": "#1"}},
    {"ph": "M", "name": "thread_name", "pid": 1, "tid": 2, "args": {"name": "#2"}},
    {"ph": "X", "name": "outer", "ts": 0.0, "dur": 10.0, "pid": 1, "tid": 1, "args": {}},
    {"ph": "X", "name": "first", "ts": 0.0, "dur": 4.0, "pid": 1, "tid": 1, "args": {}},
    {"ph": "C", "name": "in flight", "ts": 1.0, "pid": 2, "tid": 0, "args": {"requests": 1}},
    {"ph": "X", "name": "victim", "ts": 2.0, "dur": 9.0, "pid": 1, "tid": 2, "args": {}},
    {"ph": "s", "name": "held", "id": 1, "ts": 3.999, "pid": 1, "tid": 1},
    {"ph": "X", "name": "second", "ts": 4.0, "dur": 6.0, "pid": 1, "tid": 1, "args": {}},
    {"ph": "f", "bp": "e", "name": "held", "id": 1, "ts": 5.0, "pid": 1, "tid": 2},
]


def change(number: int, **values: Any) -> Callable[[Events], None]:
    return lambda events: events[number].update(values)


def drop(number: int) -> Callable[[Events], None]:
    def dropping(events: Events) -> None:
        del events[number]

    return dropping


def test_a_sound_trace_has_no_fault() -> None:
    assert faults(SOUND) == []


@pytest.mark.parametrize(
    ("breaking", "words"),
    [
        (change(3, dur=11.0), "ends after the slice"),
        (change(7, ts=3.998), "stands behind"),
        (change(2, dur=9.0), "ends after the slice"),
        (change(3, dur=0.0), "lasts 0 ns"),
        (change(3, dur=-1.0), "lasts -1000 ns"),
        (change(5, ts=0.5), "stands behind"),
        (change(2, ts=-1.0), "begins at -1.0"),
        (drop(8), "has one end"),
        (drop(6), "has one end"),
        (change(8, ts=3.0, pid=1), "stands behind"),
        (change(8, ph="s"), "two ends"),
        (change(8, tid=3), "lies in no slice"),
        (change(6, tid=2, pid=2), "lies in no slice"),
        (change(8, ts=11.0), "lies in no slice"),
        (change(4, args={"requests": -1}), "in flight is -1"),
        (change(4, args={"requests": float("nan")}), "in flight is nan"),
        (change(4, args={"requests": None}), "in flight is None"),
        (change(4, ph="B"), "unknown kind 'B'"),
        (change(5, ts=None), "no place or time"),
        (drop(1), "has no name"),
    ],
)
def test_each_broken_trace_is_found(breaking: Callable[[Events], None], words: str) -> None:
    events = copy.deepcopy(SOUND)
    breaking(events)
    assert any(words in fault for fault in faults(events)), faults(events)


def test_a_flow_that_runs_backwards_is_found() -> None:
    events = copy.deepcopy(SOUND)
    events[6]["ts"], events[8]["ts"] = 5.0, 3.999
    assert any("runs backwards" in fault for fault in faults(events))
