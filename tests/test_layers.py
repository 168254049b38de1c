"""Who may import whom: the table of docs/architecture.md, held by reading every import; and nobody in a circle.

Imports under ``TYPE_CHECKING``, inside functions, and ``import_module`` of a literal name count like any other.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "mcp_probe"

# Top to bottom. A room may import itself and every room on a lower row.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("__main__",),
    ("cli",),
    ("compare", "query", "predict", "top", "init", "completion"),
    ("launch", "workloads", "testing", "instrumentor"),
    ("session",),
    ("process", "at_exit", "header", "inert", "live"),
    ("collector", "options"),
    ("adapters", "export", "report"),
    ("arguments",),
    ("capture", "aggregate"),
    ("record",),
    ("metrics",),
    ("measures",),
    ("now",),
    ("model", "clock", "histogram", "errors", "native"),
)
ROW_OF = {room: row for row, rooms in enumerate(LAYERS) for room in rooms}

# `from mcp_probe import attach` runs through the map of the package to the session, so only what is above it may.
MAP_ROW = ROW_OF["session"]
MAP_NAMES_FOR_ALL = frozenset({"__version__"})

SDKS = ("adapters", "workloads")
# The loops are hooked where their units are seen; the core never needs them to be there.
LOOPS = ("adapters", "capture", "workloads")
THIRD_PARTIES: dict[str, tuple[str, ...]] = {
    "mcp": SDKS,
    "mcp_types": SDKS,
    "fastmcp": SDKS,
    "starlette": SDKS,
    "uvicorn": ("workloads",),
    "hypercorn": ("workloads.servers",),
    "hdrh": ("workloads.load",),
    "cryptography": ("workloads.certificates",),  # comes with mcp
    "pydantic": ("workloads.servers",),  # comes with mcp; what a client is asked for is one of its models
    "anyio": LOOPS,
    "trio": LOOPS,
    "uvloop": LOOPS,
    "opentelemetry": ("export", "adapters", "instrumentor"),
    "pympler": ("aggregate.memory_use", "capture.memory_tier", "capture.sizing", "capture.tracemalloc_sites"),
    "pyperf": ("workloads",),
    "matplotlib": ("workloads",),
    "httpx": ("workloads",),
    "httpx2": ("workloads",),
    "aiohttp": ("workloads",),
    "jsonschema": ("workloads",),  # comes with mcp; done without where it is not there
    "tomllib": ("workloads", "init"),  # in the standard library from 3.11 on
    "requests": ("workloads", "export"),
    "tomli": ("workloads", "init"),
    "pytest": ("testing",),
    "numpy": ("compare",),
    "scipy": ("compare",),
    "duckdb": ("query",),
    "_remote_debugging": ("launch",),  # in the standard library from 3.14 on
    "textual": ("top.app",),
}


@dataclass(frozen=True)
class Import:
    line: int
    target: str


def imports_of(source: str, module: str) -> Iterator[Import]:
    """Every module that ``source`` names in an import, by its absolute name."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(node.lineno, alias.name)
        elif isinstance(node, ast.ImportFrom):
            base = absolute_base(node, module)
            if base == "mcp_probe":
                yield from (Import(node.lineno, f"mcp_probe.{alias.name}") for alias in node.names)
            else:
                yield Import(node.lineno, base)
        elif isinstance(node, ast.Call) and is_import_call(node.func) and node.args:
            name = node.args[0]
            if isinstance(name, ast.Constant) and isinstance(name.value, str):
                yield Import(node.lineno, name.value)


def absolute_base(node: ast.ImportFrom, module: str) -> str:
    if not node.level:
        return node.module or ""
    parents = module.split(".")[: -node.level]
    return ".".join([*parents, node.module] if node.module else parents)


def is_import_call(func: ast.expr) -> bool:
    name = func.attr if isinstance(func, ast.Attribute) else func.id if isinstance(func, ast.Name) else ""
    return name in {"import_module", "__import__"}


def room_of(module: str) -> str:
    """First name below the package: ``mcp_probe.capture.stdin_reads`` lives in ``capture``."""
    return module.split(".")[1]


def rooms_below(room: str) -> list[str]:
    return [other for row in LAYERS[ROW_OF[room] + 1 :] for other in row]


def complaint_about(module: str, target: str) -> str | None:
    """Why ``module`` must not import ``target``, or None where it may."""
    root = target.split(".")[0]
    if root == "mcp_probe":
        return complaint_inside(room_of(module), target)
    if root in sys.stdlib_module_names:
        return None
    places = THIRD_PARTIES.get(root)
    if places is None:
        return f"{target} is neither the standard library nor a third party that any layer may import"
    inner = module.removeprefix("mcp_probe.")
    if any(inner == place or inner.startswith(f"{place}.") for place in places):
        return None
    return f"{target} may be imported only in {', '.join(places)}"


def complaint_inside(room: str, target: str) -> str | None:
    name = target.removeprefix("mcp_probe").lstrip(".").split(".")[0]
    if name == room or name in MAP_NAMES_FOR_ALL:
        return None
    if name not in ROW_OF:
        if ROW_OF[room] < MAP_ROW:
            return None
        return f"{target} goes through the map of the package, up to session; import the module that defines it"
    if ROW_OF[name] > ROW_OF[room]:
        return None
    return f"{room} may import only {', '.join(rooms_below(room)) or 'the standard library'}"


def violations(source: str, module: str, where: str) -> list[str]:
    """One sentence per forbidden import: where it stands, what it names, what would be allowed."""
    if room_of(module) not in ROW_OF:
        return [f"{where}:1: {module} is in no layer; give it a place in docs/architecture.md and in LAYERS"]
    return [
        f"{where}:{found.line}: {module} imports {found.target}: {complaint}"
        for found in imports_of(source, module)
        if (complaint := complaint_about(module, found.target))
    ]


def test_every_module_imports_only_what_its_layer_may() -> None:
    found: list[str] = []
    for path in sorted(PACKAGE.rglob("*.py")):
        where = path.relative_to(PACKAGE.parent)
        parts = where.with_suffix("").parts
        if parts == ("mcp_probe", "__init__"):
            continue  # the map names everything; that it loads nothing is test_import_is_light's business
        found += violations(path.read_text("utf-8"), ".".join(parts), str(where))
    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize(
    ("module", "source", "complaint"),
    [
        (
            "mcp_probe.record.buffer",
            "import os\nimport mcp_probe.capture.stdin_reads",
            "record may import only metrics, measures, now, model, clock",
        ),
        (
            "mcp_probe.report.console",
            "from mcp_probe.adapters import mcp2",
            "report may import only arguments, capture, aggregate,",
        ),
        ("mcp_probe.capture.stdin_reads", "from mcp_probe import session", "capture may import only record, metrics,"),
        ("mcp_probe.clock", "from mcp_probe.model import Mark", "clock may import only the standard library"),
        ("mcp_probe.clock", "if TYPE_CHECKING:\n    from mcp_probe.session import Probe", "clock may import only"),
        ("mcp_probe.record.raw", "def f():\n    import mcp_probe.session", "record may import only"),
        (
            "mcp_probe.record.raw",
            "from importlib import import_module\nimport_module('mcp_probe.cli')",
            "record may import only",
        ),
        ("mcp_probe.record.raw", "from ..capture import read", "record may import only"),
        ("mcp_probe.adapters.mcp2", "from mcp_probe import attach", "goes through the map"),
        ("mcp_probe.session", "import mcp_probe", "goes through the map"),
        ("mcp_probe.session", "import mcp.server", "mcp.server may be imported only in adapters, workloads"),
        (
            "mcp_probe.report.console",
            "from mcp.types import Tool",
            "mcp.types may be imported only in adapters, workloads",
        ),
        ("mcp_probe.report.console", "import rich", "rich is neither the standard library nor"),
        (
            "mcp_probe.capture.loop_monitor",
            "import pympler.asizeof",
            "only in aggregate.memory_use, capture.memory_tier, capture.sizing, capture.tracemalloc_sites",
        ),
        ("mcp_probe.aggregate.memory_report", "import pympler", "may be imported only in aggregate.memory_use"),
        ("mcp_probe.report.html", "import opentelemetry.trace", "may be imported only in export, adapters"),
        ("mcp_probe.launch.parent", "import psutil", "psutil is neither the standard library nor"),
        ("mcp_probe.helpers", "", "mcp_probe.helpers is in no layer"),
    ],
)
def test_a_forbidden_import_is_named_with_its_line(module: str, source: str, complaint: str) -> None:
    found = violations(source, module, "made_up.py")
    assert len(found) == 1
    assert found[0].startswith(f"made_up.py:{max(1, len(source.splitlines()))}: {module} ")
    assert complaint in found[0]


@pytest.mark.parametrize(
    ("module", "source"),
    [
        (
            "mcp_probe.cli",
            "from mcp_probe import __version__, attach\nimport mcp_probe.launch.run",
        ),
        ("mcp_probe.session", "from mcp_probe import __version__\nfrom mcp_probe.adapters import mcp2"),
        (
            "mcp_probe.adapters.mcp2",
            "import mcp.server\nfrom mcp_probe.capture import read\nimport opentelemetry.trace",
        ),
        ("mcp_probe.aggregate.fold", "from mcp_probe.aggregate.blocking import x\nfrom mcp_probe.record import file"),
        ("mcp_probe.capture.memory_tier", "import tracemalloc, pympler.asizeof"),
        ("mcp_probe.workloads.demo_server", "import mcp_probe, mcp, anyio, mcp_probe.session"),
    ],
)
def test_an_allowed_import_is_no_complaint(module: str, source: str) -> None:
    assert violations(source, module, "made_up.py") == []


# --- circles ---------------------------------------------------------------------------------------------------------


def graph_of(sources: Mapping[str, str]) -> dict[str, set[str]]:
    """Which of these modules each of them imports, by name: ``from a.b import c`` is of ``a.b.c`` where that is one."""
    found: dict[str, set[str]] = {}
    for module, source in sources.items():
        names = {each.target for each in imports_of(source, module)}
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ImportFrom):
                base = absolute_base(node, module)
                inner = {f"{base}.{alias.name}" for alias in node.names}
                names = names - ({base} if inner <= sources.keys() else set()) | inner
        found[module] = {name for name in names if name in sources and name != module}
    return found


def circle_in(graph: Mapping[str, set[str]]) -> str:
    """One circle, in the order of its imports; empty where there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as exc:
        return " -> ".join(reversed(exc.args[1]))
    return ""


def test_no_modules_import_each_other_in_a_circle() -> None:
    """The map of the package names everything and loads nothing, so it is no part of a circle."""
    sources = {}
    for folder in (PACKAGE, PACKAGE.parent / "benchmarks"):
        for path in folder.rglob("*.py"):
            parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
            sources[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path.read_text("utf-8")
    del sources["mcp_probe"]
    assert len(sources) > 200
    assert circle_in(graph_of(sources)) == ""


@pytest.mark.parametrize(
    ("other", "circle"),
    [
        ("", ""),
        ("import p.c", ""),
        ("from p import c, a", "p.a -> p.b -> p.a"),
        ("from p.a import A", "p.a -> p.b -> p.a"),
        ("if TYPE_CHECKING:\n    from p.a import A", "p.a -> p.b -> p.a"),
        ("def f():\n    from p import a", "p.a -> p.b -> p.a"),
        ("from importlib import import_module\nimport_module('p.a')", "p.a -> p.b -> p.a"),
        ("from . import a", "p.a -> p.b -> p.a"),
    ],
)
def test_a_circle_is_found_however_it_is_closed(other: str, circle: str) -> None:
    graph = graph_of({"p": "", "p.a": "from p.b import B", "p.b": other, "p.c": "import os"})
    found = circle_in(graph)
    assert sorted(found.split(" -> ")[1:]) == sorted(circle.split(" -> ")[1:])
    assert bool(found) == bool(circle)


# --- the accelerator -------------------------------------------------------------------------------------------------

NATIVE = PACKAGE / "native"
PROTOTYPE = re.compile(r"^static [^;={]*?\b(\w+)\([^;{}]*\);", re.MULTILINE)
DEFINITION = re.compile(r"^(?:static|INLINE|NOINLINE) [^;={]*?\b(\w+)\([^;{}]*\)\s*\{", re.MULTILINE)


def needed_later(files: Mapping[str, str]) -> list[str]:
    """``files`` in the order in which they are included: what one of them declares and a later one defines."""
    defined = {name: file for file in reversed(list(files)) for name in DEFINITION.findall(files[file])}
    order = list(files)
    return [
        f"{file} needs {name}(), which {defined.get(name)} defines"
        for file, text in files.items()
        for name in PROTOTYPE.findall(text)
        if name != "__attribute__" and order.index(defined.get(name, order[-1])) > order.index(file)
    ]


@pytest.mark.parametrize("unit", ["core.c", "memory.c"])
def test_no_header_needs_a_later_one(unit: str) -> None:
    names = [*re.findall(r'#include "(\w+\.h)"', (NATIVE / unit).read_text()), unit]
    assert len(names) > 5
    files = {name: (NATIVE / name).read_text() for name in names}
    assert len(DEFINITION.findall("".join(files.values()))) > 40
    assert needed_later(files) == []


def test_what_a_later_header_defines_is_found() -> None:
    early, late = "static inline int f(int a);\nstatic int g(void)\n{\n}\n", "static inline int f(int a)\n{\n}\n"
    assert needed_later({"early.h": early, "late.h": late}) == ["early.h needs f(), which late.h defines"]
    assert needed_later({"both.h": early + late}) == []


def test_the_accelerator_stays_small() -> None:
    """At most 4,200 lines of C in all, of 100 columns, and no other compiled language."""
    root = PACKAGE.parent
    sources = [*root.glob("mcp_probe/**/*.[ch]"), *root.glob("benchmarks/*.[ch]")]
    lines = [line for source in sources for line in source.read_text().splitlines()]
    assert 1_000 < len(lines) <= 4_200
    assert max(map(len, lines)) <= 100
    assert not [path for kind in ("cpp", "pyx", "rs", "cc") for path in root.glob(f"mcp_probe/**/*.{kind}")]
