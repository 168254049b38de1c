"""The trigger that waits for an import, inside one process."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mcp_probe.launch.child import ImportTrigger


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on the path; what is imported from it is forgotten afterwards."""
    monkeypatch.syspath_prepend(tmp_path)
    finders, before = list(sys.meta_path), set(sys.modules)
    yield tmp_path
    sys.meta_path[:] = finders
    for name in set(sys.modules) - before:
        del sys.modules[name]


def armed(module: str) -> list[str]:
    """Arms a trigger; the list gets what ``module`` holds at the moment it fires."""
    fired: list[str] = []
    sys.meta_path.insert(0, ImportTrigger(module, lambda: fired.append(sys.modules[module].state)))
    return fired


def test_action_runs_once_after_the_modules_body(folder: Path) -> None:
    (folder / "waited_for.py").write_text("state = 'half'\nstate = 'whole'\n")
    fired = armed("waited_for")
    module = importlib.import_module("waited_for")
    importlib.reload(module)
    assert fired == ["whole"]


def test_other_imports_do_not_fire_it(folder: Path) -> None:
    (folder / "another.py").write_text("")
    fired = armed("waited_for")
    importlib.import_module("another")
    assert fired == []


def test_it_leaves_no_trace_on_the_module_it_waited_for(folder: Path) -> None:
    (folder / "waited_for.py").write_text("state = 1\n")
    finders = list(sys.meta_path)
    armed("waited_for")
    module = importlib.import_module("waited_for")
    assert sys.meta_path == finders
    assert module.__spec__ is not None
    assert "exec_module" not in vars(module.__loader__)


def test_a_module_that_fails_to_import_fails_as_without_us(folder: Path) -> None:
    (folder / "waited_for.py").write_text("raise RuntimeError('broken')\n")
    fired = armed("waited_for")
    with pytest.raises(RuntimeError, match="broken"):
        importlib.import_module("waited_for")
    assert fired == []


def test_it_waits_on_where_the_module_is_not_installed_yet(folder: Path) -> None:
    fired = armed("waited_for")
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("waited_for")
    (folder / "waited_for.py").write_text("state = 'late'\n")
    importlib.invalidate_caches()
    importlib.import_module("waited_for")
    assert fired == ["late"]


def test_asking_where_the_module_is_does_not_disarm_it(folder: Path) -> None:
    (folder / "waited_for.py").write_text("state = 'whole'\n")
    fired = armed("waited_for")
    assert importlib.util.find_spec("waited_for") is not None
    assert fired == []
    importlib.import_module("waited_for")
    assert fired == ["whole"]
