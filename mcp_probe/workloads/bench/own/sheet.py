"""What a comparison has found so far. Rows wait for their reasons: the probe's readings are there at the end only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mcp_probe.aggregate.explain import Seen, explain, what_grew
from mcp_probe.clock import now_ns
from mcp_probe.errors import RecordingError
from mcp_probe.model import Frame
from mcp_probe.record.file import read_recording
from mcp_probe.workloads.bench.context import Bench
from mcp_probe.workloads.bench.own.claims import Found
from mcp_probe.workloads.bench.own.limits import limit_of
from mcp_probe.workloads.bench.own.operations import Operation
from mcp_probe.workloads.bench.shapes import Stats

UNSEEN = "The probe saw nothing of this server, so no reasons are given: is it one in Python, with an MCP SDK?"


class Phases:
    """When each row was measured, on the clock that the server's probe reads, too."""

    def __init__(self) -> None:
        self._spans: dict[str, tuple[int, int]] = {}
        self._frames: list[Frame] | None = None

    @contextmanager
    def named(self, name: str) -> Iterator[None]:
        """What arrives meanwhile belongs to ``name``; of several phases of one name the last one counts."""
        began = now_ns()
        try:
            yield
        finally:
            self._spans[name] = (began, now_ns())

    def read(self, recording: Path) -> str:
        """Takes the recording in; a sentence where there is none."""
        try:
            self._frames = list(read_recording(recording))
        except RecordingError:
            return UNSEEN
        return ""

    def why(self, name: str, operation: str | None = None) -> str:
        """One sentence on that phase; empty where nobody can say."""
        if self._frames is None or name not in self._spans:
            return ""
        return explain(self._seen(name), operation)

    def grew(self, quick: str, slow: str) -> str:
        """What the calls of one phase took longer for than those of another; empty where nobody can say."""
        return what_grew(self._seen(quick), self._seen(slow)) if self._knows(quick, slow) else ""

    def limit(self, quick: str, slow: str, operation: str) -> str:
        """What in the server calls of the second phase waited for, by name and line; empty where nobody can say."""
        return limit_of(self._seen(quick), self._seen(slow), operation) if self._knows(quick, slow) else ""

    def _knows(self, *names: str) -> bool:
        return self._frames is not None and self._spans.keys() >= set(names)

    def _seen(self, name: str) -> Seen:
        return Seen.of(self._frames or (), *self._spans[name])


class Sheet:
    """Rows, claims and notes on their way to ``bench``, and what later comparisons need of earlier ones."""

    def __init__(self, bench: Bench, phases: Phases) -> None:
        self.bench = bench
        self.phases = phases
        self.main: Operation | None = None  # what everything after the latencies is measured with
        self.quickest: Operation | None = None
        self.alone: dict[str, Stats] = {}  # label of an operation -> ms, one call after another
        self._later: list[Callable[[], object]] = []

    @property
    def measured(self) -> bool:
        """Whether there is anything to give reasons for."""
        return bool(self._later)

    def publish(self) -> None:
        """Hands everything found so far to the bench."""
        for hand_over in self._later:
            hand_over()
        self._later = []

    def row(
        self, table: str, label: str, unit: str, measured: Stats | float | None, phase: str = "", **more: Any
    ) -> None:
        """A row; its ``phase`` is explained, for one ``operation`` only and against a ``quicker`` phase if given."""
        operation, quicker = more.pop("operation", None), more.pop("quicker", "")

        def hand_over() -> None:
            why = self.phases.why(phase, operation) if phase else ""
            why = " ".join(filter(None, (why, self.phases.grew(quicker, phase) if quicker else "")))
            self.bench.row(table, label, unit, measured, why=why, **more)

        self._later.append(hand_over)

    def claim(self, found: Found) -> None:
        """See :meth:`Bench.claim`."""
        self._later.append(
            lambda: self.bench.claim(
                found.claim, *found.figures, said=found.said, untold=found.untold, value=found.value
            )
        )

    def note(self, sentence: str) -> None:
        """See :meth:`Bench.note`."""
        self._later.append(lambda: self.bench.note(sentence))

    def later(self, hand_over: Callable[[], object]) -> None:
        """Something that needs the probe's readings; it is done in its turn among the rows."""
        self._later.append(hand_over)
