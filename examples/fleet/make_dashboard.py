# Writes dashboard.json, the Grafana dashboard of docs/fleet.md, from the panels below.
#
# Run it:   python examples/fleet/make_dashboard.py
# To change the dashboard, change it here; tests/examples/test_fleet.py holds the file against this.

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

DASHBOARD = Path(__file__).with_name("dashboard.json")
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
SERVICE = 'job=~"$service"'
CALLS = f'{SERVICE}, mcp_method_name="tools/call"'
WHOLE = f'{CALLS}, mcp_probe_partial=""'
RATE = "$__rate_interval"
DURATION = "mcp_server_operation_duration_seconds"


def quantile(share: float, metric: str, by: str) -> str:
    """Of a histogram of ours: native where the probe set up OTLP, else the percentile that the process reports."""
    native = f"histogram_quantile({share}, sum by ({by}) (rate({metric}_seconds{{{SERVICE}}}[{RATE}])))"
    return f"{native} or max by ({by}) ({metric}_p{round(share * 100)}_seconds{{{SERVICE}}})"


def seconds_per_second(metric: str, by: str) -> str:
    """Sum of a histogram of ours, native or not, per second."""
    native = f"histogram_sum(rate({metric}_seconds{{{SERVICE}}}[{RATE}]))"
    return f"sum by ({by}) ({native} or rate({metric}_sum_seconds_total{{{SERVICE}}}[{RATE}]))"


@dataclass
class Panel:
    """One panel; ``queries`` are (expression, legend)."""

    title: str
    description: str
    unit: str
    queries: list[tuple[str, str]]
    kind: str = "timeseries"
    width: int = 12
    options: dict[str, Any] = field(default_factory=dict)


SECTIONS: dict[str, list[Panel]] = {
    "What callers see": [
        Panel(
            "Calls",
            "Tool calls per second.",
            "reqps",
            [(f"sum by (gen_ai_tool_name) (rate({DURATION}_count{{{CALLS}}}[{RATE}]))", "{{gen_ai_tool_name}}")],
            width=8,
        ),
        Panel(
            "Duration, p99",
            "From received to sent, of calls of which both were seen. A dot is a call: it leads to its trace.",
            "s",
            [
                (
                    "histogram_quantile(0.99, sum by (le, gen_ai_tool_name)"
                    f" (rate({DURATION}_bucket{{{WHOLE}}}[{RATE}])))",
                    "{{gen_ai_tool_name}}",
                )
            ],
            width=8,
        ),
        Panel(
            "Failed calls",
            "Share of the calls that failed.",
            "percentunit",
            [
                (
                    f'sum by (gen_ai_tool_name) (rate({DURATION}_count{{{CALLS}, error_type!=""}}[{RATE}]))'
                    f" / sum by (gen_ai_tool_name) (rate({DURATION}_count{{{CALLS}}}[{RATE}]))",
                    "{{gen_ai_tool_name}}",
                )
            ],
            width=8,
        ),
        Panel(
            "Calls timed in part",
            "Share of the calls whose arrival or end could not be seen: they took at least what was measured, and are"
            " not in the percentile above. Empty is good.",
            "percentunit",
            [
                (
                    f'sum by (job) (rate({DURATION}_count{{{CALLS}, mcp_probe_partial="true"}}[{RATE}]))'
                    f" / sum by (job) (rate({DURATION}_count{{{CALLS}}}[{RATE}]))",
                    "{{job}}",
                )
            ],
            width=24,
        ),
    ],
    "Who holds whom up": [
        Panel(
            "Waiting caused",
            "Seconds that requests waited for another one's step on the event loop, per second, by who took it."
            " 1 means: on average one request at a time stands still because of it.",
            "s",
            [
                (
                    f"topk(10, {seconds_per_second('mcp_probe_request_blocked', 'mcp_probe_blocker')})",
                    "{{mcp_probe_blocker}}",
                )
            ],
        ),
        Panel(
            "Blockers and victims",
            "Seconds that calls of one tool waited for another, in the time shown.",
            "s",
            [
                (
                    "sort_desc(sum by (mcp_probe_blocker, gen_ai_tool_name) ("
                    f"histogram_sum(increase(mcp_probe_request_blocked_seconds{{{SERVICE}}}[$__range]))"
                    f" or increase(mcp_probe_request_blocked_sum_seconds_total{{{SERVICE}}}[$__range])) > 0)",
                    "",
                )
            ],
            kind="table",
        ),
        Panel(
            "Steps, p99",
            "Uninterrupted runs on the event loop. Nobody else is served meanwhile.",
            "s",
            [(quantile(0.99, "mcp_probe_step_duration", "gen_ai_tool_name"), "{{gen_ai_tool_name}}")],
        ),
        Panel(
            "Event loop",
            "Share of the last minute that the loop was busy.",
            "percentunit",
            [(f"mcp_probe_loop_utilization_ratio{{{SERVICE}}}", "{{job}} {{instance}}")],
        ),
    ],
    "Where requests wait": [
        Panel(
            "Before they begin, p99",
            "In the transport: bytes there, nobody has read them. In dispatch: read, the handler has not begun.",
            "s",
            [(quantile(0.99, "mcp_probe_request_queue_wait", "mcp_probe_stage"), "{{mcp_probe_stage}}")],
            width=8,
        ),
        Panel(
            "For the event loop, p99",
            "Could run, and did not.",
            "s",
            [(quantile(0.99, "mcp_probe_request_ready_wait", "gen_ai_tool_name"), "{{gen_ai_tool_name}}")],
            width=8,
        ),
        Panel(
            "For a thread, p99",
            "From the submission of a job to its start.",
            "s",
            [(quantile(0.99, "mcp_probe_executor_wait", "mcp_probe_executor_name"), "{{mcp_probe_executor_name}}")],
            width=8,
        ),
        Panel(
            "To be written, p99",
            "The result is ready, the transport has not taken it.",
            "s",
            [(quantile(0.99, "mcp_probe_request_write_wait", "gen_ai_tool_name"), "{{gen_ai_tool_name}}")],
            width=8,
        ),
        Panel(
            "A message that arrives now",
            "How long it would have waited in the last minute: the worst process of each service.",
            "s",
            [
                (f"max by (job) (mcp_probe_loop_arrival_delay_{which}_seconds{{{SERVICE}}})", f"{{{{job}}}} {which}")
                for which in ("p50", "p99", "max")
            ],
            width=8,
        ),
        Panel(
            "In flight",
            "Requests that are not answered yet, and the bytes of those that nobody has read.",
            "short",
            [
                (f"sum by (job) (mcp_probe_request_active{{{SERVICE}}})", "{{job}} active"),
                (f"max by (job) (mcp_probe_request_outstanding{{{SERVICE}}})", "{{job}} peak of a process"),
                (f"max by (job) (mcp_probe_transport_backlog_bytes{{{SERVICE}}})", "{{job}} bytes unread"),
            ],
            width=8,
        ),
    ],
    "Threads and memory": [
        Panel(
            "Executors",
            "Tokens taken, as a share of the limit: the peak of the last minute.",
            "percentunit",
            [
                (
                    f"max by (job, mcp_probe_executor_name) (mcp_probe_executor_borrowed{{{SERVICE}}}"
                    f" / mcp_probe_executor_max{{{SERVICE}}})",
                    "{{job}} {{mcp_probe_executor_name}}",
                )
            ],
            width=8,
        ),
        Panel(
            "Jobs without a thread",
            "The peak of the last minute.",
            "short",
            [
                (
                    f"max by (job, mcp_probe_executor_name) (mcp_probe_executor_pending{{{SERVICE}}})",
                    "{{job}} {{mcp_probe_executor_name}}",
                )
            ],
            width=8,
        ),
        Panel(
            "Garbage collection",
            "Share of the time that the collector stopped everything; pauses under 1 ms have no generation.",
            "percentunit",
            [
                (
                    seconds_per_second("mcp_probe_gc_pause", "job, mcp_probe_generation"),
                    "{{job}} generation {{mcp_probe_generation}}",
                )
            ],
            width=8,
        ),
        Panel(
            "The transport without a thread, p99",
            "stdio only: its reader and writer take threads from the pool of the tools. While they have none, no"
            " request is read and no answer written.",
            "s",
            [(quantile(0.99, "mcp_probe_transport_thread_wait", "job"), "{{job}}")],
            width=24,
        ),
    ],
    "The probe": [
        Panel(
            "Its own cost",
            "Share of the process's CPU time over the last minute.",
            "percentunit",
            [(f"max by (job) (mcp_probe_probe_overhead_ratio{{{SERVICE}}})", "{{job}}")],
        ),
        Panel(
            "What it dropped",
            "Empty is good.",
            "short",
            [
                (
                    f"sum by (job, mcp_probe_reason) (rate(mcp_probe_probe_dropped_total{{{SERVICE}}}[{RATE}]))",
                    "{{job}} {{mcp_probe_reason}}",
                )
            ],
        ),
    ],
}


def targets_of(panel: Panel) -> list[dict[str, Any]]:
    """The panel's queries as Grafana has them."""
    table = panel.kind == "table"
    return [
        {
            "datasource": SOURCE,
            "expr": expression,
            "legendFormat": legend,
            "refId": chr(ord("A") + number),
            "range": not table,
            "instant": table,
            "format": "table" if table else "time_series",
            "exemplar": f"{DURATION}_bucket" in expression,
        }
        for number, (expression, legend) in enumerate(panel.queries)
    ]


def panel_of(panel: Panel, number: int, x: int, y: int) -> dict[str, Any]:
    """The panel as Grafana has it, at a place of the grid of 24 columns."""
    found: dict[str, Any] = {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": SOURCE,
        "gridPos": {"h": 8, "w": panel.width, "x": x, "y": y},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0, "custom": {}}, "overrides": []},
        "options": {},
        "targets": targets_of(panel),
    }
    if panel.kind == "table":
        names = {"mcp_probe_blocker": "Blocker", "gen_ai_tool_name": "Victim", "Value": "Waited"}
        found["transformations"] = [
            {"id": "organize", "options": {"excludeByName": {"Time": True}, "renameByName": names}}
        ]
    else:
        found["fieldConfig"]["defaults"]["custom"] = {"fillOpacity": 10, "showPoints": "never", "spanNulls": True}
        found["options"] = {
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
            "tooltip": {"mode": "multi", "sort": "desc"},
        }
    return found


def panels() -> list[dict[str, Any]]:
    """All rows and panels, placed."""
    found: list[dict[str, Any]] = []
    y = 0
    for title, section in SECTIONS.items():
        place = {"h": 1, "w": 24, "x": 0, "y": y}
        found.append(
            {"id": len(found) + 1, "type": "row", "title": title, "collapsed": False, "gridPos": place, "panels": []}
        )
        x, y = 0, y + 1
        for panel in section:
            if x + panel.width > 24:
                x, y = 0, y + 8
            found.append(panel_of(panel, len(found) + 1, x, y))
            x += panel.width
        y += 8
    return found


def variables() -> list[dict[str, Any]]:
    """What is chosen at the top."""
    query = f"label_values({DURATION}_count, job)"
    return [
        {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus", "hide": 0},
        {
            "name": "service",
            "type": "query",
            "label": "Service",
            "datasource": SOURCE,
            "query": {"query": query, "refId": "service"},
            "refresh": 2,
            "sort": 1,
            "multi": True,
            "includeAll": True,
            "allValue": ".*",
            "current": {"text": ["All"], "value": ["$__all"]},
        },
    ]


def dashboard() -> dict[str, Any]:
    """The whole file."""
    return {
        "title": "MCP servers",
        "uid": "mcp-probe",
        "description": "Where requests of MCP servers spend their time, and who holds whom up. Fed by mcp-probe.",
        "tags": ["mcp", "mcp-probe", "opentelemetry"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "",
        "templating": {"list": variables()},
        "annotations": {"list": []},
        "links": [],
        "panels": panels(),
    }


if __name__ == "__main__":
    DASHBOARD.write_text(json.dumps(dashboard(), indent=2) + "\n", "utf-8")
