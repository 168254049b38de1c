from __future__ import annotations

import io
import os
from collections.abc import Iterator

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mcp_probe.capture import read
from mcp_probe.capture.read import WAITED_NS, LineStamps, StampedBuffer

AT_ONCE = WAITED_NS // 2
LONG = 100 * WAITED_NS
CHUNK = 8192


class Pipe(io.RawIOBase):
    """A pipe whose reads return the given chunks."""

    def __init__(self, chunks: list[bytes]) -> None:
        self._chunks = [chunk for chunk in chunks if chunk]

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray) -> int:  # type: ignore[override]
        if not self._chunks:
            return 0
        chunk = self._chunks.pop(0)
        size = min(len(chunk), len(buffer))
        buffer[:size] = chunk[:size]
        if chunk[size:]:
            self._chunks.insert(0, chunk[size:])
        return size


class Clock:
    """Each reading is one second after the one before."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        self.now += 1_000_000_000
        return self.now


def line_ends(data: bytes) -> Iterator[tuple[int, int]]:
    """(index of the first byte of each line's end, index after it), counted by hand."""
    at = 0
    while at < len(data):
        if data[at : at + 2] == b"\r\n":
            yield at, at + 2
            at += 2
        else:
            if data[at : at + 1] in (b"\r", b"\n"):
                yield at, at + 1
            at += 1


pieces = st.lists(
    st.lists(
        st.sampled_from([b"\n", b"\r", b"\r\n", b"{}", b"x", "é☃".encode(), b"\xff", b"\xe2"]),
        max_size=5,
    ).map(b"".join),
    max_size=8,
)


@given(pieces)
@example([b"ab\r", b"\ncd\n"])
@example([b"ab\r", b"", b"\n"])
@example([b"ab\r", b"\r\n"])
@example([b"\r", b"\n\n"])
@settings(deadline=None)
def test_every_line_the_text_wrapper_yields_has_its_own_stamp(chunks: list[bytes]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        clock = Clock()
        patch.setattr(read, "now_ns", clock)
        stamps = LineStamps()
        wrapper = io.TextIOWrapper(
            StampedBuffer(io.BufferedReader(Pipe(chunks)), stamps),
            encoding="utf-8",
            errors="replace",
        )
        taken = []
        for _line in wrapper:
            stamp = stamps.consumed()
            assert stamp is not None
            taken.append(stamp)
    data = b"".join(chunks)
    # Every read takes one second, so its number is its arrival; byte -> the read that brought it.
    reads = [number for number, chunk in enumerate(filter(None, chunks), 1) for _ in chunk]
    ends = list(line_ends(data))
    arrivals = [reads[first] for first, _ in ends]
    assert [arrival // 2_000_000_000 for arrival, _, _ in taken[: len(ends)]] == arrivals
    assert all(earliest == arrival for arrival, earliest, _ in taken)
    assert len(taken) == len(ends) + (not data.endswith((b"\r", b"\n")) and bool(data))
    assert not stamps.waiting
    assert stamps.waiting_bytes == 0


@given(pieces)
@settings(deadline=None)
def test_bytes_are_lines_that_wait_and_the_beginning_of_the_next(chunks: list[bytes]) -> None:
    """But for the second half of a line end that a chunk's border cut in two: its line is complete without it."""
    stamps = LineStamps()
    for chunk in chunks:
        stamps.read(chunk, CHUNK, 0, LONG)
    data = b"".join(chunks)
    cut = sum(
        b"".join(chunks[:number]).endswith(b"\r") and b"".join(chunks[number:]).startswith(b"\n") and chunk != b""
        for number, chunk in enumerate(chunks)
    )
    assert stamps.waiting_bytes == len(data) - cut
    while stamps.waiting:
        stamps.consumed()
    assert stamps.waiting_bytes == len(data) - max([end for _, end in line_ends(data)], default=0)


def test_a_line_in_two_reads_arrived_with_the_second() -> None:
    stamps = LineStamps()
    stamps.read(b'{"half', CHUNK, 0, LONG)
    assert stamps.waiting_bytes == 6
    assert not stamps.waiting
    stamps.read(b'":1}\n', CHUNK, LONG, 3 * LONG)
    assert stamps.consumed() == (3 * LONG, 3 * LONG, 11)


def test_lines_read_together_wait_together() -> None:
    stamps = LineStamps()
    stamps.read(b"a\nbb\nccc\n", CHUNK, 0, LONG)
    assert len(stamps.waiting) == 3
    assert stamps.consumed() == (LONG, LONG, 2)
    assert stamps.waiting_bytes == 7
    assert stamps.waiting_bytes_peak == 9


@pytest.fixture
def from_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stamps are made at instant 0."""
    monkeypatch.setattr(read, "now_ns", lambda: 0)


@pytest.mark.usefixtures("from_zero")
def test_a_read_that_had_to_wait_gives_the_arrival_exactly() -> None:
    stamps = LineStamps()
    stamps.read(b"a\n", CHUNK, LONG, LONG + WAITED_NS)
    assert stamps.consumed() == (LONG + WAITED_NS, LONG + WAITED_NS, 2)


@pytest.mark.usefixtures("from_zero")
def test_bytes_that_were_there_already_came_after_the_pipe_was_last_empty() -> None:
    stamps = LineStamps()
    stamps.read(b"a\n", CHUNK, 0, LONG)
    stamps.read(b"b\n", CHUNK, 5 * LONG, 5 * LONG + AT_ONCE)
    stamps.read(b"c\n", CHUNK, 9 * LONG, 9 * LONG + AT_ONCE)
    stamps.consumed()
    assert stamps.consumed() == (5 * LONG + AT_ONCE, LONG, 2)
    assert stamps.consumed() == (9 * LONG + AT_ONCE, 5 * LONG, 2)


@pytest.mark.usefixtures("from_zero")
def test_a_read_that_got_all_it_asked_for_has_not_emptied_the_pipe() -> None:
    """The bytes behind it may have been there as long as its own."""
    stamps = LineStamps()
    stamps.read(b"a\n", CHUNK, 0, LONG)
    stamps.read(b"x" * (CHUNK - 1) + b"\n", CHUNK, 5 * LONG, 5 * LONG + AT_ONCE)
    stamps.read(b"b\n", CHUNK, 7 * LONG, 7 * LONG + AT_ONCE)
    stamps.consumed()
    assert stamps.consumed() == (5 * LONG + AT_ONCE, LONG, CHUNK)
    assert stamps.consumed() == (7 * LONG + AT_ONCE, LONG, 2)


@pytest.mark.usefixtures("from_zero")
def test_what_the_first_read_finds_came_at_the_earliest_with_the_transport() -> None:
    stamps = LineStamps()
    stamps.read(b"a\n", CHUNK, LONG, LONG + AT_ONCE)
    assert stamps.consumed() == (LONG + AT_ONCE, 0, 2)


def test_a_last_line_without_end_is_consumed_once_the_input_has_ended() -> None:
    stamps = LineStamps()
    stamps.read(b"tail", CHUNK, 0, LONG)
    stamps.read(b"", CHUNK, LONG, 3 * LONG)
    assert stamps.consumed() == (3 * LONG, 3 * LONG, 4)
    assert stamps.consumed() is None
    assert stamps.waiting_bytes == 0


def test_without_any_read_nothing_is_known_of_a_line() -> None:
    assert LineStamps().consumed() is None


def test_bytes_still_in_the_pipe_are_counted_where_the_platform_can_tell() -> None:
    stamps = LineStamps()
    assert stamps.in_pipe() == 0
    reading, writing = os.pipe()
    try:
        os.write(writing, b"12345")
        stamps.descriptor = reading
        assert stamps.in_pipe() in (5, 0)
    finally:
        os.close(reading)
        os.close(writing)
    assert stamps.in_pipe() == 0  # closed by now: nothing is known, nothing is raised


def test_a_fault_in_the_stamping_leaves_the_bytes_untouched_and_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: object) -> None:
        raise RuntimeError("fault")

    told: list[Exception] = []
    stamps = LineStamps()
    monkeypatch.setattr(stamps, "read", broken)
    buffer = StampedBuffer(io.BytesIO(b"one\ntwo\n"), stamps, told.append)
    assert buffer.read1(4) == b"one\n"
    assert buffer.read1(4) == b"two\n"
    assert [str(exc) for exc in told] == ["fault"]
    assert stamps.consumed() is None


def test_everything_else_of_the_buffer_is_its_own() -> None:
    inner = io.BytesIO(b"x")
    buffer = StampedBuffer(inner, LineStamps())
    assert buffer.readable() is True
    assert buffer.getvalue() == b"x"
