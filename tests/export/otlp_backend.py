"""An OTLP backend for tests, over HTTP or gRPC, that keeps what it gets and misbehaves as told."""

from __future__ import annotations

import gzip
import ssl
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass
class Kept:
    """What a backend has taken so far. Any thread."""

    traces: list[ExportTraceServiceRequest] = field(default_factory=list)
    metrics: list[ExportMetricsServiceRequest] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    asked: int = 0  # requests, answered or not
    refused: list[str] = field(default_factory=list)  # paths of those that were not taken
    changed: threading.Condition = field(default_factory=threading.Condition)

    def add(self, message: ExportTraceServiceRequest | ExportMetricsServiceRequest) -> None:
        with self.changed:
            if isinstance(message, ExportTraceServiceRequest):
                self.traces.append(message)
            else:
                self.metrics.append(message)
            self.changed.notify_all()

    def note(self, headers: dict[str, str] | None = None) -> None:
        with self.changed:
            self.asked += 1
            if headers is not None:
                self.headers.append(headers)
            self.changed.notify_all()

    def refuse(self, path: str) -> None:
        with self.changed:
            self.refused.append(path)
            self.changed.notify_all()

    def wait(self, until: Callable[[Kept], bool], timeout_s: float = 100.0) -> bool:
        """Whether ``until(self)`` became true."""
        with self.changed:
            return self.changed.wait_for(lambda: until(self), timeout_s)

    def span_names(self) -> list[str]:
        """Names of every span taken."""
        return [span.name for span in self.spans()]

    def spans(self) -> list[Any]:
        """Every span taken."""
        return [
            span
            for message in self.traces
            for resource in message.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def metric_names(self) -> set[str]:
        """Names of every metric taken."""
        return {
            metric.name
            for message in self.metrics
            for resource in message.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }

    def resources(self) -> list[dict[str, Any]]:
        """Attributes of every resource that spans or metrics came from."""
        found = [r.resource for m in self.traces for r in m.resource_spans]
        found += [r.resource for m in self.metrics for r in m.resource_metrics]
        return [
            {item.key: item.value.string_value or item.value.int_value for item in resource.attributes}
            for resource in found
        ]


class HttpBackend:
    """OTLP over HTTP on a loopback port.

    ``status`` is what it answers, ``body`` to a path's end; ``hang`` holds every request for ever.
    """

    def __init__(
        self,
        *,
        port: int = 0,
        status: int = 200,
        hang: bool = False,
        tls: ssl.SSLContext | None = None,
        body: Mapping[str, bytes] | None = None,
    ):
        self.kept = Kept()
        self.status = status
        self.hang = hang
        self.body = body or {}
        self._released = threading.Event()
        backend = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                backend.kept.note(dict(self.headers.items()))
                if backend.hang:
                    backend._released.wait()
                    return
                body = self.rfile.read(int(self.headers["content-length"]))
                if self.headers.get("content-encoding") == "gzip":
                    body = gzip.decompress(body)
                status = backend.status  # once: whoever waits for what is kept may change it before the answer
                if status != 200:
                    backend.kept.refuse(self.path)
                else:
                    kind = ExportTraceServiceRequest if self.path.endswith("traces") else ExportMetricsServiceRequest
                    backend.kept.add(kind.FromString(body))
                self.send_response(status)
                said = backend.body.get(self.path.rpartition("/")[2], b"")
                self.send_header("content-length", str(len(said)))
                self.end_headers()
                self.wfile.write(said)

            def log_message(self, format: str, *args: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.port: int = self._server.server_address[1]
        scheme = "http" if tls is None else "https"
        self.url = f"{scheme}://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def __enter__(self) -> HttpBackend:
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop taking requests; those that hang end without an answer."""
        self._released.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)


class GrpcBackend:
    """OTLP over gRPC on a loopback port.

    ``code`` is what it answers instead of taking anything; it says that it ``rejects`` so many items of each batch.
    """

    def __init__(self, *, code: Any = None, hang: bool = False, rejects: int = 0) -> None:
        import grpc  # type: ignore[import-untyped]
        from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as metrics
        from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2_grpc as metrics_grpc
        from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as trace
        from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as trace_grpc

        self.kept = Kept()
        self._released = threading.Event()
        backend = self

        def taken(request: Any, context: Any, answer: Any) -> Any:
            backend.kept.note()
            if hang:
                backend._released.wait()
            if code is not None:
                context.abort(code, "told to refuse")
            backend.kept.add(request)
            return answer

        def partly(what: str) -> dict[str, Any]:
            return {"partial_success": {what: rejects, "error_message": "too old"}} if rejects else {}

        class Traces(trace_grpc.TraceServiceServicer):
            def Export(self, request: Any, context: Any) -> Any:
                return taken(request, context, trace.ExportTraceServiceResponse(**partly("rejected_spans")))

        class Metrics(metrics_grpc.MetricsServiceServicer):
            def Export(self, request: Any, context: Any) -> Any:
                return taken(request, context, metrics.ExportMetricsServiceResponse(**partly("rejected_data_points")))

        self._server = grpc.server(ThreadPoolExecutor(4))
        trace_grpc.add_TraceServiceServicer_to_server(Traces(), self._server)  # type: ignore[no-untyped-call]
        metrics_grpc.add_MetricsServiceServicer_to_server(Metrics(), self._server)  # type: ignore[no-untyped-call]
        self.port: int = self._server.add_insecure_port("127.0.0.1:0")
        self.url = f"http://127.0.0.1:{self.port}"
        self._server.start()

    def __enter__(self) -> GrpcBackend:
        return self

    def __exit__(self, *unused: object) -> None:
        self._released.set()
        self._server.stop(0).wait(10)
