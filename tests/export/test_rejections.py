"""A backend that takes a batch and rejects some of it: an exporter calls that success, the report does not."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsPartialSuccess,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceResponse,
)

from mcp_probe.export import rejections
from tests.export.otlp_backend import GrpcBackend, HttpBackend
from tests.export.speaking import FAST, Spoken, environment, server_program

REJECTED = 2
KEEP_SUMMARY = """
import json, os, mcp_probe
probe = mcp_probe.attach(server, report=None)
import atexit
def keep():
    probe.detach()
    with open(os.environ["KEPT"], "w") as file:
        json.dump(probe.snapshot().to_json()["probe"], file)
atexit.register(keep)
"""
BODIES = {
    "traces": ExportTraceServiceResponse(
        partial_success=ExportTracePartialSuccess(rejected_spans=REJECTED, error_message="too old")
    ).SerializeToString(),
    "metrics": ExportMetricsServiceResponse(
        partial_success=ExportMetricsPartialSuccess(rejected_data_points=REJECTED, error_message="too old")
    ).SerializeToString(),
}


def delivered(url: str, folder: Path, **env: str) -> tuple[dict[str, Any], str]:
    """What the report says of each signal after three calls, and what the server wrote to stderr."""
    kept = folder / "kept.json"
    env = environment(MCP_PROBE_OTLP=url, MCP_PROBE_OTLP_EXIT_MS="60000", KEPT=str(kept), **{**FAST, **env})
    with Spoken([sys.executable, server_program(folder, KEEP_SUMMARY)], env) as server:
        for _ in range(3):
            server.call()
        server.end()
    rows = json.loads(kept.read_text())["telemetry"]
    return {row["signal"]: row for row in rows}, server.stderr


@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
def test_what_a_backend_rejects_counts_as_not_delivered_and_is_said_once(protocol: str, tmp_path: Path) -> None:
    backend = GrpcBackend(rejects=REJECTED) if protocol == "grpc" else HttpBackend(body=BODIES)
    with backend:
        # One batch of all spans, at the end.
        rows, said = delivered(
            backend.url, tmp_path, OTEL_EXPORTER_OTLP_PROTOCOL=protocol, OTEL_BSP_SCHEDULE_DELAY="600000"
        )
        batches = len(backend.kept.traces)
        taken = len(backend.kept.spans())
    spans = rows["spans"]
    assert (spans["delivered"], spans["undelivered"]) == (taken - REJECTED * batches, REJECTED * batches)
    assert spans["reason"] == f"the backend rejected {REJECTED} spans: too old"
    assert rows["metric exports"]["delivered"] == 0
    assert rows["metric exports"]["undelivered"] >= 1
    assert said.count("telemetry for ") == 1


def test_an_answer_without_rejections_is_a_delivery(tmp_path: Path) -> None:
    warned = ExportTraceServiceResponse(partial_success=ExportTracePartialSuccess(error_message="use a newer version"))
    with HttpBackend(body={"traces": warned.SerializeToString(), "metrics": b"ok"}) as backend:
        rows, said = delivered(backend.url, tmp_path)
    assert (rows["spans"]["undelivered"], rows["metric exports"]["undelivered"], said) == (0, 0, "")


def test_a_session_that_the_environment_names_is_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    assert rejections.session_for("traces").keys() == {"session"}
    monkeypatch.setenv("OTEL_PYTHON_EXPORTER_OTLP_HTTP_CREDENTIAL_PROVIDER", "mine")
    assert rejections.session_for("traces") == {}


def test_an_exporter_of_another_shape_exports_as_ever() -> None:
    rejections.hear_grpc(object())
    assert rejections.take()[0] == 0
