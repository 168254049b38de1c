"""A callback is called once its module is imported, whoever imports it, and by whatever loader."""

from __future__ import annotations

import importlib
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from mcp_probe.adapters.imports import ImportWatch

NAME = "mcp_probe_imported_here"
LIMIT_S = 30.0


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """A module whose import takes until this event is set."""
    monkeypatch.syspath_prepend(str(tmp_path))
    go_on = threading.Event()
    monkeypatch.setattr(sys, NAME, go_on, raising=False)
    (tmp_path / f"{NAME}.py").write_text(f"import sys\nassert sys.{NAME}.wait({LIMIT_S})\ndone = True\n", "utf-8")
    yield go_on
    sys.modules.pop(NAME, None)


@pytest.fixture
def watch() -> Iterator[ImportWatch]:
    made = ImportWatch()
    yield made
    made.close()


def test_at_once_where_it_is_imported_and_else_right_after_its_import(
    module: threading.Event, watch: ImportWatch
) -> None:
    module.set()
    told: list[ModuleType] = []
    watch.when_imported(NAME, told.append)
    assert told == []
    found = importlib.import_module(NAME)
    assert told == [found] and watch not in sys.meta_path
    watch.when_imported(NAME, told.append)
    assert told == [found, found]


def test_after_an_import_that_another_thread_had_begun(module: threading.Event, watch: ImportWatch) -> None:
    told: list[Any] = []
    thread = threading.Thread(target=importlib.import_module, args=(NAME,))
    thread.start()
    deadline = time.monotonic() + LIMIT_S
    while NAME not in sys.modules and time.monotonic() < deadline:
        time.sleep(0.001)
    watch.when_imported(NAME, lambda found: told.append(found.done))
    time.sleep(0.05)
    assert told == []
    module.set()
    thread.join()
    while not told and time.monotonic() < deadline:
        time.sleep(0.001)
    assert told == [True]
