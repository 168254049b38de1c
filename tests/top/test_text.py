"""Snapshots as text, against screens written by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mcp_probe.now import Detail, Holder, Line, OperationNow, PoolNow, Snapshot, TaskNow, WaitNow
from mcp_probe.report.layout import width_of
from mcp_probe.report.paint import paint
from mcp_probe.report.theme import glyphs
from mcp_probe.top.text import Drawn, Look, Sort, chosen, detail_lines, screen
from tests.live.snapshots import BLOCKED, DEADLOCK, HELD, make_loop, make_request, make_snapshot

PLAIN = glyphs(color=False, ascii_only=False)


def shown(snapshot: Snapshot, **look: Any) -> list[str]:
    return paint(screen(snapshot, Look(**{"width": 80, "cwd": "/srv/app", **look}), PLAIN).lines, "none").splitlines()


def test_a_lock_on_24_lines_names_who_waits_and_who_holds_it() -> None:
    assert shown(DEADLOCK, height=22, selected=4) == [
        "notes · process 4711 · stdio · asyncio · mcp 2.3.0 · Python 3.13.1",
        "asyncio loop 25% busy · arrival delay 1.5 ms on average · longest turn 40 ms",
        "memory 84.1 MB",
        "",
        "IN FLIGHT 3 ────────────────────────────────────────────────────── 3 awaiting ──",
        "ID OPERATION   STATE       AGE  WAITS FOR, OR IS AT    HELD BY",
        " 5 append_note awaiting 5.00 s  asyncio.Loc…notes.py:5 #3 append_note notes.py:8",
        " 4 append_note awaiting 4.00 s  asyncio.Loc…notes.py:5 #3 append_note notes.py:8",
        " 3 append_note awaiting 3.00 s  sleep at notes.py:9",
        "append_note #4 has waited 3.60 s for asyncio.Lock made at notes.py:5 at",
        "notes.py:8, held by append_note #3, taken at notes.py:8 4.50 s ago, which has",
        "slept for 2.70 s at notes.py:9.",
        "",
        "WHO HOLDS THEM UP ──────────────────────────────────────────────────────────────",
        "append_note #3 has asyncio.Lock made at notes.py:5, taken at notes.py:8 4.50 s",
        "ago: 2 requests wait, the longest for 4.40 s",
        "",
        "ENDED IN THE LAST 10 s ─────────────────────────────────────────────────────────",
        "OPERATION  RATE    P50     P95     MAX  ERRORS  IN FLIGHT",
        "search     12/s  14 ms  166 ms  200 ms       2          0",
    ]


def test_a_blocked_loop_is_named_with_its_line_and_what_is_behind_it() -> None:
    assert shown(BLOCKED, width=100) == [
        "notes · process 4711 · stdio · asyncio · mcp 2.3.0 · Python 3.13.1",
        "asyncio loop 100% busy",
        "BLOCKED for 3.20 s by resize #5 at thumbs.py:31 in time.sleep (<1% of it on a CPU); 3 messages wait",
        "unread",
        "memory 84.1 MB",
        "",
        "IN FLIGHT 2, and 3 messages unread ───────────────────────────────────────────── 1 queue · 1 busy ──",
        "ID OPERATION STATE    AGE  WAITS FOR, OR IS AT HELD BY",
        " 5 resize    busy  5.00 s  thumbs.py:31",
        " 6 search    queue 6.00 s  the event loop      #5 resize thumbs.py:31",
        "",
        "WHO HOLDS THEM UP ──────────────────────────────────────────────────────────────────────────────────",
        "resize #5 has the event loop at thumbs.py:31 for 3.20 s: 1 request waits, the longest for 5.40 s",
        "",
        "THREADS ────────────────────────────────────────────────────────────────────────────────────────────",
        "anyio default limiter 40 of 40, 10 calls waiting, the longest 812 ms",
        "",
        "ENDED IN THE LAST 10 s ─────────────────────────────────────────────────────────────────────────────",
        "none",
    ]


def test_a_circle_is_called_a_deadlock() -> None:
    def waiting(mine: int, other: int) -> WaitNow:
        return WaitNow("lock", f"asyncio.Lock {other}", None, 9.0, (Holder(other, "t", f"/x.py:{other}", 9.0),))

    circle = make_snapshot(make_request(1, "t", waits=(waiting(1, 2),)), make_request(2, "t", waits=(waiting(2, 1),)))
    told = [line for line in shown(circle) if "DEADLOCK" in line]
    assert told == ["DEADLOCK t #1 waits for t #2 waits for t #1: none of them can go on."]
    assert not [line for line in shown(DEADLOCK) if "DEADLOCK" in line]


@pytest.mark.parametrize("width", [60, 80, 100, 200])
@pytest.mark.parametrize("height", [8, 12, 22, 60])
@pytest.mark.parametrize("snapshot", [DEADLOCK, BLOCKED, make_snapshot()])
def test_a_screen_fits_whatever_its_size(snapshot: Snapshot, width: int, height: int) -> None:
    many = replace(snapshot, requests=snapshot.requests * 30, in_flight=len(snapshot.requests) * 30)
    for one in (snapshot, many):
        drawn = screen(one, Look(width=width, height=height, selected=4), PLAIN)
        assert len(drawn.lines) <= height
        assert max(map(width_of, drawn.lines)) <= width


def test_rows_are_where_they_are_said_to_be_and_the_selected_one_is_in_sight() -> None:
    snapshot = make_snapshot(*(make_request(number, f"tool_{number}") for number in range(1, 100)))
    for selected in (99, 50, 1):
        drawn: Drawn = screen(snapshot, Look(width=80, height=22, selected=selected), PLAIN)
        assert selected in dict((number, line) for line, number in drawn.rows)
        for line, number in drawn.rows:
            assert f"tool_{number} " in "".join(span.text for span in drawn.lines[line])


def test_what_is_not_known_is_a_dash_and_never_0() -> None:
    loop = make_loop(utilization=None, arrival_delay_ms=None, longest_ms=None, quality="unavailable")
    unknown = make_snapshot(
        make_request(1, "t", "unknown", age_ms=None, state_ms=None),
        loops=(loop, make_loop(name="other", state="unknown")),
        rss_bytes=None,
        operations=(OperationNow("t", 1, 0, None, None, None, None),),
    )
    text = "\n".join(shown(unknown))
    assert "asyncio loop – busy · arrival delay – on average · longest turn –" in text
    assert "other loop · it does not show what runs on it" in text
    assert "memory –" in text
    assert " 1 t         unknown   –  –" in text
    assert " 0 ms" not in text


def test_an_estimate_is_marked() -> None:
    text = "\n".join(shown(make_snapshot(loops=(make_loop(name="uvloop", quality="estimate"),))))
    assert "uvloop loop ~25% busy · arrival delay ~1.5 ms on average" in text


@pytest.mark.parametrize(
    ("look", "words"),
    [
        ({"ended": "its process ends"}, "ENDED its process ends. This is what it did last."),
        ({"silent_s": 4.0, "silent_why": "it is stopped."}, "SILENT no answer for 4.00 s: it is stopped."),
        ({"paused": True}, "PAUSED p goes on"),
        ({"message": "written: /tmp/x"}, "written: /tmp/x"),
        ({"place": (2, 3)}, "notes (2 of 3) · process 4711"),
        ({"filter": "resize"}, "2 match “resize”"),
    ],
)
def test_how_somebody_looks_is_said(look: dict[str, Any], words: str) -> None:
    assert words in "\n".join(shown(BLOCKED, height=22, width=100, **look))


def test_more_requests_than_are_looked_at_are_said_to_be_there() -> None:
    text = "\n".join(shown(replace(DEADLOCK, in_flight=900)))
    assert "IN FLIGHT 900" in text
    assert "the 3 oldest are looked at" in text


@pytest.mark.parametrize(("sort", "ids"), [("age", [9, 5, 3]), ("operation", [5, 9, 3]), ("state", [9, 5, 3])])
def test_requests_come_in_the_order_that_is_asked_for(sort: Sort, ids: list[int]) -> None:
    snapshot = make_snapshot(
        make_request(3, "b", "awaiting"), make_request(9, "b", "busy"), make_request(5, "a", "awaiting")
    )
    assert [request.id for request in chosen(snapshot, Look(80, sort=sort))] == ids


@pytest.mark.parametrize(
    ("words", "ids"),
    [("append", [5, 4, 3]), ("lock", [5, 4]), ("LOCK #4", [4]), ("nothing", []), ("awaiting", [5, 4, 3])],
)
def test_a_filter_takes_what_has_all_its_words(words: str, ids: list[int]) -> None:
    assert [request.id for request in chosen(DEADLOCK, Look(80, filter=words))] == ids


def test_one_request_opened_shows_its_own_lines_and_counts_the_libraries() -> None:
    stack = (
        Line("/lib/python3.13/site-packages/mcp/runner.py", 230, "run", False),
        Line("/srv/app/notes.py", 8, "append_note", True),
        Line("/lib/python3.13/asyncio/locks.py", 15, "Lock.acquire", False),
    )
    tasks = (TaskNow("handler append_note", "suspended", 3_600.0, stack), TaskNow("thread of x", "waits", 5.0, ()))
    detail = Detail(DEADLOCK.requests[1], tasks)
    lines = detail_lines(detail, DEADLOCK, Look(80, cwd="/srv/app"), PLAIN)
    assert paint(lines, "none").splitlines() == [
        "append_note #4 · tools/call · stdio · age 4.00 s · 0 tasks",
        "append_note #4 has waited 3.60 s for asyncio.Lock made at notes.py:5 at",
        "notes.py:8, held by append_note #3, taken at notes.py:8 4.50 s ago, which has",
        "slept for 2.70 s at notes.py:9.",
        "– waits for asyncio.Lock made at notes.py:5 for 4.40 s at notes.py:8; held by",
        "  append_note #3, taken at notes.py:8 4.50 s ago",
        "",
        "handler append_note ──────────────────────────────────── suspended for 3.60 s ──",
        "… 1 line of libraries call this",
        "notes.py:8           append_note",
        "asyncio/locks.py:15  Lock.acquire",
        "",
        "thread of x ──────────────────────────────────────────────── waits for 5.0 ms ──",
        "no line of Python can be seen",
    ]


def test_names_of_strangers_move_no_cursor() -> None:
    evil = make_request(1, "\x1b[2J\u202etool", waits=(replace(HELD, object="\x1b]0;title\x07"),))
    text = "\n".join(shown(make_snapshot(evil)))
    assert "\x1b" not in text
    assert "\u202e" not in text


def test_a_pool_without_a_limit_has_none() -> None:
    pool = PoolNow("threads started by requests", None, None, 3, 3, 0, None)
    assert "threads started by requests 3" in shown(make_snapshot(pools=(pool,)))
