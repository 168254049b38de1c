"""A server that is short of a CPU says who had it; what the host took absolves no tool and accuses none.

One process on one CPU. On a busy machine others have that CPU, too, so what is expected rests on what its threads got.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SERVER = Path(__file__).with_name("host_faults_server.py")
ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.skipif(
    not os.path.exists("/proc/self/schedstat"), reason="this system does not tell how long a thread waits for a CPU"
)


@pytest.fixture(scope="module")
def phases() -> Any:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, str(SERVER)], env=environment, capture_output=True, timeout=120, check=True)
    return json.loads(done.stdout)


def codes(summary: dict[str, Any], *severities: str) -> set[str]:
    return {finding["code"] for finding in summary["findings"] if finding["severity"] in severities}


def test_threads_of_its_own_that_have_the_cpu_are_named(phases: dict[str, Any]) -> None:
    fault = phases["fault"]
    used, seen = fault["used_cpus"], fault["signals"]["queued_beside_cpus"]
    assert fault["signals"]["cpus"] == 1.0
    assert seen >= 0.5 * used, "they had the CPU while the loop waited, or somebody else had it"
    if seen >= 0.5:
        assert "own-threads" in codes(fault, "warn")
        assert "host-pressure" not in codes(fault, "warn"), "what its own threads took is no host's fault"


def test_without_such_threads_or_with_idle_ones_they_are_not(phases: dict[str, Any]) -> None:
    assert "own-threads" not in codes(phases["mended"], "warn")
    assert "own-threads" not in codes(phases["near"], "warn")


def test_a_healthy_server_beside_processes_that_compute_is_not_accused(phases: dict[str, Any]) -> None:
    """Which thread has the GIL while none can run is told by looks: of most steps, not of each."""
    steps = phases["host"]["slow_steps"]
    stretched = sum(step["count"] for step in steps if step["cause"] == "run-queue" or step["own_ms"] < 10.0)
    assert stretched >= 0.8 * sum(step["count"] for step in steps), steps
    assert not codes(phases["host"], "warn", "critical") & {"gc-pause", "gil-contention", "own-threads"}


def test_a_call_that_blocks_is_named_beside_them_and_is_the_verdict(phases: dict[str, Any]) -> None:
    both = phases["host and blocking"]
    blocking = [finding for finding in both["findings"] if finding["code"] == "blocking-call"]
    assert "sleepy" in {finding["subject"] for finding in blocking}, both["slow_steps"]
    assert both["verdict"]["code"] == "blocking-call"
