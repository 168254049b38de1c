"""Timers as the accelerator makes them, against asyncio's own: their order, their state, what callers see of them."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import random
import weakref
from typing import Any

import pytest

from mcp_probe import native
from mcp_probe.adapters import asyncio_loop
from mcp_probe.capture.current import CURRENT
from mcp_probe.capture.hub import Hub
from mcp_probe.record.raw import WAKE_LOOP
from tests.native.loops import followed, loop_of, nothing, open_request, run_ready, same_as_bare
from tests.native.twins import needs_the_accelerator

pytestmark = needs_the_accelerator

Timer: Any = None if native.core is None else native.core.Timer


def run_for(loop: Any, seconds: float) -> None:
    loop.call_later(seconds, loop.stop)
    loop.run_forever()


def test_a_followed_loops_timers_are_the_accelerators() -> None:
    with loop_of() as loop, followed(loop):
        timer = loop.call_later(5, nothing)
        assert type(timer) is Timer
        assert isinstance(timer, asyncio.TimerHandle)
        assert isinstance(timer, asyncio.Handle)
        loop.set_debug(True)
        assert type(loop.call_later(5, nothing)) is asyncio.TimerHandle
        loop.set_debug(False)
        assert type(loop.call_at(5, nothing)) is asyncio.TimerHandle  # no float
    assert type(Timer) is type


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
        ones += [asyncio.TimerHandle(now + 1.0, nothing, (), loop, contextvars.copy_context())]
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


def test_timers_from_before_and_while_a_loop_is_followed_share_its_heap() -> None:
    ran: list[int] = []
    with loop_of() as loop:
        start = loop.time() + 0.1  # none is due before all are there
        for number in (8, 2, 6):
            loop.call_at(start + number / 1e3, ran.append, number)
        with followed(loop):
            for number in (5, 1, 7):
                loop.call_at(start + number / 1e3, ran.append, number)
            run_ready(loop)
        for number in (4, 9, 3):
            loop.call_at(start + number / 1e3, ran.append, number)
        run_for(loop, 0.15)
        assert ran == sorted(ran)
        assert len(ran) == 9


def test_a_method_of_the_loops_own_hears_of_cancelled_timers() -> None:
    heard: list[Any] = []

    class Loop(asyncio.SelectorEventLoop):
        def _timer_handle_cancelled(self, handle: Any) -> None:
            heard.append(handle)
            super()._timer_handle_cancelled(handle)  # type: ignore[misc]

    with loop_of(Loop) as loop, followed(loop):
        timer = loop.call_later(5, nothing)
        assert type(timer) is Timer
        timer.cancel()
        assert heard == [timer]
        assert loop._timer_cancelled_count == 1


def test_wrong_arguments_get_asyncios_own_errors() -> None:
    def scenario(loop: Any) -> Any:
        errors = []
        for arguments, keywords in (((), {}), ((1.0,), {}), ((1.0, nothing), {"wrong": 1}), (("x", nothing), {})):
            try:
                loop.call_at(*arguments, **keywords).cancel()
                errors.append("none")
            except TypeError as exc:
                errors.append(str(exc).split("call_at() ")[-1])  # the Python one has another qualified name
        return errors

    assert "none" not in same_as_bare(scenario)[:3]


def test_a_closed_loop_takes_no_timers() -> None:
    with loop_of() as loop, followed(loop):
        loop.close()
        with pytest.raises(RuntimeError, match="closed"):
            loop.call_later(0.1, nothing)


def test_a_timer_of_a_request_became_ready_at_its_deadline() -> None:
    hub = Hub()
    with loop_of() as loop, followed(loop, hub):
        context = contextvars.copy_context()
        raw = open_request(hub)
        context.run(CURRENT.set, raw)
        due = loop.time() + 0.005
        loop.call_at(due, nothing, context=context)
        run_for(loop, 0.02)
        (mark,) = raw.marks
        assert mark[2] == mark[3]
        assert abs(mark[3] - due * 1e9) <= 1
        assert mark[4] >= mark[3]
        assert mark[6] == WAKE_LOOP


def test_a_timer_of_no_request_leaves_no_mark_and_no_account() -> None:
    hub = Hub()
    with loop_of() as loop, followed(loop, hub) as track:
        loop.call_later(0.001, nothing)
        run_for(loop, 0.01)
        assert track.owner is None


def test_a_timer_and_what_it_holds_are_freed() -> None:
    class Held:
        pass

    with loop_of() as loop, followed(loop):
        held = Held()
        gone = weakref.ref(held)
        timer: Any = loop.call_later(60, lambda kept: None, held)
        held.timer = timer  # type: ignore[attr-defined]
        timer.cancel()
        del timer, held
        run_ready(loop)
        gc.collect()
        assert gone() is None


def test_timers_that_somebody_has_replaced_stay_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    def later(self: Any, other: Any) -> bool:
        return bool(self._when < other._when)

    monkeypatch.setattr(asyncio.TimerHandle, "__lt__", later)
    with loop_of() as loop, followed(loop):
        assert type(loop.call_later(5, nothing)) is asyncio.TimerHandle
    assert asyncio_loop._tracks == {}
