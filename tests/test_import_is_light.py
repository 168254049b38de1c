"""What an import of mcp_probe loads, seen from fresh interpreters."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# Loading any of these costs tens of milliseconds or drags in what a user may not have.
HEAVY = frozenset(
    {"anyio", "asyncio", "concurrent", "fastmcp", "matplotlib", "mcp", "mcp_types", "opentelemetry", "pydantic"}
    | {"pympler", "pyperf", "rich", "sniffio", "starlette", "trio", "uvicorn", "uvloop"}
)

# Rooms that exist to meet a third party; the others must import where there is none.
MEETS_THIRD_PARTIES = ("adapters", "export", "workloads", "testing", "instrumentor", "__main__")
SCREEN = ("top", "app")  # is made of Textual's classes; nothing imports it before somebody wants a screen


def run_python(code: str, *flags: str) -> str:
    """Output of ``code`` in a fresh interpreter that finds the package in this checkout."""
    preamble = f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
    command = [sys.executable, "-W", "error", *flags, "-c", preamble + code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def modules_loaded_by(statement: str) -> set[str]:
    code = f"before = set(sys.modules)\n{statement}\nimport json\nprint(json.dumps(sorted(set(sys.modules) - before)))"
    return set(json.loads(run_python(code)))


def test_importing_the_package_loads_nothing_heavy_and_no_part_of_itself() -> None:
    loaded = modules_loaded_by("import mcp_probe")
    assert {name for name in loaded if name.split(".")[0] in HEAVY} == set()
    assert {name for name in loaded if name.startswith("mcp_probe.")} == set()


@pytest.mark.parametrize(
    ("statement", "rooms"),
    [
        ("import mcp_probe.session", {"report", "export", "launch", "cli", "workloads"}),
        (
            "import mcp_probe.report.console, mcp_probe.aggregate.fold",
            {"session", "adapters", "capture", "launch", "cli"},
        ),
    ],
    ids=["a profiled server", "a laptop reading a recording"],
)
def test_neither_side_loads_the_other(statement: str, rooms: set[str]) -> None:
    loaded = modules_loaded_by(statement)
    assert {name for name in loaded if name.startswith("mcp_probe.") and name.split(".")[1] in rooms} == set()


def test_every_public_name_resolves_on_first_use_with_the_standard_library_alone() -> None:
    code = """
import json, mcp_probe
eager = [name for name in mcp_probe.__all__ if name in vars(mcp_probe) and not name.startswith("__")]
missing = [name for name in mcp_probe.__all__ if getattr(mcp_probe, name, None) is None]
print(json.dumps([eager, missing, sorted(set(mcp_probe.__all__) - set(dir(mcp_probe))), len(mcp_probe.__all__)]))
"""
    eager, missing, hidden, count = json.loads(run_python(code, "-I", "-S"))
    assert (eager, missing, hidden) == ([], [], [])
    assert count >= 3


def test_an_unknown_name_is_an_attribute_error_that_names_it() -> None:
    code = "import mcp_probe\ntry:\n    mcp_probe.no_such_name\nexcept AttributeError as error:\n    print(error)"
    assert "no_such_name" in run_python(code)


def test_the_core_imports_on_the_standard_library_alone() -> None:
    package = ROOT / "mcp_probe"
    modules = []
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        if len(parts) > 1 and parts[1] not in MEETS_THIRD_PARTIES and parts[1:] != SCREEN:
            modules.append(".".join(parts).removesuffix(".__init__"))
    run_python(f"import importlib\nfor name in {modules!r}: importlib.import_module(name)", "-I", "-S")
