"""Document 000's micro benchmark: the process that runs its rounds, see ``models/dispatch.py``, and their figures."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean, median
from typing import Any

import anyio
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

from mcp_probe.aggregate.explain import Seen, explain
from mcp_probe.errors import LaunchError
from mcp_probe.record.file import read_recording
from mcp_probe.workloads.bench.shapes import Measured as Found
from mcp_probe.workloads.bench.shapes import Stats
from mcp_probe.workloads.bench.statistics import describe, floor_of, halves_floor, line_fit, ratio_floor
from mcp_probe.workloads.models.dispatch import Form, Measured, Order, Timer
from mcp_probe.workloads.scenarios.documents import doc000 as doc

MODULE = "mcp_probe.workloads.models.dispatch"
LONGEST_LINE = 64 * 1024 * 1024
ONE: Form = "one by one"
TASKS: Form = "anyio tasks"
NAMES: dict[Form, str] = {ONE: "sequential", TASKS: "concurrent"}
"""What the document calls them."""
AGAIN = " again"
DIRECT = -1
"""Stands for the number of messages of the direct comparison, whose rounds are apart."""


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

    async def why(self, order: Order) -> str:
        """One sentence from the readings of one round that nobody times, with a probe on every call."""
        with tempfile.TemporaryDirectory(prefix="mcp-probe-bench-") as folder:
            recording = Path(folder, "recording.jsonl")
            await self._ask(order, record=str(recording))
            return explain(Seen.of(read_recording(recording)))

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


@dataclass
class Rounds:
    """All rounds, by timer, form and number of messages, in the order they were run; and why some took so long."""

    taken: dict[tuple[Timer, str, int], list[Measured]] = field(default_factory=dict)
    foreign: float | None = None
    contended: bool = False
    why: dict[Form, str] = field(default_factory=dict)

    def add(self, order: Order, measured: Measured, *, again: bool = False, messages: int | None = None) -> None:
        """Keep one round; ``again`` tells the twin of an A/A apart."""
        form, messages = order.form + (AGAIN if again else ""), order.messages if messages is None else messages
        self.taken.setdefault((order.timer, form, messages), []).append(measured)

    def take(self, found: tuple[Rounds, float | None, bool]) -> None:
        """Adds rounds that were run together, as :meth:`Bench.quiet` hands them over."""
        rounds, foreign, contended = found
        for key, measured in rounds.taken.items():
            self.taken.setdefault(key, []).extend(measured)
        self.foreign = max((cores for cores in (self.foreign, foreign) if cores is not None), default=None)
        self.contended |= contended
        self.why |= rounds.why

    def of(self, timer: Timer, form: str, messages: int) -> list[Measured]:
        """Its rounds, oldest first."""
        return self.taken[timer, form, messages]

    def wall_ms(self, timer: Timer, form: str, messages: int) -> list[float]:
        """Wall time of its rounds."""
        return [one.wall_ns / 1e6 for one in self.of(timer, form, messages)]

    def mean_ms(self, form: Form, messages: int) -> float:
        """The document's figure: its timer, all rounds."""
        return fmean(self.wall_ms("document", form, messages))

    def cpu_ms(self, form: str, messages: int, timer: Timer = "work") -> float:
        """CPU time of the quickest round: what it needs, whoever else used the machine."""
        return min(one.cpu_ns for one in self.of(timer, form, messages)) / 1e6

    def peaks(self, form: str, messages: int) -> list[float]:
        """Bytes that were traced at most, round by round."""
        return [float(one.peak_bytes or 0) for one in self.of("document", form, messages)]

    def peak(self, form: str, messages: int) -> float:
        """Bytes: the highest of its rounds, the first of several left out."""
        peaks = self.peaks(form, messages)
        return max(peaks[1:] or peaks)

    def stats(self, values: Sequence[float]) -> Stats:
        """Statistics of values taken meanwhile."""
        return describe(values, foreign_cores=self.foreign, contended=self.contended)

    def ratio(self, messages: int) -> Found:
        """Tasks over one by one, the document's timer and means."""
        value = self.mean_ms(TASKS, messages) / self.mean_ms(ONE, messages)
        floor = self.time_floor(*(("document", form, messages) for form in NAMES))
        return Found(value, floor=floor, contended=self.contended)

    def work_ratio(self, messages: int) -> Found:
        """The same of the work alone: CPU time of the quickest rounds; A/A: the worse of both against its twin."""
        floors = [ratio_floor([self.cpu_ms(form, messages)], [self.cpu_ms(form + AGAIN, messages)]) for form in NAMES]
        return Found(self.cpu_ms(TASKS, messages) / self.cpu_ms(ONE, messages), floor=max(floors))

    def memory_ratio(self, messages: int) -> Found:
        """Peak of tasks over peak of one by one; A/A: without the first round of several, as of :meth:`peak`."""
        every = [self.peaks(form, messages) for form in NAMES]
        floor = floor_of(*(halves_floor(peaks[1:] if len(peaks) > 2 else peaks) for peaks in every))
        return Found(self.peak(TASKS, messages) / self.peak(ONE, messages), floor=floor)

    def time_floor(self, *parts: tuple[Timer, str, int]) -> float | None:
        """A/A of a figure made of these: halves of their rounds by the clock, of the one that repeats worst."""
        return floor_of(*(halves_floor(self.wall_ms(*part)) for part in parts))

    def line(self, form: Form) -> tuple[float, float, float]:
        """Milliseconds before the first message and of each further one, and R²: medians of 1,000 and more."""
        sizes = [messages for messages in doc.MESSAGES if messages >= 1000]
        return line_fit([(messages, median(self.wall_ms("document", form, messages))) for messages in sizes])

    def growth(self, form: Form, messages: int = doc.LARGE) -> Found:
        """How many times longer so many messages take than the fewest, the document's timer and means."""
        value = self.mean_ms(form, messages) / self.mean_ms(form, doc.MESSAGES[0])
        floor = self.time_floor(("document", form, messages), ("document", form, doc.MESSAGES[0]))
        return Found(value, floor=floor, contended=self.contended)

    def fit(self, form: Form) -> float:
        """R² with the CPU time of the quickest rounds in place of medians: others' work does not bend the line."""
        sizes = [messages for messages in doc.MESSAGES if messages >= 1000]
        return line_fit([(messages, self.cpu_ms(form, messages, "document")) for messages in sizes])[2]
