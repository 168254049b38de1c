"""Whole reports, character by character. A new look is accepted with ``python -m tests.report.regenerate``."""

from __future__ import annotations

import pytest

from tests.report.regenerate import FOLDER, GOLDEN, rendered


@pytest.mark.parametrize("file", GOLDEN)
def test_report_reads_as_its_golden_file(file: str) -> None:
    assert rendered(file) == (FOLDER / file).read_text(encoding="utf-8")


def test_every_golden_file_belongs_to_a_report() -> None:
    assert {path.name for path in FOLDER.iterdir()} == set(GOLDEN)
