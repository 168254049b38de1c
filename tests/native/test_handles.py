"""The accelerator's handle and ``call_soon`` against asyncio's own: whatever a program can see of them is the same."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import logging
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

from mcp_probe.capture.current import CURRENT
from mcp_probe.capture.hub import Hub
from mcp_probe.record.raw import RING_NS
from tests.native.loops import Handle, followed, loop_of, nothing, open_request, run_ready, same_as_bare
from tests.native.twins import needs_the_accelerator

pytestmark = needs_the_accelerator

var: contextvars.ContextVar[str] = contextvars.ContextVar("var", default="unset")


def test_handles_look_and_behave_like_asyncios() -> None:
    def scenario(loop: Any) -> Any:
        ran: list[Any] = []
        handle = loop.call_soon(ran.append, 1)
        other = loop.call_soon(ran.append, 2)
        seen = [
            isinstance(handle, asyncio.Handle),
            isinstance(handle, asyncio.TimerHandle),
            handle.__class__,
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
    import traceback

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


def test_a_handle_cannot_be_made_by_hand() -> None:
    with pytest.raises(TypeError):
        Handle()


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

    with loop_of(kind) as loop:
        expected = scenario(loop)
    with loop_of(kind) as loop, followed(loop):
        assert scenario(loop) == expected


def test_a_queue_that_is_replaced_while_the_loop_is_followed_is_still_filled() -> None:
    with loop_of() as loop, followed(loop):
        ran: list[int] = []
        loop._ready = OwnQueue()
        loop.call_soon(ran.append, 1)
        waiting = list(loop._ready)
        loop._ready = ListQueue(waiting[:1])
        loop.call_soon(ran.append, 2)
        assert len(loop._ready) == 2
        loop._ready = deque(loop._ready)
        run_ready(loop)
        assert ran == [1, 2]


class ListQueue(list[Any]):
    """No deque at all."""


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
    monkeypatch: pytest.MonkeyPatch,
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


def test_callbacks_that_are_queued_when_the_hooks_go_run_all_the_same() -> None:
    with loop_of() as loop:
        ran: list[int] = []
        with followed(loop):
            handles = [loop.call_soon(ran.append, number) for number in range(3)]
            loop.call_soon_threadsafe(ran.append, 3)
            handles[1].cancel()
        assert {type(handle) for handle in handles} == {Handle}
        run_ready(loop)
        assert ran == [0, 2, 3]
        assert type(loop.call_soon(nothing)) is asyncio.Handle
        run_ready(loop)


def test_hooks_that_go_in_the_middle_of_a_callback_leave_it_alone() -> None:
    with loop_of() as loop:
        ran: list[Any] = []
        context = followed(loop)
        track = context.__enter__()

        def leave() -> None:
            context.__exit__(None, None, None)
            ran.append(loop.call_soon(ran.append, 2))

        loop.call_soon(leave)
        run_ready(loop)
        run_ready(loop)
        assert type(ran[0]) is asyncio.Handle and ran[1:] == [2]
        assert not track.alive


def test_another_loop_in_another_thread_has_its_own_track() -> None:
    hub = Hub()
    with loop_of() as loop, followed(loop, hub) as track:
        counted = track.steps
        seen: list[Any] = []

        def elsewhere() -> None:
            with loop_of() as other:
                seen.append(type(other.call_soon(nothing)))
                run_ready(other)

        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        assert seen == [asyncio.Handle]
        assert track.steps == counted


# --- a fault of ours, and a Ctrl-C that comes while we run ---


class Failing:
    """A ring of slow steps that raises."""

    def __init__(self, fault: BaseException) -> None:
        self.fault = fault

    def append(self, _: Any) -> None:
        raise self.fault


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_fault_of_ours_is_disabled_and_the_callback_runs(when: str) -> None:
    hub = Hub()
    with loop_of() as loop, followed(loop, hub) as track:
        ran: list[int] = []

        def fails_at_the_next_stamp() -> None:
            track.slow = Failing(LookupError("ours"))
            track.now -= 2 * RING_NS

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
        assert not track.alive
        assert track.since == 0, "the watchdog would take it for a step that never ends"
        assert hub.hooks["steps (asyncio)"].startswith("disabled after LookupError in test_handles.py:")


@pytest.mark.parametrize("stop", [KeyboardInterrupt(), SystemExit(3)])
@pytest.mark.parametrize("when", ["before", "after", "poll"])
def test_a_ctrl_c_that_comes_while_we_run_passes(when: str, stop: BaseException) -> None:
    hub = Hub()
    with loop_of() as loop, followed(loop, hub) as track:
        ran: list[int] = []
        kept = track.slow

        def interrupted_at_the_next_stamp() -> None:
            track.slow = Failing(stop)
            track.now -= 2 * RING_NS

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
        track.slow = kept
        assert caught.value is stop
        assert ran == ([1] if when == "after" else [])
        assert track.alive and "disabled" not in hub.hooks["steps (asyncio)"]
        loop.run_forever()
