"""Fixtures of every test: the guard against leaked probes, other SDKs' interpreters, the event loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.guard import attached_now, detach_leaks

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(autouse=True)
def nothing_attached() -> Iterator[None]:
    """Fails a test that starts with, or leaves behind, an attached probe."""
    if sentence := detach_leaks(attached_now()):
        pytest.fail(f"before the test: {sentence}")
    yield
    if sentence := detach_leaks(attached_now()):
        pytest.fail(f"after the test: {sentence}")


@pytest.fixture
def anyio_backend() -> object:
    """Async tests run on asyncio; for others parametrize ``anyio_backend``, e.g. with ``tests.loops.LOOPS``."""
    return "asyncio"


@pytest.fixture(scope="session")
def env_python() -> Callable[[str], Path]:
    """Interpreter of a locked environment that does not hold mcp_probe, e.g. ``env_python("field-git")``.

    The names are those of ``requirements/*.txt``; console scripts stand beside the interpreter.
    """

    def find(name: str) -> Path:
        python = ROOT / ".envs" / name / "bin" / "python"
        if not (ROOT / "requirements" / f"{name}.txt").exists():
            pytest.fail(f"No environment is called {name!r}: requirements/{name}.txt does not exist.")
        if not (python.parent.parent / ".installed").exists():
            pytest.fail(f"The environment .envs/{name} is missing: run `make envs`.")
        return python

    return find
