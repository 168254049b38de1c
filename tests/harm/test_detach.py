"""``detach()`` from another thread at any moment is complete, may be repeated, and leaves nothing."""

from __future__ import annotations

from tests.harm.running import CORES, How, told

ROUNDS = "300"


@CORES
def test_detach_from_another_thread_leaves_nothing(core: How) -> None:
    assert told("detaching", core, ROUNDS, timeout_s=200) == {"changed": [], "said": []}
