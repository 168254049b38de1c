"""Whose step was that: steps are drained before the request they belong to is known to be a tool's call."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from mcp_probe.export.histograms import Series
from mcp_probe.model import RequestRecord, StepRecord
from mcp_probe.record.raw import RawRequest

MAX_WAITING = 4096
"""Requests whose steps wait for them; the steps of the oldest are then counted as no tool's."""

Length = tuple[int, Series]


class StepOwners:
    """Lengths of ended steps, handed on once their request's tool is known. Not thread-safe."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[int, list[tuple[int, tuple[int, ...]]]] = OrderedDict()

    def add_step(self, step: StepRecord) -> Iterator[Length]:
        """Take one in; yields what can be counted now."""
        length = step.end_ns - step.start_ns
        if not step.request:
            yield length, ()
            return
        self._waiting.setdefault(step.request, []).append((length, step.within))
        if len(self._waiting) > MAX_WAITING:
            for length, _ in self._waiting.popitem(last=False)[1]:
                yield length, ()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add_request(self, record: RequestRecord | RawRequest, tool: Series) -> Iterator[Length]:
        """``record`` has come: its steps are its tool's, those of a profiled function the enclosing request's."""
        for length, within in self._waiting.pop(record.id, ()):
            if record.kind == "function" and within:
                self._waiting.setdefault(within[0], []).append((length, within[1:]))
            else:
                yield length, tool

    def rest(self) -> Iterator[Length]:
        """The stream is over."""
        while self._waiting:
            for length, _ in self._waiting.popitem(last=False)[1]:
                yield length, ()
