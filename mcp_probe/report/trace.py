"""Tracks as a trace of Chrome's JSON format, which Perfetto and chrome://tracing open.

Source: "Trace Event Format" (Chromium). Times are microseconds from the recording's first event, with three decimals:
no nanosecond is lost.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import chain
from typing import Any, TextIO

from mcp_probe.report.tracks import Tracks

_COUNTERS = "counters"


def write(tracks: Tracks, stream: TextIO) -> None:
    """Write ``tracks``, one event a line."""
    about = {"server": tracks.server, "notes": " ".join(tracks.notes)}
    stream.write(f'{{"displayTimeUnit":"ms","otherData":{json.dumps(about)},"traceEvents":[\n')
    first = True
    for event in events(tracks):
        stream.write(("" if first else ",\n") + json.dumps(event, separators=(",", ":")))
        first = False
    stream.write("\n]}\n")


def events(tracks: Tracks) -> Iterator[dict[str, Any]]:
    """The events of ``tracks``: names first, then everything in the order of time, outer slices first."""
    groups = dict.fromkeys(track.group for track in tracks.names)
    numbers = {group: number for number, group in enumerate((*groups, _COUNTERS), 1)}
    for group, number in numbers.items():
        yield {"ph": "M", "name": "process_name", "pid": number, "args": {"name": f"{tracks.server}: {group}"}}
        yield {"ph": "M", "name": "process_sort_index", "pid": number, "args": {"sort_index": number}}
    for order, (track, name) in enumerate(tracks.names.items()):
        where = {"pid": numbers[track.group], "tid": track.number}
        yield {"ph": "M", "name": "thread_name", **where, "args": {"name": name}}
        yield {"ph": "M", "name": "thread_sort_index", **where, "args": {"sort_index": order}}
    starts = chain(
        (one.from_ns for one in tracks.slices),
        (level.at_ns for level in tracks.levels),
    )
    zero = min(starts, default=0)

    def at(ns: int) -> float:
        return (ns - zero) / 1_000

    timed: list[tuple[int, int, dict[str, Any]]] = []
    for one in tracks.slices:
        where = {"pid": numbers[one.track.group], "tid": one.track.number}
        length = one.to_ns - one.from_ns
        event = {"ph": "X", "name": one.name, "cat": one.track.group, "ts": at(one.from_ns), "dur": length / 1_000}
        timed.append((one.from_ns, -length, {**event, **where, "args": one.args}))
    for number, flow in enumerate(tracks.flows, 1):
        common = {"name": flow.name, "cat": "blame", "id": number}
        origin = {"pid": numbers[flow.origin.group], "tid": flow.origin.number}
        target = {"pid": numbers[flow.target.group], "tid": flow.target.number}
        timed.append((flow.from_ns, 1, {"ph": "s", **common, "ts": at(flow.from_ns), **origin}))
        timed.append((flow.to_ns, 2, {"ph": "f", "bp": "e", **common, "ts": at(flow.to_ns), **target}))
    for level in tracks.levels:
        where = {"pid": numbers[_COUNTERS], "tid": 0}
        timed.append(
            (level.at_ns, 0, {"ph": "C", "name": level.counter, "ts": at(level.at_ns), **where, "args": level.values})
        )
    timed.sort(key=lambda row: row[:2])
    yield from (event for _, _, event in timed)
