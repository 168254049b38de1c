"""Memory of an MCP server's calls, from its handlers to the summary and the recording."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.server.mcpserver import MCPServer

from mcp_probe import native
from mcp_probe.capture import memory_tier, sizing
from mcp_probe.model import OperationSummary, RequestRecord, Summary
from mcp_probe.record.file import read_recording
from mcp_probe.report import jsonfile
from tests.adapters.serving import over_memory_streams, summary_of
from tests.loops import LOOPS
from tests.running import Backend

needs_the_accelerator = pytest.mark.skipif(native.core is None, reason=f"no accelerator: {native.absence}")
on_every_loop = pytest.mark.parametrize("backend", LOOPS)
MB = 1_000_000
CALLS = 5


class Shop:
    """A server with a tool that takes much for a while and one that keeps some."""

    def __init__(self) -> None:
        self.kept: list[bytearray] = []
        self.server = MCPServer("shop")
        self.server.tool()(self.takes)
        self.server.tool()(self.keeps)

    async def takes(self, size: int) -> str:
        block = bytearray(size)
        await anyio.sleep(0.001)
        return "y" * (len(block) // 100)

    def keeps(self, text: str) -> int:
        """On a worker thread, as every tool that is no coroutine function."""
        self.kept.append(bytearray(MB))
        return len(text)

    async def be_called(self) -> None:
        async with over_memory_streams(self.server) as session:
            for _ in range(CALLS):
                await session.call_tool("takes", {"size": 2 * MB})
                await session.call_tool("keeps", {"text": "z" * 20_000})

    def summary(self, backend: Backend, **options: Any) -> Summary:
        """What a probe says that was attached meanwhile."""
        return summary_of(self.server, backend, self.be_called, **options)


def row_of(summary: Summary, name: str) -> OperationSummary:
    (row,) = [row for row in summary.operations if row.name == name]
    return row


@needs_the_accelerator
@on_every_loop
def test_by_default_each_tool_has_its_memory_with_bounds(backend: Backend) -> None:
    summary = Shop().summary(backend)
    assert summary.probe.memory == "light: native-hybrid, all Python allocations, owners > 512 B"
    takes, keeps = row_of(summary, "takes"), row_of(summary, "keeps")
    for row, peak, retained in ((takes, 2 * MB, 0), (keeps, MB, MB)):
        assert (row.memory.measured, row.memory.method) == (CALLS, "native-hybrid")
        assert row.memory.requested.p50 is not None and row.memory.requested.p50 > peak
        assert "requested" not in row.quality, "exact"
        for name, truth in (("peak", peak), ("retained", retained)):
            quality = row.quality[name]
            assert quality.tag == "bounded" and quality.lo is not None and quality.hi is not None
            assert quality.lo - 200_000 <= truth <= quality.hi


@needs_the_accelerator
@on_every_loop
def test_in_detail_blocks_of_every_size_count_and_payloads_are_sized(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pympler")
    monkeypatch.setattr(sizing, "SHARE", 0)  # sizes every call, whatever it takes
    monkeypatch.setattr(sizing, "EVERY_NS", 0)
    summary = Shop().summary(backend, memory="detailed")
    takes, keeps = row_of(summary, "takes"), row_of(summary, "keeps")
    assert takes.memory.method == keeps.memory.method == "native-shadow"
    assert takes.memory.peak.p50 is not None and 2 * MB <= takes.memory.peak.p50 < 2.3 * MB
    assert takes.memory.retained.p50 is not None and takes.memory.retained.p50 < 200_000
    assert keeps.memory.retained.p50 is not None and MB <= keeps.memory.retained.p50 < 1.2 * MB
    assert keeps.memory.arguments.max is not None and 20_000 < keeps.memory.arguments.max < 60_000
    assert takes.memory.arguments.max is not None and takes.memory.arguments.max < 20_000
    assert takes.memory.result.p50 is not None and 20_000 < takes.memory.result.p50 < 60_000


def test_off_leaves_no_trace(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    summary = Shop().summary("asyncio", memory="off", record=str(path))
    assert summary.probe.memory == "off"
    assert {row.memory.measured for row in summary.operations} == {0}
    requests = [frame for frame in read_recording(path) if isinstance(frame, RequestRecord)]
    assert requests and all(request.memory is None for request in requests)


@needs_the_accelerator
def test_a_recording_says_the_same(tmp_path: Path) -> None:
    from mcp_probe.aggregate.fold import Fold

    path = tmp_path / "calls.jsonl"
    summary = Shop().summary("asyncio", memory="detailed", record=str(path))
    fold = Fold()
    for frame in read_recording(path):
        fold.add(frame)
    again = fold.summary()
    assert again.probe.memory == summary.probe.memory
    for name in ("takes", "keeps"):
        assert row_of(again, name).memory == row_of(summary, name).memory


@needs_the_accelerator
def test_json_names_every_figure_with_its_quality() -> None:
    stream = StringIO()
    jsonfile.write(Shop().summary("asyncio"), stream)
    operations = json.loads(stream.getvalue())["operations"]
    (row,) = [row for row in operations if row["name"] == "keeps"]
    for name in ("requested", "peak", "retained"):
        assert set(row["memory"][name]) == {"p50", "max"}
        assert all(isinstance(value, int) for value in row["memory"][name].values())
    assert set(row["quality"]["retained"]) == {"tag", "lo", "hi"}


def test_without_the_accelerator_what_cannot_be_known_is_null(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_tier, "_no_accelerator", lambda: "no accelerator: not built here")
    monkeypatch.setattr(memory_tier, "_has_jemalloc", lambda: False)
    summary = Shop().summary("asyncio")
    assert summary.probe.memory is not None and "payload sizes and the process's RSS only" in summary.probe.memory
    row = row_of(summary, "takes")
    assert (row.memory.requested.p50, row.memory.peak.max, row.memory.method) == (None, None, None)
    assert summary.signals.rss_bytes_max is None or summary.signals.rss_bytes_max > 0
