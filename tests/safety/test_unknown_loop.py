"""On a loop that no hook fits nothing false is said, and nothing but the probe's logger writes to stderr."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module", params=["streams", "in process"])
def seen(request: pytest.FixtureRequest) -> tuple[dict[str, Any], str, str]:
    """(summary, report, stderr) of a server on an unknown loop."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.safety.unknown_loop", request.param.replace(" ", "-")],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "default"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    return told["summary"], " ".join(told["text"].split()), done.stderr


def rows(summary: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in summary["operations"]}


def test_calls_are_counted_and_what_was_not_seen_is_not_told(seen: tuple[dict[str, Any], str, str]) -> None:
    summary, text, _ = seen
    block = rows(summary)["block"]
    assert (block["count"], rows(summary)["nap"]["count"]) == (2, 4)
    assert block["unseen"][0] == "wake-ups"
    assert "steps" in block["unseen"]
    for part in ("busy", "ready_wait", "awaiting", "gc", "executor_return"):
        assert block["budget_ms"][part] is None
        assert block["quality"][part]["tag"] == "unavailable"
    assert "await 9" not in text
    assert "await 100%" not in text


def test_nobody_is_blamed_and_nothing_is_called_slow(seen: tuple[dict[str, Any], str, str]) -> None:
    summary, text, _ = seen
    assert summary["slow_steps"] == []
    assert summary["blocked_by"] == []
    told = {finding["code"] for finding in summary["findings"]}
    assert not told & {"blocking-call", "cpu-bound-step", "head-of-line", "large-payload", "crowding"}
    assert "held up no other request" not in text
    assert summary["verdict"]["code"] != "healthy"


def test_times_are_lower_bounds_where_a_message_comes_over_a_transport(
    seen: tuple[dict[str, Any], str, str],
) -> None:
    summary, _, _ = seen
    block = rows(summary)["block"]
    assert block["total_ms"]["p50"] >= 500
    if summary["server"]["transport"] == "memory":  # from the client's call to its return, whatever the loop
        assert "total_ms_p50" not in block["quality"]
    else:
        assert block["quality"]["total_ms_p50"]["tag"] == "lower"


def test_stderr_has_only_what_the_logger_of_the_probe_wrote(seen: tuple[dict[str, Any], str, str]) -> None:
    _, _, stderr = seen
    assert "Warning" not in stderr
    assert "Traceback" not in stderr
    assert all("mcp_probe" in line for line in stderr.splitlines() if line.strip()), stderr
