"""The views that a query sees, and from which fields of a recording's frames their columns come.

Each view is made of the frames of one kind. A column is an SQL expression in which ``{field}`` stands for a field's
text or NULL, ``{field.2}`` for the third value of a list, and ``{start}`` and ``{unix}`` for the recording's start by
both clocks, in ns and seconds. docs/query.md describes every column; a test keeps the page complete.
"""

from __future__ import annotations

from dataclasses import dataclass

from mcp_probe.model import BUDGET_PARTS


@dataclass(frozen=True, slots=True)
class View:
    """``columns`` by name. ``each``: a list in the frame that gives a row for each of its values, ``{one.0}``."""

    kind: str
    columns: dict[str, str]
    each: str | None = None
    where: str = "true"


def _ms(field: str) -> str:
    return f"CAST({{{field}}} AS BIGINT) / 1e6"


def _number(field: str) -> str:
    return f"CAST({{{field}}} AS BIGINT)"


def _at(field: str) -> dict[str, str]:
    return {
        "at_ms": f"(CAST({{{field}}} AS BIGINT) - {{start}}) / 1e6",
        "at_unix": f"{{unix}} + (CAST({{{field}}} AS BIGINT) - {{start}}) / 1e9",
    }


_OPERATION = "coalesce({name}, {method})"
_TOTAL = "(CAST({end_ns} AS BIGINT) - CAST({arrival_ns} AS BIGINT)) / 1e6"

VIEWS: dict[str, View] = {
    "requests": View(
        "request",
        {
            "id": _number("id"),
            "kind": "{kind}",
            "method": "{method}",
            "operation": _OPERATION,
            "transport": "{transport}",
            "outcome": "{outcome}",
            "error": "{error}",
            **_at("arrival_ns"),
            "total_ms": _TOTAL,
            **{f"{part}_ms": _ms(f"budget.{at}") for at, part in enumerate(BUDGET_PARTS)},
            "steps": _number("steps"),
            "step_max_ms": _ms("step_max_ns"),
            "client_wait_ms": _ms("client_wait_ns"),
            "request_bytes": _number("request_bytes"),
            "response_bytes": _number("response_bytes"),
            "tasks_peak": _number("tasks_peak"),
            "partial": "CAST({partial} AS BOOLEAN)",
            "weight": "coalesce(CAST({weight} AS BIGINT), 1)",
            "session_id": "{session_id}",
            "trace_id": "{trace_id}",
            "span_id": "{span_id}",
        },
    ),
    "groups": View(
        "group",
        {
            "kind": "{kind}",
            "method": "{method}",
            "operation": _OPERATION,
            "transport": "{transport}",
            "outcome": "{outcome}",
            "error": "{error}",
            **_at("first_ns"),
            "requests": _number("count"),
            "max_ms": _ms("max_ns"),
        },
    ),
    "steps": View(
        "step",
        {
            "request": _number("request"),
            "operation": "{operation}",
            **_at("start_ns"),
            "ms": "(CAST({end_ns} AS BIGINT) - CAST({start_ns} AS BIGINT)) / 1e6",
            "loop": _number("loop"),
            "running": "CAST({running} AS BOOLEAN)",
            "cause": "{cause}",
            "file": "{file}",
            "line": _number("line"),
            "function": "{function}",
            "library": "{library}",
            "cpu_ms": _ms("cpu_ns"),
            "run_queue_ms": _ms("run_queue_ns"),
            "gc_ms": _ms("gc_ns"),
            "sleeps": _number("sleeps"),
        },
    ),
    "awaits": View(
        "request",
        {
            "request": _number("id"),
            "operation": _OPERATION,
            **_at("one.3"),
            "kind": "{one.0}",
            "object": "{one.1}",
            "place": "{one.2}",
            "ms": _ms("one.5"),
            "quality": "{one.6}",
            "waits": _number("one.7"),
            "stage": "{one.9}",
            "phase": "{one.10}",
            "holder": "{one.8.0.1}",
            "holder_request": _number("one.8.0.0"),
            "holders": "coalesce(json_array_length({one}, '$[8]'), 0)",
            "weight": "coalesce(CAST({weight} AS BIGINT), 1)",
        },
        each="awaits",
    ),
    "pools": View(
        "pool",
        {
            "pool": _number("pool"),
            "name": "{name}",
            "made_at": "{made_at}",
            **_at("at_ns"),
            "span_ms": _ms("span_ns"),
            "max": "CAST({max} AS DOUBLE)",
            "borrowed_peak": _number("borrowed_peak"),
            "active_peak": _number("active_peak"),
            "pending_peak": _number("pending_peak"),
            "active_ms": _ms("active_ns"),
            "pending_ms": _ms("pending_ns"),
            "at_limit_ms": _ms("at_limit_ns"),
            "run_ms": _ms("run_ns"),
            "cpu_ms": _ms("cpu_ns"),
            "submitted": _number("submitted"),
            "finished": _number("finished"),
            "abandoned": _number("abandoned"),
        },
    ),
    "memory": View(
        "request",
        {
            "request": _number("id"),
            "operation": _OPERATION,
            **_at("arrival_ns"),
            "requested": _number("memory.2"),
            "allocations": _number("memory.3"),
            "peak": _number("memory.4"),
            "retained": _number("memory.5"),
            "how": "{memory.0}",
            "scope": "{memory.1}",
            "weight": "coalesce(CAST({weight} AS BIGINT), 1)",
        },
        where="{memory.0} IS NOT NULL",
    ),
    "process": View(
        "process",
        {
            **_at("at_ns"),
            "span_ms": _ms("span_ns"),
            "cpu_ms": _ms("cpu_ns"),
            "probe_cpu_ms": _ms("probe_cpu_ns"),
            "rss_bytes": _number("rss_bytes"),
            "gc_ms": _ms("gc_ns"),
            "outstanding": _number("outstanding"),
            "outstanding_peak": _number("outstanding_peak"),
        },
    ),
}
"""Those that are made of fields. ``blocked_by`` is worked out (see ``blame``)."""

BLOCKED_BY = {
    "victim": "VARCHAR",
    "victim_request": "BIGINT",
    "blocker": "VARCHAR",
    "lo_ms": "DOUBLE",
    "hi_ms": "DOUBLE",
    "clipped": "BOOLEAN",
    "weight": "BIGINT",
}
NAMES = (*VIEWS, "blocked_by")
