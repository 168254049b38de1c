"""Sessions: over stdio one, which ends with the transport; over HTTP by id, with the last request seen."""

from __future__ import annotations

from mcp_probe.export.metrics import IDLE_NS, MAX_SESSIONS, Session, Sessions
from tests.frames import MS, SECOND, make_request


def test_a_stdio_session_lasts_from_its_first_request_to_the_end_of_the_transport() -> None:
    sessions = Sessions()
    list(sessions.add(make_request(1, arrival_ns=SECOND, busy=MS, protocol_version="2025-06-18")))
    list(sessions.add(make_request(2, arrival_ns=3 * SECOND, busy=MS)))

    assert list(sessions.end(9 * SECOND)) == [Session("stdio", SECOND, 9 * SECOND, "2025-06-18")]
    assert list(sessions.end(10 * SECOND)) == []


def test_a_request_that_is_over_after_the_end_of_its_transport_is_of_the_same_session() -> None:
    sessions = Sessions()
    list(sessions.add(make_request(1, arrival_ns=SECOND, busy=MS)))
    assert len(list(sessions.end(9 * SECOND))) == 1
    list(sessions.add(make_request(2, arrival_ns=8 * SECOND, busy=2 * SECOND)))
    assert list(sessions.end(10 * SECOND)) == []

    list(sessions.add(make_request(3, arrival_ns=11 * SECOND, busy=MS)))
    assert list(sessions.end(12 * SECOND)) == [Session("stdio", 11 * SECOND, 12 * SECOND)]


def test_http_sessions_are_told_apart_by_their_ids() -> None:
    sessions = Sessions()
    for at, session_id in ((1, "a"), (2, "b"), (5, "a")):
        list(sessions.add(make_request(at, transport="http", session_id=session_id, arrival_ns=at * SECOND, busy=MS)))

    assert list(sessions.end(60 * SECOND)) == [
        Session("http", 2 * SECOND, 2 * SECOND + MS),
        Session("http", SECOND, 5 * SECOND + MS),
    ]


def test_the_end_of_one_http_transport_ends_no_other_session() -> None:
    sessions = Sessions()
    for at, session_id in ((1, "a"), (2, "b")):
        list(sessions.add(make_request(at, transport="http", session_id=session_id, arrival_ns=at * SECOND, busy=MS)))
    assert list(sessions.end(3 * SECOND, everything=False)) == []
    assert len(list(sessions.end(9 * SECOND))) == 2


def test_requests_of_no_session_count_none() -> None:
    sessions = Sessions()
    list(sessions.add(make_request(1, transport="http")))
    list(sessions.add(make_request(2, transport="memory")))
    list(sessions.add(make_request(3, transport="stdio", kind="function")))
    assert list(sessions.end(SECOND)) == []


def test_an_http_session_that_is_idle_for_long_is_over_without_the_idle_time() -> None:
    sessions = Sessions()
    list(sessions.add(make_request(1, transport="http", session_id="a", arrival_ns=0, busy=MS)))
    later = make_request(2, transport="http", session_id="b", arrival_ns=IDLE_NS + SECOND, busy=MS)
    assert list(sessions.add(later)) == [Session("http", 0, MS)]


def test_a_quiet_stdio_session_is_not_over() -> None:
    sessions = Sessions()
    list(sessions.add(make_request(1, arrival_ns=0, busy=MS)))
    assert list(sessions.add(make_request(2, arrival_ns=3 * IDLE_NS, busy=MS))) == []


def test_open_sessions_are_bounded_and_the_longest_idle_goes_first() -> None:
    sessions = Sessions()
    over = [
        session
        for n in range(MAX_SESSIONS + 2)
        for session in sessions.add(make_request(n + 1, transport="http", session_id=str(n), arrival_ns=n, busy=1))
    ]
    assert [session.start_ns for session in over] == [0, 1]
