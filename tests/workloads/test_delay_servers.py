"""The servers that scenarios run against: each tool waits in its own way, starts are counted, the probe switches."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import anyio
import pytest
from mcp.client import Client
from mcp.server import MCPServer

from mcp_probe.model import Header, RequestRecord
from mcp_probe.record.file import read_recording
from mcp_probe.workloads.servers import compute, delays, toggled
from mcp_probe.workloads.servers.arithmetic import computed
from tests.guard import attached_now

pytestmark = pytest.mark.workloads


async def text_of(client: Client, tool: str, **arguments: object) -> str:
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    block = result.content[0]
    assert block.type == "text"
    return block.text


@pytest.mark.parametrize("tool", ["wait", "pooled", "to_thread", "threaded", "blocking"])
async def test_every_kind_of_delay_lasts_as_long_as_it_was_told(tool: str) -> None:
    async with Client(delays.server) as client:
        began = anyio.current_time()
        text = await text_of(client, tool, delay_ms=30, payload_bytes=7)
        assert anyio.current_time() - began >= 0.0299
    assert text == "." * 7


async def test_a_waiting_tool_can_be_given_work_of_a_known_length() -> None:
    async with Client(delays.server) as client:
        began = anyio.current_time()
        await text_of(client, "wait", delay_ms=0, busy_us=5_000)
        assert anyio.current_time() - began >= 0.0049


class Clock:
    """In place of the module ``time``: notes which thread slept."""

    perf_counter_ns = staticmethod(time.perf_counter_ns)

    def __init__(self) -> None:
        self.slept_on: list[int] = []

    def sleep(self, seconds: float) -> None:
        self.slept_on.append(threading.get_ident())


@pytest.mark.parametrize(
    ("tool", "where"),
    [
        ("wait", "nowhere"),
        ("pooled", "elsewhere"),
        ("to_thread", "elsewhere"),
        ("threaded", "elsewhere"),
        ("blocking", "loop"),
    ],
)
async def test_only_the_blocking_tool_sleeps_on_the_event_loop(
    tool: str, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(delays, "time", clock)
    async with Client(delays.server) as client:
        await text_of(client, tool, delay_ms=1)
    found = ["loop" if thread == threading.get_ident() else "elsewhere" for thread in clock.slept_on]
    assert found == ([] if where == "nowhere" else [where])


def test_starts_are_counted_whole_however_many_come_at_once(tmp_path: Path) -> None:
    file = tmp_path / "starts"
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda _: delays.note_start(file), range(200)))
    assert file.read_text() == f"{os.getpid()}\n" * 200


async def test_both_ways_of_computing_give_the_same(tmp_path: Path) -> None:
    async with Client(compute.server) as client:
        for item in (0, 7, 199):
            assert await text_of(client, "compute", item=item) == str(computed(item))
            assert await text_of(client, "compute_in_thread", item=item) == str(computed(item))


async def test_traced_memory_is_what_was_held_at_most_since_tracing_began() -> None:
    async with Client(compute.server) as client:
        base = json.loads(await text_of(client, "trace_memory"))["base_bytes"]
        held = bytearray(3_000_000)
        del held
        peak = json.loads(await text_of(client, "traced_memory"))["peak_bytes"]
    assert 3_000_000 <= peak - base < 6_000_000
    assert json.loads(await in_ram()) > 1_000_000


async def in_ram() -> str:
    async with Client(compute.server) as client:
        return str(json.loads(await text_of(client, "resident_memory"))["peak_bytes"])


async def test_the_probe_is_there_only_while_it_is_switched_on(tmp_path: Path) -> None:
    recording = tmp_path / "recording.jsonl"
    async with Client(server_of(toggled)) as client:
        await text_of(client, "wait", delay_ms=0)
        assert attached_now() == ()
        await text_of(client, "probe", on=True, record=str(recording))
        assert len(attached_now()) == 1
        for _ in range(3):
            await text_of(client, "wait", delay_ms=0)
        seen = int(await text_of(client, "probe", on=False))
        assert attached_now() == ()
        assert await text_of(client, "probe", on=False) == "0"
    assert seen >= 3
    frames = list(read_recording(recording))
    assert isinstance(frames[0], Header)
    assert sum(isinstance(frame, RequestRecord) and frame.name == "wait" for frame in frames) == 3


def server_of(module: object) -> MCPServer:
    assert module is toggled
    return delays.server


def test_the_servers_run_as_programs() -> None:
    for name in ("delays", "compute", "toggled"):
        command = [sys.executable, "-m", f"mcp_probe.workloads.servers.{name}"]
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=100, check=True
        )
        assert done.stdout == "", name
