"""Fixtures of the workloads' tests."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def pages_as_at_a_desk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages are asserted on as people see them; in a CI log they have ASCII only, which tests/report looks at."""
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
