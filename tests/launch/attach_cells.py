"""Environments of each CPython with an SDK and nothing of the probe: what `mcp-probe attach` enters, what others watch.

python -m tests.launch.attach_cells      makes them all (`make attach-cells`), says which it could not
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tools.interpreters import ROOT, Absent, interpreter
from tools.matrix import run, uv
from tools.pythons import made

LOCKS = {"mcp 2.3": "cell-mcp2.3", "mcp 1.30": "mcp1"}
VERSIONS = ("3.10", "3.12", "3.13", "3.14", "3.15")
LOOPS = ("outcome", "sniffio", "sortedcontainers", "trio", "uvloop")
"""What loops need, which the lock of mcp 1.30 lacks. The other lock has their hashes."""


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
    folder = folder_of(version, sdk)
    python = made(folder, interpreter(version).command, LOCKS[sdk])
    if not (folder / "loops.txt").exists():
        loops = folder / "loops.tmp"
        loops.write_text(hashed(LOOPS), "utf-8")
        installs: list[str | Path] = [uv(), "pip", "install", "--quiet", "--python", python]
        run([*installs, "--require-hashes", "--no-deps", "--requirements", loops])
        loops.rename(folder / "loops.txt")
    return python


def hashed(names: Sequence[str]) -> str:
    """The lines of these packages in the lock of mcp 2.3."""
    text = (ROOT / "requirements" / f"{LOCKS['mcp 2.3']}.txt").read_text("utf-8")
    packages = re.split(r"\n(?=\w)", text)
    return "\n".join(lines for lines in packages if lines.partition("==")[0] in names) + "\n"


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
