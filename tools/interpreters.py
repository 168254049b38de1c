"""The CPythons of this machine: those on PATH, those beside this one, and those that `tools/*.sh` unpack on demand."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VERSIONS = ("3.10", "3.11", "3.12", "3.13", "3.14", "3.15")
FETCHED = ("3.14", "3.15")
"""What `tools/cpython.sh` can unpack where the machine has none."""
ASKS = """
import json, sys, sysconfig
is_free_threaded = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
print(json.dumps([list(sys.version_info[:3]), sysconfig.get_path("include"), is_free_threaded]))
"""


class Absent(Exception):
    """This machine has no such interpreter; the message says why."""


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A CPython that runs here."""

    command: str
    version: str
    """With its patch level: ``3.14.8``."""
    include: Path


@cache
def interpreter(version: str, unpack: bool = True) -> Interpreter:
    """CPython ``version`` (``"3.14"``). Takes a minute where it must be unpacked first.

    A free-threaded one (``"3.14t"``) must be on PATH already: no package here has one, so build it from source.

    Raises:
        Absent: There is none, and none could be unpacked.
    """
    on_path = shutil.which(f"python{version}")
    beside = sorted(Path(sys.base_prefix).parent.glob(f"{version}.*/bin/python{version}"))
    unpacked = ROOT / ".tools" / "python" / version / "bin" / f"python{version}"
    for candidate in (*([Path(on_path)] if on_path else []), *beside, unpacked):
        if found := asked(str(candidate), version):
            return found
    if version not in FETCHED or not unpack:
        raise Absent(f"no CPython {version} on this machine")
    _unpack("cpython.sh", str(unpacked.parent.parent), version)
    if found := asked(str(unpacked), version):
        return found
    raise Absent(f"what tools/cpython.sh unpacked is no CPython {version}")


@cache
def aarch64() -> Interpreter:
    """CPython 3.11 for aarch64 under qemu.

    Raises:
        Absent: It could not be unpacked.
    """
    folder = ROOT / ".tools" / "aarch64"
    _unpack("aarch64.sh", str(folder))
    if found := asked(str(folder / "python"), "3.11"):
        return found
    raise Absent("what tools/aarch64.sh unpacked does not run")


def _unpack(script: str, *arguments: str) -> None:
    command = [str(ROOT / "tools" / script), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    if done.returncode:
        told = (done.stderr or done.stdout).strip().splitlines()
        raise Absent(f"tools/{script} could not unpack it: {told[-1] if told else f'exit {done.returncode}'}")


def asked(command: str, version: str) -> Interpreter | None:
    """What ``command`` is, ``None``: not this version. What is on PATH may be a shim for one that is not there."""
    try:
        done = subprocess.run([command, "-c", ASKS], capture_output=True, text=True, timeout=60)
    except OSError:
        return None
    if done.returncode:
        return None
    numbers, include, is_free_threaded = json.loads(done.stdout)
    if "{}.{}".format(*numbers) + ("t" if is_free_threaded else "") != version:
        return None
    return Interpreter(command, ".".join(map(str, numbers)), Path(include))
