"""Suites that nobody here wrote: run them bare or with the probe in them, and compare test by test.

A suite runs in its own environment (``.envs/suite-*``) on its unpacked source (``.cache/suites/*``), both made by
``make suites-ready``. What it gave bare is kept in ``tests/suites/expected``, so that one probed run is enough to see a
difference; ``python -m tests.suites`` runs everything anew and writes those files and the table.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

ROOT = Path(__file__).resolve().parents[2]
INSIDE = Path(__file__).with_name("inside")
EXPECTED = Path(__file__).with_name("expected")
ENVS = Path(os.environ.get("SUITE_ENVS", ROOT / ".envs"))
SOURCES = Path(os.environ.get("SUITE_SOURCES", ROOT / ".cache" / "suites"))

Mode = Literal["bare", "servers", "live"]
Core = Literal["native", "pure"]
HUNG_TEST_S = 60
SECOND_CHANCES = 5
LEAST_WATCHED = 0.95
"""Tests that are skipped as a module is imported are outcomes, too."""


@dataclass(frozen=True, slots=True)
class Suite:
    """One suite: where it lies, how it is run, how the probe is in it."""

    name: str
    title: str
    mode: Mode
    """``servers`` where the suite makes MCP servers, ``live`` where each test is to be a request."""
    workers: int = 2
    paths: tuple[str, ...] = ("tests",)
    options: tuple[str, ...] = ()
    python_path: tuple[str, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Tests that are not run, with the reason."""
    alone: bool = False
    """Run where nothing but its tests lies: the package beside them is not built and would hide the installed one."""
    deadline_s: int = 900


@dataclass(frozen=True, slots=True)
class Run:
    """What one run of a suite gave."""

    outcomes: dict[str, str]
    why: dict[str, str]
    proofs: list[dict[str, Any]]
    seconds: float
    output: str

    def counts(self) -> str:
        """As pytest's last line: ``6045 passed, 8 skipped``."""
        return ", ".join(f"{count} {outcome}" for outcome, count in Counter(self.outcomes.values()).most_common())

    def proof(self) -> dict[str, int]:
        """What the probe watched, over all processes of the run."""
        keys = ("servers", "messages", "requests", "steps", "polls")
        return {key: sum(proof.get(key, 0) for proof in self.proofs) for key in keys}


SUITES = {
    suite.name: suite
    for suite in (
        Suite(
            "mcp2",
            "mcp 2.3.0",
            "servers",
            options=("--ignore=tests/docs", "-o", "log_cli=false"),
            python_path=("examples",),
            left_out={
                "tests/server/mcpserver/resources/test_file_resources.py::test_permission_error": "fails for root"
            },
        ),
        Suite("mcp1", "mcp 1.30.0", "servers", options=("-o", "log_cli=false")),
        Suite("asyncio", "CPython's test_asyncio", "live"),
        Suite(
            "anyio",
            "anyio 4.16.0",
            "live",
            # Sockets that a failing IPv6 test left open are told in whichever test the collector runs.
            options=(
                *("-m", "not network", "-o", "timeout_method=signal"),
                *("-W", "ignore::pytest.PytestUnraisableExceptionWarning"),
            ),
        ),
        Suite("starlette", "starlette 1.9", "live"),
        Suite("uvicorn", "uvicorn 0.54.0", "live"),
        # Each worker would serve on port 8000.
        Suite("httpx", "httpx 0.28.1", "live", workers=1, options=("-m", "not network")),
        Suite("uvloop", "uvloop 0.23.0", "live", options=("--import-mode=prepend",), alone=True),
    )
}


class NotReady(Exception):
    """The suite cannot be run here; the text says why and what to do."""


def run(suite: Suite, core: Core | None, python: str = sys.executable, only: Iterable[str] = ()) -> Run:
    """One run of ``suite``; bare where ``core`` is ``None``. ``only`` narrows it to some tests.

    Raises: NotReady where its environment, its source or the accelerator is missing.
    """
    folder = Path(tempfile.mkdtemp(prefix="suite-"))
    try:
        inject = folder / "inject"
        inject.mkdir()
        for module in INSIDE.glob("suite_*.py"):
            shutil.copy(module, inject)
        (inject / "mcp_probe").symlink_to(ROOT / "mcp_probe", target_is_directory=True)
        commands, cwd = _commands(suite, python, list(only))
        if suite.alone:
            cwd = folder / "alone"
            shutil.copytree(SOURCES / suite.name / "tests", cwd / "tests")
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("MCP_PROBE_", "COV_"))}
        environment.pop("PYTEST_ADDOPTS", None)
        environment.update(
            PYTHONPATH=os.pathsep.join([str(inject), *(str(cwd / path) for path in suite.python_path)]),
            PYTHONDONTWRITEBYTECODE="1",
            SUITE_FOLDER=str(folder),
            SUITE_MODE="bare" if core is None else suite.mode,
            MCP_PROBE_NATIVE="0" if core == "pure" else "1",
        )
        return _collect(folder, commands, cwd, environment, suite.deadline_s)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _commands(suite: Suite, python: str, only: list[str]) -> tuple[list[list[str]], Path]:
    """The processes that run the suite side by side, and where."""
    if suite.name == "asyncio":
        modules = only or asyncio_modules(python)
        parts = [modules[part :: suite.workers] for part in range(suite.workers)]
        return [[python, "-m", "suite_unittest", *part] for part in parts if part], Path(tempfile.gettempdir())
    interpreter, source = ENVS / f"suite-{suite.name}" / "bin" / "python", SOURCES / suite.name
    for needed in (interpreter, source / "tests"):
        if not needed.exists():
            raise NotReady(f"{needed} is missing: run `make suites-ready`")
    options = [f"--deselect={test}" for test in suite.left_out]
    workers = ["-n", str(suite.workers)] if suite.workers > 1 and not only else ["-p", "no:xdist"]
    always = ["-q", "--tb=short", "--color=no", "-p", "no:cacheprovider", "-p", "suite_pytest"]
    limits = [f"--timeout={HUNG_TEST_S}"]
    command = [str(interpreter), "-m", "pytest", *always, *workers, *limits, *suite.options, *options]
    return [[*command, *(only or suite.paths)]], source


def asyncio_modules(python: str) -> list[str]:
    """The modules of ``test.test_asyncio``, the longest first. Raises: NotReady where this interpreter has none."""
    code = "import os, test.test_asyncio as t; print(*sorted(os.listdir(os.path.dirname(t.__file__))))"
    found = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    if found.returncode:
        raise NotReady(f"{python} does not bring test.test_asyncio")
    names = [name[:-3] for name in found.stdout.split() if name.startswith("test_") and name.endswith(".py")]
    longest = ["test_events", "test_tasks", "test_subprocess", "test_ssl", "test_waitfor", "test_sendfile"]
    names.sort(key=lambda name: longest.index(name) if name in longest else len(longest))
    return [f"test.test_asyncio.{name}" for name in names]


def _collect(folder: Path, commands: list[list[str]], cwd: Path, environment: dict[str, str], deadline_s: int) -> Run:
    began = time.monotonic()
    running = []
    for number, command in enumerate(commands):
        with (folder / f"output-{number}").open("w") as file:
            running.append(
                subprocess.Popen(
                    command,
                    cwd=cwd,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=file,
                    start_new_session=True,
                )
            )
    late = False
    try:
        for process in running:
            try:
                process.wait(max(0.0, began + deadline_s - time.monotonic()))
            except subprocess.TimeoutExpired:
                late = True
    finally:
        for process in running:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    ends = [process.returncode for process in running]
    output = "\n".join((folder / f"output-{number}").read_text(errors="replace") for number in range(len(commands)))
    output += f"\nended with {ends}" + (f", killed after {deadline_s} s" if late else "")
    outcomes, why = {}, {}
    for path in folder.glob("outcomes-*.json"):
        for test, found in json.loads(path.read_text()).items():
            outcomes[test], why[test] = found["outcome"], found["why"]
    proofs = [json.loads(path.read_text()) for path in folder.glob("proof-*.json")]
    return Run(outcomes, why, proofs, time.monotonic() - began, output)


@dataclass(frozen=True, slots=True)
class Bare:
    """What a suite gives without the probe."""

    passed: int
    others: dict[str, str]
    """Every test that did not pass, with its outcome."""
    unstable: dict[str, str]
    """Tests whose outcome says nothing, with the reason."""

    @classmethod
    def kept(cls, suite: Suite, python: str = sys.executable) -> Bare | None:
        """As it is kept in ``tests/suites/expected``; ``None`` where nobody has run it on this interpreter."""
        path = _kept_at(suite, python)
        if not path.exists():
            return None
        kept = json.loads(path.read_text())
        return cls(kept["passed"], kept["others"], kept["unstable"])

    @classmethod
    def from_runs(cls, one: Run, two: Run) -> Bare:
        """Two bare runs: what they disagree on is unstable."""
        differing = differences(one.outcomes, two.outcomes)
        others = {
            test: outcome
            for test, outcome in sorted(one.outcomes.items())
            if outcome != "passed" and test not in differing
        }
        stable = sum(outcome == "passed" for test, outcome in one.outcomes.items() if test not in differing)
        return cls(stable, others, {test: f"bare it was {was}" for test, was in differing.items()})

    def keep(self, suite: Suite, python: str = sys.executable) -> None:
        """Write it where :meth:`kept` reads it."""
        value = {"passed": self.passed, "others": self.others, "unstable": self.unstable}
        _kept_at(suite, python).write_text(json.dumps(value, indent=1, sort_keys=True) + "\n")


def version_of(suite: Suite, python: str = sys.executable) -> str:
    """Version of the interpreter that runs ``suite``: its own environment's, or ``python`` for CPython's suite."""
    interpreter = python if suite.name == "asyncio" else str(ENVS / f"suite-{suite.name}" / "bin" / "python")
    code = "import platform; print(platform.python_version())"
    return subprocess.run([interpreter, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def _kept_at(suite: Suite, python: str) -> Path:
    """CPython's suite is that of one release; the others may skip other tests on another minor version."""
    version = version_of(suite, python)
    return EXPECTED / f"{suite.name}-{version if suite.name == 'asyncio' else version.rpartition('.')[0]}.json"


def differences(bare: Mapping[str, str], probed: Mapping[str, str]) -> dict[str, str]:
    """Each test whose outcome is another one: ``passed, then failed``."""
    tests = sorted({*bare, *probed})
    pairs = {test: (bare.get(test, "not run"), probed.get(test, "not run")) for test in tests}
    return {test: f"{was}, then {now}" for test, (was, now) in pairs.items() if was != now}


def settled(suite: Suite, core: Core, bare: Bare, probed: Run, python: str = sys.executable) -> tuple[Run, list[str]]:
    """(``probed``, with a second chance for some tests, and which passed then).

    A busy machine fails tests that ask a clock or the collector. What differs is run again with its whole file, so in
    the company it had, if it is not more than a few: a difference that the probe makes is there again.
    """
    tests = [test for test, outcome in probed.outcomes.items() if outcome != bare.others.get(test, "passed")]
    tests = [test for test in tests if test not in bare.unstable]
    files = sorted({_file_of(suite, test) for test in tests})
    if not tests or len(tests) > SECOND_CHANCES:
        return probed, []
    again = run(suite, core, python, files).outcomes
    calm = [test for test in tests if again.get(test) == bare.others.get(test, "passed")]
    return replace(probed, outcomes={**probed.outcomes, **{test: again[test] for test in calm}}), calm


def _file_of(suite: Suite, test: str) -> str:
    return ".".join(test.split(".")[:3]) if suite.name == "asyncio" else test.partition("::")[0]


def compare(bare: Bare, probed: Run, owned: Mapping[str, str]) -> list[str]:
    """A sentence for each way in which ``probed`` is not as bare; ``owned`` are differences that are known.

    A test that passed bare is known by its number only: one that is missing shows in the count.
    """
    said = []
    excepted = {*bare.unstable, *owned}
    for test, outcome in sorted(probed.outcomes.items()):
        was = bare.others.get(test, "passed")
        if outcome != was and test not in excepted:
            said.append(f"{test}: bare {was}, with the probe {outcome}: {probed.why[test]}")
    for test, was in bare.others.items():
        if test not in probed.outcomes and test not in excepted:
            said.append(f"{test}: bare {was}, not run with the probe")
    ran = sum(test not in bare.others and test not in bare.unstable for test in probed.outcomes)
    if ran != bare.passed:
        said.append(f"{bare.passed} tests passed bare, {ran} of them were run with the probe")
    return said


def unwatched(suite: Suite, probed: Run) -> list[str]:
    """A sentence for each thing that the probe should have seen in this run and did not."""
    proof = probed.proof()
    wanted = ("servers", "messages", "steps") if suite.mode == "servers" else ("requests", "steps", "polls")
    said = [f"no {what} seen" for what in wanted if not proof[what]]
    watched = sum(part.get("tests", 0) for part in probed.proofs)
    if watched < len(probed.outcomes) * LEAST_WATCHED:
        said.append(f"{watched} of {len(probed.outcomes)} tests ran where the probe has proof")
    for part in probed.proofs:
        said += [f"hook {hook}: {state}" for hook, state in part["hooks"].items() if "disabled" in state]
        said += part["stuck"]
    return sorted(set(said))
