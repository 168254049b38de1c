"""Whose memory it is: requests against what their code is known to allocate."""

from __future__ import annotations

import ctypes
import gc
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_probe import native
from mcp_probe.capture.live_requests import LiveRequests
from mcp_probe.capture.loop_monitor import EVERYTHING, LoopMonitor, StepSink
from mcp_probe.capture.loop_steps import Steps
from mcp_probe.record.raw import PythonRequest
from tests.native.twins import needs_the_memory_hooks

pytestmark = needs_the_memory_hooks
core: Any = native.core
hooks: Any = native.memory
MODES = ("gross", "hybrid", "shadow")
HEADER = sys.getsizeof(b"")
Told = tuple[int, int, int, int, int, int]

NUMBER_BYTES = sys.getsizeof(1 << 31)
"""An address becomes a number. CPython 3.14 has one of a single word at hand, and asks for one of two words."""

API = ctypes.PyDLL(None)
FAMILIES = {"raw": "PyMem_Raw", "mem": "PyMem_", "obj": "PyObject_"}
for _family in FAMILIES.values():
    for _name, _arguments in (("Malloc", 1), ("Calloc", 2), ("Realloc", 2), ("Free", 1)):
        _function = getattr(API, _family + _name)
        _function.argtypes = [ctypes.c_size_t] * _arguments
        _function.restype = None if _name == "Free" else ctypes.c_size_t

_name_of = getattr(API, "_PyMem_GetCurrentAllocatorName", None)
if _name_of is not None:
    _name_of.restype = ctypes.c_char_p
IS_PYMALLOC = _name_of is not None and _name_of() == b"pymalloc"
"""Whether Python allocates by its own allocator, with no checks around it: not so with PYTHONMALLOC or ``-X dev``."""


@pytest.fixture(autouse=True)
def _hooks_end() -> Iterator[None]:
    yield
    hooks.charge(None)
    hooks.uninstall()


def request(number: int = 1, parent: Any = None) -> Any:
    made = core.Request(number, "request", "tools/call", "t", "stdio")
    made.parent = parent
    return made


def charged(raw: Any, work: Callable[[], Any]) -> Any:
    """What ``work`` returns, done at the cost of ``raw``."""
    hooks.charge(raw)
    try:
        return work()
    finally:
        hooks.charge(None)


def told(work: Callable[[], Any]) -> Told:
    """What a request is told to have asked for that does only that; it keeps what ``work`` returns until then."""
    raw = request()
    kept = charged(raw, work)
    memory: Told = raw.memory()
    del kept
    return memory


def more(larger: Callable[[], Any], smaller: Callable[[], Any]) -> Told:
    """By how much the figures of one piece of work exceed those of another that differs in a size only."""
    told(larger), told(smaller)  # the interpreter may keep something of its own from a first call
    one, other = told(larger), told(smaller)
    a, b, c, d, e, f = (x - y for x, y in zip(one, other, strict=True))
    return a, b, c, d, e, f


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("large", "small"), [(5000, 4000), (300, 100), (3_000_000, 2_000_000)])
def test_bytes_asked_for_are_known_to_the_byte(mode: str, large: int, small: int) -> None:
    hooks.install(mode)
    owned = mode == "shadow" or (mode == "hybrid" and small > 512)
    requested, allocations, requested_owned, held, peak, blocks = more(lambda: bytes(large), lambda: bytes(small))
    assert (requested, allocations, blocks) == (large - small, 0, 0)
    assert (requested_owned, held, peak) == ((large - small,) * 3 if owned else (0, 0, 0))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("family", FAMILIES)
def test_every_way_to_ask_is_counted_once(mode: str, family: str) -> None:
    hooks.install(mode)
    name = FAMILIES[family]
    malloc, calloc, realloc, free = (getattr(API, name + part) for part in ("Malloc", "Calloc", "Realloc", "Free"))

    def ask(size: int) -> Callable[[], Any]:
        five = size * 5

        def work() -> None:
            block = calloc(size, 3)
            block = realloc(block, five)
            free(block)
            free(malloc(size))

        return work

    # Numbers that are stored in one word each, whatever the size, are the same in both.
    for sizes in ((2000, 1500), (90, 60), (400, 300)):
        by = sizes[0] - sizes[1]
        requested, allocations, _, held, _, blocks = more(ask(sizes[0]), ask(sizes[1]))
        assert (requested - NUMBER_BYTES * allocations, held, blocks) == (9 * by, 0, 0)
    nothing = told(lambda: [free(0), free(0), free(0)])
    three = told(lambda: [free(malloc(700)), free(calloc(7, 100)), free(realloc(0, 700))])
    assert three[1] - nothing[1] >= 3


@pytest.mark.parametrize("mode", MODES)
def test_what_cannot_be_had_was_not_asked_for(mode: str) -> None:
    hooks.install(mode)

    def fail() -> None:
        with pytest.raises(MemoryError):
            bytearray(1 << 60)

    told(fail)
    requested, _, _, held, peak, _ = told(fail)
    assert requested < 1 << 20 and held < 1 << 20 and peak < 1 << 20


def test_zero_bytes_count_as_one_as_the_interpreter_asks_for_one() -> None:
    hooks.install("gross")
    for name in FAMILIES.values():
        malloc, free = getattr(API, name + "Malloc"), getattr(API, name + "Free")

        def ask(size: int, malloc: Any = malloc, free: Any = free) -> None:
            free(malloc(size))

        requested, allocations = more(lambda: ask(0), lambda: ask(1))[:2]
        assert requested == NUMBER_BYTES * allocations


@pytest.mark.parametrize("mode", ["hybrid", "shadow"])
def test_peak_is_what_was_held_at_once(mode: str) -> None:
    hooks.install(mode)
    raw = request()
    hooks.charge(raw)
    one = bytearray(3_000_000)
    two = bytearray(2_000_000)
    del one
    three = bytearray(1_500_000)
    hooks.charge(None)
    _, _, _, held, peak, _ = raw.memory()
    assert 3_500_000 < held < 3_510_000
    assert 5_000_000 < peak < 5_010_000
    del two, three
    assert raw.memory()[3] < 1000 and raw.memory()[4] == peak


def test_what_another_request_frees_was_still_the_first_ones() -> None:
    hooks.install("hybrid")
    one, two = request(1), request(2)
    held = [charged(one, lambda: bytearray(1_000_000))]
    before = one.memory()
    charged(two, held.clear)
    assert before[3] > 1_000_000 > one.memory()[3]
    assert two.memory()[3:5] == (0, 0) and two.memory()[0] < 1000


def test_cyclic_garbage_that_is_collected_during_another_request_costs_that_one_nothing() -> None:
    gc.collect()  # what other tests have left may allocate as it ends
    hooks.install("shadow")
    one, two = request(1), request(2)

    def tangle() -> None:
        for _ in range(50):
            ring: list[Any] = [bytearray(20_000)]
            ring.append(ring)

    gc.disable()
    try:
        charged(one, tangle)
        assert one.memory()[3] > 1_000_000
        charged(two, gc.collect)
    finally:
        gc.enable()
    assert one.memory()[3] < 10_000
    requested, _, _, held, peak, _ = two.memory()
    assert requested < 8192 and held < 8192 and peak < 8192


@pytest.mark.parametrize("mode", ["hybrid", "shadow"])
@pytest.mark.parametrize("first", [100, 5_000])
def test_a_block_that_is_moved_is_its_movers(mode: str, first: int) -> None:
    hooks.install(mode)
    one, two = request(1), request(2)
    array = charged(one, lambda: bytearray(first))
    charged(two, lambda: array.extend(bytes(1_000_000)))
    assert one.memory()[3] < 200  # the object itself, without its bytes
    assert 1_000_000 < two.memory()[3] < 1_300_000
    two_before = two.memory()[3]
    array.extend(bytes(3_000_000))  # by nobody: it stays whose it is
    assert two.memory()[3] > two_before + 2_500_000
    assert two.memory()[0] < 2_500_000
    array.clear()
    assert two.memory()[3] < 1000


@pytest.mark.parametrize("mode", ["hybrid", "shadow"])
def test_what_is_charged_to_a_nested_request_is_its_parents_too(mode: str) -> None:
    hooks.install(mode)
    outer = request(1)
    hooks.charge(outer)
    kept = [bytearray(1_000_000)]
    inner = request(2, parent=outer)
    hooks.charge(inner)
    kept.append(bytearray(2_000_000))
    hooks.charge(outer)
    kept.append(bytearray(4_000_000))
    hooks.charge(None)
    assert 2_000_000 < inner.memory()[0] < 2_010_000 and 2_000_000 < inner.memory()[3] < 2_010_000
    assert 7_000_000 < outer.memory()[0] < 7_010_000 and 7_000_000 < outer.memory()[3] < 7_010_000
    del inner  # its blocks are its parent's all the same
    del kept[1]
    assert 5_000_000 < outer.memory()[3] < 5_010_000
    kept.clear()
    assert outer.memory()[3] < 5000


@pytest.mark.parametrize(("mode", "size"), [("hybrid", 2_000), ("shadow", 2_000), ("shadow", 200)])
def test_what_a_nested_request_gives_back_its_parent_no_longer_holds(mode: str, size: int) -> None:
    hooks.install(mode)
    outer = request(1)
    inner = request(2, parent=outer)
    hooks.charge(outer)
    hooks.charge(inner)
    kept = [bytes(size) for _ in range(100)]
    hooks.charge(None)
    assert inner.memory()[3] >= 100 * size and outer.memory()[3] >= 100 * size
    kept.clear()
    assert inner.memory()[3] < 5 * size and outer.memory()[3] < 5 * size


def test_each_thread_charges_its_own_request() -> None:
    hooks.install("hybrid")
    raws, kept = [request(number) for number in range(8)], []
    ready = threading.Barrier(8)

    def work(number: int) -> None:
        previous = hooks.charge(raws[number])
        assert previous is None
        ready.wait()
        for _ in range(20):
            kept.append(bytearray(10_000 * (number + 1)))
        ready.wait()
        assert hooks.charge(previous) is raws[number]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, raw in enumerate(raws):
        size = 200_000 * (number + 1)
        assert size < raw.memory()[3] < size + 20_000
        assert size < raw.memory()[0] < size + 40_000


def test_a_step_charges_its_owner_until_it_ends() -> None:
    hooks.install("hybrid")
    steps, one, two = Steps(), request(1), request(2)
    steps.begin(one, 1, 0, 0, 0, 1)
    a = bytearray(1_000_000)
    steps.split(two, 2)
    b = bytearray(2_000_000)
    steps.close(3, False)
    c = bytearray(4_000_000)
    steps.begin(None, 1, 0, 0, 0, 4)
    d = bytearray(4_000_000)
    steps.close(5, False)
    assert 1_000_000 < one.memory()[3] < 1_010_000
    assert 2_000_000 < two.memory()[3] < 2_010_000
    assert len(a) + len(b) + len(c) + len(d) == 11_000_000


def test_what_is_allocated_after_a_requests_end_is_not_its_own() -> None:
    hooks.install("hybrid")
    steps, raw = LoopMonitor(StepSink(0, deque(), 1 << 60, lambda raw, now: None), "loop", EVERYTHING), request()
    requests = LiveRequests()
    steps.begin(raw, 1, 0, 0, 0, 1)
    kept = [bytearray(1_000_000)]
    requests.end(raw, 2)
    kept.append(bytearray(2_000_000))
    steps.close(3, False)
    steps.begin(raw, 1, 0, 0, 0, 4)
    kept.append(bytearray(2_000_000))
    steps.close(5, True)
    requested, _, _, held, peak, _ = raw.memory()
    assert 1_000_000 < requested < 1_010_000 and 1_000_000 < held == peak < 1_010_000
    kept.clear()
    assert raw.memory()[3] < 1000  # followed on


def test_only_a_whole_request_is_measured() -> None:
    early = request(1)
    hooks.install("hybrid")
    charged(early, lambda: bytearray(1_000_000))
    assert early.memory() is None
    cut = request(2)
    charged(cut, lambda: bytearray(1_000_000))
    hooks.install("shadow")
    assert cut.memory() is None
    idle = request(3)
    assert idle.memory() is None  # nothing was charged to it
    hooks.uninstall()
    charged(idle, lambda: bytearray(1_000_000))
    assert idle.memory() is None


def test_of_a_request_that_ended_before_the_hooks_changed_only_what_it_holds_is_unknown() -> None:
    hooks.install("hybrid")
    raw = request()
    kept = charged(raw, lambda: bytearray(1_000_000))
    LiveRequests().end(raw, 1)
    whole = raw.memory()
    hooks.uninstall()
    assert raw.memory() == (*whole[:3], None, whole[4], None)
    assert len(kept) == 1_000_000


def told_of(requests: list[Any]) -> dict[int, int]:
    """The size of each block, by its address."""
    return {address: size for address, size, _ in hooks.blocks(requests, 1000)}


def test_blocks_that_requests_still_hold_are_told_by_address() -> None:
    hooks.install("shadow")
    one, two = request(1), request(2)
    small, large = charged(one, lambda: (bytes(100), bytes(100_000)))
    other = charged(two, lambda: bytes(200))
    blocks = told_of([one])
    assert blocks[id(small)] == HEADER + 100
    # Where every block is checked, a large one is known by where its checks begin.
    assert blocks[id(large)] == HEADER + 100_000 if not is_checked() else HEADER + 100_000 in blocks.values()
    assert id(other) not in blocks
    assert told_of([one, two])[id(other)] == HEADER + 200
    assert len(hooks.blocks([one, two], 2)) == 2
    assert sum(size for _, size, _ in hooks.blocks([one], 1000)) == one.memory()[3]


def test_blocks_are_told_with_the_index_of_the_request_that_holds_them() -> None:
    hooks.install("shadow")
    raws = [request(number) for number in range(1, 5)]
    held = [charged(raw, partial(bytes, size)) for raw, size in zip(raws, (100, 200, 300, 40_000), strict=True)]
    rows = hooks.blocks([raws[3], raws[1], raws[0]], 1000)
    index_of = {address: index for address, _, index in rows}
    assert is_checked() or [index_of.get(id(each)) for each in held] == [2, 1, None, 0]
    for index, raw in enumerate((raws[3], raws[1], raws[0])):
        assert sum(size for _, size, number in rows if number == index) == raw.memory()[3]
    assert hooks.blocks([], 1000) == hooks.blocks(raws, 0) == hooks.blocks([raws[0]] * 65_536, 1000) == []


def test_the_state_says_what_the_hooks_are() -> None:
    off = hooks.state()
    assert (off["mode"], off["valid"]) == ("off", False) and "not installed" in off["reason"]
    scopes = {"gross": sys.maxsize, "shadow": -1}
    for mode in MODES:
        hooks.install(mode)
        state = hooks.state()
        assert (state["mode"], state["valid"], state["reason"]) == (mode, True, "")
        assert state["exact"] and not state["covered"] and state["untracked"] == 0
        if mode in scopes:
            assert state["owned_above"] == scopes[mode]
        else:
            assert 400 <= state["owned_above"] <= 512


class Allocator(ctypes.Structure):
    """PyMemAllocatorEx."""

    _fields_ = [(name, ctypes.c_void_p) for name in ("ctx", "malloc", "calloc", "realloc", "free")]


@pytest.mark.parametrize("domain", range(3))
@pytest.mark.parametrize("mode", MODES)
def test_figures_are_not_valid_once_the_hooks_are_passed_by_in_any_domain(mode: str, domain: int) -> None:
    below = allocator_of(domain)
    hooks.install(mode)
    ours = allocator_of(domain)
    raw = request()
    charged(raw, lambda: bytes(1000))
    assert hooks.state()["valid"] and raw.memory() is not None
    API.PyMem_SetAllocator(domain, ctypes.byref(below))
    state = hooks.state()
    API.PyMem_SetAllocator(domain, ctypes.byref(ours))
    assert not state["valid"] and "in the place of the memory hooks" in state["reason"]
    assert not hooks.state()["valid"], "they are back, but have missed something"
    assert raw.memory() is None
    hooks.install(mode)
    assert hooks.state()["valid"]


def test_bad_use_is_refused_in_a_sentence() -> None:
    with pytest.raises(ValueError, match="'everything' is not known: gross, hybrid or shadow"):
        hooks.install("everything")
    with pytest.raises(TypeError, match="a request or None"):
        hooks.charge("request")
    with pytest.raises(TypeError, match="name of a mode"):
        hooks.install(None)


def test_the_python_twin_says_that_nothing_was_measured() -> None:
    assert PythonRequest(1, "request", "tools/call", "t", "stdio").memory() is None


OPERATIONS = st.tuples(
    st.sampled_from(["make", "make", "extend", "shrink", "free", "gc"]),
    st.integers(0, 4),
    st.integers(0, 30),
    st.integers(0, 6000),
)


def allocator_of(domain: int) -> Allocator:
    found = Allocator()
    API.PyMem_GetAllocator(domain, ctypes.byref(found))
    return found


def is_checked() -> bool:
    """Whether Python puts checks around every block (PYTHONMALLOC=debug, ``-X dev``, a debug build)."""
    return allocator_of(2).ctx is not None and not IS_PYMALLOC


@contextmanager
def another_allocator() -> Iterator[None]:
    """What CPython allocates by, but not to be recognised: ``ctx``, which none of it reads, is another."""
    own = [allocator_of(domain) for domain in range(3)]
    for domain, allocator in enumerate(own):
        other = Allocator.from_buffer_copy(allocator)
        other.ctx = 1
        API.PyMem_SetAllocator(domain, ctypes.byref(other))
    try:
        yield
    finally:
        hooks.uninstall()
        for domain, allocator in enumerate(own):
            API.PyMem_SetAllocator(domain, ctypes.byref(allocator))


@pytest.mark.parametrize("known", [True, False])
@settings(max_examples=150, deadline=None)
@given(st.sampled_from(["hybrid", "shadow"]), st.sampled_from(["raw", "mem", "obj"]), st.lists(OPERATIONS, max_size=60))
def test_what_each_request_holds_is_what_a_ledger_says(
    known: bool, mode: str, family: str, operations: list[tuple[str, int, int, int]]
) -> None:
    """Blocks that are made, moved and freed by five requests, one of which is another's child, and by nobody."""
    if not known and is_checked():
        pytest.skip("this process's allocator reads its ctx")
    malloc, realloc, free = (getattr(API, FAMILIES[family] + part) for part in ("Malloc", "Realloc", "Free"))
    with nullcontext() if known else another_allocator():
        hooks.install(mode)
        state = hooks.state()
        # What pymalloc has passed on to the raw domain stays there, with its owner, however small it becomes.
        stays = family == "raw" or mode == "shadow" or state["passes_large_on"]
        has_owner = 1 if family == "raw" or mode == "shadow" else state["owned_above"] + 1
        raws = [request(number) for number in range(3)]
        raws.append(request(3, parent=raws[0]))
        ledger: dict[int, tuple[int, int]] = {}  # block -> (owner or 4, size)
        large: set[int] = set()  # blocks that were large once, and stay with the raw domain
        for raw in raws:
            charged(raw, lambda: None)
        for kind, who, which, size in operations:
            owner = raws[who] if who < 4 else None
            block = list(ledger)[which % len(ledger)] if ledger else 0
            if kind == "make":
                made = charged(owner, partial(malloc if which % 2 else partial(realloc, 0), size + 1))
                ledger[made] = (who if size + 1 >= has_owner else 4, size + 1)
                large |= {made} if size + 1 >= has_owner else set()
            elif kind in ("extend", "shrink") and block:
                before_owner, before = ledger.pop(block)
                size = before + size + 1 if kind == "extend" else max(1, before // 2)
                moved = charged(owner, partial(realloc, block, size))
                large = (large - {block}) | ({moved} if (block in large and stays) or size >= has_owner else set())
                heir = who if owner is not None else before_owner
                ledger[moved] = (heir if moved in large else 4, size)
            elif kind == "free" and block:
                charged(owner, partial(free, block))
                del ledger[block]
                large.discard(block)
            elif kind == "gc":
                gc.collect(0)
        owned = {block: (who, size) for block, (who, size) in ledger.items() if who < 4}
        held = {(address, size) for address, size, _ in hooks.blocks(raws, 10_000) if address in ledger}
        assert is_checked() or held == {(block, size) for block, (_, size) in owned.items()}
        if mode == "hybrid":
            for number in range(4):
                own = [size for who, size in owned.values() if who == number or (number == 0 and who == 3)]
                _, _, _, told_held, _, told_blocks = raws[number].memory()
                assert (told_held, told_blocks) == (sum(own), len(own))
        for block in ledger:
            free(block)
        if mode == "hybrid":
            assert [raw.memory()[3] for raw in raws] == [0] * 4


def test_what_the_probe_notes_of_a_request_in_the_middle_of_its_step_is_not_the_requests() -> None:
    hooks.install("shadow")
    requests, raws = LiveRequests(), []
    for noted in (False, True):
        raw = request()
        hooks.charge(raw)
        if noted:
            requests.finished(raw, 1 << 60)
        hooks.charge(None)
        raws.append(raw)
    plain, noted_too = (raw.memory() for raw in raws)
    assert raws[1].result_ns == 1 << 60
    assert noted_too[3] == plain[3] == 0
