"""Backends that several test files ask; each is started once, and only when a test wants it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.export.backends.collector import Collector, collector_to_files
from tests.export.backends.jaeger import Jaeger, jaeger


@pytest.fixture(scope="session")
def a_collector(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Collector]:
    """A Collector that keeps all it receives."""
    with collector_to_files(tmp_path_factory.mktemp("collector")) as backend:
        yield backend


@pytest.fixture(scope="session")
def a_jaeger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jaeger]:
    """A Jaeger."""
    with jaeger(tmp_path_factory.mktemp("jaeger")) as backend:
        yield backend
