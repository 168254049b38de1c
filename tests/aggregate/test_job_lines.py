"""Where jobs computed: the CPU time of all of them, by what looks saw of some."""

from __future__ import annotations

from typing import Any

import pytest

from mcp_probe.aggregate.fold import Fold
from mcp_probe.model import OperationSummary, RequestRecord
from mcp_probe.record.file import LineDecoder, encode, preamble
from tests.frames import MS, make_header, make_request

WORK = (("/srv/tools.py:3", "zlib.compress", 14 * MS, 7), ("/srv/tools.py:4", "json.loads", 6 * MS, 3))


def job(number: int, work: tuple[tuple[str | None, str, int, int], ...] = (), **given: Any) -> RequestRecord:
    return make_request(number, executor_run=100 * MS, jobs_cpu_ns=40 * MS, job_work=work, **given)


def row(*records: RequestRecord) -> OperationSummary:
    fold = Fold()
    fold.add_all([make_header(), *records])
    return fold.summary().operations[0]


def test_lines_share_the_cpu_time_of_all_jobs() -> None:
    found = row(job(1, WORK), job(2), job(3, weight=8))
    assert found.jobs_cpu_ms == 400
    assert [(line.where, line.called, line.looks) for line in found.job_lines] == [
        ("/srv/tools.py:3", "zlib.compress", 7),
        ("/srv/tools.py:4", "json.loads", 3),
    ]
    assert [line.cpu_ms for line in found.job_lines] == pytest.approx([280, 120])
    assert all(line.lo < line.share < line.hi for line in found.job_lines)


def test_too_few_looks_divide_nothing() -> None:
    found = row(job(1, (("/srv/tools.py:3", "zlib.compress", 14 * MS, 9),)))
    assert (found.jobs_cpu_ms, found.job_lines) == (40, ())


def test_a_recording_keeps_the_lines() -> None:
    decoder = LineDecoder()
    decoder.feed(preamble())
    assert decoder.feed(encode(job(1, WORK))) == job(1, WORK)
