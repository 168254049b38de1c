"""The whole budget of one tool whose parts are known, on each loop, over streams in memory and over real stdio."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from statistics import median

import anyio
import pytest

from mcp_probe.model import Budget, RequestRecord
from mcp_probe.workloads.client import Answer, Call
from tests.adapters.serving import frames_of, over_memory_streams, over_stdio
from tests.adapters.truth_server import MIXED_MS, build
from tests.kept import probed
from tests.loops import LOOPS
from tests.running import Backend, run_on

MS = 1_000_000
CALLS = 5


def median_parts(records: list[RequestRecord]) -> dict[str, float]:
    """Per part the median in milliseconds; a part nobody could see is left out."""
    parts = {}
    for part in fields(Budget):
        known = [value for record in records if (value := getattr(record.budget, part.name)) is not None]
        if known:
            parts[part.name] = median(known) / MS
    return parts


def assert_as_built(records: list[RequestRecord]) -> None:
    assert len(records) == CALLS
    assert {record.outcome for record in records} == {"ok"}
    found = median_parts(records)
    # On a machine that has no CPU to spare the whole call takes longer than it was built to.
    drawn_out = max(0.0, sum(found.values()) - sum(MIXED_MS.values()) - 5)
    for part, true in MIXED_MS.items():
        assert found[part] == pytest.approx(true, abs=max(10, true * 0.1) + drawn_out), (part, found)
    for part in set(found) - set(MIXED_MS):
        assert found[part] <= 10 + drawn_out, (part, found)
    shares = [(record.budget.unaccounted or 0) / (record.end_ns - record.arrival_ns) for record in records]
    assert median(shares) < 0.01
    for record in records:
        known = [value for part in fields(Budget) if (value := getattr(record.budget, part.name)) is not None]
        assert sum(known) == record.end_ns - record.arrival_ns
        assert not record.partial


@pytest.mark.parametrize("backend", LOOPS)
def test_every_part_of_a_call_over_memory_streams_is_what_the_tool_was_built_of(backend: Backend) -> None:
    async def run() -> list[RequestRecord]:
        server = build()
        with probed(server) as kept:
            async with over_memory_streams(server) as session:
                for _ in range(CALLS):
                    await session.call_tool("mixed", {})
        return kept.requests("mixed")

    records = run_on(backend, run)
    assert_as_built(records)
    assert {record.transport for record in records} == {"streams"}


@pytest.mark.parametrize("loop", ["asyncio", "uvloop", "trio"])
def test_every_part_of_a_call_over_stdio_is_what_the_tool_was_built_of(loop: str, tmp_path: Path) -> None:
    async def run() -> list[Answer]:
        async with over_stdio(loop, tmp_path / "r.jsonl") as session:
            return await session.one_by_one([Call("mixed", {})] * CALLS)

    answers = anyio.run(run)
    frames = frames_of(tmp_path / "r.jsonl")
    records = [frame for frame in frames if isinstance(frame, RequestRecord) and frame.name == "mixed"]
    assert_as_built(records)
    assert {record.transport for record in records} == {"stdio"}
    told = [(record.end_ns - record.arrival_ns, record.budget.write_flush or 0) for record in records]
    # The client may have read the answer before the server knows that it is flushed.
    assert all((whole - flush) / MS <= answer.total_ms for (whole, flush), answer in zip(told, answers, strict=True))
    # Between the two stand the turns that both processes wait for, which a busy machine lets last.
    between = [answer.total_ms - whole / MS for (whole, _), answer in zip(told, answers, strict=True)]
    assert min(between) <= 15, between
