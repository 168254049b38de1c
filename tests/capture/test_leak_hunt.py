from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from mcp_probe import native
from mcp_probe.adapters.tools import functions_of_tools
from mcp_probe.capture import leak_hunt, tracemalloc_sites
from mcp_probe.capture.grown_lines import FIRST, REST, Block, Look, Wanted
from mcp_probe.capture.leak_hunt import GROUPS, Kept, LeakHunt, clear_type_cache
from mcp_probe.capture.tracemalloc_sites import (
    function_at,
    is_start_safe,
    living,
    sites_of_blocks,
    start_tracing,
)
from mcp_probe.clock import now_ns
from mcp_probe.model import GrowthSample, GrowthSites
from tests.capture import leaking
from tests.docs.test_docs import ROOT

HOOKED = native.memory is not None


def hunted(accelerator: bool) -> dict[str, Any]:
    """In a process of its own: tracemalloc would slow this one down for good."""
    environment = {**os.environ, "MCP_PROBE_NATIVE": "1" if accelerator else "0", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tests.capture.leaking", "96", "6"]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize(
    "accelerator", [pytest.param(True, marks=pytest.mark.skipif(not HOOKED, reason="not built")), False]
)
def test_of_a_clean_a_cached_a_cyclic_and_a_leaking_tool_exactly_one_is_named(accelerator: bool) -> None:
    """And the one that leaks but 64 bytes only where blocks have owners; else it is said that it cannot be told."""
    found = hunted(accelerator)
    rows = found["rows"]
    assert found["factor"] > 1, "allocating takes longer with tracing"
    trickle, small_dict = rows.pop("trickle"), rows.pop("small_dict")
    if accelerator:
        assert (trickle["verdict"], trickle["floor"]) == ("grows", 32)
        assert leaking.TRICKLE_BYTES <= trickle["each"] <= leaking.TRICKLE_BYTES * 1.2
        assert trickle["lines"][0][:2] == ["trickle", leaking.trickle.__code__.co_firstlineno + 1]
        assert rows["clean"]["floor"] == rows["tangle"]["floor"] == 32
        assert small_dict["verdict"] == "grows"
        assert small_dict["lines"][0][:2] == ["small_dict", leaking.small_dict.__code__.co_firstlineno + 1]
        nobody = found["process"]["remainders"][0]
        fed = leaking.FED_BYTES * found["process"]["calls"] / len(leaking.TOOLS)
        assert (nobody["kind"], nobody["verdict"]) == ("nobody", "grows")
        assert 0.75 * fed <= nobody["bytes"] <= 1.25 * fed
    else:
        assert (trickle["verdict"], trickle["floor"]) == ("steady", 256)
        assert found["process"] is None
    assert {name: row["verdict"] for name, row in rows.items()} == {
        "clean": "steady",
        "cached": "steady",
        "tangle": "steady",
        "once": "steady",
        "remember": "grows",
        "feed": "steady",
    }
    leak = rows["remember"]
    # The list that holds them grows, too: some 5 bytes a call.
    assert leaking.LEAK_BYTES <= leak["each"] <= leaking.LEAK_BYTES * 1.05
    function, line, _ = leak["lines"][0]
    assert (function, line) == ("remember", leaking.remember.__code__.co_firstlineno + 1)
    if accelerator:
        assert (leak["how"], leak["types"][0][0]) == ("native-shadow", "bytes")
    else:
        assert leak["how"] == "tracemalloc"
        assert "switched off by MCP_PROBE_NATIVE" in found["notes"][0]


class Holding:
    """Stands for an ended request that still holds ``size`` bytes."""

    def __init__(self, size: int) -> None:
        self.size = size

    def memory(self) -> tuple[int, int, int, int, int, int]:
        return self.size, 1, self.size, self.size, self.size, 1

    def keep_memory(self) -> Holding:
        return self


@pytest.mark.parametrize("calls", [1, 7, 16, 17, 50, 333])
def test_groups_divide_the_calls_from_oldest_to_newest(calls: int) -> None:
    kept = Kept("tools/call", "add")
    for number in range(calls):
        kept.add(Holding(number + 1))
    groups = kept.groups()
    assert len(groups) == min(GROUPS, calls)
    numbers = iter(range(1, calls + 1))
    for count, held in groups:
        assert held == sum(next(numbers) for _ in range(count))
    assert next(numbers, None) is None


def test_calls_that_hold_nothing_any_more_are_forgotten_and_still_counted() -> None:
    kept = Kept("tools/call", "add")
    calls = [Holding(10) for _ in range(64)]
    for call in calls:
        kept.add(call)
    for call in calls[:40]:
        call.size = 0
    assert sum(held for _, held in kept.groups()) == 240
    assert len(kept.holders) == 24
    assert sum(count for count, _ in kept.groups()) == 64


def test_only_a_tool_whose_older_calls_hold_memory_is_worth_a_look() -> None:
    def kept_of(sizes: list[int]) -> Kept:
        kept = Kept("tools/call", "add")
        for size in sizes:
            kept.add(Holding(size))
        return kept

    assert kept_of([500] * 60).is_suspect()
    assert not kept_of([1_000_000] + [0] * 59).is_suspect()
    assert not kept_of([0] * 30 + [500] * 30).is_suspect()
    assert not kept_of([500] * 49).is_suspect()


def test_lines_are_looked_for_in_older_and_newer_calls_apart_and_not_in_the_first_ones() -> None:
    """A first call's imports hold more than the rest leak, and of all lines theirs was told."""
    kept = Kept("tools/call", "add")
    for size in range(1, 161):
        kept.add(Holding(size))
    kept.groups()
    wanted, rows = kept.to_look_at(1_000)
    assert wanted == Wanted(calls=160, sampled=30, whole=150)
    sampled = range(11, 161, 5)
    others = [size for size in range(11, 161) if size not in sampled]
    assert [(call.size, share, stage) for call, share, stage in rows] == [
        *((size, int(size > 85), FIRST) for size in sampled),
        *((size, int(size > 85), REST) for size in others),
    ]


def test_no_more_calls_are_looked_at_than_hold_so_many_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Kept("tools/call", "add")
    for size in range(1, 161):
        kept.add(Holding(size))
    monkeypatch.setattr(leak_hunt, "MAX_BLOCKS", 75)  # each call holds one
    wanted, rows = kept.to_look_at(1_000)
    assert (wanted, len(rows)) == (Wanted(calls=160, sampled=30, whole=75), 75)
    monkeypatch.setattr(leak_hunt, "MAX_BLOCKS", 10)
    wanted, rows = kept.to_look_at(1_000)
    assert (wanted, len(rows)) == (Wanted(calls=160, sampled=10, whole=10), 10)
    wanted, rows = kept.to_look_at(7)  # requests that the accelerator is asked about at once
    assert (wanted, len(rows)) == (Wanted(calls=160, sampled=7, whole=7), 7)


def test_a_look_for_lines_that_is_cut_short_has_seen_large_and_small_blocks_of_some_calls_of_each_operation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The accelerator tells small blocks first: on a busy machine the line of the payload was not among those seen."""
    seen: list[Block] = []

    def sites(now: int, blocks: dict[int, Block], *_: object) -> Iterator[Any]:
        seen.extend(blocks.values())
        return iter(())

    def blocks_of(requests: list[Any], most: int) -> list[tuple[int, int, int]]:
        """A sample of 30 calls of each, in order, before the other 30."""
        sizes = {0: (40, 50, 100, 2000), 29: (44,), 30: (60,), 60: (30, 600)}
        return [(size, size, index) for index in range(len(requests)) for size in sizes.get(index, ())]

    monkeypatch.setattr(leak_hunt, "sites_of_blocks", sites)
    monkeypatch.setattr(leak_hunt, "blocks_of", blocks_of)
    hunt = LeakHunt(lambda: True)
    for name in ("one", "two"):
        kept = hunt._kept["tools/call", name] = Kept("tools/call", name)
        for _ in range(64):
            kept.add(Holding(1000))
    list(hunt.frames(0, final=True))
    assert [tuple(block) for block in seen] == [
        ("one", 2000, 0, FIRST),
        ("one", 44, 1, FIRST),
        ("two", 600, 0, FIRST),
        ("one", 40, 0, FIRST),
        ("two", 30, 0, FIRST),
        ("one", 100, 0, FIRST),
        ("one", 50, 0, FIRST),
        ("one", 60, 0, REST),
    ]


def test_a_look_for_types_can_be_cut_short_before_it_has_seen_an_object() -> None:
    """With tracing, what it prepares for each block took three seconds beside others that compute."""
    looked = living({16 * number: Block("add", 500, 0, FIRST) for number in range(1_000)})
    asked = [next(looked) for _ in range(5)]
    assert asked == [(None, None)] * 5


def test_lines_are_told_before_types_are_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """That takes long. Lines that were found in a look that the end of the process cut short were lost."""
    done: list[str] = []

    def sites(now: int, *_: object) -> Iterator[GrowthSites]:
        yield GrowthSites(now, (), ())
        done.append("types")
        yield GrowthSites(now, (), ())

    monkeypatch.setattr(leak_hunt, "sites_of_blocks", sites)
    monkeypatch.setattr(leak_hunt, "blocks_of", lambda requests, most: [(1, 500, 0)])
    hunt = LeakHunt(lambda: True)
    kept = hunt._kept["tools/call", "add"] = Kept("tools/call", "add")
    for _ in range(64):
        kept.add(Holding(1000))
    frames = hunt.frames(0, final=True)
    told = [next(frames), next(frames)]
    assert isinstance(told[-1], GrowthSites) and not done
    assert len(list(frames)) == 1 and done


def test_a_look_for_lines_ends_as_soon_as_the_last_one_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine one look took 36 s, and the hunt lost its end."""
    late: list[bool] = []

    def sites(now: int, blocks: object, wanted: object, looks: object, known: object, is_late: Any) -> Iterator[Any]:
        late.append(is_late())
        hunt.hurry()
        late.append(is_late())
        return iter(())

    monkeypatch.setattr(leak_hunt, "sites_of_blocks", sites)
    monkeypatch.setattr(leak_hunt, "blocks_of", lambda requests, most: [(1, 500, 0)])
    monkeypatch.setattr(leak_hunt, "LAST_LOOK_NS", 60_000_000_000)
    hunt = LeakHunt(owners=lambda: True)
    kept = hunt._kept["tools/call", "add"] = Kept("tools/call", "add")
    for _ in range(60):
        kept.add(Holding(500))
    list(hunt.frames(now_ns(), final=False))
    assert late == [False, True]
    list(hunt.frames(now_ns(), final=True))
    assert late == [False, True, False, False], "the last look has its own time"
    assert not list(sites_of_blocks(0, {1: Block("add", 500, 0, FIRST)}, {}, {}, (), lambda: True))


def test_a_look_at_a_server_that_is_about_to_end_stands_unless_more_calls_come() -> None:
    """What its lifespan holds is let go of then: calls that end later would show that nothing was kept."""
    hunt = LeakHunt(lambda: True)
    kept = hunt._kept["tools/call", "add"] = Kept("tools/call", "add")

    def told(calls: int) -> list[int]:
        for _ in range(calls):
            kept.add(Holding(1000))
        hunt.settle(waiting=calls, final=True)
        frames = hunt.frames(now_ns(), final=True)
        return [frame.rows[0][2] for frame in frames if isinstance(frame, GrowthSample)]

    for _ in range(32):
        kept.add(Holding(1000))
    hunt.settle(waiting=32, final=True)
    standing = [frame for frame in hunt.frames(0, final=True, stands=True) if isinstance(frame, GrowthSample)]
    assert [frame.rows[0][2] for frame in standing] == [32]
    collections = hunt.collections
    assert told(0) == told(1) == told(1) == []
    assert hunt.collections == collections
    assert told(1) == [35], "another server of the process goes on"
    assert told(1) == [36]


def test_tracing_is_started_beside_threads_only_where_that_is_safe() -> None:
    safe = {(3, 12, 9), (3, 12, 11), (3, 13, 2), (3, 14, 0)}
    unsafe = {(3, 10, 13), (3, 11, 7), (3, 12, 1), (3, 12, 8), (3, 13, 0), (3, 13, 1)}
    assert {version for version in safe | unsafe if is_start_safe(version)} == safe


def test_tracing_that_cannot_be_started_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    over = threading.Event()
    other = threading.Thread(target=over.wait, name="somebody's")
    other.start()
    monkeypatch.setattr("mcp_probe.capture.tracemalloc_sites.is_start_safe", lambda version: False)
    # Other tests' worker threads may still be ending.
    monkeypatch.setattr(
        "mcp_probe.capture.tracemalloc_sites.threading.enumerate", lambda: [threading.current_thread(), other]
    )
    try:
        assert '"somebody\'s" runs already' in start_tracing()
    finally:
        over.set()
        other.join()


@pytest.mark.skipif(not HOOKED, reason="the accelerator is not built")
def test_no_module_is_asked_what_it_refers_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked that, ``_asyncio`` of CPython 3.12.1 hung the process at its next collection (gh-122695)."""
    asked: list[Any] = []

    def get_referents(*found: Any) -> list[Any]:
        asked.extend(map(type, found))
        return []

    monkeypatch.setattr(gc, "get_referents", get_referents)
    assert {operation for operation, _ in living({1: Block("nobody", 8, 0, FIRST)})} == {None}
    assert dict in asked
    assert not [cls for cls in asked if issubclass(cls, ModuleType)]


def test_living_objects_are_found_by_their_blocks_whatever_stands_before_them() -> None:
    class Plain:
        pass

    core: Any = native.memory
    core.install("shadow")
    try:
        from mcp_probe.record.raw import RawRequest

        raw = RawRequest(1, "request", "tools/call", "add", "memory")
        gc.collect()
        gc.disable()  # it fills the free lists again
        before = core.charge(raw)
        held = [[Plain(), {"a": object()}, bytes(700), bytearray(800), (str(n) * 100, n << 80)] for n in range(1, 301)]
        core.charge(before)
        raw.ended = True
        blocks = {address: Block("add", size, 0, FIRST) for address, size, _ in core.blocks([raw], 10_000)}
        found = Counter(type(each) for block, each in living(blocks) if block)
    finally:
        gc.enable()
        core.uninstall()
    assert len(held) == 300
    # Up to 80 lists and dicts come from free lists, and are no new blocks; tuples all may.
    for kind in (Plain, object, bytes, bytearray, str, int):
        assert found[kind] >= 299, kind
    for kind in (list, dict):
        assert found[kind] >= 200, kind


def test_a_line_is_in_the_function_whose_indentation_it_is_under() -> None:
    line = leaking.hunted.__code__.co_firstlineno
    assert function_at(leaking.__file__, line) == "hunted"
    assert function_at(leaking.__file__, line + 4) == "hunted"
    assert function_at(leaking.__file__, 1) == ""
    assert function_at(__file__, Holding.memory.__code__.co_firstlineno + 1) == "Holding.memory"
    assert function_at("/nowhere/at/all.py", 3) == ""


def test_the_tools_own_functions_are_found_below_decorators() -> None:
    from functools import wraps

    from mcp.server import MCPServer

    server = MCPServer("tools")

    def logged(function: Any) -> Any:
        @wraps(function)
        async def wrapper(*args: Any, **kwargs: Any) -> Any:
            return await function(*args, **kwargs)

        return wrapper

    @server.tool(name="a tool of this test")
    @logged
    async def own(number: int) -> int:
        return number

    code = own.__wrapped__.__code__
    found = [known for known in functions_of_tools() if known.tool == "a tool of this test"]
    assert [(known.file, known.first, known.last) for known in found] == [
        (__file__, code.co_firstlineno, code.co_firstlineno + 3)
    ]


def _look_up_new_names() -> None:
    """As a C library does: each look-up has a string of its own."""
    names = ["".join(("mcp_", "probe_", str(number))) for number in range(4_000)]
    for name in names:
        getattr(names, name, None)


def test_names_that_the_interpreter_remembers_of_a_call_are_nothing_that_the_call_keeps() -> None:
    clear_type_cache()
    _look_up_new_names()
    gc.collect()
    before = sys.getallocatedblocks()
    clear_type_cache()
    if before - sys.getallocatedblocks() < 100:
        pytest.skip("this interpreter does not keep them")
    _look_up_new_names()
    gc.collect()
    before = sys.getallocatedblocks()
    LeakHunt(lambda: False).settle(waiting=1, final=True)
    assert before - sys.getallocatedblocks() >= 100


def test_a_look_for_lines_that_is_cut_short_tells_of_the_calls_that_it_has_wholly_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tracemalloc_sites, "tracing_state", lambda: True)
    monkeypatch.setattr(tracemalloc_sites, "_trace_of", lambda: lambda domain, address: (("/srv/a.py", address),))
    rows = [("add", 10, FIRST), ("sum", 20, FIRST), ("add", 30, FIRST), ("sum", 5, FIRST), ("add", 40, REST)]
    blocks = {number: Block(name, size, number % 2, stage) for number, (name, size, stage) in enumerate(rows)}
    wanted = {name: Wanted(60, 30, 57) for name in ("add", "sum")}
    looks: dict[str, Look] = {}

    def told(seen: int) -> list[tuple[str, int, int]]:
        """(operation, line, bytes) after a look that was late once it had seen so many blocks."""
        answers = iter([False] * seen)
        frames = list(sites_of_blocks(0, blocks, wanted, looks, (), lambda: next(answers, True)))
        return [(line[0], line[2], line[4]) for frame in frames for line in frame.lines]

    assert told(0) == [], "what was known before stays"
    assert set(told(1)) == {("add", 0, 10)}, "there is nothing better"
    assert looks["add"].seen == 0
    assert set(told(3)) == {("add", 0, 10), ("add", 2, 30), ("sum", 1, 20)}
    assert {name: look.seen for name, look in looks.items()} == {"add": 30, "sum": 0}
    assert set(told(2)) == {("add", 0, 10), ("add", 2, 30), ("sum", 1, 20)}, "the earlier look has seen more"
    assert set(told(4)) == {("add", 0, 10), ("add", 2, 30), ("sum", 1, 20), ("sum", 3, 5)}
    assert {name: look.seen for name, look in looks.items()} == {"add": 30, "sum": 57}
    assert ("add", 4, 40) in told(5) and looks["add"].seen == 57
    del wanted["sum"]
    blocks = {address: block for address, block in blocks.items() if block.operation != "sum"}
    told(3)
    assert looks.keys() == {"add"}, "the other one holds next to nothing any more"
