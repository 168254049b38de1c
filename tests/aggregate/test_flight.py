from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from mcp_probe.aggregate.flight import REORDER, Flight
from mcp_probe.model import RequestRecord
from mcp_probe.record.sampling import NEVER_NS
from tests.frames import MS, SECOND, US, make_open, make_request


def serial(count: int, gap_ns: int) -> list[RequestRecord]:
    """``count`` requests of 10 ms, each ``gap_ns`` after the answer before it."""
    period = 10 * MS + gap_ns
    return [make_request(number + 1, arrival_ns=number * period, awaiting=10 * MS) for number in range(count)]


def flight_of(records: list[RequestRecord]) -> Flight:
    flight = Flight()
    for record in records:
        flight.add(record, NEVER_NS)
    return flight


def test_a_client_that_sends_at_once_after_each_answer_shows_a_gap_per_request() -> None:
    for count in (40, 2 * REORDER):
        totals = flight_of(serial(count, 200 * US)).totals([])

        assert totals.serial_gaps == count - 1
        assert totals.max_in_flight == 1
        assert totals.awaiting_share == 1


def test_a_client_that_thinks_between_requests_shows_none() -> None:
    assert flight_of(serial(40, 5 * MS)).totals([]).serial_gaps == 0


def test_over_http_the_way_between_the_two_is_not_the_clients_thinking() -> None:
    over_http = [replace(each, transport="http") for each in serial(40, 4 * MS)]
    assert flight_of(over_http).totals([]).serial_gaps == 39
    assert flight_of(serial(40, 4 * MS)).totals([]).serial_gaps == 0
    assert flight_of([replace(each, transport="http") for each in serial(40, 9 * MS)]).totals([]).serial_gaps == 0


def test_a_request_that_comes_while_the_last_answer_is_being_written_is_still_one_by_one() -> None:
    records = [
        make_request(n + 1, arrival_ns=n * 10 * MS, awaiting=9_900 * US, write_flush=200 * US) for n in range(40)
    ]

    totals = flight_of(records).totals([])

    assert totals.max_in_flight == 1
    assert totals.serial_gaps == 39


def test_requests_beside_a_long_one_are_not_one_by_one() -> None:
    records = serial(40, 200 * US)
    long = make_request(99, arrival_ns=0, awaiting=SECOND)

    totals = flight_of([*records, long]).totals([])

    assert totals.max_in_flight == 2
    assert totals.serial_gaps == 0


def test_requests_beside_one_that_never_ends_are_not_one_by_one() -> None:
    hung = make_open(99, arrival_ns=0)
    flight = Flight()
    for record in serial(2 * REORDER, 200 * US):
        flight.add(record, hung.arrival_ns)

    totals = flight.totals([hung])

    assert totals.serial_gaps == 0
    assert totals.max_in_flight == 2


def test_a_request_overtaken_by_all_that_are_remembered_says_two_at_once() -> None:
    records = serial(2 * REORDER, 200 * US)
    late = make_request(9999, arrival_ns=5 * MS, awaiting=3600 * SECOND)

    assert flight_of([*records, late]).totals([]).max_in_flight >= 2


def test_notifications_and_profiled_calls_do_not_count() -> None:
    flight = flight_of([make_request(1, kind="notification"), make_request(2, kind="function")])

    assert flight.totals([]).max_in_flight == 0
    assert flight.totals([]).awaiting_share is None


def test_asking_for_totals_changes_nothing() -> None:
    flight = flight_of(serial(40, 200 * US))

    assert flight.totals([make_open(99, arrival_ns=0)]).max_in_flight == 2
    assert flight.totals([]) == flight_of(serial(40, 200 * US)).totals([])


@given(st.lists(st.tuples(st.integers(0, 100), st.integers(1, 50)), min_size=1, max_size=30))
def test_the_maximum_in_flight_is_that_of_counting_instant_by_instant(spans: list[tuple[int, int]]) -> None:
    records = [
        make_request(number + 1, arrival_ns=start, awaiting=length) for number, (start, length) in enumerate(spans)
    ]
    records.sort(key=lambda record: record.end_ns)
    truth = max(sum(start <= at < start + length for start, length in spans) for at in range(151))

    assert flight_of(records).totals([]).max_in_flight == truth
