"""Names of numbers and of findings are the same in code and docs."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import get_args

import pytest

from mcp_probe.aggregate.codes import CODES
from mcp_probe.init.clients import NAMES
from mcp_probe.metrics import METRICS
from mcp_probe.model import BUDGET_PARTS, AwaitHolder, AwaitKind, AwaitPhase, AwaitRoot, AwaitSummary
from mcp_probe.report.budget import PARTS
from mcp_probe.report.sections.waits import CAUSES
from mcp_probe.workloads.bench.registry import WORKLOADS
from tests.docs.test_docs import FENCE, PAGES, ROOT

DOCS = ROOT / "docs"
ROW = re.compile(r"^\| `?(\w+)`? \| (\w*) \|", re.M)
SPAN = re.compile(r"`([a-z]+(?:-[a-z]+)+)`")
# Words with a hyphen that are no codes of ours.
WORKLOAD_NAMES = {workload.name for workload in WORKLOADS}
PROGRAMS = {"mcp-probe", "mcp-probe-profiler", "opentelemetry-instrument", "my-mcp-server", "mcp-python-sdk"}
PROGRAMS |= {"check-wheel-contents"}

# What `mcp-probe init` calls MCP clients.
CLIENT_NAMES = set(NAMES)

# What is awaited, and the phases of calls.
AWAITED = {*get_args(AwaitKind), *get_args(AwaitPhase)}

pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())


def text_of(name: str) -> str:
    return (DOCS / name).read_text("utf-8")


def test_every_number_is_defined_in_how_it_measures_with_its_unit() -> None:
    rows = dict(ROW.findall(text_of("how-it-measures.md")))
    units = {metric.name: metric.unit for metric in METRICS.values()}
    assert {name: rows.get(name) for name in units} == units


def test_how_it_measures_defines_no_number_that_does_not_exist() -> None:
    rows = ROW.findall(text_of("how-it-measures.md"))
    assert {name for name, unit in rows if unit in {"ms", "count", "ratio", "bytes"}} - METRICS.keys() == set()


def test_every_part_of_the_budget_is_a_number_of_its_own() -> None:
    assert [part for part in BUDGET_PARTS if part not in METRICS] == []


def test_every_key_of_an_await_in_the_json_is_explained() -> None:
    text = text_of("awaits.md").split("## What is said of a wait", 1)[1].split("\n## ", 1)[0]
    explained = set(re.findall(r"`(\w+)`", text))
    shapes = (AwaitSummary, AwaitHolder, AwaitRoot)
    assert {part.name for shape in shapes for part in fields(shape)} - explained == set()


def test_every_code_has_its_place_in_findings() -> None:
    text = text_of("findings.md")
    assert [code for code in CODES if f"`{code}`" not in text] == []


@pages
def test_a_page_names_no_code_that_does_not_exist(page: Path) -> None:
    words = set(SPAN.findall(FENCE.sub("", page.read_text("utf-8"))))
    servers = {word for word in words if word.startswith("mcp-server-")}
    assert words - servers - AWAITED - PROGRAMS - CLIENT_NAMES - WORKLOAD_NAMES - CODES.keys() == set()


def test_reading_the_report_explains_every_letter_of_the_bar_and_every_cause() -> None:
    text = text_of("reading-the-report.md")
    assert [part.name for part in PARTS if f"| `{part.letter}` | {part.name} |" not in text] == []
    assert [cause for cause in CAUSES.values() if f"| {cause} |" not in text] == []
