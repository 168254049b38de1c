"""Each public bug report that was rebuilt has its fault, without the probe; and the page says what the runs said."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.field.cases.case import FOLDER, Row
from tests.field.cases.playing import Start
from tests.field.cases.rows import ROWS

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def parameters() -> list[object]:
    return [
        pytest.param(row, id=row.name.replace(" ", "-"), marks=[pytest.mark.endurance] if row.is_slow else [])
        for row in ROWS
    ]


@LINUX
@pytest.mark.slow
@pytest.mark.parametrize("row", parameters())
def test_the_fault_is_there_without_the_probe(row: Row, tmp_path: Path, env_python: Callable[[str], Path]) -> None:
    python = env_python(row.bare_environment) if row.bare_environment else Path(sys.executable)
    seen = row.play(Start(python, FOLDER / row.case / "server.py", tmp_path, is_brief=True))
    assert row.shows_fault(seen), seen
