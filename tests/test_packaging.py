"""What is shipped, and what the locks pin."""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_wheel_filename

import mcp_probe
from tools.accelerator import building
from tools.interpreters import VERSIONS, Absent, interpreter

ROOT = Path(__file__).resolve().parent.parent
tomllib = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
LOCKS = sorted((ROOT / "requirements").glob("*.txt"))
PIN = re.compile(r"(?P<name>[a-z0-9-]+)(\[[a-z0-9,-]+\])?==(?P<version>[^ ;]+)( ; (?P<marker>[^#]+))? \\")
HASH = re.compile(r" {4}--hash=sha256:[0-9a-f]{64}( \\)?")


def pins_of(lock: Path) -> dict[str, set[str]]:
    """Versions of each distribution in a lock; several where they depend on the Python."""
    pins: dict[str, set[str]] = {}
    for line in lock.read_text("utf-8").splitlines():
        if pin := PIN.fullmatch(line):
            pins.setdefault(pin["name"], set()).add(pin["version"])
    return pins


def wanted_by(lock: Path) -> list[Requirement]:
    """What the lock was compiled from."""
    if lock.name == "dev.txt":
        extras = PROJECT["project"]["optional-dependencies"]
        lines = [*PROJECT["dependency-groups"]["dev"], *extras["otel"], *extras["memory"]]
    else:
        lines = [line for line in lock.with_suffix(".in").read_text("utf-8").splitlines() if line and line[0] != "#"]
    return [Requirement(line) for line in lines]


SOURCES = sorted((ROOT / "mcp_probe" / "native").glob("*.c"))
SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")
COMPILED = {f"mcp_probe/native/_{source.stem}{SUFFIX}" for source in SOURCES}
BUILDS = "import sys; from setuptools import build_meta; print(getattr(build_meta, sys.argv[1])(sys.argv[2]))"
COMPILES = (
    shutil.which((sysconfig.get_config_var("CC") or "cc").split()[0]) is not None
    and (Path(sysconfig.get_path("include")) / "Python.h").exists()
)
"""Whether this machine can build the accelerator; the package must be the same without."""

FOLLOWS_A_LOOP = """
import asyncio, json, sys
import mcp_probe
from mcp_probe import native
from mcp_probe.adapters.asyncio_loop import AsyncioHooks
from mcp_probe.capture.current import CURRENT
from mcp_probe.capture.hub import Hub

async def main():
    hub = Hub()
    hooks = AsyncioHooks(hub)
    hooks.install()
    monitor = hooks.follow(asyncio.get_running_loop())
    raw = hub.requests.open("request", "tools/call", "t", "stdio")
    CURRENT.set(raw)
    await asyncio.gather(*(asyncio.create_task(asyncio.sleep(0.001)) for _ in range(20)))
    await asyncio.to_thread(len, "")
    stuck = hooks.restore()
    print(json.dumps([mcp_probe.__file__, native.state(), raw.mark_count, monitor.take_polls().polls > 0, stuck]))

asyncio.run(main())
"""
"""Does with a loop what the probe does, and needs only the standard library."""


def build(kind: str, source: Path, into: Path, python: str = sys.executable, **environment: str) -> Path:
    """Builds in ``source``, which gets files it had not."""
    command = [python, "-W", "ignore", "-c", BUILDS, f"build_{kind}", str(into)]
    subprocess.run(
        command, cwd=source, env={**os.environ, **environment}, check=True, capture_output=True, text=True, timeout=100
    )
    (built,) = into.iterdir()
    return built


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / "mcp_probe", source / "mcp_probe", ignore=shutil.ignore_patterns("__pycache__"))
    for left in COMPILED:
        (source / left).write_bytes(b"left by an earlier build")
    (source / "tests").mkdir()
    shutil.copy(__file__, source / "tests")
    return build("sdist", source, tmp_path_factory.mktemp("sdist"))


def unpacked(sdist: Path, into: Path) -> Path:
    with tarfile.open(sdist) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # without it newer Pythons warn
        archive.extractall(into)
    (folder,) = into.iterdir()
    return folder


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = unpacked(sdist, tmp_path_factory.mktemp("unpacked"))
    return build("wheel", source, tmp_path_factory.mktemp("wheel"))


def sources() -> set[str]:
    files = [path for path in (ROOT / "mcp_probe").rglob("[!.]*") if "__pycache__" not in path.parts and path.is_file()]
    return {path.relative_to(ROOT).as_posix() for path in files if path.suffix not in (".pyc", ".so", ".pyd")}


def test_the_sdist_holds_only_the_package_its_build_the_readme_and_the_licence(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {member.name.split("/", 1)[1] for member in archive.getmembers() if member.isfile()}
    assert {name for name in names if name.startswith("mcp_probe/")} == sources()
    others = {name.split("/")[0] for name in names} - {"mcp_probe"}
    made = {"PKG-INFO", "setup.cfg", "mcp_probe_profiler.egg-info"}  # by setuptools
    assert others == {"README.md", "LICENSE", "pyproject.toml", "setup.py", "MANIFEST.in"} | made


def test_the_wheel_holds_only_the_package_the_accelerator_and_their_metadata(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    metadata = f"mcp_probe_profiler-{mcp_probe.__version__}.dist-info"
    about = ("METADATA", "WHEEL", "RECORD", "entry_points.txt", "top_level.txt", "licenses/LICENSE")
    ours = {name for name in sources() if not name.endswith((".c", ".h"))} | (COMPILED if COMPILES else set())
    assert names == ours | {f"{metadata}/{name}" for name in about}
    assert {"mcp_probe/py.typed", "mcp_probe/native/_core.pyi", "mcp_probe/native/_memory.pyi"} <= names


def test_a_wheel_promises_no_more_than_the_python_it_was_built_for(wheel: Path) -> None:
    _, _, _, tags = parse_wheel_filename(wheel.name)
    this = "cp{}{}".format(*sys.version_info)
    assert {(tag.interpreter, tag.abi) for tag in tags} == {(this, this)}


def test_a_pure_wheel_serves_every_interpreter(sdist: Path, tmp_path: Path) -> None:
    (tmp_path / "wheel").mkdir()
    (tmp_path / "source").mkdir()
    built = build("wheel", unpacked(sdist, tmp_path / "source"), tmp_path / "wheel", MCP_PROBE_BUILD="pure")
    assert built.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(built) as archive:
        assert [name for name in archive.namelist() if name.endswith((".so", ".c", ".h"))] == []


def follow_a_loop(python: Path | str, wheel: Path, folder: Path) -> list[Any]:
    """What the package in ``wheel`` says of a loop that it followed in ``python``."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "MCP_PROBE"))}
    done = subprocess.run(
        [str(python), "-W", "error", "-c", FOLLOWS_A_LOOP],
        cwd=folder,
        env={**environment, "PYTHONPATH": str(folder)},
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stderr == ""
    told: list[Any] = json.loads(done.stdout)
    assert Path(told[0]).is_relative_to(folder)
    return told[1:]


@pytest.mark.skipif(not COMPILES, reason="no compiler here")
@pytest.mark.parametrize("version", VERSIONS)
def test_a_wheel_of_each_python_that_is_here_accelerates_it(version: str, sdist: Path, tmp_path: Path) -> None:
    try:
        python = interpreter(version, unpack=False)
        environment = building(python)
    except Absent as absent:
        pytest.skip(str(absent))
    for name in ("source", "wheel"):
        (tmp_path / name).mkdir()
    source = unpacked(sdist, tmp_path / "source")
    built = build("wheel", source, tmp_path / "wheel", python=python.command, **environment)
    state, marks, polled, stuck = follow_a_loop(python.command, built, tmp_path / "installed")
    assert (state, polled, stuck) == ("active", True, [])
    assert marks > 40


def test_what_is_built_without_a_compiler_does_the_same_and_says_so(sdist: Path, tmp_path: Path) -> None:
    for name in ("source", "wheel"):
        (tmp_path / name).mkdir()
    built = build("wheel", unpacked(sdist, tmp_path / "source"), tmp_path / "wheel", CC="/bin/false")
    with zipfile.ZipFile(built) as archive:
        assert [name for name in archive.namelist() if name.endswith((".so", ".c", ".h"))] == []
    state, marks, polled, stuck = follow_a_loop(sys.executable, built, tmp_path / "installed")
    assert (state, polled, stuck) == ("not built here", True, [])
    assert marks > 40


def test_the_version_stands_in_one_place_which_the_package_is_built_from() -> None:
    assert "version" not in PROJECT["project"] and "version" in PROJECT["project"]["dynamic"]
    assert PROJECT["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "mcp_probe.__version__"}
    assert metadata.version("mcp-probe-profiler") == mcp_probe.__version__


def test_the_core_depends_on_nothing_and_every_extra_is_bounded() -> None:
    assert PROJECT["project"]["dependencies"] == []
    for lines in PROJECT["project"]["optional-dependencies"].values():
        for requirement in map(Requirement, lines):
            operators = {specifier.operator for specifier in requirement.specifier}
            assert requirement.name == PROJECT["project"]["name"] or {">=", "<"} <= operators, requirement


def test_the_extra_named_all_holds_every_other_extra() -> None:
    extras = PROJECT["project"]["optional-dependencies"]
    (everything,) = map(Requirement, extras["all"])
    assert everything.extras == set(extras) - {"all"}


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.stem)
def test_a_lock_is_pins_and_hashes_and_nothing_else(lock: Path) -> None:
    lines = lock.read_text("utf-8").splitlines()
    assert lines
    # Anything else would be an option, a comment, a path or an address.
    assert [line for line in lines if not PIN.fullmatch(line) and not HASH.fullmatch(line)] == []
    unhashed = [
        one for one, two in zip(lines, [*lines[1:], ""], strict=True) if PIN.fullmatch(one) and not HASH.fullmatch(two)
    ]
    assert unhashed == []


# The source archives that suites are taken from are pinned by hand, one each.
@pytest.mark.parametrize(
    "lock", [lock for lock in LOCKS if not lock.stem.startswith("source-")], ids=lambda lock: lock.stem
)
def test_a_lock_satisfies_what_it_was_compiled_from(lock: Path) -> None:
    pins = pins_of(lock)
    for requirement in wanted_by(lock):
        versions = pins.get(canonicalize_name(requirement.name), set())
        assert versions, f"{requirement.name} is not in {lock.name}: run `make lock`"
        assert all(requirement.specifier.contains(version) for version in versions), f"{requirement}: run `make lock`"


def test_every_lock_has_an_environment_in_the_makefile() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    listed = " ".join(re.findall(r"^(?:ENVS|CELLS|CASES) := (.+)$", makefile, flags=re.MULTILINE)).split()
    suites = " ".join(re.findall(r"^SUITES := (.+)$", makefile, flags=re.MULTILINE)).split()
    field = " ".join(re.findall(r"^FIELD := \$\(addprefix field-,([^)]+)\)", makefile, flags=re.MULTILINE))
    listed += [f"field-{name}" for name in field.replace("\\\n", " ").split()]
    others = {lock.stem for lock in LOCKS if lock.stem != "dev" and not lock.stem.startswith(("tool-", "source-"))}
    assert {*listed, *(f"suite-{suite}" for suite in suites)} == others


def test_the_tool_that_builds_is_locked_with_the_rest() -> None:
    (builder,) = map(Requirement, PROJECT["build-system"]["requires"])
    assert builder in [Requirement(line) for line in PROJECT["dependency-groups"]["dev"]]


def test_a_lock_that_spells_out_addresses_is_kept_out_of_git() -> None:
    assert "uv.lock" in (ROOT / ".gitignore").read_text("utf-8").splitlines()
