"""What a test asks of its calls, from frames: the numbers of each call, and whether they are all there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from mcp_probe.aggregate.fold import Fold
from mcp_probe.aggregate.phrasing import plural
from mcp_probe.model import (
    STEPS,
    Await,
    End,
    Frame,
    GrowthSample,
    Header,
    ProcessSample,
    RequestGroup,
    RequestRecord,
    StepRecord,
    Summary,
    Timeline,
)
from mcp_probe.testing.errors import NotMeasuredError
from mcp_probe.testing.locks import LockedAwait, locked_awaits

HANDLERS = ("tools/call", "prompts/get", "resources/read")
"""Methods that the server's own functions answer: what is asserted without naming an operation is about these."""

MAX_CALLS = 20_000
"""Calls that are kept one by one; a test with more cannot ask about them."""

SLOW_STEP_MS = 10.0
"""What findings take for a slow step; the probe of a test looks at shorter ones, too."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call, as far as tests ask."""

    id: int
    operation: str
    method: str
    step_max_ns: int
    tasks_peak: int
    seen: int
    awaits: tuple[Await, ...] | None


class Tally:
    """Takes frames in. One thread at a time.

    ``alone``: the server has its process, and so its loop, for itself. Else what no request did on the loop may be the
    test's and its client's own work, and is left out.
    """

    def __init__(self, *, alone: bool) -> None:
        self._alone = alone
        self._fold = Fold(slow_step_ms=SLOW_STEP_MS)
        self.header: Header | None = None
        self.calls: list[Call] = []
        self.ended = False  # the window is complete
        self.growth: GrowthSample | None = None
        self._steps: dict[str, list[StepRecord]] = {}
        self._pauses: list[tuple[int, int, int | None]] = []  # (start, end, CPU) of the garbage collector
        self._locked: list[LockedAwait] = []
        self._without_timeline: set[int] = set()
        self._cut_timelines: set[int] = set()
        self._unrecorded = 0
        self._last: RequestRecord | None = None

    def add(self, frame: Frame) -> None:
        """One frame more."""
        if isinstance(frame, StepRecord) and not frame.request and not self._alone:
            return
        self._fold.add(frame)
        if isinstance(frame, RequestRecord):
            self._add_call(frame)
        elif isinstance(frame, Timeline):
            self._add_timeline(frame)
        elif isinstance(frame, StepRecord):
            if frame.request and not frame.running:
                self._steps.setdefault(frame.operation, []).append(frame)
        elif isinstance(frame, ProcessSample):
            cpu = frame.gc_pauses_cpu or (None,) * len(frame.gc_pauses)
            self._pauses += [(a, b, used) for (a, b, _), used in zip(frame.gc_pauses, cpu, strict=False)]
        elif isinstance(frame, RequestGroup):
            self._unrecorded += frame.count
        elif isinstance(frame, GrowthSample):
            self.growth = frame
        elif isinstance(frame, Header):
            self.header = frame
        elif isinstance(frame, End):
            self.ended = True

    def _add_call(self, record: RequestRecord) -> None:
        if record.kind != "request":
            return
        self._last = record
        if len(self.calls) >= MAX_CALLS:
            self._unrecorded += 1
            return
        self._without_timeline.add(record.id)
        name = record.name or record.method
        facts = (record.step_max_ns, record.tasks_peak, record.seen, record.awaits)
        self.calls.append(Call(record.id, name, record.method, *facts))

    def _add_timeline(self, timeline: Timeline) -> None:
        record = self._last
        if record is None or record.id != timeline.request:
            return
        self._without_timeline.discard(record.id)
        if timeline.left_out:
            self._cut_timelines.add(record.id)
        self._locked += locked_awaits(record, timeline)

    # --- what is asked ---

    def summary(self, *, live: bool) -> Summary:
        """What a report would say."""
        return self._fold.summary(live=live)

    def calls_of(self, operation: str | None) -> list[Call]:
        """Calls of one operation, or of all the server's own.

        Raises: NotMeasuredError if there are none, or not all are known one by one.
        """
        if self._unrecorded:
            raise NotMeasuredError(
                f"{plural(self._unrecorded, 'request')} came too fast, or were too many, to be looked at one by one, "
                "so nothing can be said of each call. Send fewer, or wait for answers in between."
            )
        own = operation is None
        found = [call for call in self.calls if (own and call.method in HANDLERS) or call.operation == operation]
        if not found:
            known = ", ".join(f"`{name}`" for name in dict.fromkeys(call.operation for call in self.calls))
            what = "No call of a tool, prompt or resource" if operation is None else f"No call of `{operation}`"
            seen = f"only of {known}" if known else "nor of anything else"
            raise NotMeasuredError(f"{what} was measured, {seen}. Make the calls while the profile is open.")
        return found

    def stepped(self, calls: Iterable[Call]) -> None:
        """Raises: NotMeasuredError if one of ``calls`` ran where its steps cannot be seen."""
        blind = [call.operation for call in calls if not call.seen & STEPS]
        if blind:
            raise NotMeasuredError(
                f"What `{blind[0]}` did on the event loop could not be seen: `mcp-probe doctor` says why."
            )

    def slow_steps(self, calls: Iterable[Call]) -> Iterator[tuple[StepRecord, int | None]]:
        """Steps of ``calls`` that were kept one by one, and their CPU time without the garbage collector's, in ns."""
        ids = {call.id for call in calls}
        for steps in self._steps.values():
            for step in steps:
                if step.request in ids or not ids.isdisjoint(step.within):
                    yield step, None if step.cpu_ns is None else max(0, step.cpu_ns - self._collecting_ns(step))

    def _collecting_ns(self, step: StepRecord) -> int:
        """CPU time of the collector's pauses in ``step``: by its clock if that was read, else as long as they took."""
        inside = [(a, b, cpu) for a, b, cpu in self._pauses if step.start_ns <= a and b <= step.end_ns]
        read = sum(cpu if cpu is not None else b - a for a, b, cpu in inside)
        return read + max(0, step.gc_ns - sum(b - a for a, b, _ in inside))

    def locked(self, calls: Sequence[Call]) -> list[LockedAwait]:
        """What ``calls`` awaited under a lock. Raises: NotMeasuredError."""
        if any(call.id in self._without_timeline or call.id in self._cut_timelines for call in calls):
            raise NotMeasuredError(
                "Not all that the calls did was kept one by one, so locks that they held are not known. "
                "Make fewer awaits in a call, or ask about another operation."
            )
        names = {call.operation for call in calls}
        return [one for one in self._locked if one.operation in names]
