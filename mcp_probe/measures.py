"""What is measured of a request beside its budget: each measure is declared here, once.

A declaration is all that the rest of the package needs: from it a measure appears in the summary and its JSON, in
recordings, in the report, on spans and as a metric. One class reads it (``reader``), loaded where a probe asks for it;
:mod:`mcp_probe.capture.measuring` says what such a class looks like.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from mcp_probe.model import Tag

MeasureUnit = Literal["ns", "bytes", "count"]


@dataclass(frozen=True, slots=True)
class Measure:
    """One number per request.

    Attributes:
        name: Unique; in recordings as it is, in JSON as :attr:`key`, in telemetry as ``mcp_probe.<name>``.
        unit: Of the integers that are read; nanoseconds become milliseconds in the summary, seconds in telemetry.
        quality: How exact it is where everything that it needs could be seen.
        label: Over its column in the report.
        meaning: A sentence: what is counted, from where to where, and what is left out.
        reader: ``module:class`` of what reads it.
        read: ``"steps"``: a counter of the thread, before and after each step and each thread job. ``"marks"``: by a
            hook, whenever something happens.
        fold: How the readings of one request become its number.
        detailed: It takes a system call a step: read only with ``measures="detailed"``.
        needs: What must be seen of the request's channel: its messages, or when its transport writes each of them; or
            its steps. Where that is not seen, the measure is unavailable.
    """

    name: str
    unit: MeasureUnit
    quality: Tag
    label: str
    meaning: str
    reader: str
    read: Literal["steps", "marks"]
    fold: Literal["sum", "max"] = "sum"
    detailed: bool = False
    needs: Literal["messages", "writes", "steps"] | None = None

    @property
    def key(self) -> str:
        """Its name in the summary, with the unit."""
        return f"{self.name}_ms" if self.unit == "ns" else f"{self.name}_bytes" if self.unit == "bytes" else self.name


MEASURES: tuple[Measure, ...] = (
    Measure(
        name="dns_wait",
        unit="ns",
        quality="exact",
        label="DNS",
        meaning="time in look-ups of names by the socket module, on any thread; look-ups side by side count each",
        reader="mcp_probe.adapters.waits.dns:NameLookups",
        read="marks",
    ),
    Measure(
        name="schema_lookup",
        unit="ns",
        quality="exact",
        label="schema look-up",
        meaning="time in which the SDK listed the server's tools itself, to check the headers of an HTTP call",
        reader="mcp_probe.adapters.schema_lookup:SchemaLookups",
        read="marks",
    ),
    Measure(
        name="schema_lookup_busy",
        unit="ns",
        quality="exact",
        label="look-up on loop",
        meaning="the part of a schema look-up in which the event loop worked for it",
        reader="mcp_probe.adapters.schema_lookup:SchemaLookups",
        read="marks",
        needs="steps",
    ),
    Measure(
        name="error_logging",
        unit="ns",
        quality="exact",
        label="error logging",
        meaning="time on the event loop in which Python's logging formatted and wrote records with a traceback",
        reader="mcp_probe.adapters.error_logging:ErrorLogging",
        read="marks",
    ),
    Measure(
        name="errors_logged",
        unit="count",
        quality="exact",
        label="errors logged",
        meaning="records with a traceback that were logged on the event loop",
        reader="mcp_probe.adapters.error_logging:ErrorLogging",
        read="marks",
    ),
    Measure(
        name="notifications",
        unit="count",
        quality="exact",
        label="notified",
        meaning="notifications that were handed to the transport for the client",
        reader="mcp_probe.capture.notifications:Notifications",
        read="marks",
        needs="messages",
    ),
    Measure(
        name="notification_write",
        unit="ns",
        quality="exact",
        label="notifying",
        meaning="time in which the transport encoded, wrote and flushed these notifications, one after the other",
        reader="mcp_probe.capture.notifications:Notifications",
        read="marks",
        needs="writes",
    ),
    Measure(
        name="context_switches_voluntary",
        unit="count",
        quality="exact",
        label="voluntary switches",
        meaning="times that a thread gave up its processor while it worked for the request: it blocked",
        reader="mcp_probe.capture.context_switches:ContextSwitches",
        read="steps",
        detailed=True,
    ),
    Measure(
        name="context_switches_involuntary",
        unit="count",
        quality="exact",
        label="involuntary switches",
        meaning="times that the system took the processor from such a thread: others wanted it",
        reader="mcp_probe.capture.context_switches:ContextSwitches",
        read="steps",
        detailed=True,
    ),
)

BY_NAME = {measure.name: measure for measure in MEASURES}
