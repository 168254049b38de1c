from __future__ import annotations

import io
import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mcp_probe import native
from mcp_probe.capture.guard import Guard
from mcp_probe.capture.readings import LOOK_NS, park
from mcp_probe.capture.stdin_reads import GIL_SLEEPS, MAX_LOOKS, QUEUED_NS, WAITED_NS, LineStamps, StampedRead
from mcp_probe.clock import now_ns
from tests.native.twins import needs_the_accelerator

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


def kept_from_its_cpu() -> tuple[int, int]:
    """(ns, times on a CPU) of the calling thread, by the kernel: what may make its reads late."""
    try:
        _, queued, slices = Path("/proc/thread-self/schedstat").read_text().split()
    except OSError:
        return 0, 0
    return int(queued), int(slices)


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
        kept = kept_from_its_cpu()
        assert buffered.read1(CHUNK) == b"later\n"
        after = now_ns()
        queued, slices = (b - a for a, b in zip(kept, kept_from_its_cpu(), strict=True))
    first, second = stamps.consumed(), stamps.consumed()
    assert first is not None and second is not None
    assert first[1] <= before < first[0] <= between and first[2] == 8
    assert between + 200_000_000 <= second[0] <= after and second[2] == 6
    assert between + 100_000_000 <= second[1] <= second[0]
    # It waited, so it came then: a range only where the host kept the reader from its CPU, or it waited for the GIL.
    assert second[0] == second[1] or queued >= QUEUED_NS or slices >= GIL_SLEEPS


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


def test_the_end_of_the_pipe_is_when_the_read_that_waited_for_it_came_back(lines: LineStamps) -> None:
    lines.read(b"one\n", CHUNK, 0, LONG)
    assert lines.ended_ns is None
    lines.read(b"", CHUNK, LONG, 3 * LONG)
    lines.read(b"", CHUNK, 3 * LONG, 5 * LONG)
    assert lines.ended_ns == 3 * LONG


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


class Looked:
    """Stands for the looks at a pipe: what they have found, to be taken once."""

    def __init__(self, *rows: tuple[int, int, int]) -> None:
        self.rows = [*rows]

    def take(self) -> list[tuple[int, int, int]]:
        taken, self.rows = self.rows, []
        return taken


def test_each_line_came_between_the_look_that_missed_it_and_the_one_that_found_it(lines: Any) -> None:
    lines.read(b"a\n", CHUNK, 0, 100, 0)
    lines.looks = Looked((2, 110, 150), (4, 160, 170), (8, 180, 190))
    lines.read(b"b\nc\nd\ne\n", CHUNK, 200, 210, 8, 201)
    assert [lines.consumed()[:2] for _ in range(5)] == [(100, 100), (160, 150), (180, 170), (180, 170), (201, 190)]


def test_bytes_that_were_seen_and_not_read_keep_their_looks(lines: Any) -> None:
    lines.looks = Looked((2, 10, 15), (6, 20, 25))
    lines.read(b"a\n", 2, 30, 31, 6, 30)
    lines.read(b"b\n", 2, 40, 41, 4, 40)
    lines.read(b"c\nd\n", CHUNK, 50, 51, 2, 50)
    assert [lines.consumed()[:2] for _ in range(4)] == [(10, 0), (20, 15), (20, 15), (51, 50)]


def test_a_read_that_waited_and_got_back_late_says_how_late_at_most(lines: Any) -> None:
    lines.read(b"a\n", CHUNK, 0, LONG, 0, 0, 300)
    lines.read(b"b\n", CHUNK, LONG, 2 * LONG, 0, LONG, 2 * LONG)
    lines.read(b"c\n", CHUNK, 3 * LONG, 3 * LONG, 2, 3 * LONG)
    assert [lines.consumed()[:2] for _ in range(3)] == [(LONG, LONG - 300), (2 * LONG, LONG), (3 * LONG, LONG)]


def test_a_read_that_says_it_came_back_after_its_bytes_were_seen_is_not_believed(lines: Any) -> None:
    """On a busy host it waited longer for a CPU or the GIL than it can know; the look before has not seen them."""
    lines.looks = Looked((0, 15, 20), (2, 100, 110))
    lines.read(b"a\n", CHUNK, 10, LONG, 0, 10, 50)
    lines.read(b"b\n", CHUNK, 2 * LONG, 2 * LONG + 1, 2, 2 * LONG)
    assert [lines.consumed()[:2] for _ in range(2)] == [(100, 20), (2 * LONG, 110)]


def test_the_second_half_of_a_line_end_counts_for_the_looks(lines: Any) -> None:
    lines.read(b"a\r", CHUNK, 0, 10, 0)
    lines.looks = Looked((3, 20, 25), (5, 30, 35))
    lines.read(b"\nb\n", CHUNK, 40, 41, 3, 40)
    assert [lines.consumed() for _ in range(2)] == [(10, 10, 2), (30, 25, 2)]


events = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(1, 3)),
        st.tuples(st.just("look"), st.just(0)),
        st.tuples(st.just("read"), st.integers(1, 12)),
    ),
    max_size=60,
)


@given(events)
@settings(deadline=None)
def test_every_line_came_between_its_bounds(script: list[tuple[str, int]]) -> None:
    """A pipe in memory: an event each 10 ns, and each read and look takes 2 of them."""
    lines: Any = LineStamps(0)
    truth: list[int] = []
    pipe = b""
    read = written = 0
    looked: list[tuple[int, int, int]] = []
    for now, (event, number) in enumerate(script, 1):
        at = 10 * now
        if event == "write":  # a line for each 2 bytes
            for _ in range(number):
                pipe += b"x\n"[written % 2 :][:1]
                written += 1
                if written % 2 == 0:
                    truth.append(at)
        elif event == "look":
            looked.append((read + len(pipe), at + 2, at))
        elif pipe:
            chunk, ready = pipe[:number], len(pipe)
            lines.looks = Looked(*looked)
            lines.read(chunk, number, at, at + 5, ready, at + 2)
            pipe, read, looked = pipe[number:], read + len(chunk), []
    stamps = [lines.waiting[n] for n in range(len(lines.waiting))]
    assert len(stamps) == read // 2
    for came, (latest, earliest, size) in zip(truth, stamps, strict=False):
        assert earliest <= came <= latest
        assert size == 2


def test_looks_that_are_kept_are_bounded(lines: Any) -> None:
    lines.looks = Looked(*((2 * n, 10 * n, 10 * n + 5) for n in range(1, 2000)))
    lines.read(b"a\n", 2, 30_000, 30_001, 5000, 30_000)
    assert len(lines._seen) <= MAX_LOOKS
    lines.read(b"b\n" * 1998, CHUNK, 30_010, 30_011, 4998, 30_010)
    lines.consumed()
    for n in range(2, 2000):
        latest, earliest, _ = lines.consumed()
        assert earliest <= 10 * n <= latest
        assert latest - earliest < (700 if n < 1900 else 40)


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


def test_where_steps_are_not_seen_nobody_reads_from_a_read_to_the_next() -> None:
    chunks = iter([b"one\n", b"two\n", b""])
    during = []
    stamps = LineStamps()
    stamps.loop_is_seen = False

    def own(size: int) -> bytes:
        during.append(stamps.looks.unattended)
        return next(chunks)

    read = StampedRead(own, stamps, NOBODY)
    after = []
    for _ in range(3):
        read(CHUNK)
        after.append(stamps.looks.unattended)
    assert during == [False, False, False]
    assert after == [True, True, False]  # nothing is read behind the end


@needs_the_accelerator
def test_where_steps_are_not_seen_a_watchdog_that_is_parked_is_woken_by_the_end_of_a_read() -> None:
    assert native.core is not None
    stamps = LineStamps()
    stamps.loop_is_seen = False
    read = StampedRead(io.BytesIO(b"one\n").read1, stamps, NOBODY)
    hour_ns = 3_600_000_000_000
    for _ in range(2):  # who woke the watchdog of an earlier test may have come too late for it
        looker = native.core.PipeLooker()
        looker.look_at((stamps.looks,))
        parked = threading.Thread(target=park, args=((), hour_ns, LOOK_NS, hour_ns, looker), daemon=True)
        parked.start()
        parked.join(20 * LOOK_NS / 1e9)
        if parked.is_alive():
            break
    assert parked.is_alive()
    read(CHUNK)
    parked.join(30)
    assert not parked.is_alive()
