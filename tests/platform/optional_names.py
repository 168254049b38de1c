"""Names of the standard library that some platforms lack, from typeshed; and where mcp_probe relies on one of them.

Typeshed comes with mypy. Its stubs say under ``sys.platform`` which names Windows and macOS lack.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import mypy

STUBS = Path(mypy.__file__).parent / "typeshed" / "stdlib"
MODULES = (
    *("fcntl", "mmap", "multiprocessing", "os", "pwd", "resource", "select", "selectors", "signal", "socket"),
    *("subprocess", "termios", "threading", "time"),
)
POSIX_MODULES = ("fcntl", "pwd", "resource", "termios")
"""Windows has no such modules."""
UNTOLD = {"threading": frozenset({"get_native_id"})}
"""Names that the documentation calls optional, and typeshed does not."""


class Use(NamedTuple):
    """A name that may be missing, the line that takes it, and whether that line is ready for its absence."""

    module: str
    name: str
    line: int
    is_asked_for: bool


@cache
def optional_names(module: str, platform: str) -> frozenset[str]:
    """Names that ``module`` has on Linux, and not on ``platform``: ``win32`` or ``darwin``."""
    here, there = (frozenset(_names(module, one)) for one in ("linux", platform))
    return (here if platform == "win32" and module in POSIX_MODULES else here - there) | UNTOLD.get(module, frozenset())


def _names(module: str, platform: str) -> Iterator[str]:
    path = STUBS / module
    path = path / "__init__.pyi" if path.is_dir() else path.with_suffix(".pyi")
    yield from _bound(ast.parse(path.read_text(encoding="utf-8")).body, platform)


def _bound(body: Iterable[ast.stmt], platform: str) -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.If):
            yield from _bound(node.body if _holds(node.test, platform) else node.orelse, platform)
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id
        elif isinstance(node, ast.Assign):
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if alias.name == "*" and not node.level:
                    yield from _names(str(node.module), platform)
                yield alias.asname or alias.name


def _holds(test: ast.expr, platform: str) -> bool:
    """Whether a stub's condition holds for this version of Python on ``platform``."""
    there = SimpleNamespace(platform=platform, version_info=sys.version_info)
    return bool(eval(compile(ast.Expression(test), "<typeshed>", "eval"), {"sys": there, "TYPE_CHECKING": True}))


def uses(source: str, platform: str) -> Iterator[Use]:
    """Every name that ``source`` takes from a module of :data:`MODULES` and that ``platform`` may lack.

    A name is asked for by ``getattr`` with a default, below ``hasattr`` in the same function, and in a ``try`` that
    handles its absence.
    """
    return _uses(ast.parse(source), platform, frozenset(), "")


def _uses(node: ast.AST, platform: str, asked: frozenset[str], handled: str) -> Iterator[Use]:
    def optional(module: str, name: str) -> bool:
        return module in MODULES and name in optional_names(module, platform)

    if isinstance(node, (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
        asked, handled = frozenset(_asked_in(node)), ""
    elif isinstance(node, ast.Try):
        types = (handler.type for handler in node.handlers)
        inside = handled + " ".join("Exception" if one is None else ast.unparse(one) for one in types)
        for tried in node.body:
            yield from _uses(tried, platform, asked, inside)
        for rest in (*node.handlers, *node.orelse, *node.finalbody):
            yield from _uses(rest, platform, asked, handled)
        return
    elif isinstance(node, ast.With) and (suppressed := [ast.unparse(item) for item in node.items]):
        handled += " ".join(one for one in suppressed if one.startswith("suppress("))
    elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        module, name = node.value.id, node.attr
        if optional(module, name):
            expected = f"{module}.{name}" in asked or "AttributeError" in handled or "Exception" in handled.split()
            yield Use(module, name, node.lineno, expected)
    elif isinstance(node, ast.ImportFrom) and not node.level:
        for alias in node.names:
            if optional(str(node.module), alias.name):
                yield Use(str(node.module), alias.name, node.lineno, "ImportError" in handled)
    elif isinstance(node, ast.Import):
        for alias in node.names:
            if platform == "win32" and alias.name in POSIX_MODULES:
                yield Use(alias.name, "", node.lineno, "ImportError" in handled)
    elif isinstance(node, ast.Call) and (question := _question(node)) and optional(*question):
        yield Use(*question, node.lineno, True)
    for child in ast.iter_child_nodes(node):
        yield from _uses(child, platform, asked, handled)


def _asked_in(scope: ast.AST) -> Iterator[str]:
    """``module.name`` of each ``hasattr`` of ``scope``, functions inside of it left out."""
    for child in ast.iter_child_nodes(scope):
        if isinstance(child, ast.Call) and (question := _question(child)):
            yield ".".join(question)
        if not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            yield from _asked_in(child)


def _question(call: ast.Call) -> tuple[str, str] | None:
    """(module, name) of ``hasattr(module, "name")`` and ``getattr(module, "name", default)``."""
    asks = {"hasattr": 2, "getattr": 3}.get(ast.unparse(call.func)) == len(call.args)
    return (ast.unparse(call.args[0]), ast.unparse(call.args[1]).strip("'")) if asks else None
