"""How many CPUs the process may use, said by a thread that may use more."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

_LIMITS_ITSELF = """
import os, threading
from mcp_probe.capture.drain import cpus

limited, found = threading.Event(), []
thread = threading.Thread(target=lambda: (limited.wait(), found.append((len(os.sched_getaffinity(0)), cpus()))))
thread.start()
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
limited.set()
thread.join()
print(*found[0])
"""


@pytest.mark.skipif(
    not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2, reason="one CPU, or no affinity"
)
def test_a_program_that_limits_itself_after_the_probe_came_has_as_many_cpus_as_its_main_thread() -> None:
    said = subprocess.run([sys.executable, "-c", _LIMITS_ITSELF], capture_output=True, text=True, check=True).stdout
    of_thread, of_process = map(float, said.split())
    assert of_thread >= 2  # what the thread itself may use
    assert of_process <= 1  # a cgroup may allow less
