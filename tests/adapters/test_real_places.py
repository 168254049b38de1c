"""The line of a slow tool, for servers that are started in every usual way: the user's own line, or none.

The ways that need another package are skipped by name where it is absent. Run with them by
``uv pip install nest_asyncio cython setuptools`` in an environment with mcp 2.x, and this file there.
"""

from __future__ import annotations

import subprocess
import sys
import zipapp
from collections.abc import Callable
from pathlib import Path

import pytest

from mcp_probe.capture import places
from mcp_probe.capture.places import is_plumbing, line_among
from mcp_probe.model import StepRecord
from tests.adapters.raw_stdio import raw_client
from tests.adapters.serving import ROOT, frames_of

MS = 1_000_000
TOOL = """\
import time


async def slow() -> str:
    time.sleep(0.3)
    return "slow"
"""
SLEEP_LINE = 5
SERVER = """\
import os
import anyio
import mcp_probe
from mcp.server.mcpserver import MCPServer
from {tools} import slow


def main():
    server = MCPServer("places")
    server.tool()(slow)
    mcp_probe.attach(server, record=os.environ["RECORDING"])
    {run}
"""
PLAIN = "anyio.run(server.run_stdio_async, backend=os.environ.get('BACKEND', 'asyncio'))"
NESTED = """\
import asyncio
import time

import nest_asyncio


async def inner() -> str:
    time.sleep(0.3)
    return "slow"


async def slow() -> str:
    nest_asyncio.apply()
    return asyncio.get_running_loop().run_until_complete(inner())
"""
NESTED_LINE = 8
UVLOOP = "anyio.run(server.run_stdio_async, backend_options={'use_uvloop': True})"


def package_in(folder: Path, run: str = PLAIN) -> Path:
    """A package with a server; returns the file of its tool."""
    package = folder / "placed"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text("from placed.server import main\nmain()\n")
    (package / "server.py").write_text(SERVER.format(tools="placed.tools", run=run))
    (package / "tools.py").write_text(TOOL)
    return package / "tools.py"


def step_of(command: list[str], path: Path, recording: Path, **environment: str) -> StepRecord:
    """The slow step of the server's tool."""
    paths = {"PYTHONPATH": f"{ROOT}:{path}", "RECORDING": str(recording), **environment}
    with raw_client([sys.executable, *command], paths) as client:
        client.call(1, "slow")
        client.wait(1)
    frames = frames_of(recording)
    steps = [frame for frame in frames if isinstance(frame, StepRecord) and not frame.running]
    (step,) = [step for step in steps if step.operation == "slow" and step.end_ns - step.start_ns > 250 * MS]
    return step


def as_module(folder: Path) -> list[str]:
    return ["-m", "placed"]


def as_zipapp(folder: Path) -> list[str]:
    zipapp.create_archive(folder, folder.parent / "placed.pyz", main="placed.server:main")
    return [str(folder.parent / "placed.pyz")]


def as_entry_point(folder: Path) -> list[str]:
    script = folder.parent / "placed-server"
    script.write_text("import sys\nfrom placed.server import main\nif __name__ == '__main__':\n    sys.exit(main())\n")
    return [str(script)]


def by_runpy(folder: Path) -> list[str]:
    return ["-c", "import runpy; runpy.run_module('placed', run_name='__main__')"]


@pytest.mark.parametrize("start", [as_module, as_zipapp, as_entry_point, by_runpy])
def test_the_line_is_the_tools_own_however_its_server_is_started(
    start: Callable[[Path], list[str]], tmp_path: Path
) -> None:
    tools = package_in(tmp_path / "source")
    command = start(tmp_path / "source")
    inside = tmp_path / "placed.pyz/placed/tools.py" if start is as_zipapp else tools
    path = tmp_path / "nothing" if start is as_zipapp else tmp_path / "source"
    step = step_of(command, path, tmp_path / "recording")
    assert (step.file, step.line, step.function) == (str(inside), SLEEP_LINE, "slow")


@pytest.mark.parametrize("needed", ["trio", "uvloop"])
def test_the_line_is_the_tools_own_on_every_loop(needed: str, tmp_path: Path) -> None:
    pytest.importorskip(needed)
    tools = package_in(tmp_path, UVLOOP if needed == "uvloop" else PLAIN)
    backend = "trio" if needed == "trio" else "asyncio"
    step = step_of(["-m", "placed"], tmp_path, tmp_path / "recording", BACKEND=backend)
    assert (step.file, step.line) == (str(tools), SLEEP_LINE)


def test_the_line_is_the_tools_own_in_a_loop_inside_the_loop(tmp_path: Path) -> None:
    pytest.importorskip("nest_asyncio")
    tools = package_in(tmp_path)
    tools.write_text(NESTED)
    step = step_of(["-m", "placed"], tmp_path, tmp_path / "recording")
    assert (step.file, step.line, step.function) == (str(tools), NESTED_LINE, "inner")


def test_a_tool_without_a_file_has_no_line(tmp_path: Path) -> None:
    """Its innermost line that can be seen is the SDK's, which only calls it."""
    tools = package_in(tmp_path)
    tools.write_text(f"exec({TOOL!r})\n")
    step = step_of(["-m", "placed"], tmp_path, tmp_path / "recording")
    assert (step.file, step.line) == (None, None)


FROZEN = """\
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path


class Frozen:
    def find_spec(self, name, path=None, target=None):
        return ModuleSpec(name, self, origin="frozen") if name == "placed.tools" else None

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        source = Path(__file__).with_name("tools.txt").read_text()
        exec(compile(source, "{filename}", "exec"), module.__dict__)


sys.meta_path.insert(0, Frozen())
"""


@pytest.mark.parametrize("filename", ["<frozen placed.tools>", "tools.py"])
def test_a_frozen_tool_has_its_own_line_or_none(filename: str, tmp_path: Path) -> None:
    """CPython names a frozen module ``<frozen …>``; PyInstaller keeps the path below the folder it was built in."""
    tools = package_in(tmp_path)
    tools.rename(tools.with_name("tools.txt"))
    tools.with_name("__init__.py").write_text(FROZEN.replace("{filename}", filename))
    step = step_of(["-m", "placed"], tmp_path, tmp_path / "recording")
    assert (step.file, step.line) == ((None, None) if filename.startswith("<") else (filename, SLEEP_LINE))


def test_code_of_python_and_of_the_sdk_is_not_the_users_where_all_paths_are_cut(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    monkeypatch.setattr(places, "_kinds", {})
    frames = [("selectors.py", 1), ("subprocess.py", 2), ("tools.py", 3), ("mcp/server/lowlevel/server.py", 4)]
    assert line_among(frames) == ("tools.py", 3)
    assert [is_plumbing(file) for file, _ in frames] == [True, True, False, True]
    assert line_among([("mcp_probe/capture/worker.py", 5), *frames]) is None


def test_a_compiled_tool_has_no_line(tmp_path: Path) -> None:
    pytest.importorskip("Cython")
    pytest.importorskip("setuptools")
    tools = package_in(tmp_path)
    subprocess.run(
        [sys.executable, "-m", "Cython.Build.Cythonize", "-i", "-3", str(tools)],
        cwd=tmp_path, check=True, capture_output=True,
    )  # fmt: skip
    tools.unlink()
    step = step_of(["-m", "placed"], tmp_path, tmp_path / "recording")
    assert (step.file, step.line) == (None, None)
