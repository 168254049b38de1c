"""A real Prometheus, and its query API."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from tests.export.backends.loopback import ask, ask_json, binary, running
from tests.ports import free_port

CONFIGURATION = Path(__file__).with_name("prometheus.yaml")


@dataclass(frozen=True, slots=True)
class Prometheus:
    """Where it listens."""

    port: int

    @property
    def otlp(self) -> str:
        return f"http://127.0.0.1:{self.port}/api/v1/otlp"

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Result of an instant query. Raises: AssertionError with Prometheus's own words where it does not parse."""
        answer = ask_json(f"http://127.0.0.1:{self.port}/api/v1/query?{urlencode({'query': expression})}")
        assert answer is not None, "Prometheus is gone"
        return list(answer["data"]["result"])

    def exemplars(self, selector: str) -> list[tuple[dict[str, str], dict[str, str]]]:
        """(labels of the series, labels of the exemplar) of the last ten minutes."""
        now = time.time()
        parameters = urlencode({"query": selector, "start": now - 600, "end": now + 60})
        answer = ask_json(f"http://127.0.0.1:{self.port}/api/v1/query_exemplars?{parameters}")
        return [(row["seriesLabels"], each["labels"]) for row in answer["data"] for each in row["exemplars"]]

    def names(self) -> set[str]:
        """Of every series it has."""
        answer = ask_json(f"http://127.0.0.1:{self.port}/api/v1/label/__name__/values")
        return set((answer or {}).get("data", ()))


@contextmanager
def prometheus(folder: Path) -> Iterator[Prometheus]:
    """One that scrapes nothing and takes OTLP."""
    backend = Prometheus(free_port())
    command = [
        str(binary("prometheus")),
        f"--config.file={CONFIGURATION}",
        f"--storage.tsdb.path={folder / 'prometheus'}",
        f"--web.listen-address=127.0.0.1:{backend.port}",
        "--web.enable-otlp-receiver",
        "--enable-feature=exemplar-storage,created-timestamp-zero-ingestion",
    ]
    url = f"http://127.0.0.1:{backend.port}/-/ready"
    with running(command, log=folder / "prometheus.log", is_ready=lambda: ask(url)):
        yield backend
