"""``python -m tests.harm.tsan [PYTEST_ARG...]``: the accelerator's tests under ThreadSanitizer.

Builds the accelerator with ``-fsanitize=thread`` in a copy of the tree, so that the one in use stays as it is.
The tests run with the sanitizer loaded first. Only the accelerator is instrumented: its races are what is reported.
Ends with 0 where nothing was found, 1 where something was, and says why where it cannot run.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TESTS = ("tests/native", "tests/harm/test_parking.py")
COPIED = ("mcp_probe", "tests", "pyproject.toml")
SHOWN_LETTERS = 20_000


def why_not() -> tuple[str, str, str]:
    """(compiler, the sanitizer's library, why it cannot run here or an empty text)."""
    compiler = shutil.which("gcc")
    if compiler is None:
        return "", "", "gcc is not on PATH"
    found = subprocess.run([compiler, "-print-file-name=libtsan.so"], capture_output=True, text=True, check=True)
    library = found.stdout.strip()
    if not os.path.isabs(library):
        return compiler, "", "gcc has no libtsan; install it (Debian: libtsan2, part of gcc)"
    loaded = subprocess.run([sys.executable, "-c", ""], env=_environment(library, "/dev/null"), check=False)
    if loaded.returncode:
        return compiler, library, f"Python does not start with {Path(library).name} loaded first (try `setarch -R`)"
    return compiler, library, ""


def _environment(library: str, log: str) -> dict[str, str]:
    options = f"log_path={log}:exitcode=0:report_signal_unsafe=0"
    return {**os.environ, "LD_PRELOAD": library, "TSAN_OPTIONS": options, "PYTHONPATH": "", "MCP_PROBE_NATIVE": "1"}


def build(compiler: str, tree: Path) -> None:
    """The accelerator of ``tree``, instrumented. Raises: CalledProcessError."""
    source = tree / "mcp_probe" / "native" / "core.c"
    flags = ["-std=c11", "-O1", "-g", "-fsanitize=thread", "-fPIC", "-shared", f"-I{sysconfig.get_path('include')}"]
    subprocess.run([compiler, *flags, str(source), "-o", str(source.with_name("_core.abi3.so"))], check=True)


def main(arguments: list[str]) -> int:
    """Build, run, and tell."""
    compiler, library, absence = why_not()
    if absence:
        print(f"tsan: not run: {absence}")
        return 1
    with tempfile.TemporaryDirectory(prefix="tsan-") as folder:
        tree = Path(folder) / "tree"
        tree.mkdir()
        for name in COPIED:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
            else:
                shutil.copy(ROOT / name, tree)
        build(compiler, tree)
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *(arguments or TESTS)]
        ended = subprocess.run(command, cwd=tree, env=_environment(library, f"{folder}/race"), check=False).returncode
        reports = "\n".join(path.read_text(errors="replace") for path in sorted(Path(folder).glob("race*")))
    races = reports.count("WARNING: ThreadSanitizer")
    print(reports[:SHOWN_LETTERS])
    print(f"tsan: {races} reports, pytest ended with {ended}")
    return 1 if races or ended else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
