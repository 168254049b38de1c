from __future__ import annotations

import io
import os
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mcp_probe.capture.guard import Guard
from mcp_probe.capture.stdin_reads import WAITED_NS, LineStamps, StampedRead
from mcp_probe.clock import now_ns

AT_ONCE = WAITED_NS // 2
LONG = 100 * WAITED_NS
CHUNK = 8192


@pytest.fixture
def lines() -> LineStamps:
    """Stamps made at instant 0."""
    return LineStamps(0)


NOBODY = Guard("reads", lambda hook, exc: None)


def followed(buffer: Any, stamps: LineStamps) -> Any:
    """``buffer`` as the stdio hook leaves it."""
    buffer.read1 = StampedRead(buffer.read1, stamps, NOBODY)
    return buffer


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


def ranks(numbers: Sequence[int]) -> list[int]:
    """Each number's place among the different ones."""
    order = sorted(set(numbers))
    return [order.index(number) for number in numbers]


@given(chunks=pieces)
@example(chunks=[b"ab\r", b"\ncd\n"])
@example(chunks=[b"ab\r", b"", b"\n"])
@example(chunks=[b"ab\r", b"\r\n"])
@example(chunks=[b"\r", b"\n\n"])
@settings(deadline=None)
def test_every_line_the_text_wrapper_yields_has_its_own_stamp(chunks: list[bytes]) -> None:
    stamps = LineStamps()
    wrapper = io.TextIOWrapper(
        followed(io.BufferedReader(Pipe(chunks)), stamps),
        encoding="utf-8",
        errors="replace",
    )
    taken = []
    for _line in wrapper:
        stamp = stamps.consumed()
        assert stamp is not None
        taken.append(stamp)
    data = b"".join(chunks)
    # The number of the read that brought each byte.
    reads = [number for number, chunk in enumerate(filter(None, chunks), 1) for _ in chunk]
    ends = list(line_ends(data))
    assert ranks([arrival for arrival, _, _ in taken[: len(ends)]]) == ranks([reads[first] for first, _ in ends])
    assert all(earliest <= arrival for arrival, earliest, _ in taken)
    assert len(taken) == len(ends) + (not data.endswith((b"\r", b"\n")) and bool(data))
    assert sum(size for _, _, size in taken) == stamps_of(chunks)
    assert not stamps.waiting
    assert stamps.waiting_bytes == 0


def stamps_of(chunks: list[bytes]) -> int:
    """Bytes that lines are made of: all but second halves of line ends that a chunk's border cut in two."""
    return sum(map(len, chunks)) - halves(chunks)


def halves(chunks: list[bytes]) -> int:
    return sum(
        b"".join(chunks[:number]).endswith(b"\r") and b"".join(chunks[number:]).startswith(b"\n") and chunk != b""
        for number, chunk in enumerate(chunks)
    )


def test_a_read_of_a_pipe_says_whether_it_waited() -> None:
    reading, writing = os.pipe()
    stamps = LineStamps()
    with io.BufferedReader(io.FileIO(reading)) as inner, io.FileIO(writing, "w") as out:
        stamps.descriptor = inner.fileno()
        buffered = followed(inner, stamps)
        before = now_ns()
        out.write(b"at once\n")
        assert buffered.read1(CHUNK) == b"at once\n"
        between = now_ns()
        threading.Timer(0.2, out.write, [b"later\n"]).start()
        assert buffered.read1(CHUNK) == b"later\n"
        after = now_ns()
    first, second = stamps.consumed(), stamps.consumed()
    assert first is not None and second is not None
    assert first[1] <= before < first[0] <= between and first[2] == 8
    assert between + 200_000_000 <= second[0] == second[1] <= after and second[2] == 6


@given(chunks=pieces)
@settings(deadline=None)
def test_bytes_are_lines_that_wait_and_the_beginning_of_the_next(chunks: list[bytes]) -> None:
    """But for the second half of a line end that a chunk's border cut in two: its line is complete without it."""
    stamps = LineStamps()
    for chunk in chunks:
        stamps.read(chunk, CHUNK, 0, LONG)
    data = b"".join(chunks)
    assert stamps.waiting_bytes == stamps_of(chunks)
    while stamps.waiting:
        stamps.consumed()
    assert stamps.waiting_bytes == len(data) - max([end for _, end in line_ends(data)], default=0)


def test_a_line_in_two_reads_arrived_with_the_second(lines: Any) -> None:
    lines.read(b'{"half', CHUNK, 0, LONG)
    assert lines.waiting_bytes == 6
    assert not lines.waiting
    lines.read(b'":1}\n', CHUNK, LONG, 3 * LONG)
    assert lines.consumed() == (3 * LONG, 3 * LONG, 11)


def test_lines_read_together_wait_together(lines: Any) -> None:
    lines.read(b"a\nbb\nccc\n", CHUNK, 0, LONG)
    assert len(lines.waiting) == 3
    assert lines.consumed() == (LONG, LONG, 2)
    assert lines.waiting_bytes == 7
    assert lines.waiting_bytes_peak == 9


def test_a_read_that_had_to_wait_gives_the_arrival_exactly(lines: Any) -> None:
    lines.read(b"a\n", CHUNK, LONG, LONG + WAITED_NS)
    assert lines.consumed() == (LONG + WAITED_NS, LONG + WAITED_NS, 2)


def test_bytes_that_were_there_already_came_after_the_pipe_was_last_empty(lines: Any) -> None:
    lines.read(b"a\n", CHUNK, 0, LONG)
    lines.read(b"b\n", CHUNK, 5 * LONG, 5 * LONG + AT_ONCE)
    lines.read(b"c\n", CHUNK, 9 * LONG, 9 * LONG + AT_ONCE)
    lines.consumed()
    assert lines.consumed() == (5 * LONG + AT_ONCE, LONG, 2)
    assert lines.consumed() == (9 * LONG + AT_ONCE, 5 * LONG, 2)


def test_a_read_that_got_all_it_asked_for_has_not_emptied_the_pipe(lines: Any) -> None:
    """The bytes behind it may have been there as long as its own."""
    lines.read(b"a\n", CHUNK, 0, LONG)
    lines.read(b"x" * (CHUNK - 1) + b"\n", CHUNK, 5 * LONG, 5 * LONG + AT_ONCE)
    lines.read(b"b\n", CHUNK, 7 * LONG, 7 * LONG + AT_ONCE)
    lines.consumed()
    assert lines.consumed() == (5 * LONG + AT_ONCE, LONG, CHUNK)
    assert lines.consumed() == (7 * LONG + AT_ONCE, LONG, 2)


def test_what_the_first_read_finds_came_at_the_earliest_with_the_transport(lines: Any) -> None:
    lines.read(b"a\n", CHUNK, LONG, LONG + AT_ONCE)
    assert lines.consumed() == (LONG + AT_ONCE, 0, 2)


def test_a_last_line_without_end_is_consumed_once_the_input_has_ended(lines: Any) -> None:
    lines.read(b"tail", CHUNK, 0, LONG)
    lines.read(b"", CHUNK, LONG, 3 * LONG)
    assert lines.consumed() == (3 * LONG, 3 * LONG, 4)
    assert lines.consumed() is None
    assert lines.waiting_bytes == 0


def test_without_any_read_nothing_is_known_of_a_line(lines: Any) -> None:
    assert lines.consumed() is None


def test_bytes_still_in_the_pipe_are_counted_where_the_platform_can_tell(lines: Any) -> None:
    assert lines.in_pipe() == 0
    reading, writing = os.pipe()
    try:
        os.write(writing, b"12345")
        lines.descriptor = reading
        assert lines.in_pipe() in (5, 0)
    finally:
        os.close(reading)
        os.close(writing)
    assert lines.in_pipe() == 0  # closed by now: nothing is known, nothing is raised


def test_a_fault_in_the_stamping_leaves_the_bytes_untouched_and_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: object) -> None:
        raise RuntimeError("fault")

    told: list[tuple[str, Exception]] = []
    stamps = LineStamps()
    monkeypatch.setattr(stamps, "read", broken)
    guard = Guard("reads", lambda *fault: told.append(fault), stamps.stop)
    read = StampedRead(io.BytesIO(b"one\ntwo\n").read1, stamps, guard)
    assert read(4) == b"one\n"
    assert read(4) == b"two\n"
    assert [(name, str(exc)) for name, exc in told] == [("reads", "fault")]
    assert stamps.consumed() is None


@pytest.mark.parametrize("chunk", [None, b"", b"x\n", bytearray(b"x\n"), memoryview(b"x\n")], ids=repr)
def test_what_a_read_returns_is_returned(chunk: Any) -> None:
    stamps = LineStamps()
    read = StampedRead(lambda *args, **kwargs: chunk, stamps, NOBODY)
    assert read(CHUNK) is chunk
    assert read(size=CHUNK) is chunk
    assert len(stamps.waiting) == (2 if chunk else 0)


def test_a_read_that_raises_raises_its_own() -> None:
    fault = OSError("its own")

    def read(size: int) -> bytes:
        raise fault

    with pytest.raises(OSError, match="its own") as caught:
        StampedRead(read, LineStamps(), NOBODY)(CHUNK)
    assert caught.value is fault and caught.value.__context__ is None
