"""Every function of ours that a session enters raises, one after the other: clients see nothing of it.

tests/safety/test_faults.py has what is broken from the attaching on, on each loop, and what the probe then says.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
HERE = {("mcp 2.x", "stdio")}
CELLS = [
    pytest.param(sdk, transport, marks=() if (sdk, transport) in HERE else pytest.mark.endurance)
    for sdk in ("mcp 2.x", "mcp 1.x")
    for transport in ("stdio", "http", "sse")
]


@pytest.mark.slow
@pytest.mark.parametrize(("sdk", "transport"), CELLS)
def test_whatever_part_raises_the_answers_are_those_without_the_probe(
    sdk: str, transport: str, env_python: Callable[[str], Path]
) -> None:
    python = Path(sys.executable) if sdk == "mcp 2.x" else env_python("mcp1")
    ran = subprocess.run(
        [str(python), "-m", "tests.safety.broken_parts", transport],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=280,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-2000:]
    whole, *broken = map(json.loads, ran.stdout.splitlines())
    assert whole["same"] and not whole["wrong"] and whole["entered"] > 100, whole
    assert len(broken) > 100
    assert [row for row in broken if not row["same"] or row["wrong"]] == []
    told = [row for row in broken if row["told"]]
    assert len(told) > 40, "the probe says what it has given up"
    assert sum(row["hits"] > 0 for row in broken) > 0.7 * len(broken)


def test_the_list_of_what_passes_calls_on_names_what_there_is() -> None:
    from tests.safety import broken_parts

    functions: Callable[[], Any] = broken_parts.functions
    assert {part.partition(":")[2] for part, *_ in functions()} >= broken_parts.THE_WAY
