"""The accelerator under load, in processes of its own: nothing leaks, no memory is misused, no callback is lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.native.endurance import PARTS
from tests.native.twins import needs_the_accelerator

pytestmark = needs_the_accelerator
ROOT = Path(__file__).resolve().parent.parent.parent


def endured(part: str, rounds: int, **environment: str) -> Any:
    """What the process printed; it must have ended well."""
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-m", "tests.native.endurance", part, str(rounds)],
        cwd=ROOT,
        env={**os.environ, "MCP_PROBE_NATIVE": "", **environment},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("part", PARTS)
def test_nothing_is_left_of_thousands_of_rounds(part: str) -> None:
    rounds = 6_000
    left = endured(part, rounds)
    # One object left by each round would make as many blocks as there were rounds.
    assert left["blocks"] < rounds / 4, left
    assert left["references"] < rounds / 4, left


@pytest.mark.parametrize("part", PARTS)
def test_memory_is_used_rightly_where_every_block_is_checked_and_every_object_is_soon_collected(part: str) -> None:
    endured(part, 300, PYTHONMALLOC="debug", ENDURANCE_GC="1")


@pytest.mark.parametrize("allocator", ["pymalloc", "debug"])
def test_every_callback_of_other_threads_runs_while_the_hooks_come_and_go(allocator: str) -> None:
    assert endured("threads", 500 if allocator == "pymalloc" else 50, PYTHONMALLOC=allocator)["callbacks"] > 0
