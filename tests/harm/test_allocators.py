"""The tests of the accelerator pass under every allocator that Python can be started with."""

from __future__ import annotations

import subprocess
import sys

import pytest

from mcp_probe import native
from tests.harm.running import ROOT, environment

STARTS: dict[str, tuple[dict[str, str], list[str]]] = {
    "PYTHONMALLOC=malloc": ({"PYTHONMALLOC": "malloc"}, []),
    "PYTHONMALLOC=debug": ({"PYTHONMALLOC": "debug"}, []),
    "PYTHONMALLOC=malloc_debug": ({"PYTHONMALLOC": "malloc_debug"}, []),
    "-X dev": ({}, ["-X", "dev"]),
}


@pytest.mark.endurance
@pytest.mark.timeout(900)
@pytest.mark.skipif(native.core is None, reason=f"no accelerator: {native.absence}")
@pytest.mark.parametrize("start", STARTS)
def test_the_accelerators_tests_pass_under_any_allocator(start: str) -> None:
    extra, options = STARTS[start]
    command = [sys.executable, *options, "-m", "pytest", "-q", "--tb=line", "-p", "no:cacheprovider", "tests/native"]
    done = subprocess.run(
        command, cwd=ROOT, env=environment("native", extra), capture_output=True, text=True, timeout=850, check=False
    )
    failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    assert done.returncode == 0, "\n".join(failed or [done.stdout[-3000:], done.stderr[-3000:]])
