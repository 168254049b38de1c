"""Rounds of document 000's micro benchmark, and the figures that its tables and claims are made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean, median
from typing import TypeVar

from mcp_probe.workloads.bench.shapes import Measured as Found
from mcp_probe.workloads.bench.shapes import Stats
from mcp_probe.workloads.bench.statistics import describe, floor_of, halves_floor, line_fit, ratio_floor
from mcp_probe.workloads.models.dispatch import Form, Measured, Order, Timer
from mcp_probe.workloads.scenarios.documents import doc000 as doc

T = TypeVar("T")

ONE: Form = "one by one"
TASKS: Form = "anyio tasks"
NAMES: dict[Form, str] = {ONE: "sequential", TASKS: "concurrent"}
"""What the document calls them."""
AGAIN = " again"
DIRECT = -1
"""Stands for the number of messages of the direct comparison, whose rounds are apart."""


@dataclass
class Rounds:
    """All rounds, by timer, form and number of messages, in the order they were run."""

    taken: dict[tuple[Timer, str, int], list[Measured]] = field(default_factory=dict)
    foreign: float | None = None
    contended: bool = False

    def add(self, order: Order, measured: Measured, *, again: bool = False, messages: int | None = None) -> None:
        """Keep one round; ``again`` tells the twin of an A/A apart."""
        form = order.form + (AGAIN if again else "")
        self.taken.setdefault((order.timer, form, order.messages if messages is None else messages), []).append(
            measured
        )

    def take(self, found: tuple[tuple[Rounds, T], float | None, bool]) -> T:
        """Adds rounds that were run together, as :meth:`Bench.quiet` hands them over; returns what came with them."""
        (rounds, more), foreign, contended = found
        for key, measured in rounds.taken.items():
            self.taken.setdefault(key, []).extend(measured)
        self.foreign = max((cores for cores in (self.foreign, foreign) if cores is not None), default=None)
        self.contended |= contended
        return more

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

    def ratio(self, messages: int) -> float:
        """Tasks over one by one, the document's timer and means."""
        return self.mean_ms(TASKS, messages) / self.mean_ms(ONE, messages)

    def work_ratio(self, messages: int, tasks: Form = TASKS) -> float:
        """The same of the work alone: CPU time of the quickest rounds."""
        return self.cpu_ms(tasks, messages) / self.cpu_ms(ONE, messages)

    def memory_ratio(self, messages: int) -> float:
        """Peak of tasks over peak of one by one."""
        return self.peak(TASKS, messages) / self.peak(ONE, messages)

    def floor(self, messages: int) -> float:
        """A/A of the work alone: the worse of the two forms against its own twin."""
        return max(
            ratio_floor([self.cpu_ms(form, messages)], [self.cpu_ms(form + AGAIN, messages)]) for form in (ONE, TASKS)
        )

    def time_floor(self, *parts: tuple[Timer, str, int]) -> float | None:
        """A/A of a figure made of these: halves of their rounds by the clock, of the one that repeats worst."""
        return floor_of(*(halves_floor(self.wall_ms(*part)) for part in parts))

    def memory_floor(self, messages: int) -> float | None:
        """The same of what was traced, both forms; as of :meth:`peak`, without the first round of several."""
        every = [self.peaks(form, messages) for form in (ONE, TASKS)]
        return floor_of(*(halves_floor(peaks[1:] if len(peaks) > 2 else peaks) for peaks in every))

    def line(self, form: Form) -> tuple[float, float, float]:
        """Milliseconds before the first message and of each further one, and R²: medians of 1,000 and more."""
        sizes = [messages for messages in doc.MESSAGES if messages >= 1000]
        return line_fit([(messages, median(self.wall_ms("document", form, messages))) for messages in sizes])

    def growth(self, form: Form) -> Found:
        """How many times longer the most messages take than the fewest, the document's timer and means."""
        value = self.mean_ms(form, doc.LARGE) / self.mean_ms(form, doc.MESSAGES[0])
        floor = self.time_floor(("document", form, doc.LARGE), ("document", form, doc.MESSAGES[0]))
        return Found(value, floor=floor, contended=self.contended)

    def fit(self, form: Form) -> float:
        """R² with the CPU time of the quickest rounds in place of medians: others' work does not bend the line."""
        sizes = [messages for messages in doc.MESSAGES if messages >= 1000]
        return line_fit([(messages, self.cpu_ms(form, messages, "document")) for messages in sizes])[2]
