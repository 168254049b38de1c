"""The ring of a flight recorder: what it keeps, and that its memory is bounded whatever comes."""

from __future__ import annotations

import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from mcp_probe.record.ring import MOST_BYTES, OVERHEAD, Ring

SECOND = 1_000_000_000


def test_it_keeps_so_many_seconds() -> None:
    ring = Ring(10)
    for second in range(30):
        ring.add(second * SECOND, [b"%d\n" % second])
    assert ring.lines() == (18 * SECOND, [b"%d\n" % second for second in range(19, 30)])


def test_nothing_is_said_to_be_missing_before_anything_is() -> None:
    ring = Ring(10)
    assert ring.lines() == (None, [])
    ring.add(3 * SECOND, [b"a"])
    assert ring.lines() == (None, [b"a"])


def test_what_has_no_room_is_forgotten_oldest_first() -> None:
    ring = Ring(1_000, most_bytes=3 * (OVERHEAD + 10))
    for number in range(9):
        ring.add(number, [b"%010d" % number])
    assert ring.lines() == (5, [b"%010d" % number for number in (6, 7, 8)])


def test_of_a_batch_that_has_no_room_the_end_is_kept() -> None:
    ring = Ring(1_000, most_bytes=2 * (OVERHEAD + 10))
    ring.add(1, [b"%010d" % number for number in range(9)])
    assert ring.lines()[1] == [b"%010d" % number for number in (7, 8)]


@given(st.lists(st.tuples(st.integers(0, 5), st.lists(st.integers(0, 400), max_size=8)), max_size=60))
def test_its_count_of_bytes_is_what_it_holds_and_never_above_the_limit(batches: list[tuple[int, list[int]]]) -> None:
    ring = Ring(20, most_bytes=2_000)
    now = 0
    for gap, sizes in batches:
        now += gap * SECOND
        ring.add(now, [b"x" * size for size in sizes])
        assert ring.bytes == sum(len(line) + OVERHEAD for line in ring.lines()[1]) <= 2_000


def test_a_busy_server_costs_it_4_mb_and_not_more() -> None:
    """100 000 requests of some 700 bytes, in batches of 50: 70 MB came, and 4 stay."""
    tracemalloc.start()
    try:
        ring = Ring(3_600)
        before = tracemalloc.get_traced_memory()[0]
        for batch in range(2_000):
            ring.add(batch, [b"%0600d" % (batch * 50 + number) + b"x" * (number * 4) for number in range(50)])
        held = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert 0.75 * MOST_BYTES < held < MOST_BYTES
