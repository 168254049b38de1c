"""What a backend rejected of a batch that it took: it says so in an answer that exporters take for success.

Source: OpenTelemetry protocol specification, "Partial Success".
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import requests

_COUNTS = {"traces": "rejected_spans", "metrics": "rejected_data_points"}
_heard = threading.local()


def take() -> tuple[int, str]:
    """(how many items, why) of the exports of this thread since the last call."""
    count, _heard.count = getattr(_heard, "count", 0), 0
    return count, getattr(_heard, "reason", "")


def _hear(signal: Literal["traces", "metrics"], answer: Any) -> None:
    partial = answer.partial_success
    count = getattr(partial, _COUNTS[signal])
    if count > 0:
        what = _COUNTS[signal].removeprefix("rejected_").replace("_", " ")
        _heard.count = getattr(_heard, "count", 0) + count
        _heard.reason = f"the backend rejected {count} {what}: {partial.error_message or 'it did not say why'}"


def session_for(signal: Literal["traces", "metrics"]) -> dict[str, requests.Session]:
    """The argument ``session`` of an HTTP exporter that is heard; none where the environment names one of its own."""
    if any(name.startswith("OTEL_PYTHON_EXPORTER_OTLP_HTTP_") and "CREDENTIAL" in name for name in os.environ):
        return {}
    import requests

    session = requests.Session()
    session.hooks["response"].append(lambda response, **_: _read(signal, response))
    return {"session": session}


def _read(signal: Literal["traces", "metrics"], response: requests.Response) -> None:
    if not response.ok or not response.content:
        return
    try:
        _hear(signal, _answer_type(signal).FromString(response.content))
    except Exception:  # noqa: BLE001 - some backends answer in words; the exporter takes that for success, too
        return


def _answer_type(signal: Literal["traces", "metrics"]) -> Any:
    if signal == "traces":
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse as Answer
    else:
        from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse as Answer
    return Answer


class _Heard:
    """The call of a gRPC client, heard."""

    def __init__(self, call: Any) -> None:
        self._call = call

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        answer = self._call(*args, **kwargs)
        name = type(answer).__name__
        if name in ("ExportTraceServiceResponse", "ExportMetricsServiceResponse"):
            _hear("traces" if "Trace" in name else "metrics", answer)
        return answer


def hear_grpc(exporter: Any) -> None:
    """Hear the answers to ``exporter``, if it speaks gRPC. It may make its client anew, so call it before each export.

    Its client has no public name. Without that name it exports as ever, and what was rejected counts as delivered.
    """
    client = getattr(exporter, "_client", None)
    call = getattr(client, "Export", None)
    if call is not None and not isinstance(call, _Heard):
        client.Export = _Heard(call)  # type: ignore[union-attr]
