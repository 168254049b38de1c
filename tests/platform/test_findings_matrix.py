"""The fault matrix (`make findings`): which cell comes next, what counts as right, and that no figure is typed."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mcp_probe.aggregate.codes import CODES
from tools.findings.cells import FAULTS, FORMS, HEALTHY, WORKLOADS, Cell, Form, Workload, cells_of
from tools.findings.matrix import Run, State, from_text, is_fresh, next_of, section, tables, to_text, totals, wrong_of

ROOT = Path(__file__).resolve().parents[2]
SERVER = (ROOT / "tools" / "findings" / "server.py").read_text("utf-8")
PAGE = (ROOT / "docs" / "findings.md").read_text("utf-8")
RIGHT, WRONG = Run(None, 1.0, 0.05, "abc"), Run("nothing was raised", 1.0, 0.3, "abc")


def workload(name: str) -> Workload:
    return next(one for one in WORKLOADS if one.name == name)


def cell(name: str = "blocking_call", form: Form = "fault", **changed: Any) -> Cell:
    given: dict[str, Any] = {"transport": "stdio", "sdk": "mcp2", "beside": "alone", **changed}
    return Cell(workload(name), form, **given)


def found(code: str, subject: str = "find_photos_7", severity: str = "warn") -> dict[str, Any]:
    return {"code": code, "subject": subject, "severity": severity, "sentence": "It was so."}


def summary(findings: list[dict[str, Any]], verdict: str | None = None) -> dict[str, Any]:
    """The parts of a report that are judged; the verdict is the first finding unless it is given."""
    first = findings[0]["code"] if findings else "healthy"
    return {"findings": findings, "verdict": {"code": verdict or first}}


def test_every_workload_is_a_function_of_the_server_and_of_a_code_that_is_checked() -> None:
    functions = {node.name for node in ast.parse(SERVER).body if isinstance(node, ast.FunctionDef)}
    assert {one.name for one in WORKLOADS} <= functions
    assert {one.code for one in FAULTS} <= CODES.keys()
    assert len({one.name for one in WORKLOADS}) == len(WORKLOADS)
    assert len(HEALTHY) == 10


@pytest.mark.parametrize(
    ("name", "form", "findings", "right"),
    [
        ("blocking_call", "fault", [found("blocking-call")], True),
        ("blocking_call", "fault", [found("blocking-call", "another_tool")], False),
        ("blocking_call", "fault", [found("cpu-bound-step")], False),
        ("blocking_call", "fault", [], False),
        ("blocking_call", "mended", [], True),
        ("blocking_call", "near", [found("blocking-call", severity="info")], False),
        ("blocking_call", "near", [found("gc-pause")], True),
        ("gc_pause", "fault", [found("gc-pause", "matrix")], True),
        ("gc_pause", "near", [found("gc-pause", "matrix")], False),
        ("healthy_cache", "healthy", [found("serial-client", severity="info")], True),
        ("healthy_cache", "healthy", [found("gc-pause")], False),
    ],
)
def test_a_fault_needs_its_finding_and_nothing_else_may_have_it(
    name: str, form: Form, findings: list[dict[str, Any]], right: bool
) -> None:
    assert (wrong_of(cell(name, form), "find_photos_7", summary(findings), is_busy=False) is None) == right


def test_a_fault_must_be_the_verdict_or_stand_behind_one_that_it_may() -> None:
    behind = summary([found("blocking-call"), found("gc-pause")], "gc-pause")
    assert wrong_of(cell(), "find_photos_7", behind, is_busy=False) is not None
    assert (
        wrong_of(cell("head_of_line"), "find", summary([found("head-of-line")], "blocking-call"), is_busy=False) is None
    )


def test_a_wait_that_nothing_explains_stands_behind_a_busy_host() -> None:
    both = summary([found("host-pressure", "matrix"), found("unexplained-wait", severity="info")], "host-pressure")
    fault = cell("unexplained_wait")
    assert wrong_of(fault, "find_photos_7", both, is_busy=True) is None
    assert wrong_of(fault, "find_photos_7", both, is_busy=False) is not None


def test_a_busy_machine_excuses_what_is_said_of_the_host_and_no_more() -> None:
    healthy, of_host = cell("healthy_cache", "healthy"), [found("host-pressure", "matrix")]
    assert wrong_of(healthy, "x", summary(of_host), is_busy=True) is None
    assert wrong_of(healthy, "x", summary(of_host), is_busy=False) is not None
    assert wrong_of(healthy, "x", summary([*of_host, found("crowding")]), is_busy=True) is not None
    beside = summary([found("host-pressure", "matrix"), found("cold-start", "x_1", severity="info")])
    assert wrong_of(cell("cold_start"), "x", beside, is_busy=True) is None
    assert wrong_of(cell("cold_start"), "x", beside, is_busy=False) is not None
    told = summary([found("blocking-call", "x_1", severity="info")])
    assert wrong_of(cell(form="mended"), "x", told, is_busy=True) is None
    assert wrong_of(cell(form="mended"), "x", told, is_busy=False) is not None
    mended = cell("host_pressure", "mended")
    assert wrong_of(mended, "x", summary(of_host), is_busy=True) is None
    assert wrong_of(mended, "x", summary(of_host), is_busy=False) is not None


def test_failing_cells_come_first_and_then_those_with_fewest_runs() -> None:
    cells = [cell(form=form) for form in FORMS]
    fault, mended, near = (each.key for each in cells)
    assert next_of(cells, {}, 2) == cells[0]
    assert next_of(cells, {fault: [RIGHT]}, 2) == cells[1]
    assert next_of(cells, {fault: [RIGHT], mended: [RIGHT], near: [WRONG]}, 2) == cells[2]
    assert next_of(cells, {fault: [RIGHT] * 2, mended: [RIGHT] * 2, near: [WRONG] * 2}, 2) is None


def test_what_is_running_counts_as_run() -> None:
    cells = [cell(form=form) for form in FORMS]
    fault, mended, near = (each.key for each in cells)
    assert next_of(cells, {}, 2, [cells[0]]) == cells[1]
    state: State = {fault: [RIGHT], mended: [RIGHT] * 2, near: [RIGHT] * 2}
    assert next_of(cells, state, 2) == cells[0]
    assert next_of(cells, state, 2, [cells[0]]) is None


def test_the_first_run_of_a_workload_is_one_of_a_fresh_interpreter() -> None:
    assert is_fresh(cell(), {})
    assert is_fresh(cell("healthy_cache", "healthy", sdk="mcp1"), {})
    assert not is_fresh(cell(), {}, [cell()])
    assert not is_fresh(cell(), {cell().key: [RIGHT]})
    assert not any(is_fresh(one, {}) for one in (cell(form="mended"), cell(form="near"), cell(beside="hog")))


def test_where_a_clock_judges_there_are_twenty_runs_and_three_where_others_repeat_it() -> None:
    assert cell().runs == cell("crowding", beside="hog").runs == 20
    assert {cell("crashed").runs, cell(transport="http").runs, cell(sdk="mcp1").runs} == {3}
    assert cell("schema_lookup", transport="http").runs == cell("healthy_mounted", "healthy", sdk="fastmcp3").runs == 20
    three: State = {each.key: [RIGHT] * 3 for each in (cell(), cell("crashed"))}
    assert next_of([cell(), cell("crashed")], three, 20) == cell()
    assert next_of([cell(), cell("crashed")], three, 3) is None


def test_cells_are_those_that_a_workload_has() -> None:
    found = list(cells_of((workload("transport_starvation"),), ("stdio", "http"), ("mcp2", "mcp1"), ("alone",)))
    assert {(each.transport, each.sdk) for each in found} == {("stdio", "mcp2")}
    assert [each.sdk for each in cells_of((workload("healthy_mounted"),), ("stdio",), ("mcp2",), ("hog",))] == [
        "fastmcp3"
    ]
    every = list(cells_of(WORKLOADS, ("stdio", "http"), ("mcp2", "mcp1"), ("alone", "hog")))
    assert len({each.key for each in every}) == len(every)


def test_a_state_is_kept_and_another_format_is_refused() -> None:
    state: State = {cell().key: [RIGHT, WRONG], cell(form="near").key: [replace(RIGHT, is_forked=True)]}
    text = to_text(state)
    assert from_text(text) == state
    assert len(text.splitlines()) == len(state) + 2  # what a commit changes is what was run
    with pytest.raises(ValueError, match="name another file"):
        from_text('{"format": "mcp-probe-findings/1", "cells": {}}')


def test_the_page_is_of_the_runs_that_are_kept() -> None:
    part = PAGE.partition("<!-- matrix:begin -->")[2].partition("<!-- matrix:end -->")[0]
    kept = from_text((ROOT / "tools" / "findings" / "runs.json").read_text("utf-8"))
    assert part.strip().splitlines()[2:] == section(kept, "a machine")[2:]


def test_the_table_has_the_runs_and_nothing_of_what_was_not_run() -> None:
    state: State = {
        cell().key: [RIGHT, WRONG, replace(RIGHT, is_forked=True)],
        cell(form="near").key: [RIGHT],
        cell("healthy_cache", "healthy").key: [WRONG],
        cell("healthy_mounted", "healthy", sdk="fastmcp3").key: [RIGHT],
    }
    assert tables(state) == [
        "| code | stdio, mcp 2.3, alone |",
        "| --- | --- |",
        "| `blocking-call` | 2/3 · – · 1/1 |",
        "",
        "| healthy server | stdio, mcp 2.3, alone |",
        "| --- | --- |",
        "| cache | 0/1 |",
        "| mounted | 1/1 |",
    ]
    assert totals(state) == (4, 6)
    said = section(state, "a machine")
    assert said[0] == (
        "4 of 6 runs were right, on a machine, of commit abc. 2 of 6 runs alone were on a busy machine. "
        "Runs of forks: 1."
    )
    assert said[-1] == "Wrong runs: fault of `blocking-call` 1, healthy server cache 1."


def test_the_page_adds_up() -> None:
    """Its sums are those of its cells: nobody has typed a figure."""
    part = PAGE.partition("<!-- matrix:begin -->")[2].partition("<!-- matrix:end -->")[0]
    cells = re.findall(r"\b(\d+)/(\d+)\b", "\n".join(line for line in part.splitlines() if line.startswith("|")))
    stated = re.search(r"(\d+) of (\d+) runs were right", part)
    assert stated is not None
    assert [int(each) for each in stated.groups()] == [sum(int(pair[at]) for pair in cells) for at in (0, 1)]
