"""The accelerator's poll against ``EpollSelector.select``: same events, same arguments for the system, same faults."""

from __future__ import annotations

import os
import selectors
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_probe import native
from mcp_probe.record.raw import RING_NS
from tests.native.twins import NativeTrack, needs_the_accelerator

pytestmark = [
    needs_the_accelerator,
    pytest.mark.skipif(not hasattr(selectors, "EpollSelector"), reason="this system has no epoll"),
]

READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE


@pytest.fixture
def selector() -> Iterator[Any]:
    with selectors.EpollSelector() as one:
        yield one


def poll_of(selector: Any) -> tuple[Any, Any]:
    track = NativeTrack()
    return native.core.Poll(track, selector.select, selector._selector.poll, selector._fd_to_key), track


def same(selector: Any, timeout: Any = 0) -> list[tuple[Any, int]]:
    """What both say is ready. Levels, not edges: asking twice changes nothing."""
    poll, _ = poll_of(selector)
    expected, found = (sorted(one, key=lambda row: row[0].fd) for one in (selector.select(timeout), poll(timeout)))
    assert found == expected
    assert all(type(row) is tuple and type(row[0]) is selectors.SelectorKey for row in found)
    return found


def test_nothing_registered_gives_nothing(selector: Any) -> None:
    for timeout in (0, 0.0, -1, -0.5, 0.001, 0.0001, 1e-9):
        assert same(selector, timeout) == []


def test_events_are_those_that_were_asked_for(selector: Any) -> None:
    with ExitStack() as stack:
        pairs = [tuple(stack.enter_context(end) for end in socket.socketpair()) for _ in range(6)]
        asked = (READ, WRITE, READ | WRITE)
        for number, (one, other) in enumerate(pairs):
            selector.register(one, asked[number % 3], data=number)
            if number < 3:
                other.send(b"x")
        masks = {key.data: mask for key, mask in same(selector)}
        assert masks == {0: READ, 1: WRITE, 2: READ | WRITE, 4: WRITE, 5: WRITE}


def test_a_hang_up_and_a_fault_wake_whoever_asked_for_anything(selector: Any) -> None:
    readers = [os.pipe() for _ in range(2)]
    writers = [os.pipe() for _ in range(2)]
    for (reader, writer), (other_reader, other_writer), events in zip(readers, writers, (READ, WRITE), strict=True):
        os.close(writer)  # EPOLLHUP at the reader
        selector.register(reader, events)
        os.close(other_reader)  # EPOLLERR at the writer
        selector.register(other_writer, events)
    found = same(selector)
    for reader, _ in readers:
        os.close(reader)
    for _, writer in writers:
        os.close(writer)
    assert [mask for _, mask in found].count(READ) == [mask for _, mask in found].count(WRITE) == 2


def test_many_keys_at_once(selector: Any) -> None:
    with ExitStack() as stack:
        for number in range(60):
            for end in socket.socketpair():
                selector.register(stack.enter_context(end), WRITE, data=number)
        assert len(same(selector)) == 120


class Epoll:
    """Stands in for the system's: notes what it is asked, and answers or raises as told."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.asked: list[tuple[Any, Any]] = []

    def poll(self, timeout: Any, most: Any) -> Any:
        self.asked.append((timeout, most))
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer

    def close(self) -> None:
        pass


def with_epoll(answer: Any) -> tuple[Any, Epoll]:
    selector: Any = selectors.EpollSelector()
    selector._selector.close()
    selector._selector = epoll = Epoll(answer)
    return selector, epoll


bits = st.integers(0, 2**32 - 1)


@given(
    st.none() | st.integers(-5, 10**6) | st.floats(-10, 1e9, allow_nan=False),
    st.lists(st.tuples(st.integers(0, 5), bits), max_size=6),
    st.dictionaries(st.integers(0, 5), st.sampled_from([READ, WRITE, READ | WRITE])),
)
@settings(max_examples=300, deadline=None)
def test_the_system_is_asked_the_same_and_its_answer_read_the_same(
    timeout: Any, events: list[tuple[int, int]], wanted: dict[int, int]
) -> None:
    selector, epoll = with_epoll(events)
    for fd, mask in wanted.items():
        selector._fd_to_key[fd] = selectors.SelectorKey(fd, fd, mask, None)
    poll, _ = poll_of(selector)
    assert poll(timeout) == selector.select(timeout)
    assert epoll.asked[0] == epoll.asked[1]


@pytest.mark.parametrize("fault", [ValueError("closed"), OSError(9, "bad"), KeyboardInterrupt(), SystemExit(1)])
def test_a_fault_of_the_system_and_a_ctrl_c_come_out_and_the_poll_is_over(fault: BaseException) -> None:
    selector, _ = with_epoll(fault)
    poll, track = poll_of(selector)
    with pytest.raises(type(fault)) as caught:
        poll(1)
    assert caught.value is fault
    assert not track.polling
    assert track.since == track.poll_end > 0


def test_an_interrupted_call_found_nothing() -> None:
    selector, _ = with_epoll(InterruptedError())
    poll, track = poll_of(selector)
    assert poll(None) == selector.select(None) == []
    assert not track.polling


@pytest.mark.parametrize("timeout", ["x", b"", [], object()])
def test_a_timeout_that_is_no_number_is_refused(timeout: Any, selector: Any) -> None:
    poll, track = poll_of(selector)
    with pytest.raises(TypeError):
        selector.select(timeout)
    with pytest.raises(TypeError):
        poll(timeout)
    assert not track.polling


@pytest.mark.parametrize("timeout", [float("inf"), 1e300])
def test_a_timeout_beyond_the_systems_is_refused(timeout: float, selector: Any) -> None:
    poll, _ = poll_of(selector)
    for select in (selector.select, poll):
        with pytest.raises(OverflowError):
            select(timeout)


def test_every_form_of_the_call_works(selector: Any) -> None:
    poll, track = poll_of(selector)
    assert poll(timeout=0) == poll(0) == selector.select(timeout=0) == []
    with pytest.raises(TypeError):
        poll(0, 1)
    with pytest.raises(TypeError):
        poll(when=0)
    track.alive = False
    assert poll(0) == poll(timeout=0) == []


def test_a_closed_selector_refuses_as_it_does_without() -> None:
    selector = selectors.EpollSelector()
    poll, _ = poll_of(selector)
    selector.close()
    told = []
    for select in (selector.select, poll):
        with pytest.raises(ValueError) as caught:
            select(0)
        told.append(str(caught.value))
    assert told[0] == told[1]


def test_a_signal_interrupts_neither_and_its_handler_runs(selector: Any) -> None:
    poll, _ = poll_of(selector)
    caught: list[int] = []
    previous = signal.signal(signal.SIGUSR1, lambda number, _: caught.append(number))
    reader, writer = os.pipe()
    selector.register(reader, READ)
    main = threading.get_ident()

    def send() -> None:
        signal.pthread_kill(main, signal.SIGUSR1)
        while not caught:
            time.sleep(0.001)
        os.write(writer, b"x")

    thread = threading.Thread(target=send)
    try:
        thread.start()
        found = poll(30)
        thread.join()
    finally:
        signal.signal(signal.SIGUSR1, previous)
        selector.unregister(reader)
        os.close(reader)
        os.close(writer)
    assert caught == [signal.SIGUSR1]
    assert [mask for _, mask in found] == [READ]


@pytest.mark.parametrize("keys", [2, 200])
def test_what_it_had_to_wait_for_came_just_then(keys: int, selector: Any) -> None:
    poll, track = poll_of(selector)
    with ExitStack() as stack:
        pairs = [[stack.enter_context(end) for end in socket.socketpair()] for _ in range(keys)]
        for here, _ in pairs:
            selector.register(here, READ)
        poll(0)
        before = track.event_ready
        timer = threading.Timer(0.2, pairs[-1][1].send, (b"x",))
        timer.start()
        assert len(poll(30)) == 1
        timer.join()
        assert before < track.event_earliest == track.event_ready <= track.poll_end
        before = track.event_ready
        assert len(poll(30)) == 1
        assert track.event_earliest == before < track.event_ready <= track.poll_end, "it was there already"


def test_the_pipe_that_other_threads_wake_the_loop_by_is_not_asked_for_first(selector: Any) -> None:
    poll, track = poll_of(selector)
    here, there = socket.socketpair()
    with here, there:
        selector.register(here, READ)
        poll(0)
        before = track.event_ready
        timer = threading.Timer(0.01, there.send, (b"x",))
        timer.start()
        assert len(poll(30)) == 1
        timer.join()
        assert track.event_earliest == before < track.event_ready


def test_a_poll_notes_its_instants_and_the_stretch_before_it(selector: Any) -> None:
    poll, track = poll_of(selector)
    track.now -= RING_NS
    before = track.now
    poll(0)
    assert [told[0] for told in track.told] == ["keep"]
    assert track.told[0][2:] == (before, track.told[0][3])
    assert before + RING_NS <= track.told[0][3] <= track.poll_end == track.now == track.since
    polls, poll_ns, _, _, _, _ = track.take_poll_counts(None)
    assert polls == 1 and poll_ns >= 0


def test_a_fault_of_ours_in_a_poll_leaves_the_poll_alone_and_no_step_behind(
    selector: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    poll, track = poll_of(selector)

    def fails(*_: Any) -> None:
        raise LookupError("ours")

    def broken(exc: Exception) -> None:
        track.told.append(repr(exc))
        track.since = 0

    monkeypatch.setattr(type(track), "_keep", fails)
    track.broken = broken
    track.now -= RING_NS
    assert poll(0) == []
    assert track.told == ["LookupError('ours')"]
    assert not track.alive
    assert track.since == 0
