"""The accelerator of this tree for a CPython that is not the one of its environment."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from tools.interpreters import ROOT, Absent, Interpreter

SETUPTOOLS = str(Path(str(find_spec("setuptools").origin)).parent.parent)  # type: ignore[union-attr]
BUILDS = "import setuptools, runpy; runpy.run_path('setup.py', run_name='__main__')"


def building(python: Interpreter) -> dict[str, str]:
    """The environment in which ``python`` builds this project, with the setuptools of the one that calls.

    Raises:
        Absent: There is no compiler, or the interpreter has no headers.
    """
    if shutil.which("cc") is None:
        raise Absent("no compiler is here")
    if not (python.include / "Python.h").exists():
        raise Absent(f"CPython {python.version} is here without its headers")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("MCP_PROBE", "PYTHON"))}
    # Debian's pyconfig.h looks for another one beside its own folder.
    return {**kept, "PYTHONPATH": SETUPTOOLS, "CC": "cc", "CFLAGS": f"-I{python.include.parent}"}


@cache
def build_in_place(python: Interpreter) -> None:
    """Compile the extensions beside their sources; each has the interpreter's version in its name.

    Raises:
        Absent: It cannot be built here.
    """
    with tempfile.TemporaryDirectory() as work:
        command = [python.command, "-W", "ignore", "-c", BUILDS, "-q", "build_ext", "--inplace", "--build-temp", work]
        done = subprocess.run(command, cwd=ROOT, env=building(python), capture_output=True, text=True, timeout=300)
    if done.returncode:
        raise Absent(f"setup.py failed with CPython {python.version}: {done.stderr[-300:]}")
