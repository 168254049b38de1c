"""Every number a user can see: its name, unit, best exactness and meaning, defined once.

``docs/how-it-measures.md`` says from which mark to which mark each is taken; a test keeps the page and
this registry together. ``otel`` is the name under which an exporter sends it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from mcp_probe.measures import MEASURES
from mcp_probe.model import Tag

Unit = Literal["ms", "count", "ratio", "bytes"]
_UNITS: dict[str, Unit] = {"ns": "ms", "bytes": "bytes", "count": "count"}


@dataclass(frozen=True, slots=True)
class Metric:
    """One number. ``best`` is its tag where the transport and the loop let us see everything."""

    name: str
    unit: Unit
    best: Tag
    otel: str | None
    meaning: str


REQUEST_METRICS = (
    Metric("total", "ms", "exact", "mcp.server.operation.duration", "arrival to the end of the flush"),
    Metric(
        "queue_transport", "ms", "exact", "mcp_probe.request.queue_wait", "bytes there to message off the transport"
    ),
    Metric("queue_dispatch", "ms", "exact", "mcp_probe.request.queue_wait", "message off the transport to first step"),
    Metric("pipe_wait", "ms", "exact", None, "written by a client that says when, to bytes there; outside the budget"),
    Metric("busy", "ms", "exact", "mcp_probe.request.busy", "at least one unit of the request is on the loop"),
    Metric("gc", "ms", "exact", "mcp_probe.gc.pause", "a collector pause inside one of its own steps"),
    Metric("executor_run", "ms", "exact", "mcp_probe.executor.run", "at least one of its jobs runs on a thread"),
    Metric("executor_return", "ms", "exact", "mcp_probe.executor.return", "a job is done, its waiter has not resumed"),
    Metric("ready_wait", "ms", "exact", "mcp_probe.request.ready_wait", "a unit could run but does not"),
    Metric("executor_wait", "ms", "exact", "mcp_probe.executor.wait", "a job waits for a thread"),
    Metric(
        "awaiting", "ms", "exact", "mcp_probe.request.awaiting", "every unit is seen suspended on something outside"
    ),
    Metric("await", "ms", "exact", "mcp_probe.request.await", "one wait for what has a name: suspended, or in a job"),
    Metric("unaccounted", "ms", "exact", None, "no unit in a known state, or a mark was lost"),
    Metric("write_wait", "ms", "exact", "mcp_probe.request.write_wait", "result ready to taken by the writer"),
    Metric("write_flush", "ms", "exact", "mcp_probe.request.write_flush", "taken to flushed to the pipe or socket"),
    Metric("decode", "ms", "exact", None, "parsing on the loop, inside queue_transport"),
    Metric("encode", "ms", "exact", None, "serialising on the loop, inside write_flush"),
    Metric(
        "client_wait", "ms", "exact", None, "waiting for the client (sampling, elicitation, roots), inside awaiting"
    ),
    Metric("detached", "ms", "exact", None, "step time of its work after its end, or by others for it"),
    Metric("steps", "count", "exact", None, "uninterrupted runs of its tasks between two suspensions"),
    Metric("step_max", "ms", "exact", "mcp_probe.step.duration", "its longest step"),
    Metric("requested", "bytes", "exact", "mcp_probe.request.memory.requested", "asked of the allocator, cumulative"),
    Metric("peak", "bytes", "exact", "mcp_probe.request.memory.peak", "most that it held at one time"),
    Metric(
        "retained",
        "bytes",
        "exact",
        "mcp_probe.request.memory.retained",
        "still held after its end, once it was written",
    ),
    Metric(
        "blocked_by", "ms", "bounded", "mcp_probe.request.blocked", "time it could have run while another held the loop"
    ),
)

SERVER_METRICS = (
    Metric("outstanding", "count", "exact", "mcp_probe.request.outstanding", "read and not yet answered"),
    Metric(
        "backlog", "bytes", "exact", "mcp_probe.transport.backlog", "read or in the pipe, not yet consumed as lines"
    ),
    Metric("loop_utilization", "ratio", "exact", "mcp_probe.loop.utilization", "1 - share of time in the poll call"),
    Metric(
        "arrival_delay", "ms", "exact", "mcp_probe.loop.arrival_delay", "delay an event at a random instant would see"
    ),
    Metric("executor_max", "count", "exact", "mcp_probe.executor.max", "the limit"),
    Metric(
        "executor_borrowed", "count", "exact", "mcp_probe.executor.borrowed", "tokens taken: hand-off, run and return"
    ),
    Metric("executor_active", "count", "exact", "mcp_probe.executor.active", "jobs running on a thread"),
    Metric("executor_pending", "count", "exact", "mcp_probe.executor.pending", "jobs waiting for a thread"),
    Metric("tokens_needed", "count", "estimate", None, "arrival rate x mean run (Little's law)"),
    Metric("probe_overhead", "ratio", "estimate", "mcp_probe.probe.overhead", "the probe's share of the process's CPU"),
)

MEASURE_METRICS = tuple(
    Metric(one.name, _UNITS[one.unit], one.quality, f"mcp_probe.request.{one.name}", one.meaning) for one in MEASURES
)

METRICS = {metric.name: metric for metric in (*REQUEST_METRICS, *SERVER_METRICS, *MEASURE_METRICS)}
