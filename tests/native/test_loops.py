"""Loops that are followed against bare ones: timers, sockets, signals, threads, order, faults, and how they end."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import math
import os
import random
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
import weakref
from asyncio import base_events, events
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_probe.capture.context_switches import GIL_NS
from mcp_probe.capture.current import CURRENT
from mcp_probe.capture.hub import Hub
from mcp_probe.clock import now_ns
from mcp_probe.record.raw import WAKE_LOOP, WAKE_SOCKET
from tests.native.loops import (
    TWINS,
    context_of,
    followed,
    hooked,
    loop_of,
    nothing,
    open_request,
    run_for,
    run_ready,
    same_as_bare,
    twin,
)

__all__ = ["twin"]  # a fixture


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
        loop.call_at(now + 1.02, ran.append, "second")
        loop.call_at(now + 1.0, ran.append, "first")
        loop.call_at(now - 5, ran.append, "past")
        loop.call_soon(ran.append, "soon")
        never = loop.call_later(60, ran.append, "never")
        run_ready(loop)
        at_once = list(ran)
        run_for(loop, 1.1)
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
        while True:
            ran: list[int] = []
            due = loop.time() + 0.05
            made = [loop.call_at(due + number / 1e6, ran.append, number) for number in range(timers)]
            for timer in made[:cancelled]:
                timer.cancel()
            run_ready(loop)
            kept = len(loop._scheduled), loop._timer_cancelled_count
            was_in_time = loop.time() < due
            run_for(loop, 0.1)
            if was_in_time:
                break
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
    """A loop that looks at each of its turns and events, and hears of cancelled timers."""

    def __init__(self) -> None:
        super().__init__()
        self.turns = self.events = 0
        self.heard: list[Any] = []

    def _run_once(self) -> None:
        self.turns += 1
        super()._run_once()  # type: ignore[misc]

    def _process_events(self, event_list: Any) -> None:
        self.events += len(event_list)
        super()._process_events(event_list)  # type: ignore[misc]

    def _timer_handle_cancelled(self, handle: Any) -> None:
        self.heard.append(handle)
        super()._timer_handle_cancelled(handle)  # type: ignore[misc]


def test_a_loop_with_turns_of_its_own_keeps_them() -> None:
    def scenario(loop: Any) -> Any:
        before = loop.turns
        read, write = os.pipe()
        loop.add_reader(read, lambda: (os.read(read, 1), loop.stop()))
        os.write(write, b"x")
        timer = loop.call_later(5, nothing)
        loop.call_soon(timer.cancel)
        loop.run_forever()
        loop.remove_reader(read)
        os.close(read)
        os.close(write)
        return loop.turns - before, loop.events >= 1, loop.heard == [timer]

    assert same_as_bare(scenario, OwnTurns) == (1, True, True)


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


# --- timers ---


ODD_DELAYS = (math.nan, math.inf, -math.inf, 1e300, -1e300, -1, 0, 10**400, "x", None)


@pytest.mark.parametrize("debug", [False, True])
@pytest.mark.parametrize("delay", ODD_DELAYS, ids=lambda delay: str(delay)[:6])
@pytest.mark.parametrize("name", ["call_later", "call_at"])
def test_a_timer_of_an_odd_delay_does_what_it_does_bare(name: str, delay: Any, debug: bool) -> None:
    def scenario(loop: Any) -> Any:
        loop.set_debug(debug)
        ran: list[str] = []
        try:
            timers = [getattr(loop, name)(delay, ran.append, "odd")]
            loop.call_later(0.001, ran.append, "soon")
            run_for(loop, 0.01)
            timers[0].cancel()
            run_for(loop, 0.001)
        except (TypeError, OverflowError, ValueError, RuntimeError, AssertionError) as exc:
            ran.append(f"{type(exc).__name__}: {exc}")
        loop._scheduled.clear()
        loop._timer_cancelled_count = 0
        loop.set_debug(False)
        return ran

    same_as_bare(scenario)


@pytest.mark.parametrize("delay", ODD_DELAYS[:7], ids=str)
def test_a_sleep_of_an_odd_length_does_what_it_does_bare(delay: float) -> None:
    def scenario(loop: Any) -> Any:
        async def sleeps() -> str:
            try:
                return str(await asyncio.wait_for(asyncio.sleep(delay, "slept"), 0.02))
            except (TimeoutError, asyncio.TimeoutError):
                return "timed out"
            except ValueError as exc:
                return str(exc)

        told = loop.run_until_complete(sleeps())
        loop._scheduled.clear()
        loop._timer_cancelled_count = 0
        return told

    same_as_bare(scenario)


delays = st.sampled_from([0, -1, -1e-9, -math.inf, math.inf, 1e300])  # whatever the clock does, they come in one order
steps = st.one_of(
    st.tuples(st.sampled_from(["soon", "thread"]), st.integers(0, 9)),
    st.tuples(st.just("later"), delays),
    st.tuples(st.sampled_from(["cancel", "spawn", "debug", "nested"]), st.integers(0, 9)),
    st.tuples(st.just("fail"), st.sampled_from([ValueError("v"), asyncio.CancelledError("c"), StopIteration(1)])),
)


@given(st.lists(steps, max_size=25))
@settings(max_examples=25, deadline=None)
def test_any_program_does_what_it_does_bare(program: list[tuple[str, Any]]) -> None:
    def scenario(loop: Any) -> Any:
        seen: list[Any] = []
        made: list[Any] = []
        tasks: list[Any] = []
        loop.set_exception_handler(lambda _, context: seen.append((context["message"], repr(context.get("exception")))))

        def runs(number: int) -> None:
            seen.append(("ran", number))

        def fails(fault: BaseException) -> None:
            raise fault

        async def works(number: int) -> None:
            for turn in range(number % 4):
                seen.append(("worked", number, turn))
                await asyncio.sleep(0)

        def does(name: str, what: Any) -> None:
            if name in ("soon", "thread"):
                made.append(getattr(loop, "call_soon" if name == "soon" else "call_soon_threadsafe")(runs, what))
            elif name == "later":
                made.append(loop.call_later(what, seen.append, ("timer", what)))
            elif name == "cancel" and made:
                made[what % len(made)].cancel()
            elif name == "spawn":
                tasks.append(loop.create_task(works(what)))
            elif name == "debug":
                loop.slow_callback_duration = 60
                loop.set_debug(what % 2 == 1)
            elif name == "nested":
                loop.call_soon(does, "soon", 100 + what)
            elif name == "fail":
                made.append(loop.call_soon(fails, what))

        for step in program:
            loop.call_soon(does, *step)
        run_ready(loop)
        run_for(loop, 0.01)
        loop.set_debug(False)
        shown = [repr(handle).split(" at 0x")[0].split(" when=")[0].split(" created")[0] for handle in made]
        for handle in made:
            handle.cancel()
        loop._scheduled.clear()
        loop._timer_cancelled_count = 0
        loop.set_exception_handler(None)
        return seen, [handle.cancelled() for handle in made], len(tasks), len(shown)

    same_as_bare(scenario)


def test_what_callers_see_of_a_timer() -> None:
    def scenario(loop: Any) -> Any:
        when = loop.time() + 60
        timer = loop.call_at(when, nothing, 1, "two", context=contextvars.copy_context())
        seen = [timer.when() == when, timer._when is when, timer.cancelled(), timer._scheduled, timer._args]
        seen += [timer._callback is nothing, timer._loop is loop, repr(timer).replace(str(when), "60")]
        seen += [hash(timer) == hash(when), weakref.ref(timer)() is timer, bool(timer._source_traceback)]
        count = loop._timer_cancelled_count
        timer.cancel()
        timer.cancel()
        seen += [timer.cancelled(), timer._callback, timer._args, loop._timer_cancelled_count - count]
        seen += [repr(timer).replace(str(when), "60"), timer._scheduled]
        run_ready(loop)
        return [*seen, timer._scheduled, loop._timer_cancelled_count]

    seen = same_as_bare(scenario)
    assert seen[:5] == [True, True, False, True, (1, "two")]
    assert seen[-2:] == [False, 0]


def test_timers_compare_as_asyncios_do_also_with_those() -> None:
    def scenario(loop: Any) -> Any:
        now = loop.time() + 50
        ones = [loop.call_at(now + delay, callback) for delay in (1.0, 1.0, 2.0) for callback in (nothing, run_ready)]
        ones += [events.TimerHandle(now + 1.0, nothing, (), loop, contextvars.copy_context())]
        answers = [
            (one < other, one <= other, one == other, one != other, one > other, one >= other)
            for one in ones
            for other in ones
        ]
        foreign = [ones[0] == "something", ones[0] != "something"]
        with pytest.raises(TypeError):
            _ = ones[0] < 3
        for one in ones:
            one.cancel()
        return answers, foreign

    assert same_as_bare(scenario)[1] == [False, True]


def test_many_timers_run_in_the_order_of_their_deadlines() -> None:
    def scenario(loop: Any) -> Any:
        ran: list[int] = []
        order = list(range(300))
        random.Random(7).shuffle(order)
        start = loop.time()
        timers = {number: loop.call_at(start + number / 1e5, ran.append, number) for number in order}
        for number in order[:100]:
            timers[number].cancel()
        run_for(loop, 0.05)
        assert not loop._scheduled
        return ran

    ran = same_as_bare(scenario)
    assert len(ran) == 200
    assert ran == sorted(ran)


def test_a_timer_of_a_request_became_ready_at_its_deadline(twin: str) -> None:
    hub = Hub()
    with loop_of() as loop, followed(loop, hub):
        raw = open_request(hub)
        due = loop.time() + 0.005
        loop.call_at(due, nothing, context=context_of(raw))
        run_for(loop, 0.02)
        (mark,) = raw.marks
        assert mark[2] == mark[3]
        assert abs(mark[3] - due * 1e9) <= 1
        assert mark[4] >= mark[3]
        assert mark[6] == WAKE_LOOP


@pytest.mark.parametrize("when", [math.nan, -math.inf, -1e300, -1, 0, 1e300])
def test_a_deadline_that_is_no_instant_is_taken_for_now(twin: str, when: float) -> None:
    hub = Hub()
    with loop_of() as loop, followed(loop, hub) as monitor:
        raw = open_request(hub)
        before = now_ns()
        timer = loop.call_at(when, nothing, context=context_of(raw))
        loop._scheduled.clear()
        timer._scheduled = False
        loop._ready.append(timer)
        run_ready(loop)
        (mark,) = raw.marks
        assert before <= mark[2] == mark[3] <= mark[4] <= now_ns()
        assert monitor.alive


# --- sockets, signals and threads ---


def talk(loop: Any, hub: Hub) -> Any:
    """A request that reads from a socket twice; returns it and what the reader raised or found."""
    raw = hub.requests.open("request", "tools/call", "t", "stdio")

    async def handler() -> list[bytes]:
        CURRENT.set(raw)
        here, there = socket.socketpair()
        here.setblocking(False)
        with here, there:
            loop.call_later(0.002, there.send, b"one")
            first = await loop.sock_recv(here, 3)
            loop.call_later(0.002, there.send, b"two")
            return [first, await loop.sock_recv(here, 3)]

    return raw, loop.run_until_complete(handler())


def test_what_a_socket_wakes_became_ready_between_two_polls(twin: str) -> None:
    hub = Hub()
    with loop_of() as loop, followed(loop, hub):
        raw, found = talk(loop, hub)
    assert found == [b"one", b"two"]
    woken = [mark for mark in raw.marks if mark[6] == WAKE_SOCKET]
    assert len(woken) >= 2
    assert all(
        suspended <= ready and earliest <= ready <= start for _, suspended, earliest, ready, start, _, _ in woken
    )


def send_while(loop: Any, monitor: Any, blocked_s: float, after_s: float) -> tuple[int, int, int]:
    """(sent, ready at the earliest, ready at the latest) of bytes that come while the loop waits, or is blocked."""
    seen: list[int] = []
    came = threading.Event()
    here, there = socket.socketpair()

    def blocks() -> None:
        until = time.monotonic() + blocked_s
        came.wait(60)  # however late the thread is
        time.sleep(max(0.0, until - time.monotonic()))

    def reads() -> None:
        seen[1:] = [monitor.earliest, monitor.ready]
        loop.stop()

    def sends() -> None:
        while not blocked_s and monitor.since:  # 0 only in its poll
            time.sleep(0.001)
        time.sleep(after_s)
        seen.append(now_ns())
        there.send(b"x")
        came.set()

    with here, there:
        here.setblocking(False)
        loop.add_reader(here, reads)
        thread = threading.Thread(target=sends)
        loop.call_soon(thread.start)
        if blocked_s:
            loop.call_soon(blocks)
        loop.run_forever()
        loop.remove_reader(here)
        thread.join()
    sent, earliest, ready = seen
    return sent, earliest, ready


def test_what_a_poll_that_waited_found_came_just_then(twin: str) -> None:
    """Or in the time for which the loop may have waited for the GIL, once the thread that sends has it."""
    off, vague = [], []
    with loop_of() as loop, followed(loop) as monitor:
        for _ in range(5):  # on a busy machine the thread itself may run late
            sent, earliest, ready = send_while(loop, monitor, 0, 0.05)
            assert earliest <= ready >= sent
            off.append(ready - sent)
            vague.append(ready - earliest)
    assert min(off) < 5_000_000
    assert min(vague) <= GIL_NS


def test_what_came_while_the_loop_was_blocked_did_so_between_two_polls(twin: str) -> None:
    with loop_of() as loop, followed(loop) as monitor:
        loop.call_soon(loop.stop)
        loop.run_forever()
        sent, earliest, ready = send_while(loop, monitor, 0.08, 0.02)
    assert earliest <= sent <= ready
    assert ready - earliest >= 75_000_000, "it may have come at any time of the step that blocked"


def test_a_signal_runs_its_handler_in_the_loop() -> None:
    def scenario(loop: Any) -> Any:
        ran: list[Any] = []

        def caught(*args: Any) -> None:
            ran.append(args)
            loop.stop()

        loop.add_signal_handler(signal.SIGUSR1, caught, "usr1")
        loop.call_later(30, loop.stop)
        loop.call_soon(os.kill, os.getpid(), signal.SIGUSR1)
        loop.run_forever()
        ran += [loop.remove_signal_handler(signal.SIGUSR1), loop.remove_signal_handler(signal.SIGUSR1)]
        return ran

    assert same_as_bare(scenario) == [("usr1",), True, False]


def test_closing_a_loop_that_runs_is_refused_and_stopping_it_twice_is_once() -> None:
    def scenario(loop: Any) -> Any:
        told: list[str] = []

        def closes() -> None:
            with pytest.raises(RuntimeError) as caught:
                loop.close()
            told.append(str(caught.value))
            with pytest.raises(RuntimeError) as again:
                loop.run_forever()
            told.append(str(again.value))
            loop.stop()
            loop.stop()

        loop.call_soon(closes)
        loop.call_soon(told.append, "the rest of the turn")
        loop.run_forever()
        loop.call_soon(told.append, "another run")
        run_ready(loop)
        loop.close()
        loop.close()
        return told, loop.is_closed(), loop.is_running()

    assert same_as_bare(scenario)[0][-2:] == ["the rest of the turn", "another run"]


def test_steps_of_a_request_are_the_same_marks_in_either_twin() -> None:
    def counts() -> tuple[int, ...]:
        hub = Hub()
        with loop_of() as loop, followed(loop, hub) as monitor:
            raw = open_request(hub)

            async def works() -> None:
                for _ in range(5):
                    await asyncio.sleep(0)
                await asyncio.sleep(0.002)
                over = threading.Event()
                loop.call_later(0.001, over.set)  # in a later turn: what the job's end calls is there by then
                await loop.run_in_executor(None, over.wait)

            loop.run_until_complete(context_of(raw).run(loop.create_task, works()))
            return raw.mark_count, len({mark[0] for mark in raw.marks}), monitor.steps

    seen = []
    for around in TWINS.values():
        with around():
            seen.append(counts())
    assert len(set(seen)) == 1 and seen[0][0] >= 8


# --- several loops, and how they end ---


def test_loops_that_take_turns_on_a_thread_each_keep_their_own_monitor(twin: str) -> None:
    hub = Hub()
    with loop_of() as one, loop_of() as other, hooked(hub) as hooks:
        monitors = [hooks.follow(loop) for loop in (one, other)]
        raws = [open_request(hub) for _ in range(2)]
        for _ in range(3):
            for loop, raw in zip((one, other), raws, strict=True):
                loop.call_soon(time.sleep, 0.001, context=context_of(raw))
                loop.call_later(0, nothing, context=context_of(raw))
                run_for(loop, 0.002)
        assert [raw.mark_count for raw in raws] == [6, 6]
        assert all(monitor is not None and monitor.steps >= 3 for monitor in monitors)
        (_, _, _, first, _, _, _), (_, _, _, second, _, _, _) = (raw.marks[0] for raw in raws)
        assert first < second


def test_loops_in_several_threads_each_keep_their_own_monitor(twin: str) -> None:
    hub = Hub()
    faults: list[BaseException] = []
    with hooked(hub) as hooks:

        def runs(number: int) -> None:
            try:
                with loop_of() as loop:
                    monitor = hooks.follow(loop)
                    raw = open_request(hub)

                    async def works() -> None:
                        CURRENT.set(raw)
                        for _ in range(50 + number):
                            await asyncio.sleep(0)
                        await loop.run_in_executor(None, nothing)

                    loop.run_until_complete(works())
                    loop.run_until_complete(loop.shutdown_default_executor())
                    assert monitor is not None and monitor.alive
                    # One a turn, the first, and what brings it back from the thread's job if that took long.
                    assert 51 + number <= raw.mark_count <= 53 + number, raw.mark_count
                    assert len({mark[0] for mark in raw.marks} - {0}) == 1
            except BaseException as exc:  # noqa: BLE001 - raised again below
                faults.append(exc)

        threads = [threading.Thread(target=runs, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if faults:
        raise faults[0]


def gone_without_a_collection(hooks: Any) -> tuple[bool, ...]:
    """Whether a closed loop and its selector are gone by counting references alone."""
    gc.collect()
    gc.disable()
    try:
        loop: Any = asyncio.SelectorEventLoop()
        if hooks is not None:
            assert hooks.follow(loop) is not None
        here, there = socket.socketpair()
        loop.add_reader(here, nothing)
        there.send(b"x")
        loop.call_later(60, nothing).cancel()
        run_for(loop, 0.001)
        loop.run_until_complete(asyncio.sleep(0))
        loop.remove_reader(here)
        here.close()
        there.close()
        refs = [weakref.ref(loop), weakref.ref(loop._selector)]
        loop.close()
        closed = [ref() is None for ref in refs]
        loop._ready.clear()
        del loop
        time.sleep(0.01)  # the watchdog's thread may just be asking it
        return (*closed, *(ref() is None for ref in refs))
    finally:
        gc.enable()


def test_a_closed_loop_and_its_selector_die_as_bare_by_counting_references(twin: str) -> None:
    bare = gone_without_a_collection(None)
    with hooked() as hooks:
        assert gone_without_a_collection(hooks) == bare
        assert gone_without_a_collection(hooks) == bare
        with loop_of() as other:
            assert hooks.follow(other) is not None
            assert list(hooks._monitors) == [id(other)]
    assert bare[-1]


def test_a_loop_that_nobody_closed_is_forgotten_as_it_is_collected(twin: str) -> None:
    hub = Hub()
    with hooked(hub) as hooks, warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # it is unclosed; to catch the warning would hold on to it
        loop: Any = asyncio.SelectorEventLoop()
        monitor = hooks.follow(loop)
        gone = weakref.ref(loop)
        del loop
        gc.collect()
        assert gone() is None
        with loop_of() as other:
            assert hooks.follow(other) is not None
            assert list(hooks._monitors) == [id(other)]
        assert monitor is not None and not monitor.alive


FORKS = """
import asyncio, os, sys
from mcp_probe.adapters.asyncio_loop import AsyncioHooks
from mcp_probe.capture.hub import Hub

loop = asyncio.new_event_loop()
hooks = AsyncioHooks(Hub())
hooks.install()
assert hooks.follow(loop) is not None

async def main():
    await asyncio.sleep(0.001)
    child = os.fork()
    if child == 0:
        asyncio.events._set_running_loop(None)
        other = asyncio.new_event_loop()
        other.run_until_complete(asyncio.sleep(0.001))
        for number in range(100):
            other.call_soon(len, "")
        other.run_until_complete(asyncio.sleep(0))
        other.close()
        os._exit(7)
    await asyncio.sleep(0.001)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

assert loop.run_until_complete(main()) == 7
assert hooks.restore() == []
loop.close()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.parametrize("kind", TWINS)
def test_a_child_that_is_forked_inside_a_step_runs_loops_of_its_own(kind: str) -> None:
    environment = {**os.environ, "MCP_PROBE_NATIVE": "" if kind == "native" else "0"}
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORKS]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
