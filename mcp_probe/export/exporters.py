"""What telemetry is asked for: a probe's settings, and exporters as the ``OTEL_*`` variables or an endpoint name them.

Where no protocol is named it follows from the endpoint: port 4317 is gRPC, everything else OTLP over HTTP, which is
also the default of the specification.

Source: opentelemetry.io, "OTLP Exporter Configuration" and "Environment Variable Specification" (1.47).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal
from urllib.parse import urlsplit

from mcp_probe.errors import OptionError
from mcp_probe.export.delivery import missing_extra, shown
from mcp_probe.export.rejections import session_for

SignalName = Literal["traces", "metrics"]

_MODULES = {
    ("traces", "grpc"): ("opentelemetry.exporter.otlp.proto.grpc.trace_exporter", "OTLPSpanExporter"),
    ("traces", "http/protobuf"): ("opentelemetry.exporter.otlp.proto.http.trace_exporter", "OTLPSpanExporter"),
    ("metrics", "grpc"): ("opentelemetry.exporter.otlp.proto.grpc.metric_exporter", "OTLPMetricExporter"),
    ("metrics", "http/protobuf"): ("opentelemetry.exporter.otlp.proto.http.metric_exporter", "OTLPMetricExporter"),
}
_BY_NAME = {"otlp": None, "otlp_proto_grpc": "grpc", "otlp_proto_http": "http/protobuf"}
_DEFAULT_ENDPOINTS = {"grpc": "http://localhost:4317", "http/protobuf": "http://localhost:4318"}


@dataclass(frozen=True, slots=True)
class TelemetrySettings:
    """What the options of a probe, or of ``mcp-probe run``, say about telemetry."""

    otlp: bool | str = False  # True: where the environment says; else a URL
    exports: bool = True  # False: only add to spans that are open anyway
    exit_s: float = 1.0
    slow_step_ms: float = 10.0
    slow_request_ms: float | None = None
    detail: float = 0.0
    replay_histograms: bool = False
    await_hosts: bool = False
    capture_content: tuple[str, ...] = ()
    redact: Callable[[str, object], object] | None = None


def disabled() -> bool:
    """Whether ``OTEL_SDK_DISABLED`` switches telemetry off."""
    return os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"


def number_from_environment(name: str, default: float, least: float) -> float:
    """A number of the SDK's own environment variables; what makes no sense is the default, as in the SDK."""
    try:
        value = float(os.environ.get(name) or default)
    except ValueError:
        return default
    return value if value >= least else default


@dataclass(frozen=True, slots=True)
class Route:
    """One way out for one signal. ``make`` may be called again, after a fork; ``destination`` holds no secrets."""

    destination: str
    make: Callable[[], Any]  # an exporter, or where it is ``pulled`` a reader that is asked, as Prometheus does
    pulled: bool = False


def routes(signal: SignalName, otlp: bool | str) -> list[Route]:
    """Where ``signal`` goes: to the URL ``otlp``, else as the environment says. Empty where that says ``none``.

    Loads the exporters' modules, so that what is missing or misspelt shows here.

    Raises: OptionError for a variable that makes no sense; MissingExtraError where an exporter is not installed.
    """
    names = (os.environ.get(f"OTEL_{signal.upper()}_EXPORTER") or "otlp").split(",")
    found: list[Route] = []
    for name in (part.strip().lower() for part in names):
        if name in _BY_NAME:
            found.append(_otlp_route(signal, otlp, _BY_NAME[name]))
        elif name == "console":
            found.append(_console_route(signal))
        elif name and name != "none":
            found.append(_named_route(signal, name))
    return found


def _otlp_route(signal: SignalName, otlp: bool | str, protocol: str | None) -> Route:
    given = otlp if isinstance(otlp, str) else None
    endpoint = given or _variable(signal, "ENDPOINT")
    protocol = protocol or _variable(signal, "PROTOCOL") or _protocol_of(endpoint)
    if (signal, protocol) not in _MODULES:
        raise OptionError(
            f"OTEL_EXPORTER_OTLP_PROTOCOL is {protocol!r}; expected grpc or http/protobuf, which the OpenTelemetry "
            "exporters for Python speak."
        )
    make = _loaded(*_MODULES[signal, protocol])
    if given is not None and protocol != "grpc":
        given = _with_path(given, signal)

    def made() -> Any:
        with _quiet_grpc():
            heard = session_for(signal) if protocol != "grpc" else {}
            return make(endpoint=given, **heard) if given is not None else make(**heard)

    return Route(shown(endpoint or _DEFAULT_ENDPOINTS[protocol]), _checked(made))


def _variable(signal: SignalName, name: str) -> str | None:
    text = os.environ.get(f"OTEL_EXPORTER_OTLP_{signal.upper()}_{name}") or os.environ.get(f"OTEL_EXPORTER_OTLP_{name}")
    return text.strip() if text else None


def _protocol_of(endpoint: str | None) -> str:
    try:
        port = urlsplit(endpoint).port if endpoint else None
    except ValueError:
        port = None
    return "grpc" if port == 4317 else "http/protobuf"


def _with_path(base: str, signal: SignalName) -> str:
    base = base.rstrip("/")
    for known in ("traces", "metrics"):
        base = base.removesuffix(f"/v1/{known}")
    return f"{base}/v1/{signal}"


def _loaded(module: str, name: str) -> Callable[..., Any]:
    try:
        with _quiet_grpc():
            found: Callable[..., Any] = getattr(import_module(module), name)
    except ImportError as exc:
        raise missing_extra(exc) from exc
    return found


def _checked(make: Callable[[], Any]) -> Callable[[], Any]:
    """``make``, called once now for its errors; the first result is kept for the first caller."""
    try:
        ready = [make()]
    except ValueError as exc:
        raise OptionError(f"An OTEL_EXPORTER_OTLP_* environment variable makes no sense: {exc}.") from exc
    return lambda: ready.pop() if ready else make()


def _console_route(signal: SignalName) -> Route:
    # The SDK's own would write to stdout, which belongs to the protocol.
    module = "opentelemetry.sdk.trace.export" if signal == "traces" else "opentelemetry.sdk.metrics.export"
    make = _loaded(module, "ConsoleSpanExporter" if signal == "traces" else "ConsoleMetricExporter")
    return Route("stderr", lambda: make(out=sys.stderr))


def _named_route(signal: SignalName, name: str) -> Route:
    from importlib import metadata  # takes 10 ms to load, and few need it

    group = f"opentelemetry_{signal}_exporter"
    for point in metadata.entry_points(group=group, name=name):
        make = point.load()
        return Route(name, make, pulled=hasattr(make, "collect"))
    raise OptionError(
        f"OTEL_{signal.upper()}_EXPORTER names {name!r}, and no installed package provides it. Expected otlp, console, "
        f"none, or the name of an entry point of {group}."
    )


@contextmanager
def _quiet_grpc() -> Iterator[None]:
    """gRPC's core writes each failed handshake to stderr, past all logging; it reads its verbosity once, at its start.

    The variable is put back, so that programs which the server starts find what they would have found.
    """
    before = os.environ.get("GRPC_VERBOSITY")
    if before is None:
        os.environ["GRPC_VERBOSITY"] = "NONE"
    try:
        yield
    finally:
        if before is None:
            os.environ.pop("GRPC_VERBOSITY", None)
