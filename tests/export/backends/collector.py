"""A real OpenTelemetry Collector."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.export.backends.loopback import ROOT, accepts, binary, running
from tests.export.backends.received import Point, Span, points_in, spans_in
from tests.ports import free_port

TO_FILES = Path(__file__).with_name("to_files.yaml")
FLEET = ROOT / "examples" / "fleet" / "collector.yaml"


@dataclass(frozen=True, slots=True)
class Collector:
    """Where it listens; ``spans`` and ``points`` are what it wrote, if its configuration writes files."""

    grpc_port: int
    http_port: int
    folder: Path

    @property
    def grpc(self) -> str:
        return f"http://127.0.0.1:{self.grpc_port}"

    @property
    def http(self) -> str:
        return f"http://127.0.0.1:{self.http_port}"

    def spans(self) -> list[Span]:
        return spans_in(self.folder / "traces.jsonl")

    def points(self) -> list[Point]:
        return points_in(self.folder / "metrics.jsonl")


@contextmanager
def collector_to_files(folder: Path) -> Iterator[Collector]:
    """One that keeps all it receives."""
    collector = Collector(free_port(), free_port(), folder)
    variables = {
        "OTLP_GRPC": f"127.0.0.1:{collector.grpc_port}",
        "OTLP_HTTP": f"127.0.0.1:{collector.http_port}",
        "FOLDER": str(folder),
    }
    with _collector(collector, TO_FILES, variables):
        yield collector


@contextmanager
def fleet_collector(
    folder: Path,
    *,
    traces: str,
    metrics: str,
    clickhouse: str,
    baseline_percent: int = 0,
    configuration: Path = FLEET,
) -> Iterator[Collector]:
    """One with the configuration of ``examples/fleet``, by default as it stands there.

    ``traces`` is host:port of OTLP over gRPC, ``metrics`` a URL of OTLP over HTTP, ``clickhouse`` its endpoint.
    """
    collector = Collector(free_port(), free_port(), folder)
    variables = {
        "FLEET_OTLP_GRPC": f"127.0.0.1:{collector.grpc_port}",
        "FLEET_OTLP_HTTP": f"127.0.0.1:{collector.http_port}",
        "FLEET_JAEGER": traces,
        "FLEET_PROMETHEUS": metrics,
        "FLEET_CLICKHOUSE": clickhouse,
        "FLEET_CLICKHOUSE_FLUSH": "200ms",
        "FLEET_DECISION_WAIT": "5s",
        "FLEET_BASELINE_PERCENT": str(baseline_percent),
        "FLEET_OWN_METRICS_PORT": str(free_port()),
    }
    with _collector(collector, configuration, variables):
        yield collector


@contextmanager
def _collector(collector: Collector, configuration: Path, variables: Mapping[str, str]) -> Iterator[None]:
    command = [str(binary("collector")), "--config", str(configuration)]
    log = collector.folder / f"{configuration.stem}.log"
    with running(command, log=log, is_ready=lambda: accepts(collector.http_port), environment=variables):
        yield
