"""asyncio's debug mode tells the same with the probe, and handles are asyncio's own or a declared subclass."""

from __future__ import annotations

import sys

from tests.harm.running import CORES, How, bare, told

KINDS = ("Handle", "TimerHandle", *(("_ThreadSafeHandle",) if sys.version_info >= (3, 14) else ()))


@CORES
def test_debug_mode_tells_the_same_of_handles_timers_and_tasks(core: How) -> None:
    found, expected = dict(told("debug_mode", core)), dict(bare("debug_mode"))
    del found["types"], expected["types"]
    assert found == expected


@CORES
def test_handles_are_asyncios_own_or_one_subclass_of_each_kind(core: How) -> None:
    seen = {name for names in told("debug_mode", core)["types"].values() for name in names}
    ours: dict[str, set[str]] = {}
    for name in seen:
        base, _, kind = name.partition(">")
        if not kind.startswith("asyncio."):
            ours.setdefault(base, set()).add(kind)
    assert set(ours) <= set(KINDS)
    assert all(len(kinds) == 1 for kinds in ours.values()), ours
