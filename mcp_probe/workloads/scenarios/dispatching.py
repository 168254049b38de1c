"""Asking the process that handles messages one by one or each in a task: see ``models/dispatch.py``."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

from mcp_probe.aggregate.explain import Seen, explain
from mcp_probe.errors import LaunchError
from mcp_probe.record.file import read_recording
from mcp_probe.workloads.models.dispatch import Measured, Order

MODULE = "mcp_probe.workloads.models.dispatch"
LONGEST_LINE = 64 * 1024 * 1024


class Dispatcher:
    """A running process of its own; one order at a time."""

    def __init__(self, process: Process) -> None:
        if process.stdin is None or process.stdout is None:
            raise LaunchError("The dispatching process has no pipes.")
        self._stdin = process.stdin
        self._stdout = BufferedByteReceiveStream(process.stdout)

    async def measure(self, order: Order) -> Measured:
        """One round."""
        return Measured(**await self._ask(order))

    async def seen(self, order: Order) -> Seen:
        """One round that nobody times, with a probe on every call: its readings."""
        with tempfile.TemporaryDirectory(prefix="mcp-probe-bench-") as folder:
            recording = Path(folder, "recording.jsonl")
            await self._ask(order, record=str(recording))
            return Seen.of(read_recording(recording))

    async def why(self, order: Order) -> str:
        """One sentence from the readings of one round."""
        return explain(await self.seen(order))

    async def _ask(self, order: Order, *, record: str | None = None) -> dict[str, Any]:
        try:
            await self._stdin.send(json.dumps({**asdict(order), "record": record}).encode() + b"\n")
            line = await self._stdout.receive_until(b"\n", LONGEST_LINE)
        except (anyio.EndOfStream, anyio.IncompleteRead, anyio.BrokenResourceError, anyio.ClosedResourceError) as exc:
            raise LaunchError(f"The process that was to run {order} ended without an answer.") from exc
        answer: dict[str, Any] = json.loads(line)
        return answer


@asynccontextmanager
async def dispatcher() -> AsyncIterator[Dispatcher]:
    """A fresh process; ends with the block. Raises: LaunchError where it ends before it has answered."""
    process = await anyio.open_process([sys.executable, "-m", MODULE], stderr=subprocess.DEVNULL)
    try:
        async with process:
            yield Dispatcher(process)
            if process.stdin is not None:
                await process.stdin.aclose()
    finally:
        if process.returncode is None:
            process.kill()
