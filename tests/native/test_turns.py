"""A turn of the loop as the accelerator writes it out, against asyncio's own: timers, sockets, order and faults."""

from __future__ import annotations

import asyncio
import contextvars
import os
import selectors
import socket
import threading
from asyncio import base_events
from collections.abc import Callable
from typing import Any

import pytest

from mcp_probe.adapters import asyncio_loop
from mcp_probe.capture.current import CURRENT
from mcp_probe.capture.hub import Hub
from tests.native.loops import followed, loop_of, nothing, open_request, run_ready, same_as_bare
from tests.native.twins import needs_the_accelerator

pytestmark = needs_the_accelerator


def run_for(loop: Any, seconds: float) -> None:
    loop.call_later(seconds, loop.stop)
    loop.run_forever()


def counted(loop: Any, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by one for each turn that is left to asyncio's own ``_run_once`` of a loop that is followed from now on."""
    seen: list[int] = []
    original = vars(base_events.BaseEventLoop)["_run_once"]

    def _run_once(self: Any) -> None:
        seen.append(1)
        original(self)

    _run_once.__module__ = base_events.__name__
    monkeypatch.setattr(base_events.BaseEventLoop, "_run_once", _run_once)
    return seen


def test_turns_of_a_followed_loop_are_the_accelerators(monkeypatch: pytest.MonkeyPatch) -> None:
    with loop_of() as loop:
        own = counted(loop, monkeypatch)
        run_ready(loop)
        assert len(own) == 1
        with followed(loop):
            for _ in range(20):
                run_ready(loop)
            run_for(loop, 0.01)
        assert len(own) == 1
        run_ready(loop)
        assert len(own) == 2


def test_what_a_callback_schedules_runs_in_the_next_turn() -> None:
    def scenario(loop: Any) -> Any:
        turns: list[list[str]] = [[]]

        def named(name: str, *following: str) -> None:
            turns[-1].append(name)
            for each in following:
                loop.call_soon(named, each)

        def turn_ends() -> None:
            turns.append([])
            if len(turns) < 4:
                loop.call_soon(turn_ends)

        loop.call_soon(named, "a", "b", "c")
        loop.call_soon(named, "d", "e")
        loop.call_soon(turn_ends)
        for _ in range(4):
            run_ready(loop)
        return turns

    assert same_as_bare(scenario) == [["a", "d"], ["b", "c", "e"], [], []]


def test_timers_come_by_their_deadline_and_those_past_at_once() -> None:
    def scenario(loop: Any) -> Any:
        ran: list[str] = []
        now = loop.time()
        loop.call_at(now + 0.12, ran.append, "second")
        loop.call_at(now + 0.1, ran.append, "first")
        loop.call_at(now - 5, ran.append, "past")
        loop.call_soon(ran.append, "soon")
        never = loop.call_later(60, ran.append, "never")
        run_ready(loop)
        at_once = list(ran)
        run_for(loop, 0.15)
        never.cancel()
        return at_once, ran

    assert same_as_bare(scenario) == (["soon", "past"], ["soon", "past", "first", "second"])


def test_a_timer_does_not_come_early() -> None:
    def scenario(loop: Any) -> Any:
        late: list[bool] = []
        for delay in (0.001, 0.004, 0.011):
            due = loop.time() + delay
            loop.call_at(due, lambda due=due: late.append(loop.time() + loop._clock_resolution >= due))
        run_for(loop, 0.03)
        return late

    assert same_as_bare(scenario) == [True, True, True]


@pytest.mark.parametrize(("timers", "cancelled"), [(3, 1), (3, 3), (150, 20), (150, 120), (150, 150)])
def test_cancelled_timers_are_tidied_up(timers: int, cancelled: int) -> None:
    def scenario(loop: Any) -> Any:
        ran: list[int] = []
        made = [loop.call_later(0.05 + number / 1e6, ran.append, number) for number in range(timers)]
        for timer in made[:cancelled]:
            timer.cancel()
        run_ready(loop)
        kept = len(loop._scheduled), loop._timer_cancelled_count
        run_for(loop, 0.1)
        return kept, ran, [timer._scheduled for timer in made], len(loop._scheduled), loop._timer_cancelled_count

    assert same_as_bare(scenario)[1] == list(range(cancelled, timers))


def test_a_timer_cancelled_in_its_own_turn_does_not_run() -> None:
    def scenario(loop: Any) -> Any:
        ran: list[str] = []
        when = loop.time()
        timers: list[Any] = []
        loop.call_at(when, lambda: timers[0].cancel())
        timers.append(loop.call_at(when + 1e-9, ran.append, "cancelled"))
        loop.call_at(when + 2e-9, ran.append, "runs")
        run_for(loop, 0.01)
        return ran

    assert same_as_bare(scenario) == ["runs"]


def test_sockets_are_read_and_written_as_before() -> None:
    def scenario(loop: Any) -> Any:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        got: list[Any] = []

        def reads() -> None:
            got.append(ours.recv(10))
            loop.remove_reader(ours)

        def writes() -> None:
            got.append(ours.send(b"pong"))
            loop.remove_writer(ours)

        loop.add_reader(ours, reads)
        loop.add_writer(ours, writes)
        theirs.send(b"ping")
        run_for(loop, 0.02)
        got.append(theirs.recv(10))
        ours.close()
        theirs.close()
        return got

    assert same_as_bare(scenario) == [b"ping", 4, b"pong"]


def test_a_reader_that_was_cancelled_is_removed() -> None:
    def scenario(loop: Any) -> Any:
        read, write = os.pipe()
        ran: list[int] = []
        loop.add_reader(read, ran.append, 1)
        loop._selector.get_key(read).data[0].cancel()
        os.write(write, b"x")
        run_for(loop, 0.01)
        known = read in loop._selector.get_map()
        os.close(read)
        os.close(write)
        return ran, known

    assert same_as_bare(scenario) == ([], False)


def test_a_writer_runs_where_the_reader_of_its_socket_was_cancelled() -> None:
    def scenario(loop: Any) -> Any:
        ours, theirs = socket.socketpair()
        ran: list[str] = []

        def writes() -> None:
            ran.append("written")
            loop.remove_writer(ours)

        loop.add_reader(ours, ran.append, "read")
        loop.add_writer(ours, writes)
        loop._selector.get_key(ours).data[0].cancel()
        theirs.send(b"x")
        run_for(loop, 0.01)
        known = ours in loop._selector.get_map()
        ours.close()
        theirs.close()
        return ran, known

    assert same_as_bare(scenario) == (["written"], False)


def test_what_asyncio_says_of_a_descriptor_that_is_none_of_the_loops_own() -> None:
    def scenario(loop: Any) -> Any:
        read, write = os.pipe()
        ran: list[str] = []
        os.write(write, b"x")
        loop._selector.register(read, selectors.EVENT_READ, "not a reader and a writer")
        loop.call_soon(ran.append, "before the poll")
        with pytest.raises(ValueError, match="too many values to unpack") as raised:
            loop.run_forever()
        loop._selector.unregister(read)
        run_ready(loop)
        os.close(read)
        os.close(write)
        return ran, str(raised.value)

    ran, _ = same_as_bare(scenario)
    assert ran == ["before the poll"]


def test_a_reader_removed_by_one_that_ran_before_it_does_not_run() -> None:
    def scenario(loop: Any) -> Any:
        pipes = [os.pipe() for _ in range(2)]
        ran: list[int] = []

        def removes_all(number: int) -> None:
            ran.append(number)
            for read, _ in pipes:
                loop.remove_reader(read)

        for number, (read, write) in enumerate(pipes):
            loop.add_reader(read, removes_all, number)
            os.write(write, b"x")
        run_for(loop, 0.01)
        for pipe in pipes:
            for descriptor in pipe:
                os.close(descriptor)
        return len(ran)

    assert same_as_bare(scenario) == 1


def test_a_thread_wakes_a_loop_that_waits() -> None:
    def scenario(loop: Any) -> Any:
        ran: list[int] = []

        def wakes() -> None:
            for number in range(200):
                loop.call_soon_threadsafe(ran.append, number)
            loop.call_soon_threadsafe(loop.stop)

        thread = threading.Thread(target=wakes)
        loop.call_later(60, nothing)
        thread.start()
        loop.run_forever()
        thread.join()
        return ran

    assert same_as_bare(scenario) == list(range(200))


@pytest.mark.parametrize("stop", [SystemExit(3), KeyboardInterrupt()])
@pytest.mark.parametrize("timed", [False, True])
def test_what_ends_the_loop_leaves_the_rest_of_the_turn_for_the_next(stop: BaseException, timed: bool) -> None:
    def fails() -> None:
        raise stop

    def scenario(loop: Any) -> Any:
        ran: list[int] = []
        loop.call_soon(ran.append, 1)
        _ = loop.call_later(0, fails) if timed else loop.call_soon(fails)
        loop.call_soon(ran.append, 2)
        with pytest.raises(type(stop)) as caught:
            run_for(loop, 0.02)
        before = list(ran)
        run_for(loop, 0.02)
        return caught.value is stop, before, ran

    assert same_as_bare(scenario) == (True, [1, 2] if timed else [1], [1, 2])


def test_a_timer_that_fails_is_told_as_a_handle_is() -> None:
    def fails() -> None:
        raise ValueError("its own")

    def scenario(loop: Any) -> Any:
        told: list[Any] = []
        loop.set_exception_handler(lambda _, context: told.append((sorted(context), str(context["exception"]))))
        timer = loop.call_later(0, fails)
        run_for(loop, 0.01)
        return told, timer.cancelled()

    assert same_as_bare(scenario)[0] == [(["exception", "handle", "message"], "its own")]


def test_a_clock_of_the_loops_own_decides() -> None:
    def scenario(loop: Any) -> Any:
        ran: list[int] = []
        ahead = 0.0
        real = loop.time
        loop.time = lambda: real() + ahead
        loop.call_at(real() + 3600, ran.append, 1)
        run_ready(loop)
        before = list(ran)
        ahead = 3601.0
        run_ready(loop)
        return before, ran

    assert same_as_bare(scenario) == ([], [1])


def test_whoever_wraps_a_part_of_the_turn_later_is_called() -> None:
    def scenario(loop: Any) -> Any:
        seen: list[str] = []
        with pytest.MonkeyPatch.context() as patch:

            def watched(owner: Any, name: str) -> None:
                original = getattr(owner, name)

                def wrapper(*args: Any) -> Any:
                    seen.append(name)
                    return original(*args)

                patch.setattr(owner, name, wrapper)

            watched(loop._selector, "select")
            watched(base_events.BaseEventLoop, "_add_callback")
            watched(asyncio.Handle, "_run")
            read, write = os.pipe()
            loop.add_reader(read, loop.remove_reader, read)
            os.write(write, b"x")
            run_ready(loop)
            os.close(read)
            os.close(write)
        return sorted(set(seen))

    assert same_as_bare(scenario) == ["_add_callback", "_run", "select"]


def test_debug_mode_in_the_middle_of_a_turn_holds_from_the_next_on() -> None:
    def scenario(loop: Any) -> Any:
        slow: list[Any] = []
        loop.slow_callback_duration = 10
        loop.call_soon(loop.set_debug, True)
        loop.call_soon(lambda: slow.append(loop._current_handle))
        run_ready(loop)
        loop.call_soon(lambda: slow.append(loop._current_handle is not None))
        run_ready(loop)
        loop.set_debug(False)
        return slow[-1]

    assert same_as_bare(scenario) is True


class OwnTurns(asyncio.SelectorEventLoop):
    """A loop that looks at each of its turns."""

    turns = 0

    def _run_once(self) -> None:
        self.turns += 1
        super()._run_once()  # type: ignore[misc]


class OwnEvents(asyncio.SelectorEventLoop):
    """A loop that looks at each of its events."""

    events = 0

    def _process_events(self, event_list: Any) -> None:
        self.events += len(event_list)
        super()._process_events(event_list)  # type: ignore[misc]


@pytest.mark.parametrize("kind", [OwnTurns, OwnEvents])
def test_a_loop_with_turns_of_its_own_keeps_them(kind: type[Any]) -> None:
    read, write = os.pipe()
    with loop_of(kind) as loop, followed(loop):
        loop.add_reader(read, lambda: (os.read(read, 1), loop.stop()))
        os.write(write, b"x")
        loop.run_forever()
        assert (loop.turns if kind is OwnTurns else loop.events) >= 1
    os.close(read)
    os.close(write)


def test_a_turn_within_a_turn_ends_as_asyncios_does() -> None:
    def scenario(loop: Any) -> Any:
        ran: list[str] = []

        def nests() -> None:
            loop.call_soon(ran.append, "scheduled inside")
            loop._run_once()
            ran.append("outer turn goes on")

        loop.call_soon(nests)
        loop.call_soon(ran.append, "after")
        with pytest.raises(IndexError) as caught:
            run_ready(loop)
        return ran, str(caught.value)

    assert same_as_bare(scenario)[0] == ["after", "scheduled inside", "outer turn goes on"]


def test_steps_of_a_request_are_the_same_marks_either_way() -> None:
    def counts(write_out: bool) -> tuple[int, ...]:
        hub = Hub()
        with loop_of() as loop, pytest.MonkeyPatch.context() as patch:
            if not write_out:
                patch.setattr(asyncio_loop, "_is_known_turn", lambda _: False)
            with followed(loop, hub) as track:
                raw = open_request(hub)

                async def works() -> None:
                    for _ in range(5):
                        await asyncio.sleep(0)
                    await asyncio.sleep(0.002)
                    await loop.run_in_executor(None, nothing)

                context = contextvars.copy_context()
                context.run(CURRENT.set, raw)
                loop.run_until_complete(context.run(loop.create_task, works()))
                return raw.mark_count, len({mark[0] for mark in raw.marks}), track.steps

    assert counts(True) == counts(False)


def test_other_hooks_of_a_handle_and_the_turns_are_put_back() -> None:
    before = vars(base_events.BaseEventLoop)["_run_once"]
    with loop_of() as loop, followed(loop):
        assert vars(base_events.BaseEventLoop)["_run_once"] is not before
        run_ready(loop)
    assert vars(base_events.BaseEventLoop)["_run_once"] is before


@pytest.mark.parametrize(
    "call", [lambda own, loop: own(), lambda own, loop: own(loop, 1), lambda own, loop: own(loop, x=1)]
)
def test_a_wrong_call_is_refused_as_asyncios(call: Callable[[Any, Any], Any]) -> None:
    def scenario(loop: Any) -> Any:
        with pytest.raises(TypeError) as caught:
            call(type(loop)._run_once, loop)
        return str(caught.value)

    same_as_bare(scenario)
