"""The words for what was awaited."""

from __future__ import annotations

import pytest

from mcp_probe.model import AwaitPhase, AwaitSummary
from mcp_probe.report.sections.awaits import described

HOST = "https://api.example.com"


@pytest.mark.parametrize(
    ("phase", "words"),
    [
        ("dns", f"looking up {HOST}"),
        ("tcp", f"connecting to {HOST}"),
        ("tls", f"TLS with {HOST}"),
        ("first-byte", f"first byte of {HOST}"),
        ("body", f"body of {HOST}"),
        (None, HOST),
    ],
)
def test_rows_of_one_backend_say_which_phase_they_are(phase: AwaitPhase | None, words: str) -> None:
    found = AwaitSummary("http", HOST, None, 1, 1.0, None, (), (), "exact", phase=phase)
    assert described(found) == words
