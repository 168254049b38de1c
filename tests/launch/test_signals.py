"""Runs signals_alone.py in a process of its own.

A signal goes to any thread that does not block it, and blocking is per thread: beside the threads that other tests
leave idle (thread pools, loops' workers) a test of blocked signals would kill or miss.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ALONE = Path(__file__).with_name("signals_alone.py")
ROOT = ALONE.parents[2]


def test_signals_are_taken_and_passed_on() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "--no-header", "-p", "no:cacheprovider", "--no-cov", str(ALONE)]
    run = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=240)
    assert run.returncode == 0, run.stdout + run.stderr
    assert " passed" in run.stdout
