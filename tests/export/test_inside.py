"""A span that was filled says what one says that had its attributes set, and is let alone where that would not hold."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, TracerProvider
from opentelemetry.sdk.trace import Span as SdkSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import NonRecordingSpan, SpanContext

from mcp_probe.export import inside
from mcp_probe.export.inside import fill

ATTRIBUTES = {"text": "x" * 50, "number": 3, "share": 0.25, "yes": True, "no": False, "none at all": ""}


class Kept(SpanExporter):
    def __init__(self) -> None:
        self.spans: list[ReadableSpan] = []

    def export(self, spans: Any) -> SpanExportResult:
        self.spans.extend(spans)
        return SpanExportResult.SUCCESS


def both(limits: SpanLimits | None = None, before: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
    """Attributes of a span that had them set, and of one that was filled, as exported."""
    kept = Kept()
    provider = TracerProvider(span_limits=limits, shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(kept))
    tracer = provider.get_tracer("t")
    for put in (SdkSpan.set_attributes, fill):
        span = tracer.start_span("one", attributes=before)
        put(span, ATTRIBUTES)  # type: ignore[arg-type]
        span.set_attribute("last", 1)
        span.end()
    return [dict(span.attributes or {}) for span in kept.spans]


@pytest.mark.parametrize("before", [None, {"text": "of before", "other": [1, 2]}])
@pytest.mark.parametrize(
    "limits",
    [
        None,
        SpanLimits(max_attributes=1000),
        SpanLimits(max_attributes=SpanLimits.UNSET),
        SpanLimits(max_attributes=4),
        SpanLimits(max_span_attributes=3),
        SpanLimits(max_attributes=0),
        SpanLimits(max_attribute_length=5),
        SpanLimits(max_span_attribute_length=5),
    ],
)
def test_a_filled_span_is_exported_as_one_whose_attributes_were_set(limits: Any, before: Any) -> None:
    expected, found = both(limits, before)
    assert found == expected


def test_the_sdks_own_span_is_filled_without_its_look_at_each_value(monkeypatch: pytest.MonkeyPatch) -> None:
    span = TracerProvider(shutdown_on_exit=False).get_tracer("t").start_span("one")
    assert isinstance(span, SdkSpan)
    fill(span, {"a": 1})

    def looked_at(*_: object) -> None:
        raise AssertionError("set_attributes was called")

    monkeypatch.setattr(type(span), "set_attributes", looked_at)
    fill(span, {"b": 2})
    assert dict(span.attributes or {}) == {"a": 1, "b": 2}


def test_a_span_that_has_ended_says_so_as_before(caplog: pytest.LogCaptureFixture) -> None:
    span = TracerProvider(shutdown_on_exit=False).get_tracer("t").start_span("one")
    span.end()
    with caplog.at_level(logging.WARNING):
        fill(span, {"a": 1})
    assert isinstance(span, SdkSpan) and not span.attributes
    assert "ended span" in caplog.text


def test_a_span_of_a_class_of_its_own_is_asked() -> None:
    class Own(NonRecordingSpan):
        def __init__(self) -> None:
            super().__init__(SpanContext(1, 1, False))
            self.told: list[Mapping[str, Any]] = []

        def set_attributes(self, attributes: Mapping[str, Any]) -> None:
            self.told.append(attributes)

    span = Own()
    fill(span, {"a": 1})
    fill(span, {"b": 2})
    assert span.told == [{"a": 1}, {"b": 2}]


def test_without_the_sdk_no_span_is_taken_for_one_of_its(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inside, "_known", {})
    monkeypatch.delitem(sys.modules, "opentelemetry.sdk.trace")
    span = TracerProvider(shutdown_on_exit=False).get_tracer("t").start_span("one")
    fill(span, {"a": 1})
    assert dict(span.attributes or {}) == {"a": 1}  # type: ignore[attr-defined]
    assert inside._known == {type(span): False}
