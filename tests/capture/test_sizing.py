from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from mcp_probe.capture import sizing
from mcp_probe.record.raw import RawRequest

pytest.importorskip("pympler")


class Clock:
    def __init__(self) -> None:
        self.now = 1
        self.cost = 0

    def __call__(self) -> int:
        self.now += self.cost
        return self.now


def request(name: str = "t") -> RawRequest:
    return RawRequest(1, "request", "tools/call", name, "stdio")


def message(**parts: Any) -> Any:
    return SimpleNamespace(**parts)


def test_arguments_and_results_are_sized_with_all_that_hangs_on_them() -> None:
    sizer = sizing.Sizer(clock=Clock())
    raw = request()
    sizer.arguments(raw, message(params={"name": "t", "arguments": {"text": "x" * 10_000}}))
    sizer.result(raw, message(result={"content": ["y" * 1_000] * 2}))
    assert raw.sized is not None
    arguments, result = raw.sized
    assert arguments is not None and result is not None
    assert 10_000 < arguments < 12_000
    assert 1_000 < result < 2_000, "what is referred to twice counts once"


def test_an_operation_is_sampled_once_a_second() -> None:
    clock = Clock()
    sizer = sizing.Sizer(clock=clock)
    first, second, other, later = request(), request(), request("u"), request()
    sizer.result(first, message(result=[1]))
    sizer.result(second, message(result=[1]))
    sizer.result(other, message(result=[1]))
    clock.now += sizing.EVERY_NS
    sizer.result(later, message(result=[1]))
    assert [raw.sized is not None for raw in (first, second, other, later)] == [True, False, True, True]


def test_it_takes_no_more_than_its_share_of_the_loop() -> None:
    clock = Clock()
    clock.cost = 1000
    sizer = sizing.Sizer(clock=clock)
    raws = [request(str(number)) for number in range(3)]
    for raw in raws[:2]:
        sizer.result(raw, message(result=[1]))
    clock.now += sizing.SHARE * 3000
    sizer.result(raws[2], message(result=[1]))
    assert [raw.sized is not None for raw in raws] == [True, False, True]


def test_a_graph_over_the_cap_is_not_sized() -> None:
    def unexpected(value: Any) -> int:
        raise AssertionError("sized")

    sizer = sizing.Sizer(size_of=unexpected)
    raw = request()
    sizer.result(raw, message(result=[[number] for number in range(sizing.MOST_OBJECTS)]))
    assert (raw.sized, sizer.over_cap, sizer.off) == (None, 1, False)


@pytest.mark.parametrize("value", [type, sizing, sizing.Sizer, {"class": sizing.Sizer}, "x" * 10**6])
def test_what_is_shared_by_all_does_not_make_a_graph_large(value: Any) -> None:
    assert not sizing.is_large(value, most=20)


def test_looking_at_a_large_graph_ends_soon_after_the_cap() -> None:
    chain: list[Any] = []
    for _ in range(100_000):
        chain = [chain]
    assert sizing.is_large(chain, most=50)
    assert sizing.is_large([[]] * 1_000 + [[number] for number in range(60)], most=50)


def test_cycles_are_walked_once() -> None:
    ring: list[Any] = []
    ring.append(ring)
    assert not sizing.is_large(ring, most=3)


def test_a_fault_ends_sizing_and_reaches_nobody() -> None:
    faults: list[Exception] = []

    def broken(value: Any) -> int:
        raise ZeroDivisionError

    sizer = sizing.Sizer(faults.append, size_of=broken)
    for _ in range(2):
        sizer.result(request(), message(result=[1]))
    assert (sizer.off, [type(fault) for fault in faults]) == (True, [ZeroDivisionError])


def test_what_sizing_takes_is_not_charged_to_the_request() -> None:
    told: list[object] = []

    def charge(whom: object) -> str:
        told.append(whom)
        return "the request"

    def size_of(value: Any) -> int:
        assert told == [None]
        return 5

    sizing.Sizer(charge=charge, size_of=size_of).result(request(), message(result=[1]))
    assert told == [None, "the request"]


def test_messages_without_arguments_have_none() -> None:
    sizer = sizing.Sizer()
    raw = request()
    sizer.arguments(raw, message(method="ping"))
    sizer.result(raw, message(error="x"))
    assert raw.sized is None
