"""Full recordings and what reads them, the live view, the flight recorder: the same truth on each interpreter, SDK,
transport and loop, with and without the accelerator. `python -m tests.launch.look_table` asks all combinations."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.launch.attach_cells import python_of
from tests.launch.looked_at import Cell, faults_of, look_at
from tools.accelerator import build_in_place
from tools.interpreters import Absent, interpreter

CELLS = [
    Cell("3.10", "mcp 1.30", "stdio", "asyncio", native=False),
    Cell("3.10", "mcp 2.3", "http", "uvloop"),
    Cell("3.12", "mcp 2.3", "stdio", "trio"),
    Cell("3.12", "mcp 1.30", "http", "asyncio"),
    Cell("3.13", "mcp 2.3", "http", "asyncio", native=False),
    Cell("3.13", "mcp 1.30", "stdio", "uvloop"),
    Cell("3.14", "mcp 2.3", "stdio", "asyncio"),
    Cell("3.14", "mcp 1.30", "http", "uvloop", native=False),
    Cell("3.15", "mcp 2.3", "http", "asyncio"),
    Cell("3.15", "mcp 2.3", "stdio", "uvloop", native=False),
    Cell("3.15", "mcp 1.30", "stdio", "trio", native=False),
]


@pytest.mark.endurance
@pytest.mark.timeout(600)
@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_every_way_of_looking_says_what_the_client_did(cell: Cell, tmp_path: Path) -> None:
    python = python_of(cell.version, cell.sdk)
    if cell.native:
        try:
            build_in_place(interpreter(cell.version, unpack=False))
        except Absent as exc:
            pytest.skip(f"no accelerator for CPython {cell.version}: {exc}")
    assert faults_of(cell, look_at(cell, python, tmp_path)) == []
