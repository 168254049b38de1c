"""Tiers, back ends, and what their figures become: with an accelerator that is told what to say."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, get_args

import pytest

from mcp_probe.capture import memory_tier, outside_memory
from mcp_probe.capture.memory_tier import Choice, Memory, choose
from mcp_probe.model import MemoryTier, MemoryUse
from mcp_probe.record.raw import RawRequest

Figures = tuple[int, int, int, int | None, int, int | None]


class Core:
    """Stands for the accelerator's allocator hook."""

    def __init__(self) -> None:
        self.mode: str | None = None
        self.valid, self.covered, self.reason = True, False, ""
        self.refused: dict[str, str] = {}
        self.calls: list[str] = []

    def install(self, mode: str) -> None:
        self.calls.append(mode)
        if mode in self.refused:
            raise RuntimeError(self.refused[mode])
        self.mode, self.valid = mode, True

    def uninstall(self) -> None:
        self.calls.append("uninstall")
        self.mode = None

    def charge(self, raw: Any) -> None:
        """Nobody's memory is measured here."""

    def state(self) -> dict[str, Any]:
        above = {"shadow": -1, "hybrid": 512}.get(self.mode or "", sys.maxsize)
        told = {"mode": self.mode, "valid": self.valid, "reason": self.reason, "covered": self.covered}
        return {**told, "owned_above": above}


class Answered(RawRequest):
    """A request of which the accelerator knows ``figures``."""

    figures: Figures | None = None

    def memory(self) -> Figures | None:
        return self.figures


@pytest.fixture
def core(monkeypatch: pytest.MonkeyPatch) -> Core:
    made = Core()
    there = SimpleNamespace(core=object(), memory=made, absence="", memory_absence="")
    monkeypatch.setattr(memory_tier, "native", there)
    monkeypatch.setattr(memory_tier, "_start_leak_tracing", lambda: "")
    monkeypatch.setattr(outside_memory, "LIBRARIES", ())  # other tests may have loaded some
    return made


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], None]]:
    """Sets the clock."""
    at = [1000]
    monkeypatch.setattr(memory_tier, "now_ns", lambda: at[0])
    yield lambda now: at.__setitem__(0, now)


def measuring(tier: MemoryTier = "light") -> tuple[Memory, list[str], list[Exception]]:
    said: list[str] = []
    faults: list[Exception] = []
    made = Memory(said.append, faults.append)
    made.want("a session", tier)
    return made, said, faults


def request(figures: Figures | None, began_ns: int = 2000, ended: bool = True) -> RawRequest:
    raw = Answered(1, "request", "tools/call", "t", "stdio")
    raw.figures = figures
    raw.first_step_ns = began_ns
    raw.ended = ended
    return raw


# --- which back end -------------------------------------------------------------------------------


def test_every_tier_has_its_back_ends_in_order_of_what_they_know() -> None:
    by_tier = {
        tier: choose(tier, accelerator="", jemalloc=lambda: True, no_tracemalloc="").methods
        for tier in get_args(MemoryTier)
    }
    assert by_tier == {
        "off": (),
        "light": ("native-hybrid", "native-gross"),
        "detailed": ("native-shadow", "native-hybrid", "native-gross"),
        "leaks": ("native-shadow",),
    }


@pytest.mark.parametrize(
    ("tier", "jemalloc", "no_tracemalloc", "methods"),
    [
        ("light", False, "", ()),
        ("light", True, "", ("jemalloc",)),
        ("detailed", True, "", ("tracemalloc",)),
        ("detailed", True, "it would crash", ("jemalloc",)),
        ("detailed", False, "it would crash", ()),
        ("leaks", True, "", ()),
        ("off", True, "", ()),
    ],
)
def test_without_the_accelerator_other_back_ends_serve_where_they_are_right(
    tier: MemoryTier, jemalloc: bool, no_tracemalloc: str, methods: tuple[str, ...]
) -> None:
    found = choose(tier, accelerator="not built", jemalloc=lambda: jemalloc, no_tracemalloc=no_tracemalloc)
    assert found.methods == methods
    if tier != "off":
        assert found.why.startswith("not built")
    assert ("it would crash" in found.why) == bool(no_tracemalloc)


def test_off_asks_nobody_anything() -> None:
    def asked() -> bool:
        raise AssertionError("asked")

    assert choose("off", accelerator="", jemalloc=asked, no_tracemalloc="") == Choice((), "")


def test_the_highest_tier_of_all_sessions_is_in_force(core: Core) -> None:
    made, _, _ = measuring("light")
    other = object()
    made.want(other, "detailed")
    assert (made.tier, core.mode) == ("detailed", "shadow")
    made.want(other, "off")
    assert (made.tier, core.mode) == ("light", "hybrid")
    made.want(other, "leaks")
    made.forget(other)
    assert (made.tier, core.mode) == ("light", "hybrid")
    made.close()
    assert (made.tier, core.mode, made.method) == ("off", None, None)


def test_one_native_mode_follows_another_without_a_gap(core: Core) -> None:
    made, _, _ = measuring("light")
    made.want("a session", "detailed")
    made.want("a session", "light")
    assert core.calls == ["hybrid", "shadow", "hybrid"]


def test_tracing_for_a_hunt_begins_below_the_hook_on_a_running_server_too(
    core: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start_tracing() -> str:
        core.calls.append("tracing")
        return ""

    monkeypatch.setattr(memory_tier, "_start_leak_tracing", start_tracing)
    made, _, _ = measuring("light")
    made.loop_begins()
    made.want("a session", "leaks")
    assert core.calls == ["hybrid", "uninstall", "tracing", "shadow"]


def test_a_mode_that_is_refused_gives_way_to_the_next_and_says_why(core: Core) -> None:
    core.refused = {"shadow": "No room for the table.", "hybrid": "Its blocks cannot be told apart here."}
    made, said, faults = measuring("detailed")
    assert (made.method, core.mode, faults) == ("native-gross", "gross", [])
    assert said == [
        "active (detailed: native-gross, all Python allocations "
        "(No room for the table.; Its blocks cannot be told apart here.))"
    ]


def test_where_every_mode_is_refused_nothing_stays_installed(core: Core) -> None:
    made, said, _ = measuring("light")
    core.refused = {"shadow": "no", "hybrid": "no", "gross": "no"}
    made.want("a session", "detailed")
    assert (made.method, core.mode, made.lender) == (None, None, None)
    assert said[-1].startswith("active (detailed: payload sizes and the process's RSS only (no; no; no")


def test_scope_says_whose_blocks_have_owners(core: Core) -> None:
    assert measuring("light")[0].scope == "all Python allocations, owners > 512 B"
    assert measuring("detailed")[0].scope == "all Python allocations"


def test_a_fault_while_switching_turns_it_off_and_reaches_nobody(core: Core, monkeypatch: pytest.MonkeyPatch) -> None:
    made, _, faults = measuring("light")

    def broken() -> str:
        raise ValueError("ours")

    monkeypatch.setattr(memory_tier, "_start_leak_tracing", broken)
    made.loop_begins()
    made.want("a session", "leaks")
    assert [type(fault) for fault in faults] == [ValueError]
    assert (made.method, core.mode) == (None, None)


# --- an allocator hook that somebody takes off ----------------------------------------------------


def test_figures_end_where_another_tool_takes_the_hook_off(core: Core, clock: Callable[[int], None]) -> None:
    made, said, _ = measuring("light")
    raw = request((10, 1, 0, 0, 0, 0))
    assert made.use_of(raw) is not None
    core.valid, core.reason = False, "memray has taken the hook off"
    made.check()
    assert made.use_of(raw) is None
    assert said[-1] == "stopped: memray has taken the hook off"
    made.check()
    assert len(said) == 2, "said once"


def test_another_tool_over_the_hook_is_said_once(core: Core) -> None:
    made, said, _ = measuring("light")
    core.covered, core.reason = True, "tracemalloc lies over the hooks"
    made.check()
    made.check()
    assert said[1:] == ["active (light: native-hybrid, all Python allocations, owners > 512 B (" + core.reason + "))"]
    core.covered = False
    made.check()
    assert said[2:] == said[:1]


def test_wanting_a_tier_again_starts_what_was_lost_anew(core: Core) -> None:
    made, said, _ = measuring("light")
    core.valid = False
    made.check()
    made.want("a session", "light")
    assert (made.method, core.mode) == ("native-hybrid", "hybrid")
    assert said[-1].startswith("active (light: native-hybrid")


# --- from counters to figures ---------------------------------------------------------------------


def use_of(figures: Figures | None, tier: MemoryTier = "light", began_ns: int = 2000, ended: bool = True) -> Any:
    return measuring(tier)[0].use_of(request(figures, began_ns, ended))


def test_what_has_no_owner_bounds_peak_and_retained_from_above(core: Core, clock: Callable[[int], None]) -> None:
    use = use_of((1000, 9, 700, 50, 600, 2))
    assert (use.requested, use.allocations, use.peak, use.retained) == (1000, 9, 600, 50)
    assert dict((row[0], row[1:]) for row in use.quality) == {
        "peak": ("bounded", 600, 900),
        "retained": ("bounded", 50, 350),
    }


def test_where_every_block_has_an_owner_figures_are_exact(core: Core, clock: Callable[[int], None]) -> None:
    use = use_of((10_000, 9, 10_000, 5_000, 6_000, 2), "detailed")
    assert (use.method, use.quality) == ("native-shadow", ())
    assert (use.peak, use.retained) == (6_000, 5_000)


def test_little_that_is_retained_is_a_lower_bound(core: Core, clock: Callable[[int], None]) -> None:
    use = use_of((10_000, 9, 10_000, 170, 6_000, 2), "detailed")
    assert use.quality == (("retained", "lower", 170, None),)


def test_gross_knows_what_was_requested_and_no_more(core: Core, clock: Callable[[int], None]) -> None:
    core.refused = {"hybrid": "no"}
    use = use_of((1000, 9, 0, 0, 0, 0))
    assert (use.method, use.requested, use.peak, use.retained) == ("native-gross", 1000, None, None)
    assert {row[:2] for row in use.quality} == {("peak", "unavailable"), ("retained", "unavailable")}


def test_a_request_that_has_not_ended_retains_nothing_yet(core: Core, clock: Callable[[int], None]) -> None:
    use = use_of((1000, 9, 700, 50, 600, 2), ended=False)
    assert (use.peak, use.retained) == (600, None)
    assert [row[:2] for row in use.quality] == [("peak", "bounded"), ("retained", "unavailable")]


def test_a_request_that_ran_while_the_tier_changed_has_no_figures(core: Core, clock: Callable[[int], None]) -> None:
    made, _, _ = measuring("light")
    raw = request((1000, 9, 700, 50, 600, 2), began_ns=1500)
    raw.end_ns = 1700
    clock(1600)
    made.want("a session", "detailed")
    assert made.use_of(raw) is None


def test_a_request_that_had_ended_keeps_the_back_end_that_measured_it(core: Core, clock: Callable[[int], None]) -> None:
    made, _, _ = measuring("light")
    raw = request((1000, 9, 700, None, 600, None), began_ns=1500)
    raw.end_ns = 1590
    clock(1600)
    made.want("a session", "detailed")
    use = made.use_of(raw)
    assert use is not None and (use.method, use.peak, use.retained) == ("native-hybrid", 600, None)
    assert use.scope == "all Python allocations, owners > 512 B"
    assert [row[:2] for row in use.quality] == [("peak", "bounded"), ("retained", "unavailable")]


def test_what_was_not_measured_has_no_figures(core: Core, clock: Callable[[int], None]) -> None:
    assert use_of(None) is None
    assert use_of((1, 1, 1, 1, 1, 1), "off") is None


def test_a_fault_of_ours_costs_figures_and_nothing_else(core: Core, clock: Callable[[int], None]) -> None:
    made, _, faults = measuring("light")
    raw: Any = request((1, 2, 3, 4, 5, 6))
    raw.figures = (1, 2, 3)
    assert (made.use_of(raw), made.use_of(raw)) == (None, None)
    assert len(faults) == 1


def test_sizes_of_a_sampled_call_travel_with_its_figures(core: Core, clock: Callable[[int], None]) -> None:
    raw = request((1000, 9, 1000, 5000, 6000, 2))
    raw.sized = (123, None)
    use = measuring("detailed")[0].use_of(raw)
    assert isinstance(use, MemoryUse) and (use.arguments, use.result) == (123, None)


@pytest.mark.parametrize("tier", ["light", "detailed"])
def test_bounds_hold_the_figure_they_belong_to(tier: MemoryTier, core: Core, clock: Callable[[int], None]) -> None:
    for figures in [(0, 0, 0, 0, 0, 0), (100, 1, 0, 0, 0, 0), (5000, 2, 4000, 3000, 4000, 1)]:
        use = use_of(figures, tier)
        for name, _, lo, hi in use.quality:
            value = getattr(use, name)
            assert lo is None or lo <= value
            assert hi is None or value <= hi


def test_since_when_the_accelerator_measures_is_known_only_where_it_does(
    core: Core, clock: Callable[[int], None]
) -> None:
    assert measuring("light")[0].native_since_ns == measuring("detailed")[0].native_since_ns is not None
    assert measuring("off")[0].native_since_ns is None


@pytest.mark.parametrize(
    ("name", "version", "is_outside"),
    [("numpy", "1.26.4", True), ("numpy", "2.4.1", True), ("numpy", "2.5.0", False), ("pandas", "3.0.0", True)],
)
def test_no_figure_is_exact_beside_a_library_that_allocates_elsewhere(
    core: Core, clock: Callable[[int], None], monkeypatch: pytest.MonkeyPatch, name: str, version: str, is_outside: bool
) -> None:
    """9.05 MB of pandas was shown as "75.6 kB, exact"."""
    monkeypatch.setattr(outside_memory, "LIBRARIES", (name,))
    memory, said, faults = measuring("detailed")
    monkeypatch.setitem(sys.modules, name, SimpleNamespace(__version__=version))
    clock(5_000)
    memory.check()
    raw = Answered(1, "request", "tools/call", "add", "memory")
    raw.first_step_ns, raw.end_ns, raw.ended = 2_000, 3_000, True
    raw.figures = (75_600, 10, 75_600, 5_000, 75_600, 10)
    use = memory.use_of(raw)
    assert use is not None
    assert {row[0]: row[1] for row in use.quality} == (
        dict.fromkeys(("requested", "peak", "retained"), "lower") if is_outside else {}
    )
    assert (f"{name} allocates outside of it" in said[-1]) == is_outside
    assert not faults
