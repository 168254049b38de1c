"""What is shipped, and what the locks pin."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import mcp_probe

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
        lines = [*PROJECT["dependency-groups"]["dev"], *extras["cli"], *extras["otel"], *extras["memory"]]
    else:
        lines = lock.with_suffix(".in").read_text("utf-8").splitlines()
    return [Requirement(line) for line in lines]


def build(kind: str, into: Path) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "--target", kind, "--directory", str(into)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=60)
    (built,) = into.iterdir()
    return built


def test_the_wheel_holds_only_the_package_and_its_metadata(tmp_path: Path) -> None:
    with zipfile.ZipFile(build("wheel", tmp_path)) as wheel:
        names = set(wheel.namelist())
    metadata = "mcp_probe_profiler-0.1.0.dist-info"
    files = [path for path in (ROOT / "mcp_probe").rglob("*") if path.is_file() and path.suffix != ".pyc"]
    ours = {path.relative_to(ROOT).as_posix() for path in files}
    about = ("METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE")
    assert names == ours | {f"{metadata}/{name}" for name in about}
    assert "mcp_probe/py.typed" in names


def test_the_sdist_holds_only_the_package_the_readme_and_the_licence(tmp_path: Path) -> None:
    with tarfile.open(build("sdist", tmp_path)) as sdist:
        names = {name.split("/", 1)[1] for name in sdist.getnames()}
    # Hatchling adds .gitignore so that a build from the sdist leaves out the same files.
    expected = {"PKG-INFO", "README.md", "LICENSE", "pyproject.toml", ".gitignore"}
    assert {name for name in names if not name.startswith("mcp_probe/")} == expected


def test_the_version_is_stated_alike_in_package_and_metadata() -> None:
    assert mcp_probe.__version__ == PROJECT["project"]["version"]


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


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.stem)
def test_a_lock_satisfies_what_it_was_compiled_from(lock: Path) -> None:
    pins = pins_of(lock)
    for requirement in wanted_by(lock):
        versions = pins.get(canonicalize_name(requirement.name), set())
        assert versions, f"{requirement.name} is not in {lock.name}: run `make lock`"
        assert all(requirement.specifier.contains(version) for version in versions), f"{requirement}: run `make lock`"


def test_every_lock_has_an_environment_in_the_makefile() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    (listed,) = re.findall(r"^ENVS := (.+)$", makefile, flags=re.MULTILINE)
    assert set(listed.split()) == {lock.stem for lock in LOCKS} - {"dev", "tool-uv"}


def test_a_lock_that_spells_out_addresses_is_kept_out_of_git() -> None:
    assert "uv.lock" in (ROOT / ".gitignore").read_text("utf-8").splitlines()
