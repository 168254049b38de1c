"""Who was there at once, and who waited longest, from single requests."""

from __future__ import annotations

from dataclasses import replace

from mcp_probe.model import JobTimes, RequestRecord
from mcp_probe.workloads.scenarios.readings import longest_wait_ms, most_in_flight, most_outstanding
from tests.frames import MS, make_request


def request(
    number: int, arrival_ms: int, *, queue_ms: int = 0, handled_ms: int = 10, write_ms: int = 0
) -> RequestRecord:
    return make_request(
        number,
        arrival_ns=arrival_ms * MS,
        queue_dispatch=queue_ms * MS,
        awaiting=handled_ms * MS,
        write_wait=write_ms * MS,
    )


def test_answers_that_wait_for_the_writer_are_outstanding_and_no_longer_in_flight() -> None:
    requests = [request(number, number, handled_ms=1, write_ms=100) for number in range(20)]
    assert (most_in_flight(requests), most_outstanding(requests)) == (1, 20)


def test_requests_that_have_not_begun_are_outstanding_and_not_yet_in_flight() -> None:
    requests = [request(number, 0, queue_ms=10 * number) for number in range(5)]
    assert (most_in_flight(requests), most_outstanding(requests)) == (1, 5)


def test_one_that_ends_as_another_begins_makes_room_for_it() -> None:
    assert most_in_flight([request(1, 0), request(2, 10), request(3, 10)]) == 2
    assert most_in_flight([]) == 0


def test_the_longest_wait_is_of_jobs_that_got_a_thread() -> None:
    jobs = (
        JobTimes("app", 0, 5 * MS, 9 * MS, 10 * MS),
        JobTimes("app", 0, 7 * MS, None, None),
        JobTimes("app", 0, None, None, None),
    )
    assert longest_wait_ms([replace(request(1, 0), jobs=jobs), request(2, 0)]) == 7.0
    assert longest_wait_ms([request(1, 0)]) is None
