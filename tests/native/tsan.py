"""Runs the loop and memory tests under ThreadSanitizer: ``python -m tests.native.tsan [PYTEST ARGUMENT ...]``.

The accelerator is built with ``-fsanitize=thread`` into a copy of the package and its tests. CPython is not, so its own
accesses are not looked at; its locks are. Ends with 0 where nothing was reported, with 1 where something was or a test
failed, and with 0 and the reason where this machine cannot run it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PLACE = ROOT / ".cache" / "tsan"
FLAGS = ("-shared", "-fPIC", "-std=c11", "-O1", "-g", "-fsanitize=thread", "-Wno-tsan")
TESTS = ("loops", "handles", "poll", "readings", "memory")
PROGRAMS = (("endurance", "threads", "50"), ("endurance", "callbacks", "300"), ("memory_torture", "toggle", "5"))


def build(compiler: str) -> None:
    """A copy of the package, with the accelerator built for this."""
    shutil.rmtree(PLACE, ignore_errors=True)
    leave_out = shutil.ignore_patterns("*.so", "__pycache__")
    for name in ("mcp_probe", "tests"):
        shutil.copytree(ROOT / name, PLACE / name, ignore=leave_out)
    shutil.copy(ROOT / "pyproject.toml", PLACE)
    include, suffix = sysconfig.get_path("include"), sysconfig.get_config_var("EXT_SUFFIX")
    for name in ("core", "memory"):
        source, target = (
            PLACE / "mcp_probe" / "native" / f"{name}.c",
            PLACE / "mcp_probe" / "native" / f"_{name}{suffix}",
        )
        subprocess.run([compiler, *FLAGS, "-I", include, str(source), "-o", str(target)], check=True)


def main(given: list[str]) -> int:
    """See the module's text."""
    compiler = shutil.which("gcc")
    if compiler is None:
        print("tsan: not run: there is no gcc here")
        return 0
    asked = subprocess.run([compiler, "-print-file-name=libtsan.so"], capture_output=True, text=True, check=True)
    library = Path(asked.stdout.strip())
    if not library.is_absolute():
        print("tsan: not run: this gcc has no libtsan")
        return 0
    build(compiler)
    reports = PLACE / "reports"
    reports.mkdir()
    suppressions = ROOT / "tests" / "native" / "tsan.supp"
    options = f"log_path={reports / 'report'} history_size=4 allocator_may_return_null=1 suppressions={suppressions}"
    environment = {**os.environ, "LD_PRELOAD": str(library), "TSAN_OPTIONS": options, "MCP_PROBE_NATIVE": ""}
    works = "from mcp_probe import native; print(native.state(), native.memory is not None)"
    seen = subprocess.run([sys.executable, "-c", works], cwd=PLACE, env=environment, capture_output=True, text=True)
    if seen.stdout.strip() != "active True":
        print(f"tsan: not run: {(seen.stderr or seen.stdout).strip().splitlines()[-1:]}")
        return 0
    files = [f"tests/native/test_{name}.py" for name in TESTS]
    commands = [["-m", f"tests.native.{program}", *arguments] for program, *arguments in PROGRAMS]
    commands.append(["-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:faulthandler", *files, *given])
    failed = False
    for command in commands:
        failed |= subprocess.run([sys.executable, *command], cwd=PLACE, env=environment).returncode != 0
    for report in sorted(reports.iterdir()):
        print(report.read_text(errors="replace"))
        failed = True
    print("tsan: something was reported, or failed" if failed else "tsan: nothing was reported")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
