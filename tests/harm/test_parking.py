"""The watchdog's sleep misses no wake-up."""

from __future__ import annotations

import os

import pytest

from mcp_probe import native
from tests.harm.running import told

ROUNDS = "20000" if os.environ.get("MCP_PROBE_FUZZ") else "500"


@pytest.mark.skipif(native.core is None, reason=f"no accelerator: {native.absence}")
@pytest.mark.timeout(600)
def test_a_step_that_begins_as_the_watchdog_parks_is_seen() -> None:
    assert told("parking", "native", ROUNDS, timeout_s=580)["late"] == 0
