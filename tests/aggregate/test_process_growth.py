"""What the process grew by, on literal readings: whose it is, and whether it goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from mcp_probe.aggregate.process_growth import MAX_LOOKS, ProcessLooks
from mcp_probe.model import GrowthSample, ProcessGrowth

BASE = 90_000_000
FILLED = 100
"""Calls after which an innocent is full; the hunts here have three times as many."""


def looked(
    at: Iterable[int],
    *,
    owned: Callable[[int], int] = lambda calls: 0,
    nobody: Callable[[int], int] = lambda calls: 0,
    native: Callable[[int], int] = lambda calls: 0,
) -> ProcessGrowth | None:
    """What is told of looks after so many calls, of a process that holds so much then."""
    looks = ProcessLooks()
    for calls in at:
        asked = 2_000_000 + owned(calls) + nobody(calls)
        rows = (("tools/call", "add", calls, owned(calls), ()),)
        process = (BASE + asked + native(calls), asked)
        looks.add(GrowthSample(1, "native-shadow", "all", rows, 1, 1, process=process))
    return looks.growth()


def verdicts(growth: ProcessGrowth | None) -> dict[str, str]:
    assert growth is not None
    return {part.kind: part.verdict for part in growth.remainders}


def per_call(size: int) -> Callable[[int], int]:
    return lambda calls: size * calls


def until_full(size: int) -> Callable[[int], int]:
    return lambda calls: size * min(calls, FILLED)


LOOKS = range(10, 301, 29)
FEW = (20, 150, 300)


@pytest.mark.parametrize("at", [LOOKS, FEW])
def test_parts_add_up_and_what_grows_with_the_calls_is_told_whose_it_is(at: Iterable[int]) -> None:
    growth = looked(at, owned=per_call(500), nobody=per_call(100_000), native=per_call(50_000))
    assert growth is not None
    assert verdicts(growth) == {"nobody": "grows", "native": "grows"}
    nobody, native = growth.remainders
    assert (nobody.bytes, native.bytes) == (100_000 * growth.calls, 50_000 * growth.calls)
    assert growth.resident_bytes == growth.owned_bytes + 150_000 * growth.calls
    assert nobody.bytes_per_call == pytest.approx(100_000)
    assert {part.quality.tag for part in growth.remainders} == {"estimate"}


def test_what_calls_own_is_no_remainder() -> None:
    assert verdicts(looked(LOOKS, owned=per_call(100_000))) == {"nobody": "steady", "native": "steady"}


@pytest.mark.parametrize("at", [LOOKS, FEW, range(1, 301)])
@pytest.mark.parametrize("size", [1_000, 10_000, 100_000, 1_000_000])
def test_what_is_full_after_a_third_of_the_calls_grows_no_more(size: int, at: Iterable[int]) -> None:
    assert verdicts(looked(at, nobody=until_full(size), native=until_full(size))) == {
        "nobody": "steady",
        "native": "steady",
    }


def test_two_looks_shortly_one_after_the_other_do_not_decide_that_growth_has_ended() -> None:
    """On a busy machine a hunt of 92 calls of 100 kB has had four looks; the last came three calls after another."""
    level = {10: 0, 40: 3_000_000, 89: 8_600_000, 92: 8_500_000}
    assert verdicts(looked(level, native=level.__getitem__))["native"] == "grows"
    level = {10: 0, 40: 8_600_000, 89: 8_500_000, 92: 8_600_000}
    assert verdicts(looked(level, native=level.__getitem__))["native"] == "steady"


def test_a_process_that_breathes_does_not_grow() -> None:
    """Cyclic garbage, holes in the heap: up to 3 MB more or less, whatever the calls do."""

    def breath(calls: int) -> int:
        return 3_000_000 * (calls // 29 % 2)

    assert verdicts(looked(LOOKS, nobody=breath, native=breath)) == {"nobody": "steady", "native": "steady"}


def test_a_little_native_growth_beside_much_of_pythons_is_its_allocators_own() -> None:
    assert verdicts(looked(LOOKS, owned=per_call(100_000), native=per_call(20_000)))["native"] == "steady"


@pytest.mark.parametrize("at", [(10, 300), (10, 20, 300), (10, 20, 49), (280, 290, 300)])
def test_too_few_looks_or_calls_say_nothing(at: Iterable[int]) -> None:
    growth = looked(at, nobody=per_call(100_000))
    assert set(verdicts(growth).values()) == {"unknown"} or min(at) == 280


def test_one_look_is_no_growth_at_all() -> None:
    assert looked([300], nobody=per_call(100_000)) is None


def test_a_long_course_is_thinned_out_and_says_the_same() -> None:
    growth = looked(range(1, 50 * MAX_LOOKS), nobody=per_call(100_000))
    assert growth is not None
    assert (verdicts(growth)["nobody"], growth.calls) == ("grows", 50 * MAX_LOOKS - 2)
