"""Environments of CPython 3.14 and 3.15 with an SDK and nothing of the probe: what `mcp-probe attach` enters.

python -m tests.launch.attach_cells      makes them all (`make attach-cells`), says which it could not
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tools.interpreters import ROOT, Absent, interpreter
from tools.pythons import made

LOCKS = {"mcp 2.3": "cell-mcp2.3", "mcp 1.30": "mcp1"}
VERSIONS = ("3.14", "3.15")


def folder_of(version: str, sdk: str) -> Path:
    return ROOT / ".cells" / f"attach-{version}-{LOCKS[sdk]}"


def python_of(version: str, sdk: str = "mcp 2.3") -> Path:
    """Its interpreter. Skips the test, by name, where it was not made."""
    folder = folder_of(version, sdk)
    if not (folder / "made").exists():
        pytest.skip(f"no CPython {version} with {sdk} here: `make attach-cells` makes it")
    return folder / "bin" / "python"


def make(version: str, sdk: str) -> Path:
    """Raises: Absent where there is no such interpreter, or the SDK does not install on it."""
    return made(folder_of(version, sdk), interpreter(version).command, LOCKS[sdk])


def main() -> int:
    for version in VERSIONS:
        for sdk in LOCKS:
            try:
                print(f"make: {make(version, sdk).parent.parent}")
            except Absent as exc:
                print(f"make: no CPython {version} with {sdk}: {exc}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
