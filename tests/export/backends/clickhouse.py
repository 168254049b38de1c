"""ClickHouse, embedded in a process of its own, behind the HTTP interface that the Collector's exporter speaks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.export.backends.loopback import ask, running
from tests.ports import free_port

PROGRAM = Path(__file__).with_name("clickhouse_http.py")


@dataclass(frozen=True, slots=True)
class ClickHouse:
    """Where it listens."""

    port: int

    @property
    def endpoint(self) -> str:
        """As the Collector's exporter wants it."""
        return f"http://127.0.0.1:{self.port}?compress=none"

    def rows(self, sql: str) -> list[dict[str, Any]]:
        """Rows of a SELECT in the database of the fleet. Raises: AssertionError with ClickHouse's own words."""
        answer = ask(f"http://127.0.0.1:{self.port}/", f"{sql.rstrip().rstrip(';')}\nFORMAT JSONEachRow".encode())
        assert answer is not None, "ClickHouse is gone"
        return [json.loads(line) for line in answer.decode("utf-8").splitlines()]


@contextmanager
def clickhouse(folder: Path, python: Path) -> Iterator[ClickHouse]:
    """An empty one; ``python`` is the interpreter of ``.envs/chdb``."""
    backend = ClickHouse(free_port())
    database = folder / "clickhouse"
    database.mkdir()
    command = [str(python), str(PROGRAM), str(backend.port), str(database)]
    url = f"http://127.0.0.1:{backend.port}/ping"
    with running(command, log=folder / "clickhouse.log", is_ready=lambda: ask(url)):
        yield backend
