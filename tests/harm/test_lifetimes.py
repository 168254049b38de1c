"""Nothing lives longer with the probe than without it."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.harm.running import CORES, ROOT, How, pythons, told

PACKAGES = ("anyio", "idna", "typing_extensions", "exceptiongroup", "sniffio")
"""What the program needs of other projects: pure Python, so that every interpreter can import ours."""

TRIES = 8
"""Bare, too, a worker thread of anyio's may hold on to its loop for a moment, on a busy machine in two runs of five:
what lives longer does so each time."""


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("packages")
    for name in PACKAGES:
        found = importlib.util.find_spec(name)
        if found is not None and found.origin is not None:
            origin = Path(found.origin)
            place = origin.parent if origin.name == "__init__.py" else origin
            (folder / place.name).symlink_to(place)
    return str(folder)


@CORES
@pytest.mark.parametrize("python", pythons())
def test_nothing_lives_longer_than_without_the_probe(core: How, python: str, packages: str) -> None:
    extra = {} if python == sys.executable else {"PYTHONPATH": os.pathsep.join([str(ROOT), packages])}
    longer: dict[str, Any] = {}
    for _ in range(TRIES):
        expected = told("lifetimes", "bare", python=python, extra=extra)
        found = told("lifetimes", core, python=python, extra=extra)
        assert found.keys() == expected.keys()
        longer = {case: said for case, said in found.items() if lives_longer(said, expected[case])}
        if not longer:
            return
    assert longer == {}


def lives_longer(found: list[Any], bare: list[Any]) -> bool:
    """Whether anything is alive (True), or refers to what is asked about (a type's name), that does not without us."""
    if found and isinstance(found[0], bool):
        return any(now and not was for now, was in zip(found, bare, strict=True))
    return bool(Counter(found) - Counter(bare))
