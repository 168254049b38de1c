"""Environments of several CPythons with one SDK, for `mcp-probe bench pythons`.

python -m tools.pythons [COMMAND ...]   3.11 to 3.14, and those of COMMAND, into .envs/ (`make pythons`)

A machine may have one version twice: built by its owner and by its distribution. Both are made.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from tools.interpreters import ROOT, Absent, Interpreter, asked, interpreter
from tools.matrix import run, uv

LOCK = "cell-mcp2.3"
VERSIONS = ("3.11", "3.12", "3.13", "3.14")


def made(folder: Path, command: str, lock: str) -> Path:
    """Its interpreter, with what ``lock`` in requirements/ has, made where it is not there yet.

    Raises: Absent where the lock does not install on it.
    """
    if not (folder / "made").exists():
        shutil.rmtree(folder, ignore_errors=True)
        run([command, "-m", "venv", "--without-pip", folder])
        python = folder / "bin" / "python"
        locked = ["--require-hashes", "--requirements", str(ROOT / "requirements" / f"{lock}.txt")]
        run([uv(), "pip", "install", "--quiet", "--compile-bytecode", "--python", python, *locked])
        (folder / "made").touch()
    return folder / "bin" / "python"


def found(version: str) -> list[Interpreter]:
    """Those of this version: the first that tools/ finds, and the system's own where that is another one.

    Raises: Absent where there is none.
    """
    first = interpreter(version)
    own = asked(f"/usr/bin/python{version}", version)
    return [first] if own is None or own.version == first.version else [first, own]


def _keep_bytecode(python: Path) -> None:
    """Of the standard library, which tools/cpython.sh unpacks without: else each start of a server compiles it."""
    library = Path(run([python, "-c", "import sysconfig; print(sysconfig.get_path('stdlib'))"]).strip())
    if library.is_relative_to(ROOT):
        run([python, "-m", "compileall", "-q", "-x", "test", library])


def main(commands: list[str]) -> int:
    """Says which it could not make, and why."""
    for version in VERSIONS:
        try:
            builds = found(version)
            builds += [one for command in commands if (one := asked(command, version)) is not None]
            for one in builds:
                python = made(ROOT / ".envs" / f"python{one.version}", one.command, LOCK)
                _keep_bytecode(python)
                print(f"make: {python.parent.parent}")
        except Absent as exc:
            print(f"make: no CPython {version} with {LOCK.removeprefix('cell-')}: {exc}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
