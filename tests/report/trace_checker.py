"""What is wrong with a trace in Chrome's JSON format, as Perfetto would read it.

Knows nothing of the code that writes traces. tests/report/test_trace_checker.py breaks traces on purpose.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

Event = Mapping[str, Any]
_KNOWN = {"X", "M", "C", "s", "f"}


def faults(events: Iterable[Event]) -> list[str]:
    """One sentence for each fault; empty: the trace is sound."""
    events = list(events)
    found = [f"an event of the unknown kind {event.get('ph')!r}" for event in events if event.get("ph") not in _KNOWN]
    timed = [event for event in events if event.get("ph") in _KNOWN - {"M"}]
    found += [
        f"{event['name']}: no place or time"
        for event in timed
        if not all(isinstance(event.get(key), (int, float)) for key in ("ts", "pid", "tid"))
    ]
    if found:
        return found
    found += [f"{event['name']}: begins at {event['ts']}" for event in timed if event["ts"] < 0]
    found += [
        f"{later['name']} at {later['ts']} stands behind {earlier['ts']}"
        for earlier, later in pairwise(timed)
        if later["ts"] < earlier["ts"]
    ]
    tracks = _tracks(timed)
    for track, slices in tracks.items():
        found += _not_nested(track, slices)
    return found + _loose_flows(timed, tracks) + _bad_counters(timed) + _nameless(events, tracks)


def ns(us: float) -> int:
    """Back to whole nanoseconds."""
    return round(us * 1_000)


_Slice = tuple[int, int, str]
_Track = tuple[int, int]


def _tracks(events: Iterable[Event]) -> dict[_Track, list[_Slice]]:
    tracks: dict[_Track, list[_Slice]] = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            start = ns(event["ts"])
            tracks[event["pid"], event["tid"]].append((start, start + ns(event["dur"]), event["name"]))
    return tracks


def _not_nested(track: _Track, slices: Iterable[_Slice]) -> list[str]:
    found, open_ = [], list[int]()
    for start, end, name in slices:
        if end <= start:
            found.append(f"{name} on {track} lasts {end - start} ns")
        while open_ and open_[-1] <= start:
            open_.pop()
        if open_ and end > open_[-1]:
            found.append(f"{name} on {track} ends after the slice that it lies in")
        open_.append(end)
    return found


def _loose_flows(events: Iterable[Event], tracks: Mapping[_Track, list[_Slice]]) -> list[str]:
    found = []
    ends: dict[Any, dict[str, Event]] = defaultdict(dict)
    for event in events:
        if event["ph"] in "sf":
            if event["ph"] in ends[event["id"]]:
                found.append(f"flow {event['id']} has two ends of the kind {event['ph']}")
            ends[event["id"]][event["ph"]] = event
    for id, pair in ends.items():
        if len(pair) < 2:
            found.append(f"flow {id} has one end")
            continue
        if pair["f"]["ts"] < pair["s"]["ts"]:
            found.append(f"flow {id} runs backwards")
        for event in pair.values():
            at = ns(event["ts"])
            if not any(start <= at < end for start, end, _ in tracks.get((event["pid"], event["tid"]), ())):
                found.append(f"an end of flow {id} lies in no slice")
    return found


def _bad_counters(events: Iterable[Event]) -> list[str]:
    return [
        f"{event['name']} is {value!r}"
        for event in events
        if event["ph"] == "C"
        for value in event["args"].values()
        if not isinstance(value, (int, float)) or not 0 <= value < float("inf")
    ]


def _nameless(events: Iterable[Event], tracks: Iterable[_Track]) -> list[str]:
    named = {(event["pid"], event["tid"]) for event in events if event.get("name") == "thread_name"}
    return [f"track {track} has no name" for track in tracks if track not in named]
