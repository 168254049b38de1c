"""The CPythons that can be compared here: those that the user names, those of ``make pythons``, and this one."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path

from mcp_probe.errors import LaunchError
from mcp_probe.workloads.bench.context import Bench

ENVS = Path(__file__).resolve().parents[3] / ".envs"
MINORS = ((3, 11), (3, 12), (3, 13), (3, 14))
ASK_LIMIT_S = 60
ASKS = """
import json, platform, sys, sysconfig
from importlib import metadata
def installed(name):
    try: return metadata.version(name)
    except metadata.PackageNotFoundError: return None
setting = lambda name: sysconfig.get_config_var(name) or ""
flags = " ".join(map(setting, ("PY_CFLAGS", "PY_CFLAGS_NODIST", "CONFIG_ARGS")))
levels = [word for word in setting("PY_CFLAGS").split() if word.startswith("-O")]
print(json.dumps({
    "numbers": sys.version_info[:3],
    "implementation": platform.python_implementation(),
    "prefix": sys.base_prefix,
    "sdk": installed("mcp"),
    "compiler": platform.python_compiler(),
    "options": [*levels[-1:], *(told for told, found in (
        ("PGO", "-fprofile-use" in flags or "--enable-optimizations" in flags),
        ("LTO", "-flto" in flags or "--with-lto" in flags),
        ("free-threaded", bool(setting("Py_GIL_DISABLED"))),
    ) if found)],
}))
"""


@dataclass(frozen=True, slots=True)
class Interpreter:
    """One CPython that has the SDK. ``options``: how it was built, as far as it says so itself."""

    python: Path
    numbers: tuple[int, int, int]
    sdk: str
    compiler: str = ""
    options: tuple[str, ...] = ()
    prefix: str = ""
    label: str = ""

    @property
    def minor(self) -> tuple[int, int]:
        """``(3, 14)``."""
        return self.numbers[:2]

    @property
    def version(self) -> str:
        """``3.14.8``."""
        return ".".join(map(str, self.numbers))

    @property
    def build(self) -> str:
        """Its compiler and what it was told."""
        return ", ".join(filter(None, (self.compiler, *self.options)))


def interpreters(bench: Bench) -> list[Interpreter]:
    """Every one of them, oldest first; says which versions are not here, and how to give them.

    Of those that nobody named, the ones with the same mcp as the others: as those named, else as this interpreter.

    Raises: LaunchError for one that the user named and that does not start, or has no mcp.
    """
    given = [asked(path) for path in bench.pythons]
    paths = (*sorted(ENVS.glob("python3.*/bin/python")), Path(sys.executable))
    here = [one for one in map(_if_it_has_mcp, paths) if one is not None]
    sdk = next((one.sdk for one in reversed(given or here)), "")
    known: list[Interpreter] = []
    for one in (*given, *(each for each in here if each.sdk == sdk and each.minor in MINORS)):
        if all((one.version, one.prefix) != (other.version, other.prefix) for other in known):
            known.append(one)
    for minor in MINORS:
        if all(one.minor != minor for one in known):
            version = ".".join(map(str, minor))
            told = "it is left out; give one with --python PATH, or run `make pythons` in a checkout, for mcp 2"
            bench.lacks(f"CPython {version} with mcp {sdk}", told)
    return labelled(sorted(known, key=lambda one: one.numbers))


def asked(python: Path) -> Interpreter:
    """What ``python`` says of itself. Raises: LaunchError where it does not start, or is no CPython with mcp."""
    try:
        done = subprocess.run([python, "-c", ASKS], capture_output=True, text=True, timeout=ASK_LIMIT_S, check=False)
        told = json.loads(done.stdout) if done.returncode == 0 else {}
    except (OSError, ValueError, subprocess.TimeoutExpired) as exc:
        said = exc.strerror if isinstance(exc, OSError) else exc
        raise LaunchError(f"{python} is no Python that starts ({said}); give --python the path of one.") from exc
    if not told or told["implementation"] != "CPython":
        said = told.get("implementation") or (done.stderr.strip().splitlines() or ["nothing"])[-1]
        raise LaunchError(f"{python} is no CPython; asked what it is, it said: {said}.")
    if told["sdk"] is None:
        raise LaunchError(
            f"{python} has no mcp; make an environment that has: {python} -m venv ENV && ENV/bin/pip install mcp, "
            "then give --python ENV/bin/python."
        )
    first, second, third = told["numbers"]
    return Interpreter(
        python, (first, second, third), told["sdk"], told["compiler"], tuple(told["options"]), told["prefix"]
    )


def labelled(found: Iterable[Interpreter]) -> list[Interpreter]:
    """With names that differ: by the minor version, where two share it with the patch, else with the build."""
    ways = (
        lambda one: ".".join(map(str, one.minor)),
        lambda one: one.version,
        lambda one: f"{one.version} ({one.build})",
    )
    found = list(found)
    left = found
    named: dict[Path, str] = {}
    for way in ways:
        names = [way(one) for one in left]
        named |= {one.python: way(one) for one in left if names.count(way(one)) == 1}
        left = [one for one in left if one.python not in named]
    named |= {one.python: f"{one.version}, the {place}." for place, one in enumerate(left, 1)}
    return [replace(one, label=f"CPython {named[one.python]}") for one in found]


def alike(one: Interpreter, other: Interpreter) -> bool:
    """Whether both were built with the same options, as far as they say."""
    return one.options == other.options


def widest(
    found: Sequence[Interpreter], old: tuple[int, int] | None = None, new: tuple[int, int] | None = None
) -> tuple[Interpreter, Interpreter] | None:
    """The oldest and the newest that were built alike, else of any build; of these versions, where they are given.

    ``None`` where there are no two.
    """
    pairs = [
        (one, other)
        for one, other in combinations(found, 2)
        if one.minor < other.minor and old in (None, one.minor) and new in (None, other.minor)
    ]

    def worth(pair: tuple[Interpreter, Interpreter]) -> tuple[bool, int]:
        return alike(*pair), pair[1].minor[1] - pair[0].minor[1]

    return max(pairs, key=worth, default=None)


def _if_it_has_mcp(python: Path) -> Interpreter | None:
    try:
        return asked(python)
    except LaunchError:
        return None
