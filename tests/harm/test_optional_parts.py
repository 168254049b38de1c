"""The accelerator loads, and the probe works, whatever else the interpreter lacks."""

from __future__ import annotations

import pytest

from tests.harm.running import CORES, How, told

PARTS = (
    "opentelemetry",
    "rich",
    "pympler",
    "uvloop",
    "trio",
    "mcp",
    "anyio",
    "fcntl",
    "termios",
    "resource",
    "ctypes",
    "_ctypes",
    "tracemalloc",
    "_tracemalloc",
    "ssl",
    "sqlite3",
)


@CORES
@pytest.mark.parametrize("part", PARTS)
def test_a_part_that_is_missing_costs_nothing_else(core: How, part: str) -> None:
    assert told("optional_parts", core, part) == told("optional_parts", core, "nothing")
