"""TransportCall in C and in Python: the same result for the transport, the same told to channel and pool."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_probe.capture.executor import TRANSPORT_FINISH, TRANSPORT_JOB, TRANSPORT_START
from mcp_probe.capture.transport import FLUSH, READ, WRITE
from mcp_probe.capture.transport import TransportCall as PythonTransportCall
from tests.native.twins import NativeRaw, NativeTransportCall, PythonRaw, needs_the_accelerator

pytestmark = needs_the_accelerator


class Fault(Exception):
    """Raised by what a test broke."""


class Channel:
    """The part of a channel that a transport's call touches."""

    def __init__(self, raw: Any, breaks: frozenset[str]) -> None:
        self.raw = raw
        self.breaks = breaks
        self.flushes = 0

    @property
    def writing(self) -> Any:
        if "writing" in self.breaks:
            raise Fault("writing")
        return self.raw

    def flushed(self) -> None:
        if "flushed" in self.breaks:
            raise Fault("flushed")
        self.flushes += 1


class World:
    """A transport's call on one of the twins, with all it touches."""

    def __init__(self, twin: Any, raw: Any, kind: int, writes: bool, breaks: frozenset[str], pooled: bool) -> None:
        self.raw = raw(1, "request", "tools/call", "t", "stdio") if writes else None
        self.channel = Channel(self.raw, breaks)
        self.breaks = breaks
        self.transitions: list[Any] = []
        self.failed: list[str] = []
        self.called: list[Any] = []
        self.call = twin(kind, self._original, self.channel, lambda exc: self.failed.append(repr(exc)))
        if pooled:
            self.call.pool, self.call.append = "pool", self._append

    def _original(self, *args: Any) -> Any:
        self.called.append(args)
        if args and args[0] == "raise":
            raise OSError(*args)
        return len(args)

    def _append(self, transition: Any) -> None:
        if "append" in self.breaks:
            raise Fault("append")
        self.transitions.append(transition)

    def do(self, name: str, *args: Any) -> Any:
        if name == "submit":
            return self.call.submit()
        if name == "taken":
            if self.raw is not None:
                self.raw.write_taken_ns = 5
            return None
        if name == "alive":
            self.call.alive = args[0]
            return None
        try:
            return self.call(*args)
        except OSError as exc:
            return repr(exc)

    def seen(self) -> Any:
        raw = self.raw
        of_raw = None if raw is None else (raw.response_bytes, raw.encode_ns is None, raw.write_taken_ns)
        shapes = [shape_of(transition) for transition in self.transitions]
        submitted = self.call.submitted_ns != 0
        return (
            of_raw,
            shapes,
            self.failed,
            self.called,
            self.channel.flushes,
            self.call.alive,
            submitted,
            self.call.kind,
        )


def shape_of(transition: Any) -> Any:
    """A transition with its instants replaced by what must hold of them."""
    at, kind, pool, detail = transition
    if kind == TRANSPORT_JOB:
        start, wait = detail
        return "job", pool, 0 < start <= at, wait >= 0
    return {TRANSPORT_START: "start", TRANSPORT_FINISH: "finish"}[kind], pool, at > 0, detail >= 0


calls = st.one_of(
    st.just(("submit",)),
    st.just(("taken",)),
    st.tuples(st.just("call"), st.sampled_from(["a", "raise"]), st.integers(0, 3)),
    st.just(("call",)),
    st.tuples(st.just("alive"), st.booleans()),
)


@given(
    st.sampled_from([READ, WRITE, FLUSH]),
    st.booleans(),
    st.frozensets(st.sampled_from(["writing", "flushed", "append"]), max_size=2),
    st.booleans(),
    st.lists(calls, max_size=20),
)
@settings(max_examples=400, deadline=None)
def test_the_same_calls_give_the_same(
    kind: int, writes: bool, breaks: frozenset[str], pooled: bool, script: list[tuple[Any, ...]]
) -> None:
    twins = [
        World(twin, raw, kind, writes, breaks, pooled)
        for twin, raw in ((PythonTransportCall, PythonRaw), (NativeTransportCall, NativeRaw))
    ]
    for call in script:
        one, two = (world.do(*call) for world in twins)
        assert one == two
        assert twins[0].seen() == twins[1].seen(), call


@pytest.mark.parametrize("kind", [READ, WRITE, FLUSH])
def test_an_exception_of_the_transport_passes_with_its_traceback(kind: int) -> None:
    for twin, raw in ((PythonTransportCall, PythonRaw), (NativeTransportCall, NativeRaw)):
        world = World(twin, raw, kind, True, frozenset(), True)
        world.call.submit()
        with pytest.raises(OSError, match="raise") as caught:
            world.call("raise")
        assert caught.traceback[-1].name == "_original"
        assert world.failed == []
        assert world.channel.flushes == 0


def test_calls_of_many_threads_at_once_all_reach_the_transport() -> None:
    world = World(NativeTransportCall, NativeRaw, FLUSH, True, frozenset(), True)
    threads = [threading.Thread(target=lambda: [world.call(1, 2) for _ in range(500)]) for _ in range(8)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        world.call.submit()
    assert len(world.called) == world.channel.flushes == 4_000
    assert world.failed == []


def test_a_call_in_a_cycle_is_collected() -> None:
    gc.collect()
    world = World(NativeTransportCall, NativeRaw, READ, True, frozenset(), True)
    gone = weakref.ref(world)
    del world
    gc.collect()
    assert gone() is None
