"""A stdio server whose tools take all threads of the default limiter, and what it sends: ``starving.py FILE``."""

from __future__ import annotations

import json
import sys
import time
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import anyio.to_thread
from anyio._backends._asyncio import WorkerThread
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import mcp_probe

try:
    from mcp.server.mcpserver import MCPServer
except ImportError:  # mcp 1.x
    from mcp.server.fastmcp import FastMCP as MCPServer  # type: ignore[attr-defined,no-redef]

WAIT = "mcp_probe.transport.thread_wait"

server: Any = MCPServer("starving", log_level="CRITICAL")


@server.tool()  # type: ignore[untyped-decorator]
async def slow(ms: int) -> str:
    await anyio.to_thread.run_sync(time.sleep, ms / 1e3)  # mcp 1.x would run a sync tool on the loop
    return "done"


class Clock:
    """Each wait for a thread of a job that is no tool's, taken below the probe: in anyio's own queue of each thread."""

    def __init__(self) -> None:
        self.waits: list[tuple[float, float]] = []  # asked, got
        self._asked: ContextVar[float | None] = ContextVar("asked")
        run_sync, made = anyio.to_thread.run_sync, WorkerThread.__init__

        async def asked(function: Any, *args: Any, **options: Any) -> Any:
            self._asked.set(None if function is time.sleep else time.monotonic())
            return await run_sync(function, *args, **options)

        def make(thread: WorkerThread, *args: Any) -> None:
            made(thread, *args)
            get = thread.queue.get

            def stamped(*args: Any) -> Any:
                item = get(*args)
                if item is not None and (asked_s := item[0][self._asked]) is not None:
                    self.waits.append((asked_s, time.monotonic()))
                return item

            thread.queue.get = stamped  # type: ignore[assignment,method-assign]

        anyio.to_thread.run_sync = asked  # type: ignore[assignment]
        WorkerThread.__init__ = make  # type: ignore[assignment,method-assign]


def main(path: str) -> None:
    clock = Clock()
    spans = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    trace.set_tracer_provider(provider)
    reader = InMemoryMetricReader()
    metrics.set_meter_provider(MeterProvider([reader]))
    probe = mcp_probe.attach(server, slow_request_ms=0, replay_histograms=True)
    server.run("stdio")
    probe.detach()
    found = [
        {
            "name": span.name,
            "attributes": dict(span.attributes or {}),
            "events": [{"name": event.name, **(event.attributes or {})} for event in span.events],
        }
        for span in spans.get_finished_spans()
    ]
    Path(path).write_text(json.dumps({"spans": found, "sent": waits(reader), "true": sorted(clock.waits, key=length)}))


def length(wait: tuple[float, float]) -> float:
    asked_s, got_s = wait
    return got_s - asked_s


def waits(reader: InMemoryMetricReader) -> list[dict[str, Any]]:
    """Points of the reader's and writer's waits for a thread, in seconds."""
    data = reader.get_metrics_data()
    scopes = [scope for resource in data.resource_metrics for scope in resource.scope_metrics] if data else []
    points = [point for scope in scopes for one in scope.metrics if one.name == WAIT for point in one.data.data_points]
    return [{key: getattr(point, key) for key in ("count", "sum", "min", "max")} for point in points]


if __name__ == "__main__":
    main(sys.argv[1])
