"""What stands between a request over HTTP and its handler, in C: it passes everything on, and knows when it is over."""

from __future__ import annotations

import asyncio
import gc
import types
from collections.abc import Callable, Coroutine, Generator
from types import SimpleNamespace
from typing import Any

import pytest

from mcp_probe import native
from mcp_probe.adapters import mcp2  # noqa: F401 - tells the accelerator what messages look like
from mcp_probe.capture.current import CURRENT, EXCHANGE
from mcp_probe.capture.queueing import Desk
from mcp_probe.capture.sent import KEY as SENT
from mcp_probe.capture.steps import Track
from mcp_probe.clock import now_ns
from tests.native.twins import needs_the_accelerator

pytestmark = needs_the_accelerator


class Session:
    """Who the requests belong to."""

    def __init__(self) -> None:
        self.finished: list[Any] = []

    def finish(self, raw: Any) -> None:
        self.finished.append(raw)


class Middleware:
    """Who is told of faults."""

    def __init__(self) -> None:
        self.faults: list[BaseException] = []
        self.active = True

    def failed(self, exc: BaseException) -> None:
        self.faults.append(exc)
        self.active = False


def claims(desk: Any, session: Session, *, hooked: bool = True) -> Any:
    """The middleware, whose Python does nothing and answers ``None``."""

    class Claims(Middleware, native.core.Claims):  # type: ignore[misc]
        def __init__(self, *_: Any) -> None:
            super().__init__()
            self.asked: list[Any] = []

        def claim(self, ctx: Any, call_next: Any, **keywords: Any) -> None:
            return None

        def through_spans(self, call_next: Any) -> Any:
            self.asked.append(call_next)
            return self.spans(call_next)

    return Claims(desk, SimpleNamespace(hooked=hooked), session)


class Ctx:
    """As the SDK's, as far as it is read."""

    def __init__(self, method: str = "tools/call", name: str = "add") -> None:
        self.request_id: Any = 7
        self.method = method
        self.params = {"name": name}
        self.meta = None
        self.protocol_version = "2026-07-28"
        self.session = object()


class Stage:
    """One exchange on a track of this thread, and who opens requests in it."""

    def __init__(self) -> None:
        from collections import deque

        self.desk = Desk()
        self.track = Track(1, "asyncio", deque(maxlen=100), 10**7, self.desk.settle)
        self.track.stretches = self.track.closes_steps = True
        self.session = Session()
        self.middleware = claims(self.desk, self.session)
        self.exchange = native.core.exchange_of([(b"content-length", b"12")], self.track)

    def open(self, call_next: Callable[[Any], Any], ctx: Any = None) -> Any:
        EXCHANGE.set(self.exchange)
        return self.middleware(ctx or Ctx(), call_next)

    @property
    def raw(self) -> Any:
        return self.exchange.raw


def run(body: Callable[[Stage], Coroutine[Any, Any, None]]) -> Stage:
    """``body`` on a loop of its own, in a context of its own."""
    stage: list[Stage] = []

    async def main() -> None:
        stage.append(Stage())
        await body(stage[0])

    asyncio.run(main())
    return stage[0]


@pytest.mark.parametrize("value", [None, 5, (1, 2), StopIteration(3), {"isError": False}])
def test_what_the_handler_returns_is_what_the_caller_gets(value: Any) -> None:
    async def body(stage: Stage) -> None:
        async def handler(ctx: Any) -> Any:
            await asyncio.sleep(0)
            assert CURRENT.get() is stage.raw
            return value

        assert await stage.open(handler) is value
        assert CURRENT.get() is None
        assert stage.raw.name == "add"
        assert stage.raw.request_bytes == 12
        assert stage.raw.result_ns is not None
        assert not stage.raw.ended  # its answer has not been sent

    assert run(body).middleware.faults == []


def test_a_failed_tool_is_read_off_its_answer() -> None:
    async def body(stage: Stage) -> None:
        async def handler(ctx: Any) -> Any:
            return {"isError": True}

        await stage.open(handler)
        assert stage.raw.outcome == "tool_error"

    run(body)


@pytest.mark.parametrize("suspends", [False, True])
def test_an_exception_of_the_handler_goes_through_as_it_is(suspends: bool) -> None:
    async def body(stage: Stage) -> None:
        raised = ValueError("mine")

        async def handler(ctx: Any) -> Any:
            if suspends:
                await asyncio.sleep(0)
            raise raised

        with pytest.raises(ValueError, match="mine") as caught:
            await stage.open(handler)
        assert caught.value is raised
        assert stage.raw.outcome == "error"
        assert stage.raw.error == "ValueError"

    assert run(body).middleware.faults == []


def test_an_exception_before_there_is_anything_to_await_goes_through() -> None:
    async def body(stage: Stage) -> None:
        def handler(ctx: Any) -> Any:
            raise KeyError("at once")

        with pytest.raises(KeyError):
            await stage.open(handler)
        assert stage.raw.outcome == "error"
        assert CURRENT.get() is None

    assert run(body).middleware.faults == []


def test_cancellation_reaches_the_handler_and_ends_the_request() -> None:
    async def body(stage: Stage) -> None:
        cleaned = []

        async def handler(ctx: Any) -> Any:
            try:
                await asyncio.sleep(60)
            finally:
                cleaned.append(True)

        task = asyncio.ensure_future(_awaiting(stage.open(handler)))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert cleaned == [True]
        assert stage.raw.outcome == "cancelled"
        assert stage.session.finished == [stage.raw]

    assert run(body).middleware.faults == []


async def _awaiting(awaitable: Any) -> Any:
    return await awaitable


def test_a_handler_that_swallows_a_cancellation_may_go_on() -> None:
    async def body(stage: Stage) -> None:
        async def handler(ctx: Any) -> Any:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                await asyncio.sleep(0)
                return "kept going"

        task = asyncio.ensure_future(_awaiting(stage.open(handler)))
        await asyncio.sleep(0)
        task.cancel()
        assert await task == "kept going"
        assert stage.raw.outcome == "ok"

    run(body)


def test_one_that_is_dropped_half_way_has_ended() -> None:
    async def body(stage: Stage) -> None:
        async def handler(ctx: Any) -> Any:
            await asyncio.sleep(60)

        awaitable = stage.open(handler)
        assert awaitable.send(None) is not None  # the future that it waits for
        raw = stage.raw
        del awaitable
        gc.collect()
        assert raw.ended
        assert raw.outcome == "cancelled"

    run(body)


def test_close_ends_it_as_a_coroutine_would() -> None:
    async def body(stage: Stage) -> None:
        seen = []

        async def handler(ctx: Any) -> Any:
            try:
                await asyncio.sleep(60)
            except GeneratorExit:
                seen.append("closed")
                raise

        awaitable = stage.open(handler)
        awaitable.send(None)
        awaitable.close()
        awaitable.close()
        assert seen == ["closed"]
        assert stage.raw.outcome == "cancelled"
        with pytest.raises(RuntimeError):
            awaitable.send(None)

    run(body)


def test_one_that_never_began_has_opened_nothing() -> None:
    async def body(stage: Stage) -> None:
        async def handler(ctx: Any) -> Any: ...

        awaitable = stage.open(handler)
        with pytest.raises(ValueError, match="thrown"):
            awaitable.throw(ValueError("thrown"))
        assert stage.raw is None
        assert not stage.desk.live

    run(body)


def test_any_awaitable_will_do() -> None:
    class Awaitable:
        def __await__(self) -> Generator[Any, Any, str]:
            yield from asyncio.sleep(0).__await__()
            return "awaited"

    @types.coroutine
    def old_style(ctx: Any) -> Generator[None, None, str]:
        yield
        return "old style"

    async def body(stage: Stage) -> None:
        assert await stage.open(lambda ctx: Awaitable()) == "awaited"
        stage.exchange = native.core.exchange_of([], stage.track)
        assert await stage.open(old_style) == "old style"

    run(body)


def test_a_fault_of_ours_is_told_and_the_handler_runs() -> None:
    async def body(stage: Stage) -> None:
        async def handler(ctx: Any) -> Any:
            return "answered"

        ctx = Ctx()
        del ctx.protocol_version
        assert await stage.open(handler, ctx) == "answered"
        assert [type(fault) for fault in stage.middleware.faults] == [AttributeError]

    run(body)


def test_the_tools_that_the_sdk_lists_for_itself_are_part_of_the_request() -> None:
    async def body(stage: Stage) -> None:
        async def handler(ctx: Any) -> Any:
            return {}

        await stage.open(handler, Ctx("tools/list"))
        listing = stage.raw
        await stage.open(handler)
        assert listing.ended
        assert listing.session is None
        assert stage.raw.method == "tools/call"
        assert stage.session.finished == []

    run(body)


@pytest.mark.parametrize("why", ["no exchange", "sized", "timed", "another thread", "detached"])
def test_what_it_does_not_know_is_left_to_python(why: str) -> None:
    async def body(stage: Stage) -> None:
        ctx: Any = Ctx()
        if why == "no exchange":
            stage.exchange = None
        elif why == "sized":
            stage.desk.sizer = object()
        elif why == "timed":
            ctx.meta = {SENT: 1}
        elif why == "another thread":
            assert await asyncio.to_thread(stage.open, lambda ctx: None) is None
            return
        else:
            stage.track.alive = False
        assert stage.open(lambda ctx: None, ctx) is None

    run(body)


def test_one_that_is_not_active_or_is_called_in_another_way_leaves_it_to_python() -> None:
    async def body(stage: Stage) -> None:
        EXCHANGE.set(stage.exchange)
        claiming: Any = stage.middleware
        assert claiming(Ctx(), call_next=None) is None
        claiming.active = False
        assert claiming(Ctx(), None) is None
        assert not stage.desk.live

    assert run(body).middleware.faults == []


@pytest.mark.parametrize("whose", ["its own", "nobody's", "another's", "claimed before", "timed", "not hooked"])
def test_a_message_of_a_stream_is_claimed_and_its_handler_called(whose: str) -> None:
    async def body(stage: Stage) -> None:
        claiming: Any = stage.middleware
        raw = stage.desk.open("request", "tools/call", "add", "stdio")
        raw.channel, raw.request_id = object(), 7
        raw.session = {"nobody's": None, "another's": Session()}.get(whose, stage.session)
        ctx: Any = Ctx()
        if whose == "claimed before":
            raw.protocol_version = "2025-06-18"
        elif whose == "timed":
            ctx.meta = {SENT: 1}
        elif whose == "not hooked":
            claiming = claims(stage.desk, stage.session, hooked=False)
        CURRENT.set(raw)
        called: list[Any] = []

        def call_next(ctx: Any) -> str:
            called.append(ctx)
            return "awaitable"

        answer = claiming(ctx, call_next)
        if whose == "its own":
            assert (answer, called, raw.protocol_version) == ("awaitable", [ctx], "2026-07-28")
        else:
            assert (answer, called) == (None, [])
            assert raw.protocol_version == ("2025-06-18" if whose == "claimed before" else None)

    run(body)


def test_spans_are_asked_for_unless_they_have_said_not_to() -> None:
    async def body(stage: Stage) -> None:
        async def handler(ctx: Any) -> Any:
            return "bare"

        async def traced(ctx: Any) -> Any:
            return "traced"

        claiming: Any = stage.middleware
        claiming.spans = lambda call_next: traced
        assert await stage.open(handler) == "traced"
        assert claiming.asked == [handler]
        claiming.deaf_until_ns = now_ns() + 10**12
        stage.exchange = native.core.exchange_of([], stage.track)
        assert await stage.open(handler) == "bare"
        claiming.deaf_until_ns = now_ns() - 1
        stage.exchange = native.core.exchange_of([], stage.track)
        assert await stage.open(handler) == "traced"
        claiming.spans = None
        stage.exchange = native.core.exchange_of([], stage.track)
        assert await stage.open(handler) == "bare"
        assert len(claiming.asked) == 2

    assert run(body).middleware.faults == []


def test_spans_that_cannot_be_asked_are_a_fault_of_ours() -> None:
    async def body(stage: Stage) -> None:
        stage.middleware.spans = "not callable"
        assert stage.open(lambda ctx: None) is None
        assert [type(fault) for fault in stage.middleware.faults] == [TypeError]

    run(body)


# --- the entrance ---


class Door(Middleware):
    """A gate, as far as the entrance asks it."""

    def __init__(self, track: Any) -> None:
        super().__init__()
        self.track = track
        self.closed: list[Any] = []

    def follow(self) -> Any:
        return self.track

    def enter(self, app: Any, args: Any) -> Any:
        return "in Python", app, args

    def close(self, raw: Any) -> None:
        self.closed.append(raw)


SCOPE = {"type": "http", "headers": [(b"content-length", b"34")]}


def entered(
    app: Any, *args: Any, door: Any = None, at: tuple[Any, ...] = (SCOPE, "receive", "send")
) -> tuple[Any, Any]:
    """What comes of one call of an entrance to ``app``, and its gate."""
    seen: list[Any] = []

    async def body(stage: Stage) -> None:
        gate = Door(stage.track) if door is None else door(stage)
        seen.append(gate)
        found = native.core.Entrance(app, gate, stage.desk)(*args, *at)
        seen.append(await found if hasattr(found, "__await__") else found)
        assert EXCHANGE.get() is None

    run(body)
    return seen[1], seen[0]


def test_an_app_is_called_inside_of_its_exchange() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> Any:
        exchange = EXCHANGE.get()
        assert exchange is not None
        await asyncio.sleep(0)
        assert EXCHANGE.get() is exchange
        assert type(send) is native.core.Send
        assert send.__wrapped__ == "send"
        return scope, receive, exchange.body_bytes, exchange.raw

    answer, gate = entered(app)
    assert answer == (SCOPE, "receive", 34, None)
    assert gate.faults == gate.closed == []


def test_a_method_gets_what_stands_before_the_scope() -> None:
    async def method(manager: Any, scope: Any, receive: Any, send: Any) -> Any:
        return manager, receive

    class Manager:
        handle_request: Any = None

    async def body(stage: Stage) -> None:
        entrance = native.core.Entrance(method, Door(stage.track), stage.desk)
        Manager.handle_request = entrance
        manager = Manager()
        assert await manager.handle_request(SCOPE, "receive", "send") == (manager, "receive")
        assert Manager.handle_request is entrance
        assert entrance.__wrapped__ is entrance.app is method
        assert entrance.__name__ == "method"

    run(body)


@pytest.mark.parametrize("scope", [{"type": "websocket"}, {"type": "lifespan"}, {}, {"type": 5}, "no scope"])
def test_what_is_no_request_passes_through(scope: Any) -> None:
    def app(*args: Any) -> Any:
        return args

    answer, _ = entered(app, at=(scope, "receive", "send"))
    assert answer == (scope, "receive", "send")


def test_an_exchange_is_entered_once_and_a_second_request_in_it_anew() -> None:
    async def body(stage: Stage) -> None:
        async def inner(scope: Any, receive: Any, send: Any) -> Any:
            return EXCHANGE.get(), send

        async def outer(scope: Any, receive: Any, send: Any) -> Any:
            mine = EXCHANGE.get()
            assert mine is not None
            assert await native.core.Entrance(inner, gate, stage.desk)(scope, receive, send) == (mine, send)
            mine.raw = stage.desk.open("request", "tools/call", "add", "http")
            other, _ = await native.core.Entrance(inner, gate, stage.desk)(scope, receive, send)
            assert other is not mine
            return mine.raw

        gate = Door(stage.track)
        raw = await native.core.Entrance(outer, gate, stage.desk)(SCOPE, "receive", "send")
        assert gate.closed == [raw]  # the call is over, and nothing was answered

    run(body)


def test_where_no_loop_is_known_python_sees_to_it() -> None:
    answer, gate = entered("app", "manager", door=lambda stage: Door(None))
    assert answer == ("in Python", "app", ("manager", SCOPE, "receive", "send"))
    assert gate.faults == []


@pytest.mark.parametrize("raised", [ValueError("its own"), asyncio.CancelledError()])
def test_what_an_app_raises_goes_through_and_leaves_the_exchange(raised: BaseException) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.sleep(0)
        raise raised

    async def body(stage: Stage) -> None:
        gate = Door(stage.track)
        with pytest.raises(type(raised)) as caught:
            await native.core.Entrance(app, gate, stage.desk)(SCOPE, "receive", "send")
        assert caught.value is raised
        assert EXCHANGE.get() is None
        assert gate.faults == []

    run(body)


@pytest.mark.parametrize("fault", ["follow", "close", "headers"])
def test_a_fault_of_the_entrance_is_told_and_the_app_is_called(fault: str) -> None:
    class Faulty(Door):
        def follow(self) -> Any:
            return 1 / 0 if fault == "follow" else super().follow()

        def close(self, raw: Any) -> None:
            raise LookupError

    async def body(stage: Stage) -> None:
        async def app(scope: Any, receive: Any, send: Any) -> str:
            if (mine := EXCHANGE.get()) is not None:
                mine.raw = stage.desk.open("request", "tools/call", "add", "http")
            return "called"

        gate = Faulty(stage.track)
        scope: Any = {"type": "http", "headers": 5 if fault == "headers" else []}
        entrance = native.core.Entrance(app, gate, stage.desk)
        assert await entrance(scope, "receive", "send") == "called"
        kinds = {"follow": ZeroDivisionError, "close": LookupError, "headers": TypeError}
        assert [type(told) for told in gate.faults] == [kinds[fault]]
        assert await entrance(scope, "receive", "send") == "called"
        assert len(gate.faults) == 1
        assert EXCHANGE.get() is None

    run(body)


def test_a_gate_that_is_shut_lets_everything_through() -> None:
    def shut(stage: Stage) -> Door:
        gate = Door(stage.track)
        gate.active = False
        return gate

    assert entered(lambda *args: args, door=shut)[0] == (SCOPE, "receive", "send")


def test_a_loop_whose_turns_are_not_ours_is_asked_for_each_time() -> None:
    async def body(stage: Stage) -> None:
        asked: list[int] = []

        class Counting(Door):
            def follow(self) -> Any:
                asked.append(1)
                return self.track

        async def app(scope: Any, receive: Any, send: Any) -> None: ...

        entrance = native.core.Entrance(app, Counting(stage.track), stage.desk)
        for _ in range(3):
            await entrance(SCOPE, "receive", "send")
        assert len(asked) == 3

    run(body)


# --- send ---


class Gate(Middleware):
    """Who is told of faults of ``send``."""


def messages(stage: Stage, *sent: dict[str, Any]) -> list[Any]:
    """``sent`` through a Send of the stage; what reached the application server."""
    reached: list[Any] = []

    async def send(message: Any) -> None:
        await asyncio.sleep(0)
        reached.append(message)

    async def through() -> None:
        sender = native.core.Send(stage.middleware, stage.desk, stage.exchange, send)
        for message in sent:
            await sender(message)

    coroutine = through()
    while True:
        try:
            coroutine.send(None)
        except StopIteration:
            return reached


START = {"type": "http.response.start", "status": 200}
BODY = {"type": "http.response.body", "body": b"12345"}


def test_the_answer_is_taken_at_its_first_message_and_flushed_with_its_body() -> None:
    async def body(stage: Stage) -> None:
        async def handler(ctx: Any) -> Any:
            return {}

        await stage.open(handler)
        assert messages(stage, START) == [START]
        taken = stage.raw.write_taken_ns
        assert taken >= stage.raw.result_ns
        assert not stage.raw.ended
        assert messages(stage, {**BODY, "body": b""}, BODY, BODY) == [{**BODY, "body": b""}, BODY, BODY]
        assert stage.raw.ended
        assert stage.raw.write_taken_ns == taken
        assert stage.raw.flushed_ns == stage.raw.end_ns >= taken
        assert stage.raw.response_bytes == 5
        assert stage.session.finished == [stage.raw]

    assert run(body).middleware.faults == []


def test_what_is_sent_before_there_is_an_answer_passes_through() -> None:
    async def body(stage: Stage) -> None:
        assert messages(stage, START, BODY) == [START, BODY]
        assert stage.raw is None

    run(body)


def test_a_send_that_raises_leaves_the_answer_unflushed() -> None:
    async def body(stage: Stage) -> None:
        async def handler(ctx: Any) -> Any:
            return {}

        async def send(message: Any) -> None:
            raise OSError("gone")

        await stage.open(handler)
        with pytest.raises(OSError, match="gone"):
            await native.core.Send(stage.middleware, stage.desk, stage.exchange, send)(BODY)
        assert not stage.raw.ended
        assert stage.raw.flushed_ns is None

    run(body)


def test_after_a_fault_it_passes_through() -> None:
    async def body(stage: Stage) -> None:
        async def handler(ctx: Any) -> Any:
            return {}

        await stage.open(handler)
        odd = {"type": "http.response.body", "body": 5}
        assert messages(stage, odd) == [odd]
        assert [type(fault) for fault in stage.middleware.faults] == [TypeError]
        assert messages(stage, BODY) == [BODY]
        assert not stage.raw.ended

    run(body)
