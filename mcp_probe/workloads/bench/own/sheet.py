"""What a comparison has found so far. Reasons are asked for at the end: the probe's readings are there only then."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mcp_probe.aggregate.explain import explain, what_grew
from mcp_probe.errors import RecordingError
from mcp_probe.workloads.bench.context import Bench
from mcp_probe.workloads.bench.own.claims import Found
from mcp_probe.workloads.bench.own.limits import limit_of
from mcp_probe.workloads.bench.own.operations import Operation
from mcp_probe.workloads.bench.phases import Phases
from mcp_probe.workloads.bench.shapes import Stats

UNSEEN = "The probe saw nothing of this server, so no reasons are given: is it one in Python, with an MCP SDK?"


class Reasons(Phases):
    """What a user's server says of itself, in sentences; nobody may be there to say it.

    ``missing`` says so where a server under the probe left nothing.
    """

    def __init__(self) -> None:
        super().__init__()
        self.missing = ""

    def read(self, recording: Path) -> None:
        """Takes in what a server under the probe has left."""
        try:
            self.take_in(recording)
        except RecordingError:
            self.missing = UNSEEN

    def why(self, name: str, operation: str | None = None, quicker: str = "") -> str:
        """On that phase, and what its calls took longer for than in a ``quicker`` one; empty if nobody can say."""
        told = explain(self.seen(name), operation) if self.has(name) else ""
        grew = what_grew(self.seen(quicker), self.seen(name)) if quicker and self.has(quicker, name) else ""
        return " ".join(filter(None, (told, grew)))

    def limit(self, quick: str, slow: str, operation: str) -> str:
        """What in the server calls of the second phase waited for, by name and line; empty where nobody can say."""
        return limit_of(self.seen(quick), self.seen(slow), operation) if self.has(quick, slow) else ""


class Sheet:
    """Rows and claims on their way to ``bench``, and what later comparisons need of earlier ones."""

    def __init__(self, bench: Bench, reasons: Reasons) -> None:
        self.bench = bench
        self.reasons = reasons
        self.ranked: list[Operation] = []  # that answer well, the quickest first
        self.alone: dict[str, Stats] = {}  # label of an operation -> ms, one call after another

    def row(
        self, table: str, label: str, unit: str, measured: Stats | float | None, phase: str = "", **more: Any
    ) -> None:
        """See :meth:`Bench.row`; a ``phase`` is explained, for one ``operation`` only if given."""
        operation = more.pop("operation", None)
        if phase:
            more["why"] = lambda: self.reasons.why(phase, operation)
        self.bench.row(table, label, unit, measured, **more)

    def claim(self, found: Found) -> None:
        """See :meth:`Bench.claim`."""
        self.bench.claim(found.claim, *found.figures, said=found.said, untold=found.untold, value=found.value)
