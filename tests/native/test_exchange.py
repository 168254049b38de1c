"""What stands between a request over HTTP and its handler, in C: it passes everything on, and knows when it is over."""

from __future__ import annotations

import asyncio
import gc
import types
from collections.abc import Callable, Coroutine, Generator
from typing import Any

import pytest

from mcp_probe import native
from mcp_probe.adapters import mcp2  # noqa: F401 - tells the accelerator what messages look like
from mcp_probe.capture.current import CURRENT, EXCHANGE
from mcp_probe.capture.queueing import Desk
from mcp_probe.capture.sent import KEY as SENT
from mcp_probe.capture.steps import Track
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
        self.session, self.middleware = Session(), Middleware()
        self.opener = native.core.Opener(self.middleware, self.desk, self.session)
        self.exchange = native.core.exchange_of([(b"content-length", b"12")], self.track)

    def open(self, call_next: Callable[[Any], Any], ctx: Any = None) -> Any:
        EXCHANGE.set(self.exchange)
        return self.opener(ctx or Ctx(), call_next)

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
