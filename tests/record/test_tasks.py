"""How many tasks of one request were alive at once: counted by both twins, kept by the record, found by the check."""

from __future__ import annotations

import pytest

from mcp_probe import native
from mcp_probe.aggregate.findings import findings_of
from mcp_probe.aggregate.fold import Fold
from mcp_probe.record.assemble import assemble
from mcp_probe.record.raw import PythonRequest, RawRequest

CLASSES = [RawRequest] if native.core is None else [RawRequest, type("PythonRaw", (PythonRequest,), {})]


@pytest.mark.parametrize("cls", CLASSES, ids=["own", "python"][: len(CLASSES)])
def test_the_most_units_alive_at_once_are_counted(cls: type) -> None:
    raw = cls(1, "request", "tools/call", "crawl", "memory")
    assert raw.unit_peak == 0
    for unit in range(1, 8):
        raw.set_unit(unit, 10)
        raw.set_unit(unit, 20)
    for unit in range(2, 8):
        raw.drop_unit(unit)
    raw.set_unit(9, 30)
    assert raw.unit_peak == 7


@pytest.mark.parametrize(("tasks", "raised"), [(1_000, False), (1_001, True)])
def test_a_thousand_tasks_at_once_are_no_finding_and_one_more_is(tasks: int, raised: bool) -> None:
    raw = RawRequest(1, "request", "tools/call", "crawl", "memory")
    raw.first_step_ns = 100
    for unit in range(1, tasks + 1):
        raw.set_unit(unit, 150)
    for unit in range(1, tasks + 1):
        raw.drop_unit(unit)
    raw.result_ns = raw.end_ns = 900
    record = assemble(raw, 900)
    assert record.tasks_peak == tasks
    fold = Fold()
    fold.add(record)
    assert ("unbounded-fan-out" in {finding.code for finding in findings_of(fold.summary())}) == raised


def test_many_tasks_one_after_another_are_one_at_a_time() -> None:
    raw = RawRequest(1, "request", "tools/call", "crawl", "memory")
    raw.first_step_ns = 100
    raw.set_unit(1, 150)
    for unit in range(2, 5_000):
        raw.set_unit(unit, 150)
        raw.drop_unit(unit)
    assert assemble(raw, 900).tasks_peak == 2
