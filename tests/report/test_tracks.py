from __future__ import annotations

import io
import json
from collections.abc import Iterable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from mcp_probe.model import Await, Frame, Header, HolderPart, JobRun, JobTimes, RequestRecord, StepRun, Timeline
from mcp_probe.record.file import read_recording
from mcp_probe.report import speedscope, trace
from mcp_probe.report.tracks import LOOPS, REQUESTS, Track, Tracks, tracks_of
from tests.frames import (
    MS,
    SECOND,
    make_end,
    make_group,
    make_header,
    make_loop_sample,
    make_open,
    make_pool,
    make_process,
    make_request,
    make_step,
    make_wait,
)
from tests.report.trace_checker import faults

jsonschema: Any = import_module("jsonschema")  # without types
DATA = Path(__file__).resolve().parent.parent / "data"


def timeline(request: int, steps: Iterable[tuple[int, ...]] = (), **given: Any) -> Timeline:
    made = Timeline(request, None, None, tuple(StepRun(*step) for step in steps), (), (), (), ())
    return replace(made, **given)


def lock(from_ns: int, to_ns: int, *holders: HolderPart) -> Await:
    name = "asyncio.Lock made at app.py:3"
    return Await("lock", name, "app.py:9", from_ns, to_ns, to_ns - from_ns, "exact", holders=holders)


def full() -> list[Frame]:
    """Request 1 holds a lock for 40 ms and blocks the loop for 20; request 2 waits for both, then has a thread work."""
    holder = HolderPart(1, "hold", "app.py:5", 12 * MS, 41 * MS, 1)
    return [
        make_header(server="shop", full=True),
        make_step(20 * MS, 40 * MS, 1, "hold", loop=1, cause="blocking-call", file="app.py", line=6, function="hold"),
        make_request(1, "hold", queue_transport=1 * MS, busy=21 * MS, awaiting=18 * MS, loop=1),
        timeline(
            1,
            [(1, 1 * MS, 1 * MS, 1 * MS, 1 * MS, 2 * MS, 0), (1, 2 * MS, 20 * MS, 20 * MS, 20 * MS, 40 * MS, 0)],
        ),
        make_request(
            2, "wait", arrival_ns=10 * MS, busy=1 * MS, awaiting=28 * MS, ready_wait=2 * MS, executor_run=9 * MS, loop=1
        ),
        timeline(
            2,
            [
                (1, 10 * MS, 10 * MS, 10 * MS, 10 * MS, 11 * MS, 0),
                (1, 11 * MS, 38 * MS, 38 * MS, 40 * MS, 41 * MS, 0),
            ],
            suspended=((1, 41 * MS),),
            jobs=(JobRun(1, "pool", 77, 41 * MS, 42 * MS, 50 * MS, 50 * MS, 1 * MS, True),),
            awaits=(lock(12 * MS, 38 * MS, holder),),
        ),
        make_loop_sample([30 * MS], loop=1, at_ns=SECOND),
        make_pool(name="pool", max=4.0),
        make_process(rss_bytes=50_000_000, gc_pauses=((5 * MS, 6 * MS, 2),)),
        make_end(at_ns=2 * SECOND),
    ]


def ordinary() -> list[Frame]:
    """What an ordinary recording has of it."""
    holder = HolderPart(1, "hold", "app.py:5", 12 * MS, 38 * MS, 1)
    known: dict[str, Any] = {
        "waits": (make_wait(38 * MS, 40 * MS),),
        "awaits": (lock(12 * MS, 38 * MS, holder),),
        "jobs": (JobTimes("pool", 41 * MS, 42 * MS, 50 * MS, 50 * MS),),
    }
    kept: list[Frame] = [make_header(server="shop")]
    for frame in full():
        if isinstance(frame, RequestRecord) and frame.id == 2:
            frame = replace(frame, **known)
        if not isinstance(frame, (Timeline, Header)):
            kept.append(frame)
    return kept


def events_of(tracks: Tracks) -> list[dict[str, Any]]:
    stream = io.StringIO()
    trace.write(tracks, stream)
    written: list[dict[str, Any]] = json.loads(stream.getvalue())["traceEvents"]
    return written


def slices(tracks: Tracks, track: Track) -> list[tuple[str, int, int]]:
    return [(one.name, one.from_ns // MS, one.to_ns // MS) for one in tracks.slices if one.track == track]


def flows(tracks: Tracks) -> list[tuple[str, int, int]]:
    return [(flow.name, flow.origin.number, flow.target.number) for flow in tracks.flows]


@pytest.mark.parametrize("make", [full, ordinary])
def test_what_is_written_is_sound(make: Any) -> None:
    assert faults(events_of(tracks_of(make()))) == []


def test_an_old_recording_is_drawn_as_far_as_it_goes() -> None:
    tracks = tracks_of(read_recording(DATA / "recording-v1.jsonl"))
    assert faults(events_of(tracks)) == []
    assert any(one.track.group == REQUESTS for one in tracks.slices)
    assert any("--full" in note for note in tracks.notes)


def test_a_request_has_a_track_with_its_phases_in_order() -> None:
    tracks = tracks_of(full())
    assert slices(tracks, Track(REQUESTS, 2)) == [
        ("wait", 10, 50),
        ("busy", 10, 11),
        ("awaiting lock", 11, 38),
        ("ready_wait", 38, 40),
        ("busy", 40, 41),
        ("executor_wait", 41, 42),
        ("executor_run", 42, 50),
    ]


def test_the_loops_track_has_every_step_and_the_line_of_slow_ones() -> None:
    tracks = tracks_of(full())
    assert slices(tracks, Track(LOOPS, 1)) == [
        ("hold", 1, 2),
        ("wait", 10, 11),
        ("hold", 20, 40),
        ("wait", 40, 41),
    ]
    slow = next(one for one in tracks.slices if one.track == Track(LOOPS, 1) and one.from_ns == 20 * MS)
    assert slow.args["where"] == "app.py:6"


def test_arrows_lead_from_the_holder_and_from_the_blocker_to_the_victim() -> None:
    expected = [("held asyncio.Lock made at app.py:3", 1, 2), ("held the event loop", 1, 2)]
    assert flows(tracks_of(full())) == expected
    assert flows(tracks_of(ordinary())) == expected


def test_threads_have_their_own_tracks_in_a_full_recording_and_lanes_in_an_ordinary_one() -> None:
    assert slices(tracks_of(full()), Track("threads of pool", 77)) == [("wait", 42, 50)]
    assert slices(tracks_of(ordinary()), Track("threads of pool", 1)) == [("wait", 42, 50)]


def test_counters_say_requests_in_flight_pools_memory_and_the_loop() -> None:
    levels = tracks_of(full()).levels
    in_flight = [level.values["requests"] for level in levels if level.counter == "requests in flight"]
    assert in_flight == [1, 2, 1, 0]
    assert [level.values for level in levels if level.counter == "resident memory"] == [{"MB": 50.0}]
    at_work = [level.values for level in levels if "at work" in level.counter]
    assert at_work == [{"in use": 1, "limit": 4.0}, {"in use": 0, "limit": 4.0}]
    other = [level.values["percent"] for level in levels if "no request" in level.counter]
    assert other == [pytest.approx((30 - 23) / 10)]


def test_an_ordinary_recording_says_that_full_shows_more_and_a_full_one_does_not() -> None:
    assert any("--full" in note for note in tracks_of(ordinary()).notes)
    assert not tracks_of(full()).notes


def test_what_was_sampled_cut_or_dropped_is_said() -> None:
    frames = full()
    frames[3] = timeline(1, left_out=(("steps", 1_200), ("awaits", 0)))
    frames += [make_group([(200, 7, 7 * MS)]), make_process(dropped=(("channel", 3),)), make_request(9, "late")]
    notes = " ".join(tracks_of(frames).notes)
    for words in ("7 of them are counted", "1,200 steps", "some awaits", "3 (channel)", "1 requests have a record"):
        assert words in notes


def test_a_request_that_never_ended_is_drawn_as_long_as_it_was_seen() -> None:
    tracks = tracks_of([make_header(), make_open(5, "hang")])
    assert slices(tracks, Track(REQUESTS, 5)) == [("hang (still open)", 0, 1000)]
    assert faults(events_of(tracks)) == []


def test_nothing_at_all_is_an_empty_trace() -> None:
    assert [event for event in events_of(tracks_of([])) if event["ph"] != "M"] == []


@pytest.mark.parametrize("make", [full, ordinary])
def test_speedscopes_file_keeps_its_schema_and_its_events_nest(make: Any) -> None:
    written = speedscope.profiles(tracks_of(make()))
    schema = json.loads((DATA / "speedscope" / "file-format-schema.json").read_text())
    jsonschema.validate(written, schema)
    assert written["profiles"][0]["name"].startswith("event loops")
    for profile in written["profiles"]:
        open_: list[int] = []
        at = profile["startValue"]
        for event in profile["events"]:
            assert event["at"] >= at
            at = event["at"]
            if event["type"] == "O":
                open_.append(event["frame"])
            else:
                assert open_.pop() == event["frame"]
        assert not open_
        assert at <= profile["endValue"]


def test_the_schema_is_strict_enough_to_find_a_broken_file() -> None:
    schema = json.loads((DATA / "speedscope" / "file-format-schema.json").read_text())
    written = speedscope.profiles(tracks_of(full()))
    written["profiles"][0]["unit"] = "parsecs"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(written, schema)


def test_times_keep_their_nanoseconds() -> None:
    start = 52_211_509_332_877
    frames = [make_request(1, arrival_ns=0), make_request(2, arrival_ns=start, busy=1)]
    event = next(one for one in events_of(tracks_of(frames)) if one["ph"] == "X" and one["tid"] == 2)
    assert (round(event["ts"] * 1_000), round(event["dur"] * 1_000)) == (start, 1)
