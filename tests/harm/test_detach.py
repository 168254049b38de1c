"""``detach()`` from another thread at any moment is complete, may be repeated, and leaves nothing."""

from __future__ import annotations

import os

import pytest

from tests.harm.running import CORES, How, told

ROUNDS = "1000" if os.environ.get("MCP_PROBE_FUZZ") else "40"
"""`make fuzz` sets it."""


@CORES
@pytest.mark.timeout(900)
def test_detach_from_another_thread_leaves_nothing(core: How) -> None:
    assert told("detaching", core, ROUNDS, timeout_s=880) == {"changed": [], "said": []}
