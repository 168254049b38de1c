"""`make canary`: the truths and the safety tests on the newest of everything upstream, pre-releases too.

Nothing is pinned here on purpose: it tells what will break before a user finds it. Fills docs/compatibility.md.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from tools.compatibility import table, write
from tools.interpreters import ROOT, VERSIONS, Absent, Interpreter, interpreter
from tools.matrix import CELLS, run, uv

WATCHED = (
    "mcp",
    "anyio",
    "fastmcp",
    "uvicorn",
    "starlette",
    "opentelemetry-api",
    "opentelemetry-sdk",
    "opentelemetry-exporter-otlp",
    "opentelemetry-instrumentation",
    "opentelemetry-distro",
    "uvloop",
    "trio",
)
BESIDE = (
    *("pytest", "pytest-timeout", "pytest-xdist", "hypothesis", "httpx[http2]", "packaging", "setuptools", "rich"),
    *("pympler", "matplotlib", "hypercorn", "httptools", "h11"),
)
"""What the tests stand on: these are released versions."""
TESTS = ("tests/capture/test_blame_truth.py", "tests/safety", "tests/adapters")
LIMIT_S = 3600
FAILURE = re.compile(r"(?:FAILED|ERROR) ([^\s\[]+(?:\[.*?\](?= - |$))?)(?: - (.*))?")
"""A line of pytest's summary; the values in a test's name may have spaces."""


@dataclass(frozen=True, slots=True)
class Broken:
    """A test that did not pass, and the first line of why."""

    test: str
    why: str


def made(python: Interpreter) -> tuple[Path, dict[str, str]]:
    """A fresh environment of the newest, with this tree in it; {name: version}."""
    folder = CELLS / "canary"
    run([python.command, "-m", "venv", "--clear", "--without-pip", folder])
    own = folder / "bin" / "python"
    install: list[str | Path] = [uv(), "pip", "install", "--quiet", "--upgrade", "--python", own]
    run([*install, *BESIDE])
    # A pre-release of a whole tree is seldom one that fits together: only what is watched may be one.
    wanted = [f"{name}>=0.0.dev0" for name in WATCHED]
    run([*install, "--prerelease=if-necessary-or-explicit", *wanted])
    run([*install, "--no-cache", "--no-deps", "--no-build-isolation", "--editable", ROOT])
    listed = json.loads(run([uv(), "pip", "list", "--format", "json", "--python", own]))
    return own, {one["name"]: one["version"] for one in listed if one["name"] in WATCHED}


def pinned() -> dict[str, str]:
    lock = (ROOT / "requirements" / "dev.txt").read_text("utf-8")
    return {
        name: version for name, version in re.findall(r"^([a-z0-9-]+)==([^ ]+)", lock, re.MULTILINE) if name in WATCHED
    }


def failures(lines: Sequence[str]) -> list[Broken]:
    """The tests that pytest's output names."""
    found = [FAILURE.match(line) for line in lines]
    return [Broken(one[1], (one[2] or "")[:200]) for one in found if one]


def tested(python: Path, tests: Sequence[str], jobs: int = 1) -> tuple[list[Broken], str]:
    """What broke, and pytest's last line. A warning is no failure here: upstream may deprecate what it likes."""
    command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "default", "-rfE", "--tb=line", *tests]
    command += ["-n", str(jobs)] if jobs > 1 else []
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("MCP_PROBE", "PYTEST"))}
    kept["COLUMNS"] = "400"  # pytest leaves the reason out where the line would be longer
    done = subprocess.run(list(map(str, command)), cwd=ROOT, env=kept, capture_output=True, text=True, timeout=LIMIT_S)
    lines = done.stdout.strip().splitlines() or [done.stderr.strip()[-300:]]
    found, last = failures(lines), lines[-1].strip("= ")
    if bool(done.returncode) != bool(found):
        found = [Broken(test, f"pytest ended with {done.returncode}: {last}") for test in tests]
    return found, last


def section(python: Interpreter, versions: dict[str, str], broken: Sequence[Broken], last: str) -> list[str]:
    known = pinned()
    rows = [(name, version, known.get(name, "—")) for name, version in sorted(versions.items())]
    lines = [
        f"The newest of each on CPython {python.version}, pre-releases too, under "
        f"{', '.join(f'`{name}`' for name in TESTS)}: {last}.",
        "",
        *table(["upstream", "newest", "in the lock"], rows),
    ]
    if not broken:
        return [*lines, "", "Nothing broke."]
    return [*lines, "", "What broke:", "", *table(["test", "why"], [(f"`{one.test}`", one.why) for one in broken])]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", default="3.13", choices=VERSIONS)
    parser.add_argument("--jobs", type=int, default=1, help="tests at once; what fails runs once more alone")
    parser.add_argument("tests", nargs="*", default=list(TESTS))
    chosen = parser.parse_args()
    CELLS.mkdir(exist_ok=True)
    try:
        python = interpreter(chosen.python)
        own, versions = made(python)
    except Absent as exc:
        sys.exit(str(exc))
    broken, last = tested(own, chosen.tests, chosen.jobs)
    if broken:  # a busy machine upsets a truth about time: only what fails alone, too, is upstream's
        broken, again = tested(own, [one.test for one in broken])
        last = f"{last}; those that failed, once more alone: {again}"
    for one in broken:
        print(one.test, one.why)
    print(last)
    if chosen.tests == list(TESTS):
        write("canary", section(python, versions, broken, last))
    return int(bool(broken))


if __name__ == "__main__":
    sys.exit(main())
