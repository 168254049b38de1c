"""Which exporters the environment, or an endpoint, asks for."""

from __future__ import annotations

import os
import sys
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter as GrpcMetrics
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcSpans
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter as HttpMetrics
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpSpans
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SpanExporter, SpanExportResult

from mcp_probe.errors import MissingExtraError, OptionError
from mcp_probe.export import exporters
from mcp_probe.export.exporters import Route, SignalName, routes
from tests.export.otlp_backend import HttpBackend

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
PROTOCOL = "OTEL_EXPORTER_OTLP_PROTOCOL"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)
    return monkeypatch


def made(signal: SignalName, otlp: bool | str = True) -> tuple[Any, Route]:
    (route,) = routes(signal, otlp)
    exporter = route.make()
    exporter.shutdown()
    return exporter, route


@pytest.mark.parametrize(
    ("signal", "endpoint", "kind", "sends_to"),
    [
        ("traces", "http://c:4318", HttpSpans, "http://c:4318/v1/traces"),
        ("metrics", "http://c:4318/", HttpMetrics, "http://c:4318/v1/metrics"),
        ("metrics", "https://c/otlp/v1/traces", HttpMetrics, "https://c/otlp/v1/metrics"),
        ("traces", "http://c:4317", GrpcSpans, "c:4317"),
        ("metrics", "http://c:4317", GrpcMetrics, "c:4317"),
    ],
)
def test_the_protocol_of_an_endpoint_follows_from_its_port(
    signal: SignalName, endpoint: str, kind: type, sends_to: str
) -> None:
    exporter, route = made(signal, endpoint)
    assert (type(exporter), vars(exporter)["_endpoint"]) == (kind, sends_to)
    assert route.destination == endpoint


def test_without_an_endpoint_it_is_the_specifications_default() -> None:
    exporter, route = made("traces")
    assert exporter._endpoint == "http://localhost:4318/v1/traces"
    assert route.destination == "http://localhost:4318"


def test_a_named_protocol_wins_over_the_port_and_the_signals_own_over_the_common_one(
    environment: pytest.MonkeyPatch,
) -> None:
    environment.setenv(ENDPOINT, "http://c:9999")
    environment.setenv(PROTOCOL, "grpc")
    environment.setenv("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "http/protobuf")
    assert made("traces")[0]._endpoint == "c:9999"
    assert made("metrics")[0]._endpoint == "http://c:9999/v1/metrics"


def test_an_endpoint_in_code_wins_over_the_environment(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://other:4318/v1/traces")
    assert made("traces", "http://c:4318")[0]._endpoint == "http://c:4318/v1/traces"
    assert made("traces")[0]._endpoint == "http://other:4318/v1/traces"


def test_headers_and_compression_of_the_environment_reach_the_backend(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-key=1")
    environment.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
    with HttpBackend() as backend:
        (route,) = routes("traces", backend.url)
        exporter = route.make()
        assert exporter.export([]) is SpanExportResult.SUCCESS
        exporter.shutdown()
    headers = {name.lower(): value for name, value in backend.kept.headers[0].items()}
    assert (headers["x-key"], headers["content-encoding"]) == ("1", "gzip")


def test_a_signal_can_be_switched_off_or_sent_two_ways(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("OTEL_METRICS_EXPORTER", "none")
    environment.setenv("OTEL_TRACES_EXPORTER", "otlp, console")
    assert routes("metrics", True) == []
    assert [route.destination for route in routes("traces", True)] == ["http://localhost:4318", "stderr"]


def test_the_console_is_stderr_since_stdout_belongs_to_the_protocol(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("OTEL_TRACES_EXPORTER", "console")
    exporter, _ = made("traces")
    assert isinstance(exporter, ConsoleSpanExporter)
    assert exporter.out is sys.stderr


def test_an_exporter_of_another_package_is_found_by_its_name(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("OTEL_TRACES_EXPORTER", "otlp_proto_http")
    assert isinstance(made("traces")[0], SpanExporter)
    environment.setenv("OTEL_TRACES_EXPORTER", "no_such_exporter")
    with pytest.raises(OptionError, match=r"OTEL_TRACES_EXPORTER names 'no_such_exporter'"):
        routes("traces", True)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        (PROTOCOL, "http/json", "'http/json'; expected grpc or http/protobuf"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "soon", "makes no sense"),
    ],
)
def test_a_variable_that_makes_no_sense_is_named(
    name: str, value: str, words: str, environment: pytest.MonkeyPatch
) -> None:
    environment.setenv(name, value)
    with pytest.raises(OptionError, match=words):
        routes("metrics", "http://c:4317")


def test_a_missing_exporter_names_the_extra(environment: pytest.MonkeyPatch) -> None:
    environment.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(MissingExtraError, match=r"mcp-probe-profiler\[otel\]"):
        routes("traces", True)


def test_the_verbosity_of_grpc_is_left_as_it_was(environment: pytest.MonkeyPatch) -> None:
    environment.delenv("GRPC_VERBOSITY", raising=False)
    with exporters._quiet_grpc():
        assert os.environ["GRPC_VERBOSITY"] == "NONE"
    assert "GRPC_VERBOSITY" not in os.environ
    environment.setenv("GRPC_VERBOSITY", "DEBUG")
    with exporters._quiet_grpc():
        assert os.environ["GRPC_VERBOSITY"] == "DEBUG"
