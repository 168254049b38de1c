"""Who allocates outside Python's allocators: told of the server's own modules, by what they import."""

from __future__ import annotations

import gc
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from mcp_probe.capture import outside_memory
from mcp_probe.capture.outside_memory import OutsideMemory

WAYS = outside_memory.WAYS  # before the fixture of all tests takes them away


@dataclass(frozen=True, slots=True)
class Tools:
    """A folder for the server's own modules, and the modules that are loaded."""

    folder: Path
    modules: dict[str, ModuleType] = field(default_factory=dict)

    def load(self, source: str, *loads: str) -> None:
        file = self.folder / "its_tools.py"
        file.write_text(source)
        module = self.modules["its_tools"] = ModuleType("its_tools")
        module.__file__ = str(file)
        self.modules.update({name: ModuleType(name) for name in loads})


@pytest.fixture
def tools(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Tools:
    found = Tools(tmp_path)
    monkeypatch.setattr(outside_memory, "WAYS", WAYS)
    monkeypatch.setattr(outside_memory, "sys", SimpleNamespace(modules=found.modules))
    return found


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("import mmap\n", "mmap (in its_tools)"),
        ("def load():\n    from ctypes import CDLL\n", "ctypes (in its_tools)"),
        ("import json  # not ctypes\n", ""),
        ("import mmapped\n", ""),
    ],
)
def test_a_module_of_the_servers_own_is_told_by_its_imports(tools: Tools, source: str, told: str) -> None:
    tools.load(source, *WAYS)
    assert OutsideMemory().found() == told


def test_a_module_that_has_not_imported_it_yet_is_told_once_it_has(tools: Tools) -> None:
    outside = OutsideMemory()
    tools.load("def load():\n    import mmap\n")
    assert outside.found() == ""
    tools.load("def load():\n    import mmap\n", "mmap")
    assert outside.found() == "mmap (in its_tools)"


def test_a_module_that_is_loaded_later_is_found_then(tools: Tools) -> None:
    outside = OutsideMemory()
    assert outside.found() == ""
    tools.load("import ctypes\n", "ctypes")
    assert outside.found() == "ctypes (in its_tools)"


def test_a_module_that_is_loaded_during_the_look_does_not_end_it(tools: Tools) -> None:
    """Before CPython 3.12 a collection may begin at any allocation, and whoever is in its callbacks loads modules."""

    def load_another(phase: str, info: dict[str, int]) -> None:
        name = f"loaded_{len(tools.modules)}"
        tools.modules[name] = ModuleType(name)

    tools.load("import mmap\n", *WAYS)
    # More than the pairs that CPython keeps for reuse, so that pairs are allocated.
    tools.modules.update({name: ModuleType(name) for name in map(str, range(4_000))})
    outside, before = OutsideMemory(), gc.get_threshold()
    gc.callbacks.append(load_another)
    gc.set_threshold(100)
    try:
        found = outside.found()
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(load_another)
    assert found == "mmap (in its_tools)"
    assert any(name.startswith("loaded_") for name in tools.modules)
