"""The memory hooks where they could do harm, each time in a process of its own (see memory_torture.py)."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.native.twins import needs_the_memory_hooks

pytestmark = needs_the_memory_hooks
ROOT = Path(__file__).resolve().parent.parent.parent
ALLOCATORS = ("pymalloc", "debug", "malloc")


def survived(part: str, seconds: float, allocator: str) -> Any:
    """What the process printed; it must have ended well."""
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-m", "tests.native.memory_torture", part, str(seconds)],
        cwd=ROOT,
        env={**os.environ, "MCP_PROBE_NATIVE": "", "PYTHONMALLOC": allocator},
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("allocator", ALLOCATORS)
def test_hooks_come_and_go_under_threads_that_allocate_without_the_gil(allocator: str) -> None:
    assert survived("toggle", 1, allocator)["times"] > 0


@pytest.mark.parametrize("allocator", ["pymalloc", "debug"])
def test_a_child_that_is_forked_while_threads_allocate_measures_and_ends_well(allocator: str) -> None:
    assert survived("fork", 0.5, allocator)["children"] > 0


@pytest.mark.parametrize("allocator", ALLOCATORS)
def test_tracemalloc_may_start_and_stop_before_after_and_inside(allocator: str) -> None:
    survived("tracemalloc", 0, allocator)


@pytest.mark.parametrize("allocator", ["pymalloc", "malloc"])
@pytest.mark.skipif(importlib.util.find_spec("memray") is None, reason="no memray here")
def test_memray_may_start_and_stop_before_after_and_inside(allocator: str) -> None:
    survived("memray", 0, allocator)


@pytest.mark.parametrize("allocator", ["pymalloc", "malloc"])
def test_blocks_that_outlive_their_request_are_credited_to_no_other(allocator: str) -> None:
    assert survived("accounts", 0, allocator)["accounts"] > 0


@pytest.mark.skipif(sys.version_info < (3, 12), reason="one lock for all interpreters here")
def test_interpreters_with_a_lock_of_their_own_may_allocate_at_the_same_time() -> None:
    survived("interpreters", 2, "pymalloc")


@pytest.mark.slow
def test_blocks_beyond_the_table_are_counted_and_have_no_owner() -> None:
    assert survived("crowd", 0, "pymalloc")["untracked"] > 0
