"""Metrics over the wire: what a real server counts reaches an OTLP backend, all of it and once."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mcp_probe.export import semantic_conventions as names
from tests.export.otlp_backend import HttpBackend, Kept
from tests.export.speaking import FAST, Spoken, environment, server_program

CALLS = 40
PATIENT_MS = "60000"
"""A busy machine delivers nothing in the second that a process's exit is given."""
ATTACHED = "import mcp_probe\nmcp_probe.attach(server)"


def points_of(kept: Kept, name: str) -> Iterator[Any]:
    """Every data point of the metric, in the order in which they came."""
    for message in kept.metrics:
        for resource in message.resource_metrics:
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    if metric.name == name:
                        yield from getattr(metric, metric.WhichOneof("data")).data_points


def labels_of(point: Any) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((item.key, item.value.string_value) for item in point.attributes))


def counted(kept: Kept, name: str, temporality: str) -> dict[tuple[tuple[str, str], ...], tuple[int, float]]:
    """(count, sum) of each series when all has been said."""
    found: defaultdict[Any, tuple[int, float]] = defaultdict(lambda: (0, 0.0))
    for point in points_of(kept, name):
        before = found[labels_of(point)] if temporality == "delta" else (0, 0.0)
        found[labels_of(point)] = (before[0] + point.count, before[1] + point.sum)
    return dict(found)


@pytest.mark.parametrize("temporality", ["cumulative", "delta"])
def test_every_call_arrives_once_whatever_the_temporality(temporality: str, tmp_path: Path) -> None:
    with HttpBackend() as backend:
        env = environment(
            MCP_PROBE_OTLP=backend.url,
            MCP_PROBE_OTLP_EXIT_MS=PATIENT_MS,
            OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE=temporality,
            **FAST,
        )
        with Spoken([sys.executable, server_program(tmp_path, ATTACHED)], env) as server:
            for _ in range(CALLS):
                server.call()
            assert backend.kept.wait(lambda kept: len(kept.metrics) >= 2)
            server.call("block", ms=30)
            server.end()
    assert (server.exit_code, server.stderr) == (0, "")

    add, block = (((names.GEN_AI_TOOL_NAME, name),) for name in ("add", "block"))
    busy = counted(backend.kept, names.BUSY.name, temporality)
    operations = counted(backend.kept, names.OPERATION_DURATION.name, temporality)
    by_tool: defaultdict[Any, tuple[int, float]] = defaultdict(lambda: (0, 0.0))
    for labels, (count, total) in operations.items():  # some may have a series of their own, as partial
        tool = dict(labels).get(names.GEN_AI_TOOL_NAME)
        by_tool[tool] = (by_tool[tool][0] + count, by_tool[tool][1] + total)
    assert (busy[add][0], busy[block][0]) == (CALLS, 1)
    assert busy[block][1] >= 0.03
    assert (by_tool["add"][0], by_tool["block"][0]) == (CALLS, 1)
    assert by_tool["add"][1] >= busy[add][1] > 0
    (session,) = counted(backend.kept, names.SESSION_DURATION.name, temporality).values()
    assert session[0] == 1


def test_an_exponential_point_adds_up_and_names_its_buckets(tmp_path: Path) -> None:
    with HttpBackend() as backend:
        env = environment(MCP_PROBE_OTLP=backend.url, MCP_PROBE_OTLP_EXIT_MS=PATIENT_MS, **FAST)
        with Spoken([sys.executable, server_program(tmp_path, ATTACHED)], env) as server:
            server.call("block", ms=30)
            server.end()
        points = {
            dict(labels_of(point)).get(names.GEN_AI_TOOL_NAME): point
            for point in points_of(backend.kept, names.BUSY.name)
        }
    point = points["block"]
    base = 2.0 ** (2.0**-point.scale)
    index = point.positive.offset

    assert list(point.positive.bucket_counts) == [1]
    assert base**index < point.sum <= base ** (index + 1)
    assert point.min == point.max == point.sum >= 0.03
