"""Stretches of time by name, on the clock that a server's probe reads, and what the probe saw in each of them.

The client marks them: both sides read CLOCK_MONOTONIC, so that afterwards each row has the readings of exactly its own
requests.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mcp_probe.aggregate.seen import Seen
from mcp_probe.clock import now_ns
from mcp_probe.errors import LaunchError
from mcp_probe.model import Frame
from mcp_probe.record.file import read_recording


class Phases:
    """What is marked while a server runs; what was seen can be asked for when its recording has been taken in."""

    def __init__(self) -> None:
        self._spans: dict[str, tuple[int, int]] = {}
        self._frames: list[list[Frame]] = []  # of each process
        self._seen: dict[str | None, list[Seen]] = {}

    @contextmanager
    def phase(self, label: str) -> Iterator[None]:
        """What arrives at the server meanwhile is reported apart, under ``label``; of several of one name the last."""
        began = now_ns()
        try:
            yield
        finally:
            self.mark(label, (began, now_ns()))

    def mark(self, label: str, span_ns: tuple[int, int]) -> None:
        """As :meth:`phase`, for what has been: from when to when, on the probe's clock."""
        self._spans[label] = span_ns
        self._seen.pop(label, None)

    def take_in(self, recording: Path) -> None:
        """The readings of a server that has ended, and of its further processes.

        Raises: RecordingError where there are none.
        """
        further = sorted(recording.parent.glob(f"{recording.name}.*"), key=lambda path: int(path.suffix[1:]))
        self._frames = [list(read_recording(path)) for path in (recording, *further)]
        self._seen.clear()

    def has(self, *labels: str) -> bool:
        """Whether there are readings of all these phases."""
        return bool(self._frames) and self._spans.keys() >= set(labels)

    def seen(self, phase: str | None = None) -> Seen:
        """What the probe saw in ``phase``, ``None``: in all. Only when the server has ended.

        Raises: LaunchError where there are no readings, or there was no such phase.
        """
        return self.seen_by_process(phase)[0]

    def seen_by_process(self, phase: str | None = None) -> list[Seen]:
        """As :meth:`seen`, of each process that served, in the order in which they began."""
        if not self._frames:
            raise LaunchError("There are no readings: the server still runs, or ran without the probe.")
        if phase is not None and phase not in self._spans:
            raise LaunchError(f"There was no phase {phase} of this server.")
        if phase not in self._seen:
            span = self._spans[phase] if phase is not None else (None, None)
            self._seen[phase] = [Seen.of(frames, *span) for frames in self._frames]
        return self._seen[phase]
