"""The files of ``examples/fleet`` name nothing that the probe does not emit; they run in ``tests/export/backends``."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from examples.fleet.make_dashboard import DASHBOARD, SECTIONS, dashboard
from mcp_probe.export import semantic_conventions as names

ROOT = Path(__file__).resolve().parents[2]
FLEET = ROOT / "examples" / "fleet"
PAGE = ROOT / "docs" / "fleet.md"
QUERIES = sorted((FLEET / "sql").glob("*.sql"))

UNITS = {"s": "_seconds", "By": "_bytes", "1": "_ratio"}
RESOURCE = {"service.name", "service.version", "service.instance.id", "host.name", "process.pid"}
IN_SQL = re.compile(r"'((?:mcp|mcp_probe|gen_ai|code|service|host|process)\.[\w.]+|error\.type)'")
IN_PROMQL = re.compile(r"\b((?:mcp|target)_\w+?)(?=[{\[ )]|$)")
IN_YAML = re.compile(r'attributes\["([^"]+)"\]')
LABELS = {"le", "job", "instance"} | {
    attribute.replace(".", "_") for metric in names.METRICS for attribute in metric.attributes
}


def attributes() -> set[str]:
    """Of spans, events, links and metrics."""
    events = {names.BLOCKER, names.DURATION, names.POOL, names.HOLDER, names.LINK_KIND}
    upper_ends = {names.upper_end(name) for name in names.BOUNDED}
    code = {names.CODE_FILE_PATH, names.CODE_LINE_NUMBER, names.CODE_FUNCTION_NAME}
    on_metrics = {attribute for metric in names.METRICS for attribute in metric.attributes}
    return {*names.SERVER_SPAN_ATTRIBUTES, *names.PHASE_ATTRIBUTES, *events, *upper_ends, *code, *on_metrics}


def prometheus_names() -> set[str]:
    """Names that Prometheus gives to our metrics, with the suffixes of unit and kind, as its OTLP receiver does."""
    found = set()
    for metric in names.METRICS:
        stem, unit = metric.name.replace(".", "_"), UNITS.get(metric.unit, "")
        if metric.kind == "counter":
            found.add(f"{stem}{unit}_total")
        elif metric.kind == "histogram":
            found |= {f"{stem}{unit}_{part}" for part in ("bucket", "count", "sum")}
        else:
            found.add(f"{stem}{unit}")
        if metric.kind == "exponential histogram":
            found |= {f"{stem}_{part}{unit}" for part in ("p50", "p99", "largest")}
            found |= {f"{stem}_sum{unit}_total", f"{stem}_count_total"}
    return found


def expressions() -> Iterator[str]:
    for section in SECTIONS.values():
        for panel in section:
            for expression, _ in panel.queries:
                yield expression


def test_the_dashboard_is_the_one_that_the_program_makes() -> None:
    assert json.loads(DASHBOARD.read_text("utf-8")) == dashboard()


def test_the_dashboard_asks_for_no_metric_that_does_not_exist() -> None:
    asked = {name for expression in expressions() for name in IN_PROMQL.findall(expression)} - LABELS
    assert len(asked) > 20
    assert asked - prometheus_names() == set()


def test_every_kind_of_wait_is_on_the_dashboard() -> None:
    asked = {name for expression in expressions() for name in IN_PROMQL.findall(expression)}
    waits = ("request_queue_wait", "request_ready_wait", "executor_wait", "request_write_wait", "request_blocked")
    assert {wait for wait in waits if f"mcp_probe_{wait}_seconds" not in asked} == set()


def test_panels_fill_the_grid_and_overlap_nowhere() -> None:
    cells: set[tuple[int, int]] = set()
    for panel in dashboard()["panels"]:
        place = panel["gridPos"]
        own = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not own & cells, panel["title"]
        assert place["x"] + place["w"] <= 24
        cells |= own


@pytest.mark.parametrize("query", QUERIES, ids=lambda path: path.stem)
def test_sql_asks_for_nothing_that_does_not_exist(query: Path) -> None:
    statistics = {f"{metric.name}_{part}" for metric in names.EXPONENTIAL for part in names.STATISTICS}
    known = {metric.name for metric in names.METRICS} | statistics | attributes() | RESOURCE | {names.EVENT_BLOCKED_BY}
    asked = set(IN_SQL.findall(query.read_text("utf-8")))
    assert asked
    assert asked - known == set()


@pytest.mark.parametrize("query", QUERIES, ids=lambda path: path.stem)
def test_sql_says_in_its_first_line_which_question_it_answers(query: Path) -> None:
    first = query.read_text("utf-8").splitlines()[0]
    assert first.startswith("-- ")
    assert first.rstrip().endswith(("?", ".", ":")) or "?" in first


def test_the_sampler_looks_at_attributes_that_exist() -> None:
    text = (FLEET / "collector.yaml").read_text("utf-8")
    asked = set(IN_YAML.findall(text))
    assert len(asked) >= 6
    assert asked - attributes() == set()


def test_no_metrics_are_made_from_spans() -> None:
    text = (FLEET / "collector.yaml").read_text("utf-8")
    assert re.search(r"^connectors:", text, re.M) is None
    exporters = re.findall(r"^      exporters: \[(.+)\]$", text, re.M)
    assert [len(found.split(", ")) for found in exporters] == [2, 2]
    processors = re.findall(r"^      processors: \[(.+)\]$", text, re.M)
    assert ["tail_sampling" in found for found in processors] == [True, False]


def test_the_page_names_every_file_and_every_variable() -> None:
    page = PAGE.read_text("utf-8")
    files = [
        path.relative_to(FLEET).as_posix() for path in FLEET.rglob("*") if path.suffix in (".sql", ".yaml", ".json")
    ]
    variables = re.findall(r"env:(FLEET_\w+)", (FLEET / "collector.yaml").read_text("utf-8"))
    assert [name for name in (*files, *variables) if name not in page] == []
