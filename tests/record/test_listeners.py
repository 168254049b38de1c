"""Frames handed to listeners."""

from __future__ import annotations

from mcp_probe.record.listeners import Listeners
from tests.frames import make_end, make_header, make_request
from tests.kept import Listening


def listeners(*added: Listening) -> tuple[Listeners, list[Exception]]:
    faults: list[Exception] = []
    made = Listeners(faults.append)
    for listener in added:
        made.add(listener)
    return made, faults


def test_a_listener_added_later_hears_the_last_header_first_and_nothing_older() -> None:
    early, late = Listening(), Listening()
    made, _ = listeners(early)
    made.take([make_header(server="a"), make_request(1)])
    made.take([make_header(server="b"), make_request(2)])
    made.add(late)
    made.take([make_request(3)])
    made.take([make_request(4)])
    assert late.heard == [make_header(server="b"), make_request(3), make_request(4)]
    assert len(early.heard) == 6


def test_a_batch_that_brings_its_own_header_is_not_given_another_to_a_newcomer_twice() -> None:
    listener = Listening()
    made, _ = listeners(listener)
    made.take([make_header(), make_request()])
    assert listener.heard == [make_header(), make_request()]


def test_a_listener_that_raises_is_left_out_said_once_and_closed_all_the_same() -> None:
    deaf, sound = Listening(deaf=True), Listening()
    made, faults = listeners(deaf, sound)
    made.take([make_header()])
    made.take([make_request()])
    made.close(1.0)
    assert sound.heard == [make_header(), make_request()]
    assert [str(fault) for fault in faults] == ["deaf"]
    assert len(deaf.closed) == len(sound.closed) == 1


def test_closing_goes_on_past_one_that_raises_within_one_budget_and_only_once() -> None:
    stuck, sound = Listening(stuck=True), Listening()
    made, faults = listeners(stuck, sound)
    made.close(5.0)
    made.close(5.0)
    assert [str(fault) for fault in faults] == ["stuck"]
    assert len(sound.closed) == 1 and 0 <= sound.closed[0] <= 5.0


def test_forgotten_listeners_hear_nothing_more_not_even_the_end() -> None:
    listener = Listening()
    made, _ = listeners(listener)
    made.forget()
    made.take([make_end()])
    made.close(1.0)
    assert not made
    assert (listener.heard, listener.closed) == ([], [])
