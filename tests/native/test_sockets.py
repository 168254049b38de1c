"""SocketReady in C and in Python: a socket's handle runs as asyncio's, and what it wakes lies between two polls."""

from __future__ import annotations

import asyncio
import contextvars
import socket
import threading
import time
from contextlib import nullcontext
from typing import Any

import pytest

from mcp_probe import native
from mcp_probe.adapters.asyncio_loop import SocketReady, _tracks
from mcp_probe.capture.current import CURRENT
from mcp_probe.capture.hub import Hub
from mcp_probe.clock import now_ns
from mcp_probe.record.raw import RING_NS, WAKE_SOCKET
from tests.native.loops import followed, loop_of, python_only
from tests.native.twins import needs_the_accelerator

pytestmark = needs_the_accelerator


@pytest.fixture(params=["accelerated", "python"])
def twin(request: pytest.FixtureRequest) -> Any:
    """Installs the hooks with one of the twins."""
    return nullcontext if request.param == "accelerated" else python_only


def talk(loop: Any, hub: Hub) -> Any:
    """A request that reads from a socket twice; returns it and what the reader raised or found."""
    raw = hub.desk.open("request", "tools/call", "t", "stdio")

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


def test_what_a_socket_wakes_became_ready_between_two_polls(twin: Any) -> None:
    hub = Hub()
    with loop_of() as loop, twin(), followed(loop, hub):
        raw, found = talk(loop, hub)
    assert found == [b"one", b"two"]
    woken = [mark for mark in raw.marks if mark[6] == WAKE_SOCKET]
    assert len(woken) >= 2
    assert all(
        suspended <= ready and earliest <= ready <= start for _, suspended, earliest, ready, start, _, _ in woken
    )


def send_while(loop: Any, blocked_s: float, after_s: float) -> tuple[int, int, int]:
    """(sent, ready at the earliest, ready at the latest) of bytes that come while the loop waits, or is blocked."""
    seen: list[int] = []
    here, there = socket.socketpair()

    def reads() -> None:
        track = _tracks[loop]
        seen[1:] = [track.earliest, track.ready]
        loop.stop()

    def sends() -> None:
        time.sleep(after_s)
        seen.append(now_ns())
        there.send(b"x")

    with here, there:
        here.setblocking(False)
        loop.add_reader(here, reads)
        thread = threading.Thread(target=sends)
        loop.call_soon(thread.start)
        if blocked_s:
            loop.call_soon(time.sleep, blocked_s)
        loop.run_forever()
        loop.remove_reader(here)
        thread.join()
    sent, earliest, ready = seen
    return sent, earliest, ready


def test_what_a_poll_that_waited_found_came_just_then(twin: Any) -> None:
    off = []
    with loop_of() as loop, twin(), followed(loop):
        for _ in range(5):  # on a busy machine the thread itself may run late
            sent, earliest, ready = send_while(loop, 0, 0.05)
            assert earliest == ready >= sent
            off.append(ready - sent)
    assert min(off) < 5_000_000


def test_what_came_while_the_loop_was_blocked_did_so_between_two_polls(twin: Any) -> None:
    with loop_of() as loop, twin(), followed(loop):
        loop.call_soon(loop.stop)
        loop.run_forever()
        sent, earliest, ready = send_while(loop, 0.08, 0.02)
    assert earliest <= sent <= ready
    assert ready - earliest >= 75_000_000, "it may have come at any time of the step that blocked"


def test_a_reader_that_fails_is_told_to_the_exception_handler(twin: Any) -> None:
    told: list[Any] = []

    def fails() -> None:
        loop.remove_reader(here)
        loop.call_soon(loop.stop)
        raise ValueError("the reader's")

    with loop_of() as loop, twin(), followed(loop) as track:
        loop.set_exception_handler(lambda _, context: told.append(context))
        here, there = socket.socketpair()
        with here, there:
            loop.add_reader(here, fails)
            there.send(b"x")
            loop.run_forever()
        assert track.alive and track.inherit is None
    assert [str(one["exception"]) for one in told] == ["the reader's"]


@pytest.mark.parametrize("stop", [KeyboardInterrupt(), SystemExit(3)])
def test_ctrl_c_in_a_reader_ends_the_loop(twin: Any, stop: BaseException) -> None:
    def fails() -> None:
        loop.remove_reader(here)
        raise stop

    with loop_of() as loop, twin(), followed(loop):
        here, there = socket.socketpair()
        with here, there:
            loop.add_reader(here, fails)
            there.send(b"x")
            with pytest.raises(type(stop)) as caught:
                loop.run_forever()
        assert caught.value is stop


def test_a_fault_of_ours_leaves_the_reader_alone(twin: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = Hub()
    ran: list[int] = []
    with loop_of() as loop, twin(), followed(loop, hub) as track:

        class Failing:
            def append(self, _: Any) -> None:
                raise LookupError("ours")

        def reads() -> None:
            ran.append(1)
            track.slow = Failing()
            track.since -= RING_NS
            loop.remove_reader(here)
            loop.call_soon(loop.stop)

        here, there = socket.socketpair()
        with here, there:
            loop.add_reader(here, reads)
            there.send(b"x")
            loop.run_forever()
        assert ran == [1]
        assert not track.alive
        assert hub.hooks["steps (asyncio)"].startswith("disabled after LookupError")


def test_it_stands_for_the_handle_it_carries() -> None:
    with loop_of() as loop, followed(loop) as track:
        handle = asyncio.Handle(print, (1,), loop, contextvars.copy_context())
        for twin in (SocketReady(handle, track), native.core.SocketReady(handle, track)):
            assert repr(twin) == repr(handle)
            assert twin._cancelled is False
            assert twin._callback is print and twin._args == (1,)
            with pytest.raises(AttributeError):
                _ = twin.unknown
        handle.cancel()
        assert SocketReady(handle, track)._cancelled is native.core.SocketReady(handle, track)._cancelled is True
