from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from mcp_probe import native
from mcp_probe.capture.peak_lines import PeakWatch
from tests.capture import peaking
from tests.docs.test_docs import ROOT

MB = 1_000_000
needs_the_accelerator = pytest.mark.skipif(native.core is None, reason=f"no accelerator: {native.absence}")


@pytest.fixture(scope="module")
def told() -> dict[str, Any]:
    """What a process that has tracemalloc on says of its peaks: case -> operation -> [line, function, bytes, held]."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.capture.peaking"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["tracing"] == ""
    return found


def assert_allocated(row: list[Any], by: Callable[[int], None], size: int, *, within: float = 0.01) -> None:
    line, function, here, held = row
    lines = range(by.__code__.co_firstlineno + 1, by.__code__.co_firstlineno + 4)
    assert (function, line in lines) == (by.__name__, True)
    assert held == pytest.approx(size, rel=within)
    assert here == pytest.approx(size, rel=within)


@needs_the_accelerator
def test_the_line_that_allocated_what_a_call_holds_is_found_while_it_holds_it(told: dict[str, Any]) -> None:
    assert_allocated(told["large"]["large"], peaking.loads, 20 * MB)


@needs_the_accelerator
def test_a_call_that_holds_little_is_not_looked_at(told: dict[str, Any]) -> None:
    assert told["small"] == {}


@needs_the_accelerator
def test_the_next_look_comes_when_a_call_holds_much_more(told: dict[str, Any]) -> None:
    assert told["large, a little more"] == told["large"]
    assert_allocated(told["large, much more"]["large"], peaking.loads, 26 * MB)


@needs_the_accelerator
def test_small_blocks_add_up(told: dict[str, Any]) -> None:
    # The list that holds them is another 8 bytes of 208 each, and grew on the same line.
    assert_allocated(told["many"]["many"], peaking.builds, 10 * MB, within=0.06)


@needs_the_accelerator
def test_where_somebody_else_has_a_block_of_the_same_size_no_line_is_told(told: dict[str, Any]) -> None:
    assert told["doubtful"] == {}


@needs_the_accelerator
def test_blocks_of_the_same_size_from_other_lines_may_be_the_calls_own(told: dict[str, Any]) -> None:
    """So 2 MB of its 12 are left out of the lower bound; those of another call at the same line do no harm."""
    line, function, here, held = told["crowd"]["crowd"]
    assert (function, line) == ("builds", peaking.builds.__code__.co_firstlineno + 1)
    assert held == pytest.approx(12 * MB, rel=0.06)
    assert here == pytest.approx(10 * MB, rel=0.06)


@needs_the_accelerator
def test_each_operation_gets_its_look_the_largest_first(told: dict[str, Any]) -> None:
    assert list(told["first of two"]) == ["other"]
    assert sorted(told["both"]) == ["one", "other"]


@needs_the_accelerator
def test_what_tracing_costs_is_measured_as_it_begins(told: dict[str, Any]) -> None:
    before, traced = told["cost"]
    assert 0 < before < traced


def test_it_looks_until_it_is_not_wanted_and_tells_of_a_fault_that_ends_it() -> None:
    looks, faults, over = [0], [], threading.Event()

    def live() -> list[Any]:
        looks[0] += 1
        if looks[0] == 3:
            raise ValueError("a fault")
        return []

    def fail(exc: Exception) -> None:
        faults.append(type(exc))
        over.set()

    PeakWatch(live).start(lambda: True, fail)
    assert over.wait(30)
    assert (looks, faults) == ([3], [ValueError])
    ended = threading.Event()

    def is_wanted() -> bool:
        ended.set()
        return False

    PeakWatch(live).start(is_wanted, fail)
    assert ended.wait(30)
    assert looks == [3]
