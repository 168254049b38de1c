"""Folders of runs that a test kills are left in the test's own temporary folder."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For programs a test starts; this process has chosen its own already."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
