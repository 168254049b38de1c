"""Called once at the end of a process, however multiprocessing made it."""

from __future__ import annotations

import gc
import multiprocessing.util
import os
import subprocess
import sys
import weakref
from pathlib import Path

import pytest

from mcp_probe.adapters.exits import call_at_exit, forget_exit

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import multiprocessing, os, sys
from mcp_probe.adapters.exits import call_at_exit, forget_exit

class Probe:
    def __init__(self, name):
        self.name = name
        self.pid = os.getpid()
        call_at_exit(self.finish)

    def finish(self):
        os.write(1, f"{self.name} {self.pid == os.getpid()}\\n".encode())

def work():
    global late, taken_back
    late = Probe("late")
    taken_back = Probe("taken back")
    forget_exit(taken_back.finish)

if __name__ in ("__main__", "__mp_main__"):
    early = Probe("early")  # in a child that was spawned: while its main module is prepared
    if sys.argv[1] == "fork":
        os.register_at_fork(after_in_child=lambda: globals().update(forked=Probe("forked")))
if __name__ == "__main__":
    child = multiprocessing.get_context(sys.argv[1]).Process(target=work)
    child.start()
    child.join()
    os.write(1, b"parent\\n")
"""


@pytest.mark.parametrize(
    ("method", "in_child"),
    [
        ("fork", ["forked True", "late True"]),
        ("spawn", ["early True", "late True"]),
        ("forkserver", ["early True", "late True"]),
    ],
)
def test_a_child_of_multiprocessing_calls_what_is_its_own_and_the_parent_what_is_its_own(
    method: str, in_child: list[str], tmp_path: Path
) -> None:
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    ended = subprocess.run(
        [sys.executable, str(script), method],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=60,
    )
    assert ended.stderr == ""
    child, _, parent = ended.stdout.partition("parent\n")
    assert sorted(child.splitlines()) == in_child
    assert parent == "early True\n"


def test_what_is_over_is_not_kept_alive() -> None:
    class Probe:
        def finish(self) -> None:
            """Never called: taken back."""

    probe = Probe()
    kept = len(multiprocessing.util._afterfork_registry)  # type: ignore[attr-defined]
    call_at_exit(probe.finish)
    forget_exit(probe.finish)
    gone = weakref.ref(probe)
    del probe
    gc.collect()
    assert gone() is None
    assert len(multiprocessing.util._afterfork_registry) <= kept  # type: ignore[attr-defined]
