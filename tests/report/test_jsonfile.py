from __future__ import annotations

import io
import json
import math
from dataclasses import replace

import pytest

from mcp_probe.errors import ProbeError
from mcp_probe.model import LoopSummary, Percentiles
from mcp_probe.report import jsonfile
from tests.report.summaries import SUMMARIES, blocking, killed


@pytest.mark.parametrize("name", SUMMARIES)
def test_file_holds_the_summary_and_ends_with_a_newline(name: str) -> None:
    stream = io.StringIO()
    jsonfile.write(SUMMARIES[name](), stream)
    text = stream.getvalue()
    assert json.loads(text) == json.loads(json.dumps(SUMMARIES[name]().to_json()))
    assert text.endswith("}\n")
    assert text.startswith('{\n  "format"')
    assert text.isascii()


def test_what_is_unknown_is_null_and_not_zero() -> None:
    stream = io.StringIO()
    jsonfile.write(killed(), stream)
    operation = next(row for row in json.loads(stream.getvalue())["operations"] if row["name"] == "recalculate")
    assert operation["total_ms"] == {"p50": None, "p95": None, "p99": None, "max": None}
    assert set(operation["budget_ms"].values()) == {None}


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_numbers_json_cannot_hold_are_named_and_nothing_is_written(number: float) -> None:
    summary = blocking()
    first = replace(summary.operations[0], total_ms=Percentiles(1.0, number, 2.0, 3.0))
    loop = LoopSummary(number, summary.loop.arrival_delay_ms, "exact")
    stream = io.StringIO()
    with pytest.raises(ProbeError) as raised:
        jsonfile.write(replace(summary, operations=(first, *summary.operations[1:]), loop=loop), stream)
    assert "operations[0].total_ms.p95" in str(raised.value)
    assert "loop.utilization" in str(raised.value)
    assert stream.getvalue() == ""
