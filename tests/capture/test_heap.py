"""Looking at the living objects harms no other thread."""

from __future__ import annotations

import gc
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from mcp_probe.adapters.tools import functions_of_tools
from mcp_probe.capture import heap
from mcp_probe.capture.grown_lines import FIRST, Block
from mcp_probe.capture.tracemalloc_sites import living

ROUNDS = 20


def all_living() -> None:
    assert list(living({1: Block("nobody", 8, 0, FIRST)}))


def errors_beside(look: Callable[[], object]) -> int:
    """SystemErrors of a thread that makes tuples of generators while ``look`` is called."""
    ended = threading.Event()
    found = 0

    def make_tuples() -> None:
        nonlocal found
        while not ended.is_set():
            try:
                tuple(number for number in (1, 2, 3))
            except SystemError:
                found += 1

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    thread = threading.Thread(target=make_tuples)
    thread.start()
    try:
        until = time.monotonic() + 20.0
        for _ in range(ROUNDS):
            look()
            if found or time.monotonic() > until:
                break
    finally:
        ended.set()
        thread.join()
        sys.setswitchinterval(before)
    return found


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="a tuple is made once its items are known")
def test_who_holds_all_objects_makes_tuples_of_other_threads_fail() -> None:
    assert errors_beside(lambda: [found for found in gc.get_objects() for _ in (1, 2)])


@pytest.mark.parametrize("look", [heap.objects, heap.types, functions_of_tools, all_living])
def test_no_tuple_of_another_thread_fails(look: Callable[[], object]) -> None:
    assert not errors_beside(look)


@pytest.mark.parametrize("look", [heap.objects, heap.types])
def test_nor_where_the_collector_tells_somebody_of_each_of_its_runs(look: Callable[[], object]) -> None:
    """Before 3.12 a look may begin a collection, in which Python code, and so other threads, would run."""

    looking = threading.get_ident()

    def told(phase: str, info: object) -> None:
        if threading.get_ident() == looking:
            time.sleep(0.001)

    before = gc.get_threshold()
    gc.callbacks.append(told)
    gc.set_threshold(5, 1000, 1000)
    try:
        assert not errors_beside(look)
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(told)


@pytest.mark.parametrize("switch", [gc.enable, gc.disable])
def test_the_collector_is_left_as_it_was(switch: Callable[[], None]) -> None:
    switch()
    try:
        before = gc.isenabled()
        heap.objects()
        heap.types()
        assert gc.isenabled() == before
    finally:
        gc.enable()


def test_what_is_taken_is_what_the_collector_has_but_for_tuples() -> None:
    class Kept:
        pass

    kept = [Kept() for _ in range(50)]
    assert sum(type(found) is Kept for found in heap.objects()) == len(kept) == heap.types().count(Kept)
    assert not [found for found in heap.objects() if type(found) is tuple]
    assert tuple in heap.types()


def test_an_object_that_only_tuples_refer_to_is_found() -> None:
    class Deep:
        __slots__ = ("number",)

    def tuples(depth: int) -> Iterator[Any]:
        yield (Deep(), depth) if not depth else (next(tuples(depth - 1)), depth)

    held = [next(tuples(3)) for _ in range(20)]
    deep = [found for found in heap.objects() if type(found) is Deep]
    assert len(held) == len(deep)
