"""Loading the accelerator: found and active, or absent for a reason that is told, and never a reason to fail."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mcp_probe import native
from mcp_probe.aggregate.fold import Fold
from mcp_probe.launch.doctor import diagnose_command
from mcp_probe.launch.sight import look
from mcp_probe.report.console import render
from mcp_probe.session import Probe
from tests.kept import keep
from tests.native.twins import needs_the_accelerator

PACKAGE = Path(native.__file__).parent.parent
SAYS = """
import json
from mcp_probe import native
from mcp_probe.record.raw import RawRequest
from mcp_probe.capture.loop_monitor import EVERYTHING, LoopMonitor
from mcp_probe.capture.hub import Hub
hub = Hub()
monitor = hub.add_monitor(lambda sink: LoopMonitor(sink, "asyncio", EVERYTHING))
raw = RawRequest(1, "request", "tools/call", "t", "stdio")
monitor.begin(raw, 1, 2, 3, 0, 4)
monitor.close(5, False)
print(json.dumps([native.state(), list(map(list, raw.marks)), native.core is None]))
hub.close()  # its thread would else run into the end of the interpreter
"""


def told_by(folder: Path, **environment: str) -> Any:
    """What the package in ``folder`` says of itself, and does, in a fresh interpreter."""
    done = subprocess.run(
        [sys.executable, "-c", SAYS],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder), "MCP_PROBE_NATIVE": "", **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """A copy of the package without its accelerator."""
    leave_out = shutil.ignore_patterns("__pycache__", "_core.*", "_memory.*")
    shutil.copytree(PACKAGE, tmp_path / "mcp_probe", ignore=leave_out)
    return tmp_path


SAME = [[1, 2, 2, 3, 4, 5, 0]]


def test_what_was_not_built_is_said_and_python_does_the_same(copied: Path) -> None:
    assert told_by(copied) == ["not built here", SAME, True]


def a_text(path: Path) -> None:
    path.write_text("left by something else")


def an_empty_file(path: Path) -> None:
    path.touch()


def a_folder(path: Path) -> None:
    path.mkdir()


def another_library(path: Path) -> None:
    import _ctypes

    shutil.copy(_ctypes.__file__, path)


@pytest.mark.parametrize("make", [a_text, an_empty_file, another_library])
def test_a_binary_that_does_not_fit_is_said_and_python_does_the_same(
    make: Callable[[Path], None], copied: Path
) -> None:
    make(copied / "mcp_probe" / "native" / "_core.abi3.so")
    state, marks, absent = told_by(copied)
    assert state.startswith("cannot be loaded (ImportError: ")
    assert str(copied) not in state
    assert (marks, absent) == (SAME, True)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("", "what was built is of another version (no PipeLooker)"),
        ("raise RuntimeError('it fails')", "cannot be loaded (RuntimeError: it fails)"),
        ("now_ns = lambda: 0\ndef __getattr__(name): return None", "its clock is not the one that Python reads"),
    ],
)
def test_a_module_of_another_version_is_said_and_python_does_the_same(source: str, said: str, copied: Path) -> None:
    (copied / "mcp_probe" / "native" / "_core.py").write_text(source)
    assert told_by(copied) == [said, SAME, True]


ON_AN_UNKNOWN_LOOP = """
from contextvars import copy_context
from types import SimpleNamespace
from mcp_probe.capture.current import CURRENT
from mcp_probe.capture.live_requests import LiveRequests
from mcp_probe.capture.messages import Channel
channel = Channel(LiveRequests(), "stdio", lambda: (1, 2, 3))
context = copy_context()
channel.received(SimpleNamespace(message=SimpleNamespace(method="ping", id=1, params=None)), context)
assert context[CURRENT].method == "ping"
"""


def test_messages_are_followed_where_no_loop_was_ever_known() -> None:
    done = subprocess.run(
        [sys.executable, "-c", ON_AN_UNKNOWN_LOOP], cwd=PACKAGE.parent, capture_output=True, timeout=120
    )
    assert (done.returncode, done.stderr) == (0, b"")


@needs_the_accelerator
@pytest.mark.parametrize("word", ["0", "off", "no", "False", " 0 "])
def test_it_is_switched_off_by_the_environment(word: str) -> None:
    assert told_by(PACKAGE.parent, MCP_PROBE_NATIVE=word) == ["switched off by MCP_PROBE_NATIVE", SAME, True]


@needs_the_accelerator
@pytest.mark.parametrize("word", ["", "1", "on"])
def test_else_it_is_active(word: str) -> None:
    assert told_by(PACKAGE.parent, MCP_PROBE_NATIVE=word) == ["active", SAME, False]


def test_an_implementation_that_is_not_known_gets_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "implementation", SimpleNamespace(name="pypy"))
    monkeypatch.delenv("MCP_PROBE_NATIVE", raising=False)
    assert native._load() == (None, "not known to fit pypy")


WITHOUT_ITS_HOOKS = """
from mcp_probe import native
from mcp_probe.record.raw import RawRequest
raw = RawRequest(1, "request", "tools/call", "t", "stdio")
raw.ended = True
print(native.state(), native.memory, native.memory_absence, raw.memory(), raw.keep_memory().memory(), sep="|")
"""


@needs_the_accelerator
def test_the_accelerator_works_where_its_memory_hooks_are_missing(copied: Path) -> None:
    (core,) = (PACKAGE / "native").glob("_core*" + sysconfig.get_config_var("EXT_SUFFIX"))
    shutil.copy(core, copied / "mcp_probe" / "native")
    assert told_by(copied) == ["active", SAME, False]
    environment = {**os.environ, "PYTHONPATH": str(copied), "MCP_PROBE_NATIVE": ""}
    command = [sys.executable, "-c", WITHOUT_ITS_HOOKS]
    done = subprocess.run(command, cwd=copied, env=environment, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("active|None|not built here|None|None\n", "")


def test_a_free_threaded_interpreter_gets_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sysconfig, "get_config_var", lambda name: 1 if name == "Py_GIL_DISABLED" else None)
    monkeypatch.delenv("MCP_PROBE_NATIVE", raising=False)
    assert native._load() == (None, "not known to fit a free-threaded interpreter")


@needs_the_accelerator
@pytest.mark.parametrize("environment", ["field-git", "mcp1"])
def test_it_is_loaded_into_the_interpreter_of_a_command(
    environment: str, env_python: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MCP_PROBE_NATIVE", raising=False)
    found = diagnose_command([str(env_python(environment)), "-c", ""])
    assert found.hooks["accelerator"] == "active"


@pytest.mark.parametrize("absence", ["", "not built here"])
def test_doctor_header_summary_and_report_say_whether_it_is_active(
    absence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "absence", absence)
    state = absence or "active"
    assert look().hooks["accelerator"] == state
    probe = Probe()
    kept = keep(probe)
    asyncio.run(probe.profile(works)())
    summary = probe.snapshot()
    probe.detach()
    assert kept.header().accelerator == summary.probe.accelerator == state
    assert summary.to_json()["probe"]["accelerator"] == state
    text = " ".join(render(summary, width=100, color=False, ascii_only=True).split())
    assert ("C accelerator not in use" in text) == bool(absence)
    assert ("C accelerator in use" in text) == (not absence) and absence in text


async def works() -> None:
    """Something to profile."""


def test_a_recording_from_before_there_was_one_does_not_know() -> None:
    assert Fold().summary().probe.accelerator is None
