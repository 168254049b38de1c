"""Processes that do nothing but compute, until the test that started them is done with them or has ended."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

HOG = "import os; parent = os.getppid()\nwhile os.getppid() == parent: pass"


@contextmanager
def hogs(count: int) -> Iterator[None]:
    """So many of them run meanwhile, on the CPUs that the caller may use."""
    running = [subprocess.Popen([sys.executable, "-S", "-E", "-c", HOG]) for _ in range(count)]
    try:
        yield
    finally:
        for hog in running:
            hog.kill()
            hog.wait()
