"""The stubs beside the C name exactly what the compiled modules have."""

from __future__ import annotations

import ast
import selectors
from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any

import pytest

from mcp_probe import native
from tests.native.twins import needs_the_accelerator, needs_the_memory_hooks

FOLDER = Path(native.__file__).parent
core: Any = native.core
MAKERS: dict[str, Callable[[], object]] = {
    "Request": lambda: core.Request(1, "request", "tools/call", "t", "stdio"),
    "Steps": lambda: core.Steps(),
    "Readings": lambda: core.Readings(core.Steps(), None, -1),
    "PipeLooks": lambda: core.PipeLooks(),
    "PipeLooker": lambda: core.PipeLooker(),
    "Poll": lambda: core.Poll(core.Steps(), max, selectors.DefaultSelector),
}
LAYOUT = {"__doc__", "__init__", "__module__", "__new__", "__vectorcalloffset__"}


def declared(stub: str) -> dict[str, ast.stmt]:
    """What a stub declares at its top, by name. Names with an underscore are only for its own types."""
    found = names_in(ast.parse((FOLDER / stub).read_text("utf-8")).body)
    return {name: node for name, node in found.items() if not name.startswith("_")}


def names_in(body: list[ast.stmt]) -> dict[str, ast.stmt]:
    found: dict[str, ast.stmt] = {}
    for each in body:
        if isinstance(each, ast.AnnAssign):
            assert isinstance(each.target, ast.Name)
            found[each.target.id] = each
        elif isinstance(each, (ast.FunctionDef, ast.ClassDef)):
            found[each.name] = each
    return found


def names_of(module: ModuleType) -> set[str]:
    return {name for name in vars(module) if not name.startswith("__")}


@needs_the_accelerator
def test_the_core_has_what_its_stub_declares() -> None:
    assert set(declared("_core.pyi")) == names_of(core)


@needs_the_memory_hooks
def test_the_memory_hooks_are_what_their_stub_declares() -> None:
    hooks: Any = native.memory
    assert set(declared("_memory.pyi")) == names_of(hooks)


@needs_the_accelerator
@pytest.mark.parametrize("name", MAKERS)
def test_a_type_has_the_members_that_its_stub_declares(name: str) -> None:
    stub = declared("_core.pyi")[name]
    assert isinstance(stub, ast.ClassDef)
    assert set(names_in(stub.body)) - LAYOUT == set(vars(getattr(core, name))) - LAYOUT


@needs_the_accelerator
@pytest.mark.parametrize("name", MAKERS)
def test_what_the_stub_calls_a_property_cannot_be_set(name: str) -> None:
    stub = declared("_core.pyi")[name]
    assert isinstance(stub, ast.ClassDef)
    one = MAKERS[name]()
    for member, node in names_in(stub.body).items():
        if isinstance(node, ast.FunctionDef) and not node.decorator_list:
            continue
        value = getattr(one, member)
        try:
            setattr(one, member, dict(value) if isinstance(value, MappingProxyType) else value)
        except (AttributeError, TypeError):
            can_be_set = False
        else:
            can_be_set = True
        assert can_be_set is may_be_set(node), f"{name}.{member}"


def may_be_set(node: ast.stmt) -> bool:
    """Whether a stub says so: a plain attribute, or a property whose last definition is its setter."""
    return isinstance(node, ast.AnnAssign) or ast.unparse(node).startswith(f"@{getattr(node, 'name', '')}.setter")


@needs_the_accelerator
def test_every_type_of_the_stub_is_looked_at() -> None:
    types = {name for name, node in declared("_core.pyi").items() if isinstance(node, ast.ClassDef)}
    assert types == set(MAKERS)
