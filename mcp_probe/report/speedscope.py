"""Tracks as a file of speedscope: one profile for each event loop and each worker thread.

Source: https://www.speedscope.app/file-format-schema.json, kept in tests/data.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, TextIO

from mcp_probe.report.tracks import COLLECTOR, REQUESTS, Slice, Track, Tracks

SCHEMA = "https://www.speedscope.app/file-format-schema.json"


def write(tracks: Tracks, stream: TextIO) -> None:
    """Write ``tracks``; what a request waited for has no place in this format."""
    json.dump(profiles(tracks), stream, separators=(",", ":"))
    stream.write("\n")


def profiles(tracks: Tracks) -> dict[str, Any]:
    """The whole file as plain JSON values."""
    frames: dict[tuple[str, str], int] = {}
    found = []
    of_track: dict[Track, list[Slice]] = {}
    for one in tracks.slices:
        of_track.setdefault(one.track, []).append(one)
    for track, name in tracks.names.items():
        if track.group in (REQUESTS, COLLECTOR):
            continue
        if slices := of_track.get(track):
            found.append(_profile(f"{track.group}: {name}", slices, frames))
    shared = [{"name": name, **({"file": where} if where else {})} for name, where in frames]
    return {
        "$schema": SCHEMA,
        "name": tracks.server,
        "exporter": "mcp_probe",
        "shared": {"frames": shared},
        "profiles": found,
    }


def _profile(name: str, slices: Sequence[Slice], frames: dict[tuple[str, str], int]) -> dict[str, Any]:
    zero = min(one.from_ns for one in slices)
    events: list[dict[str, Any]] = []
    open_: list[tuple[int, list[int]]] = []  # (until, its frames)

    def close(until: int | None) -> None:
        while open_ and (until is None or open_[-1][0] <= until):
            end, numbers = open_.pop()
            events.extend({"type": "C", "frame": number, "at": end - zero} for number in reversed(numbers))

    for one in sorted(slices, key=lambda each: (each.from_ns, -each.to_ns)):
        close(one.from_ns)
        stack = [(one.name, "")]
        if "function" in one.args:
            stack.append((str(one.args["function"]), str(one.args.get("where", ""))))
        numbers = [frames.setdefault(frame, len(frames)) for frame in stack]
        events.extend({"type": "O", "frame": number, "at": one.from_ns - zero} for number in numbers)
        open_.append((one.to_ns, numbers))
    close(None)
    end = max(one.to_ns for one in slices) - zero
    return {"type": "evented", "name": name, "unit": "nanoseconds", "startValue": 0, "endValue": end, "events": events}
