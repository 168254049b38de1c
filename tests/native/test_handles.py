"""Handles in C and in Python against asyncio's own: whatever a program can see of them is the same."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import logging
import re
import sys
import threading
import time
import traceback
import weakref
from asyncio import events
from collections import deque
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from mcp_probe import native
from mcp_probe.adapters import asyncio_handles
from mcp_probe.capture.current import CURRENT
from mcp_probe.capture.hub import Hub
from mcp_probe.record.raw import RING_NS
from tests.native.loops import (
    BARE,
    context_of,
    followed,
    hooked,
    is_ours,
    loop_of,
    nothing,
    open_request,
    run_for,
    run_ready,
    same_as_bare,
    twin,
)

__all__ = ["twin"]  # a fixture

var: contextvars.ContextVar[str] = contextvars.ContextVar("var", default="unset")


def test_handles_look_and_behave_like_asyncios() -> None:
    def scenario(loop: Any) -> Any:
        ran: list[Any] = []
        handle = loop.call_soon(ran.append, 1)
        other = loop.call_soon(ran.append, 2)
        seen = [
            isinstance(handle, asyncio.Handle),
            isinstance(handle, asyncio.TimerHandle),
            handle.__class__.__name__,
            handle.__class__.__qualname__,
            hasattr(handle, "__dict__"),
            handle.get_loop() is loop if hasattr(handle, "get_loop") else None,
            repr(handle),
            str(handle),
            handle.cancelled(),
            handle._args,
            handle._callback == ran.append,
            handle._loop is loop,
            handle._source_traceback,
            handle == other,
            len({handle, other}),
        ]
        handle.cancel()
        handle.cancel()
        seen += [handle.cancelled(), repr(handle), handle._callback, handle._args]
        run_ready(loop)
        return [*seen, ran, repr(other)]

    assert same_as_bare(scenario)[-2] == [2]


def test_a_handle_cancelled_in_debug_mode_says_what_it_was() -> None:
    def scenario(loop: Any) -> Any:
        handle = loop.call_soon(nothing, "argument")
        loop.set_debug(True)
        before = repr(handle)
        handle.cancel()
        after = repr(handle)
        loop.set_debug(False)
        return before, after, repr(handle)

    seen = same_as_bare(scenario)
    assert "cancelled" not in seen[0] and "cancelled nothing" in seen[1]


def test_a_repr_that_fails_in_cancel_comes_out_as_from_asyncios() -> None:
    class Mute:
        def __repr__(self) -> str:
            raise LookupError("no repr")

        def __call__(self) -> None:
            raise AssertionError("it was cancelled")

    def scenario(loop: Any) -> Any:
        handle = loop.call_soon(Mute())
        loop.set_debug(True)
        with pytest.raises(LookupError):
            handle.cancel()
        loop.set_debug(False)
        run_ready(loop)
        return handle.cancelled(), handle._callback is None

    same_as_bare(scenario)


@pytest.mark.parametrize("count", [0, 1, 2, 3, 7, 300])
def test_callbacks_get_all_their_arguments(count: int) -> None:
    def scenario(loop: Any) -> Any:
        got: list[Any] = []
        loop.call_soon(lambda *args: got.append(args), *range(count))
        run_ready(loop)
        return got

    assert same_as_bare(scenario) == [tuple(range(count))]


def test_callbacks_run_in_the_order_they_were_given() -> None:
    def scenario(loop: Any) -> Any:
        ran: list[Any] = []

        def both(number: int) -> None:
            ran.append(number)
            if number < 3:
                loop.call_soon(both, number + 10)

        for number in range(5):
            loop.call_soon(both, number)
        run_ready(loop)
        run_ready(loop)
        return ran

    same_as_bare(scenario)


def test_callbacks_run_in_the_context_given_or_in_a_copy_of_the_callers() -> None:
    def scenario(loop: Any) -> Any:
        got: list[Any] = []

        def tell() -> None:
            got.append(var.get())
            var.set("inside")

        own = contextvars.copy_context()
        own.run(var.set, "own")
        token = var.set("caller")
        given = loop.call_soon(tell, context=own)
        copied = loop.call_soon(tell, context=None)
        loop.call_soon(tell)
        var.reset(token)
        run_ready(loop)
        context_of_given = given.get_context() if hasattr(given, "get_context") else given._context
        return got, var.get(), own[var], context_of_given is own, copied._context[var]

    assert same_as_bare(scenario)[0] == ["own", "caller", "caller"]


def test_a_context_that_is_entered_already_is_told_as_asyncios_is(caplog: pytest.LogCaptureFixture) -> None:
    def scenario(loop: Any) -> Any:
        caplog.clear()
        told = tell_handler(loop)
        context = contextvars.copy_context()
        loop.call_soon(nothing, context=context)
        context.run(run_ready, loop)
        # CPython 3.13 cannot call the handler in the loop's own context either, and logs that.
        logged = [str(record.exc_info and record.exc_info[1]).split(":")[0] for record in caplog.records]
        return logged, [(str(one["exception"]).split(":")[0], one["message"], sorted(one)) for one in told]

    assert "cannot enter context" in str(same_as_bare(scenario))


@pytest.mark.parametrize("context", [1, "x", object()])
@pytest.mark.parametrize("schedule", ["call_soon", "call_soon_threadsafe", "call_later"])
def test_a_context_that_is_none_is_told_to_the_exception_handler(schedule: str, context: Any) -> None:
    def scenario(loop: Any) -> Any:
        told = tell_handler(loop)
        if schedule == "call_later":
            loop.call_later(0, nothing, context=context)
        else:
            getattr(loop, schedule)(nothing, context=context)
        run_ready(loop)
        run_ready(loop)
        return [(type(one["exception"]), str(one["exception"]), one["message"], sorted(one)) for one in told]

    assert len(same_as_bare(scenario)) == 1


def test_anything_with_a_run_serves_as_a_context_as_before() -> None:
    class Runs:
        def run(self, callback: Any, *args: Any) -> None:
            callback("through run", *args)

    def scenario(loop: Any) -> Any:
        got: list[Any] = []
        loop.call_soon(lambda *args: got.append(args), 1, context=Runs())
        run_ready(loop)
        return got

    assert same_as_bare(scenario) == [("through run", 1)]


def told_of(exc: BaseException) -> str:
    """What it says, without the module of the handle's class, which newer Pythons show."""
    return re.sub(r"[\w.]+\.(\w*Handle)", r"\1", str(exc))


def tell_handler(loop: Any) -> list[dict[str, Any]]:
    told: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: told.append(context))
    return told


@pytest.mark.parametrize(
    "fault", [ValueError("its own"), asyncio.CancelledError(), GeneratorExit(), BaseException("b")]
)
def test_an_exception_goes_to_the_loops_handler_as_asyncios_does(fault: BaseException) -> None:
    def fails(*_: Any) -> None:
        raise fault

    def scenario(loop: Any) -> Any:
        told: list[Any] = []
        handles: list[Any] = []

        def handler(of: Any, context: dict[str, Any]) -> None:
            handled = sys.exc_info()
            frames = [frame.name for frame in traceback_of(context["exception"])]
            told.append([of is loop, sorted(context), context["message"], context["exception"] is fault])
            told.append([context["handle"] is handles[0], handled[1] is fault, frames[-1]])

        loop.set_exception_handler(handler)
        handles.append(loop.call_soon(fails, 1, "two"))
        run_ready(loop)
        fault.__traceback__ = None
        return told, sys.exc_info()

    seen, after = same_as_bare(scenario)
    assert seen[0][1] == ["exception", "handle", "message"]
    assert seen[1] == [True, True, "fails"]
    assert after == (None, None, None)


def traceback_of(exc: BaseException) -> Any:
    return traceback.extract_tb(exc.__traceback__)


def test_without_a_handler_it_is_logged_as_asyncios_is(caplog: pytest.LogCaptureFixture) -> None:
    def fails() -> None:
        raise ValueError("its own")

    def scenario(loop: Any) -> Any:
        caplog.clear()
        with caplog.at_level(logging.ERROR, logger="asyncio"):
            loop.call_soon(fails)
            run_ready(loop)
        return [(one.levelname, one.getMessage(), one.exc_info and one.exc_info[0]) for one in caplog.records]

    assert len(same_as_bare(scenario)) == 1


def test_a_handler_that_fails_is_logged_and_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def fails() -> None:
        raise ValueError("its own")

    def handler(*_: Any) -> None:
        raise LookupError("the handler's")

    def scenario(loop: Any) -> Any:
        caplog.clear()
        ran: list[int] = []
        loop.set_exception_handler(handler)
        with caplog.at_level(logging.ERROR, logger="asyncio"):
            loop.call_soon(fails)
            loop.call_soon(ran.append, 1)
            run_ready(loop)
        return ran, [one.getMessage() for one in caplog.records]

    assert same_as_bare(scenario)[0] == [1]


@pytest.mark.parametrize("stop", [SystemExit(3), KeyboardInterrupt()])
def test_system_exit_and_ctrl_c_end_the_loop_and_it_can_run_again(stop: BaseException) -> None:
    def fails() -> None:
        raise stop

    def scenario(loop: Any) -> Any:
        told = tell_handler(loop)
        ran: list[int] = []
        loop.call_soon(fails)
        loop.call_soon(ran.append, 1)
        with pytest.raises(type(stop)) as caught:
            run_ready(loop)
        before = list(ran)
        run_ready(loop)
        return caught.value is stop, told, before, ran

    assert same_as_bare(scenario) == (True, [], [], [1])


@pytest.mark.parametrize("name", ["call_soon", "call_soon_threadsafe"])
def test_a_closed_loop_refuses_as_asyncios_does(name: str) -> None:
    def scenario(loop: Any) -> Any:
        loop.close()
        with pytest.raises(RuntimeError) as caught:
            getattr(loop, name)(nothing)
        return str(caught.value)

    assert same_as_bare(scenario) == "Event loop is closed"


@pytest.mark.parametrize(
    "call",
    [
        lambda loop: loop.call_soon(),
        lambda loop: loop.call_soon(nothing, callback=nothing),
        lambda loop: loop.call_soon(nothing, unknown=1),
        lambda loop: loop.call_soon(nothing, context=None, unknown=1),
        lambda loop: loop.call_soon_threadsafe(),
        lambda loop: type(loop).call_soon(),
        lambda loop: type(loop).call_soon(loop),
    ],
)
def test_a_wrong_call_is_refused_as_asyncios_is(call: Callable[[Any], Any]) -> None:
    def scenario(loop: Any) -> Any:
        with pytest.raises(TypeError) as caught:
            call(loop)
        return str(caught.value).replace("_make_threadsafe.<locals>", "BaseEventLoop")

    same_as_bare(scenario)


@pytest.mark.parametrize("name", ["call_soon", "call_soon_threadsafe"])
def test_every_form_of_the_call_works(name: str) -> None:
    def scenario(loop: Any) -> Any:
        ran: list[int] = []
        method = getattr(type(loop), name)
        method(loop, ran.append, 1)
        getattr(loop, name)(callback=lambda: ran.append(2))
        getattr(loop, name)(*[ran.append, 3], **{"context": None})
        bound = getattr(loop, name)
        bound(ran.append, 4)
        run_ready(loop)
        return ran, bound.__name__, bound.__self__ is loop

    assert same_as_bare(scenario)[0] == [1, 2, 3, 4]


def test_debug_mode_is_asyncios_own(caplog: pytest.LogCaptureFixture) -> None:
    def scenario(loop: Any) -> Any:
        loop.set_debug(True)
        loop.slow_callback_duration = 0
        handle = loop.call_soon(nothing)
        created = repr(handle)
        with pytest.raises(TypeError) as caught:
            loop.call_soon(asyncio.sleep)
        threads: list[str] = []

        def elsewhere() -> None:
            with pytest.raises(RuntimeError) as caught:
                loop.call_soon(nothing)
            threads.append(str(caught.value))

        def from_a_thread() -> None:
            thread = threading.Thread(target=elsewhere)
            thread.start()
            thread.join()

        loop.call_soon(from_a_thread)
        with caplog.at_level(logging.ERROR):
            run_ready(loop)
        return isinstance(handle, asyncio.Handle), "created at" in created, str(caught.value), threads

    assert same_as_bare(scenario)[1:2] == (True,)


def test_a_weak_reference_to_a_handle_goes_with_it() -> None:
    def scenario(loop: Any) -> Any:
        called: list[int] = []
        handle = loop.call_soon(nothing)
        reference = weakref.ref(handle, lambda _: called.append(1))
        alive = reference() is handle
        run_ready(loop)
        del handle
        return alive, reference(), called

    assert same_as_bare(scenario) == (True, None, [1])


def test_a_handle_holds_nothing_once_it_has_run() -> None:
    class Callback:
        def __call__(self) -> None:
            pass

    def scenario(loop: Any) -> Any:
        callback = Callback()
        gone = weakref.ref(callback)
        loop.call_soon(callback)
        del callback
        run_ready(loop)
        return gone()

    assert same_as_bare(scenario) is None


def test_handles_in_a_cycle_with_their_loop_are_collected() -> None:
    gc.collect()
    with loop_of() as loop, followed(loop):
        holder: list[Any] = []
        holder.append(loop.call_soon(nothing, holder))
        gone = weakref.ref(holder[0])
        loop._ready.clear()
        del holder
        gc.collect()
        assert gone() is None


# --- what asyncio makes of a handle ---


def the_frames_of(handle: Any) -> list[tuple[str, str]]:
    return [(frame.name, frame.line) for frame in handle._source_traceback[-1:]]


def test_in_debug_mode_a_handle_was_made_where_its_caller_stands() -> None:
    def scenario(loop: Any) -> Any:
        loop.set_debug(True)
        ours, theirs = asyncio.Future(loop=loop), loop.call_later(60, nothing)  # type: ignore[var-annotated]
        ours.add_done_callback(nothing)
        ours.set_result(None)
        made = [loop.call_soon(nothing), loop.call_soon_threadsafe(nothing), theirs, loop.call_at(1e6, nothing)]
        made += [events.Handle(nothing, (), loop), events.TimerHandle(1.0, nothing, (), loop)]
        seen = [the_frames_of(handle) for handle in made]
        shown = [repr(handle).split(" created at ")[1] for handle in made]
        for handle in made:
            handle.cancel()
        loop.set_debug(False)
        return seen, shown, [repr(handle).split(" when=")[0] for handle in made]

    frames, _, _ = same_as_bare(scenario)
    assert [frames[number][-1][0] for number in range(4)] == ["scenario"] * 4


def test_debug_mode_switched_midway_is_as_asyncios() -> None:
    def scenario(loop: Any) -> Any:
        told = tell_handler(loop)
        before = [loop.call_soon(nothing), loop.call_soon(fails)]
        loop.set_debug(True)
        after = [loop.call_soon(nothing), loop.call_soon(fails)]
        loop.call_soon(loop.set_debug, False)
        run_ready(loop)
        return [bool(handle._source_traceback) for handle in before + after], [sorted(one) for one in told]

    def fails() -> None:
        raise ValueError("its own")

    traced, told = same_as_bare(scenario)
    assert traced == [False, False, True, True] and "source_traceback" in told[1]


SLOTS = ("_callback", "_args", "_cancelled", "_loop", "_source_traceback", "_repr", "_context", "_when", "_scheduled")


@pytest.mark.parametrize("debug", [False, True])
@pytest.mark.parametrize("timed", [False, True])
@pytest.mark.parametrize("slot", SLOTS)
def test_whatever_slot_is_deleted_it_fails_as_asyncios_does(slot: str, timed: bool, debug: bool) -> None:
    def told_by(loop: Any, call: Callable[[Any], Any]) -> Any:
        handle = events.TimerHandle(1e6, nothing, (1,), loop) if timed else events.Handle(nothing, (1,), loop)
        try:
            delattr(handle, slot)
            return call(handle)
        except (AttributeError, TypeError, AssertionError) as exc:
            return type(exc), told_of(exc)

    def scenario(loop: Any) -> Any:
        loop.set_exception_handler(nothing)
        loop.set_debug(debug)
        calls: list[Callable[[Any], Any]] = [
            lambda handle: handle.cancel(),
            lambda handle: handle._run(),
            lambda handle: handle.cancelled(),
            lambda handle: repr(handle).split(" created at ")[0],
            lambda handle: loop.call_soon(handle._run) and run_ready(loop),  # type: ignore[func-returns-value]
            lambda handle: handle == events.TimerHandle(1e6, nothing, (1,), loop),
        ]
        seen = [told_by(loop, call) for call in calls]
        loop.set_debug(False)
        loop._timer_cancelled_count = 0
        return seen

    same_as_bare(scenario)


def test_a_handle_without_its_loop_in_the_queue_is_told_as_asyncios() -> None:
    def scenario(loop: Any) -> Any:
        told = tell_handler(loop)
        ran: list[int] = []
        handle = loop.call_soon(ran.append, 1)
        del handle._loop
        with pytest.raises(AttributeError) as caught:
            handle.cancel()
        run_ready(loop)
        broken = loop.call_soon(fails)
        del broken._loop
        with pytest.raises(AttributeError):
            run_ready(loop)
        run_ready(loop)
        return ran, told, told_of(caught.value)

    def fails() -> None:
        raise ValueError("its own")

    same_as_bare(scenario)


def test_a_handle_that_was_never_begun_fails_as_asyncios() -> None:
    def scenario(loop: Any) -> Any:
        seen = []
        for kind in (events.Handle, events.TimerHandle):
            blank = kind.__new__(kind)
            for call in (repr, lambda handle: handle._run(), lambda handle: handle.cancel(), hash):
                try:
                    call(blank)
                except AttributeError as exc:
                    seen.append(told_of(exc))
            loop._ready.append(blank)
            with pytest.raises(AttributeError):
                run_ready(loop)
            run_ready(loop)
        return seen

    same_as_bare(scenario)


def test_a_subclass_of_what_stands_in_asyncio_events_behaves_as_one_of_asyncios() -> None:
    def scenario(loop: Any) -> Any:
        ran: list[Any] = []

        class Mine(events.Handle):
            def __init__(self, *args: Any) -> None:
                ran.append("made")
                super().__init__(*args)
                self.extra = 1

            def _run(self) -> None:
                ran.append("before")
                super()._run()
                ran.append("after")

        class Never(events.Handle):
            def __init__(self) -> None:
                pass

        class Late(events.TimerHandle):
            __slots__ = ("extra",)

        mine: Any
        late: Any
        mine, late = Mine(ran.append, (1,), loop), Late(loop.time(), ran.append, (2,), loop)
        late.extra = 5
        loop._ready.extend([mine, late])
        run_ready(loop)
        is_a = [isinstance(one, kind) for one in (mine, late) for kind in (Mine, Late, events.Handle, asyncio.Handle)]
        is_a += [isinstance(loop.call_soon(nothing), Mine), issubclass(Mine, events.Handle), issubclass(int, Mine)]
        with pytest.raises(AttributeError):
            Never()._run()
        run_ready(loop)
        return ran, is_a, mine.extra, late.extra, repr(mine), late == late, late < late

    assert same_as_bare(scenario)[0] == ["made", "before", 1, "after", 2]


def test_what_was_a_handle_before_the_hooks_came_is_one_while_they_stand(twin: str) -> None:
    class Before(asyncio.TimerHandle):
        pass

    with loop_of() as loop:
        soon, timer = loop.call_soon(nothing), loop.call_later(60, nothing)
        with hooked():
            now = loop.call_later(60, nothing)
            assert is_ours(now) and not is_ours(timer)
            for one in (timer, now):
                assert isinstance(one, events.TimerHandle) and isinstance(one, events.Handle)
                assert isinstance(one, asyncio.TimerHandle) and not isinstance(one, str)
            assert isinstance(soon, events.Handle) and not isinstance(soon, events.TimerHandle)
            assert issubclass(Before, events.TimerHandle) and not issubclass(Before, int)
            assert not isinstance(1, events.Handle) and not issubclass(str, events.Handle)
            assert timer == timer and timer < now and now > timer
        assert isinstance(now, events.TimerHandle) and timer < now


def test_timers_from_before_the_hooks_keep_their_order_while_they_stand_and_after(twin: str) -> None:
    ran: list[int] = []
    with loop_of() as loop:
        start = loop.time() + 1.5  # none is due before all are there
        for number in (8, 2, 6):
            loop.call_at(start + number / 1e3, ran.append, number)
        with followed(loop):
            for number in (5, 1, 7):
                loop.call_at(start + number / 1e3, ran.append, number)
            run_ready(loop)
        for number in (4, 9, 3):
            loop.call_at(start + number / 1e3, ran.append, number)
        with followed(loop):
            run_for(loop, start + 0.1 - loop.time())
    assert ran == list(range(1, 10))


def test_the_class_is_made_once_and_only_of_what_is_known(twin: str) -> None:
    assert asyncio_handles.handle_class(BARE["Handle"]) is asyncio_handles.handle_class(BARE["Handle"])
    if twin == "native":
        for unknown in (int, type("Handle", (), {"__slots__": ("_callback",)})):
            with pytest.raises(RuntimeError, match="not a class of handles"):
                asyncio_handles.handle_class(unknown)
        core: Any = native.core
        for wrong in ((1, type), (asyncio.Handle, int), (asyncio.Handle,), (asyncio.Handle, type("M", (), {}))):
            with pytest.raises(TypeError):
                core.handle_class(*wrong)


def test_a_stamp_that_is_none_is_refused(twin: str) -> None:
    if twin == "python":
        return  # a slot, which takes anything; whatever it holds is looked at where a fault is caught
    with loop_of() as loop, followed(loop):
        handle: Any = loop.call_soon(nothing)
        before = handle.stamp
        for wrong in (None, 1, (1, 2), (1, 2, "x"), "abc"):
            with pytest.raises(TypeError):
                handle.stamp = wrong
        with pytest.raises(TypeError):
            del handle.stamp
        assert handle.stamp == before


@pytest.mark.parametrize("wrong", [(), (1,), (1, 2, 3, 4, 5, 6, 7)])
def test_a_handle_made_by_hand_of_a_wrong_number_of_arguments_is_refused(twin: str, wrong: tuple[Any, ...]) -> None:
    with hooked():
        kinds: list[Any] = [events.Handle, events.TimerHandle]
        for kind in kinds:
            with pytest.raises(TypeError):
                kind(*wrong)
            with pytest.raises(TypeError):
                kind(nothing, (), None, unknown=1)


# --- others who change the loop or its handles ---


class OwnQueue(deque[Any]):
    """A queue that sees what is put into it."""

    def append(self, item: Any) -> None:
        super().append(item)
        super().append(item)


class OwnQueueLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        super().__init__()
        self._ready = OwnQueue()


class OwnCallSoonLoop(asyncio.SelectorEventLoop):
    def _call_soon(self, callback: Any, args: Any, context: Any) -> Any:
        return super()._call_soon(callback, (*args, "own"), context)  # type: ignore[misc]


@pytest.mark.parametrize("kind", [OwnQueueLoop, OwnCallSoonLoop])
def test_a_loop_with_parts_of_its_own_keeps_them(kind: type[Any]) -> None:
    def scenario(loop: Any) -> Any:
        ran: list[Any] = []
        loop.call_soon(lambda *args: ran.append(args), 1)
        loop.call_soon(lambda *args: loop.stop())
        loop.run_forever()
        return ran

    assert same_as_bare(scenario, kind)


def a_request_of_three_steps(loop: Any, hub: Hub) -> Any:
    raw = open_request(hub)

    async def handler() -> None:
        CURRENT.set(raw)
        task = asyncio.ensure_future(worker())
        await task

    async def worker() -> None:
        for _ in range(3):
            await asyncio.sleep(0)

    loop.run_until_complete(handler())
    return raw


def test_whoever_wraps_handle_run_while_installed_sees_every_callback_and_no_step_is_lost(
    twin: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = Hub()
    with loop_of() as loop, followed(loop, hub):
        plain = a_request_of_three_steps(loop, hub)
        ran: list[Any] = []
        original = asyncio.Handle._run

        def _run(self: Any) -> None:
            ran.append(self)
            original(self)

        monkeypatch.setattr(asyncio.Handle, "_run", _run)
        wrapped = a_request_of_three_steps(loop, hub)
        monkeypatch.undo()
        assert len(ran) >= wrapped.mark_count == plain.mark_count >= 4
        assert [mark[6] for mark in wrapped.marks] == [mark[6] for mark in plain.marks]
        assert all(mark[4] <= mark[5] for mark in wrapped.marks)


def test_a_wrapper_of_handle_run_that_fails_ends_the_loop_as_it_would_without(monkeypatch: pytest.MonkeyPatch) -> None:
    def scenario(loop: Any) -> Any:
        def _run(self: Any) -> None:
            raise LookupError("the wrapper's")

        with monkeypatch.context() as patch:
            patch.setattr(asyncio.Handle, "_run", _run)
            with pytest.raises(LookupError) as caught:
                run_ready(loop)
        run_ready(loop)
        return str(caught.value)

    same_as_bare(scenario)


def test_callbacks_that_are_queued_when_the_hooks_go_run_all_the_same(twin: str) -> None:
    with loop_of() as loop:
        ran: list[int] = []
        with followed(loop):
            handles = [loop.call_soon(ran.append, number) for number in range(3)]
            handles.append(loop.call_soon_threadsafe(ran.append, 3))
            handles.append(loop.call_later(0, ran.append, 4))
            handles[1].cancel()
        assert all(map(is_ours, handles))
        run_for(loop, 0.01)
        assert ran == [0, 2, 3, 4]
        assert type(loop.call_soon(nothing)) is asyncio.Handle
        run_ready(loop)


def test_hooks_that_go_in_the_middle_of_a_callback_leave_it_alone(twin: str) -> None:
    with loop_of() as loop:
        ran: list[Any] = []
        context = followed(loop)
        monitor = context.__enter__()

        def leave() -> None:
            context.__exit__(None, None, None)
            ran.append(loop.call_soon(ran.append, 2))

        loop.call_soon(leave)
        run_ready(loop)
        run_ready(loop)
        assert type(ran[0]) is asyncio.Handle and ran[1:] == [2]
        assert not monitor.alive


def test_a_loop_that_is_not_followed_leaves_the_monitor_of_another_alone(twin: str) -> None:
    hub = Hub()
    with loop_of() as loop, loop_of() as here, followed(loop, hub) as monitor:
        run_ready(loop)
        counted, now = monitor.steps, monitor.now

        def elsewhere() -> None:
            with loop_of() as there:
                run_ready(there)

        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        raw = a_request_of_three_steps(here, hub)  # on the same thread, before the followed one runs again
        assert (monitor.steps, monitor.now) == (counted, now)
        assert raw.mark_count == 0
        assert a_request_of_three_steps(loop, hub).mark_count >= 4


def test_a_request_that_begins_as_its_loop_comes_to_be_followed_has_that_step_whatever_runs_next(twin: str) -> None:
    """As where a probe is attached to a server that runs: nothing sees the end of that step."""
    hub = Hub()
    with loop_of() as loop, hooked(hub) as hooks:
        raw = open_request(hub)

        def handler() -> None:
            monitor = hooks.follow(loop)
            assert monitor is not None
            monitor.enter(raw)
            time.sleep(0.002)

        loop.call_soon(handler)
        loop.call_soon(nothing)
        run_ready(loop)
        monitor = hooks.follow(loop)
        assert monitor is not None
        [(start, end)] = [(start, end) for _, start, end, owner, *_ in monitor.slow if owner is raw]
        assert end - start >= 2_000_000
        assert [mark[4:6] for mark in raw.marks] == [(start, end)]


def test_what_a_callback_schedules_became_ready_with_it(twin: str) -> None:
    hub = Hub()
    with loop_of() as loop, followed(loop, hub):
        raw = open_request(hub)
        stamps: list[Any] = []

        def timer() -> None:
            stamps.append(loop.call_soon(nothing).stamp)
            stamps.append(loop.call_soon(nothing).stamp)

        async def handler() -> None:
            CURRENT.set(raw)
            loop.call_later(0.001, timer)
            await asyncio.sleep(0.01)
            stamps.append(loop.call_soon(nothing).stamp)

        loop.run_until_complete(handler())
        assert stamps[0] == stamps[1] != stamps[2]
        assert raw.marks and all(one[5] <= other[4] for one, other in pairwise(raw.marks))


def test_a_handle_cancelled_by_another_thread_while_we_stamp_it_does_no_harm(twin: str) -> None:
    """What is called back at a long stretch may let another thread run, which may cancel what is about to run."""

    class Callback:
        def __call__(self) -> None:
            ran.append(1)

    class Cancels:
        def append(self, _: Any) -> None:
            handles[0].cancel()

    ran: list[int] = []
    handles: list[Any] = []
    hub = Hub()
    with loop_of() as loop, followed(loop, hub) as monitor:
        loop.set_exception_handler(nothing)
        kept = monitor.slow

        def before() -> None:
            handles.append(loop.call_soon(Callback()))
            monitor.slow = Cancels()
            monitor.now -= 2 * RING_NS

        context = contextvars.copy_context()
        context.run(CURRENT.set, open_request(hub))
        context.run(before)
        run_ready(loop)
        monitor.slow = kept
        assert handles[0].cancelled() and monitor.alive
        assert len(ran) <= 1


@pytest.mark.parametrize("timed", [False, True])
@pytest.mark.parametrize("stop", [SystemExit(3), KeyboardInterrupt()])
def test_a_step_ends_where_its_callback_ends_the_loop(stop: BaseException, timed: bool, twin: str) -> None:
    def fails() -> None:
        raise stop

    hub = Hub()
    with loop_of() as loop, followed(loop, hub) as monitor:
        raw = open_request(hub)
        _ = (
            loop.call_later(0, fails, context=context_of(raw))
            if timed
            else loop.call_soon(fails, context=context_of(raw))
        )
        with pytest.raises(type(stop)):
            run_for(loop, 0.05)
        assert (raw.mark_count, monitor.owner, monitor.inherit) == (1, None, None)
        assert type(loop.call_soon(nothing).stamp) is (int if twin == "python" else tuple)


def test_a_handle_that_was_made_without_its_init_became_ready_as_it_ran(twin: str) -> None:
    hub = Hub()
    with loop_of() as loop, followed(loop, hub):
        raw = open_request(hub)
        blank: Any = events.Handle.__new__(events.Handle)
        whole = loop.call_soon(nothing, context=context_of(raw))
        for name in ("_context", "_loop", "_callback", "_args", "_cancelled", "_source_traceback", "_repr"):
            setattr(blank, name, getattr(whole, name))
        whole.cancel()
        loop._ready.append(blank)
        run_ready(loop)
        (mark,) = raw.marks
        assert mark[2] == mark[3] == mark[4]


# --- a fault of ours, and a Ctrl-C that comes while we run ---


class Failing:
    """A ring of slow steps that raises."""

    def __init__(self, fault: BaseException) -> None:
        self.fault = fault

    def append(self, _: Any) -> None:
        raise self.fault


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_fault_of_ours_is_disabled_and_the_callback_runs(when: str, twin: str) -> None:
    hub = Hub()
    with loop_of() as loop, followed(loop, hub) as monitor:
        ran: list[int] = []

        def fails_at_the_next_stamp() -> None:
            monitor.slow = Failing(LookupError("ours"))
            monitor.now -= 2 * RING_NS

        def callback() -> None:
            ran.append(1)
            if when == "after":
                fails_at_the_next_stamp()

        loop.call_soon(callback)
        if when == "before":
            fails_at_the_next_stamp()
        run_ready(loop)
        loop.call_soon(ran.append, 2)
        run_ready(loop)
        assert ran == [1, 2]
        assert not monitor.alive
        assert monitor.since == 0, "the watchdog would take it for a step that never ends"
        assert hub.hooks["steps (asyncio)"].startswith("disabled after LookupError in test_handles.py:")


@pytest.mark.parametrize("stop", [KeyboardInterrupt(), SystemExit(3)])
@pytest.mark.parametrize("when", ["before", "after", "poll"])
def test_a_ctrl_c_that_comes_while_we_run_passes(when: str, stop: BaseException, twin: str) -> None:
    hub = Hub()
    with loop_of() as loop, followed(loop, hub) as monitor:
        ran: list[int] = []
        kept = monitor.slow

        def interrupted_at_the_next_stamp() -> None:
            monitor.slow = Failing(stop)
            monitor.now -= 2 * RING_NS

        def callback() -> None:
            ran.append(1)
            if when == "after":
                interrupted_at_the_next_stamp()

        if when == "before":
            select = loop._selector.select

            def then_interrupted(timeout: Any) -> Any:
                found = select(timeout)
                interrupted_at_the_next_stamp()
                return found

            loop._selector.select = then_interrupted
        if when == "poll":
            interrupted_at_the_next_stamp()
        loop.call_soon(callback)
        loop.call_soon(loop.stop)
        with pytest.raises(type(stop)) as caught:
            loop.run_forever()
        if when == "before":
            loop._selector.select = select
        monitor.slow = kept
        assert caught.value is stop
        assert ran == ([1] if when == "after" else [])
        assert monitor.alive and "disabled" not in hub.hooks["steps (asyncio)"]
        loop.run_forever()
