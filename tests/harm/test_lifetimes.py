"""Nothing lives longer with the probe than without it."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import pytest

from tests.harm.running import CORES, ROOT, How, pythons, told

PACKAGES = ("anyio", "idna", "typing_extensions", "exceptiongroup", "sniffio")
"""What the program needs of other projects: pure Python, so that every interpreter can import ours."""


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
    expected = told("lifetimes", "bare", python=python, extra=extra)
    assert told("lifetimes", core, python=python, extra=extra) == expected
