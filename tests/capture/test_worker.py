"""Threads of ours, as the process ends and as it forks."""

from __future__ import annotations

import subprocess
import sys

LIMIT_S = 60

LATE = """
import _thread, os, time

real = _thread.start_new_thread

def begins_late(function, arguments):
    def begin():
        time.sleep(0.1)
        function(*arguments)
    return real(begin, ())

_thread.start_new_thread = begins_late

from mcp_probe.capture.worker import Worker

Worker("late", lambda: os.write(1, b"began")).start()
"""
FORKED = """
import os
from mcp_probe.capture import worker

worker._thread.start_new_thread = lambda function, arguments: 0  # one that never begins
worker.Worker("never", lambda: None).start()
child = os.fork()
if child:
    os.waitpid(child, 0)
    os._exit(0)
print(worker.workers_alive(), len(worker._beginning), flush=True)
"""


def said_by(source: str) -> str:
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=LIMIT_S)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_a_process_ends_only_once_its_threads_have_begun() -> None:
    """CPython 3.11.2 crashes otherwise: 8 of 150 processes that start 60 threads and end at once."""
    assert said_by(LATE) == "began"


def test_a_forked_child_waits_for_none_of_its_parents() -> None:
    assert said_by(FORKED) == "0 0\n"
