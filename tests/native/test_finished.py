"""The queue of what has ended: bounded, in order, and out of the garbage collector's way; in C and in Python."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest

from mcp_probe import native
from mcp_probe.capture.queueing import Finished as PythonFinished
from mcp_probe.record.raw import RawRequest
from tests.native.twins import needs_the_accelerator

TWINS = [PythonFinished, *([] if native.core is None else [native.core.Finished])]


def nobody() -> None:
    """Wakes no one."""


def request(number: int) -> RawRequest:
    return RawRequest(number, "request", "tools/call", "tool", "stdio")


@pytest.mark.parametrize("twin", TWINS)
def test_what_was_put_is_taken_in_its_order_and_what_finds_no_room_is_counted(twin: Any) -> None:
    queue = twin(3, nobody)
    assert (queue.take(5), len(queue), queue.dropped) == ([], 0, 0)
    for first in (0, 10, 20):  # three rounds through the ring
        for number in range(first, first + 5):
            queue.put(request(number))
        assert len(queue) == 3
        assert [raw.id for raw in queue.take(2)] == [first, first + 1]
        queue.put(request(first + 9))
        assert [raw.id for raw in queue.take(99)] == [first + 2, first + 9]
    assert queue.dropped == 6


@pytest.mark.parametrize("twin", TWINS)
def test_a_closed_queue_keeps_nothing(twin: Any) -> None:
    queue = twin(3, nobody)
    raw = request(1)
    queue.put(raw)
    queue.close()
    queue.put(request(2))
    assert (len(queue), queue.take(9), queue.dropped) == (0, [], 0)
    known = weakref.ref(raw)
    del raw
    assert known() is None


@pytest.mark.parametrize("twin", TWINS)
@pytest.mark.parametrize(("most", "half"), [(8, 4), (7, 4), (1, 1)])
def test_whoever_takes_is_woken_once_each_time_that_half_of_the_room_is_taken(twin: Any, most: int, half: int) -> None:
    woken: list[int] = []
    queue: Any = twin(most, lambda: woken.append(len(queue)))
    for _ in range(most + 2):  # two find no room
        queue.put(request(1))
    assert woken == [half]
    queue.take(most - half)  # what is left is still half of the room
    queue.put(request(2))
    assert woken == [half]
    queue.take(most)
    for _ in range(most):
        queue.put(request(3))
    assert woken == [half, half]
    queue.close()
    queue.put(request(4))
    assert woken == [half, half]


@pytest.mark.parametrize("twin", TWINS)
def test_a_queue_is_freed_though_whom_it_wakes_refers_to_it(twin: Any) -> None:
    class Owner:
        def __init__(self) -> None:
            self.queue = twin(3, self.wake)

        def wake(self) -> None: ...

    owner = Owner()
    owner.queue.put(request(1))
    known = weakref.ref(owner)
    del owner
    gc.collect()
    assert known() is None


@needs_the_accelerator
def test_what_waits_is_no_work_for_the_garbage_collector_and_what_was_taken_is_again() -> None:
    queue = native.core.Finished(4, nobody)
    waiting, left = request(1), request(2)
    assert gc.is_tracked(waiting)
    queue.put(waiting)
    queue.put(left)
    assert not gc.is_tracked(waiting)
    assert queue.take(1) == [waiting]
    assert gc.is_tracked(waiting)
    queue.close()
    assert gc.is_tracked(left)


@needs_the_accelerator
@pytest.mark.parametrize("how", ["taken", "closed", "forgotten"])
def test_a_request_that_holds_itself_is_freed_once_it_has_left_the_queue(how: str) -> None:
    queue = native.core.Finished(4, nobody)
    raw: Any = request(1)
    raw.lend_span = lambda attributes, own=raw: own  # a cycle
    known = weakref.ref(raw)
    queue.put(raw)
    del raw
    gc.collect()
    assert known() is not None
    if how == "taken":
        queue.take(1)
    elif how == "closed":
        queue.close()
    del queue
    gc.collect()
    assert known() is None


@needs_the_accelerator
@pytest.mark.parametrize("wrong", [None, 5, object()])
def test_nothing_but_a_request_waits(wrong: Any) -> None:
    queue = native.core.Finished(4, nobody)
    with pytest.raises(TypeError, match="expected a request"):
        queue.put(wrong)
    assert len(queue) == 0


@needs_the_accelerator
def test_a_queue_without_room_is_refused() -> None:
    with pytest.raises(ValueError, match="expected at least one"):
        native.core.Finished(0, nobody)
