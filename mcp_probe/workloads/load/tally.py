"""Every figure of a loop from its requests one by one, in memory that does not grow with their number."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from mcp_probe.workloads.load.times import Times

Fate = Literal["ok", "tool error", "protocol error", "transport error", "cancelled", "not sent"]
FATES: tuple[Fate, ...] = ("ok", "tool error", "protocol error", "transport error", "cancelled", "not sent")
ANSWERED: tuple[Fate, ...] = ("ok", "tool error", "protocol error")

CELLS = 30
"""Equal parts of the window; three make a slice of a page, and ten a third."""


@dataclass(slots=True)
class OfCall:
    """One call of the mix."""

    due: int = 0
    failed: int = 0
    ok: Times = field(default_factory=Times)  # due to answer
    gave_up: Times = field(default_factory=Times)  # due to the end of patience
    served: Times = field(default_factory=Times)  # sent to answer, whatever it said


@dataclass(slots=True)
class Cell:
    """One part of the window. Durations stand where their requests were due."""

    due: int = 0
    sent: int = 0
    answered: int = 0
    lower: bool = False
    waited: Times = field(default_factory=Times)  # due to answer, or to the end of patience
    served: Times = field(default_factory=Times)  # the same from sending


class Tally:
    """What is known of a loop's requests. ``cell_ns`` is the length of one of the :data:`CELLS` of its window."""

    def __init__(self, begun_ns: int, cell_ns: int) -> None:
        self.begun_ns = begun_ns
        self.cell_ns = max(cell_ns, 1)
        self.fates: dict[Fate, int] = dict.fromkeys(FATES, 0)
        self.ok, self.gave_up = Times(), Times()  # from when due
        self.sent_ok, self.sent_gave_up = Times(), Times()  # from sending
        self.late, self.served = Times(), Times()
        self.last_sent = (0, 0)  # due and sent, of the last of the schedule that was sent
        self.last_answer_ns = 0
        self.calls: dict[int, OfCall] = {}
        self.cells = [Cell() for _ in range(CELLS)]

    def add(self, call: int, due: int, sent: int, done: int, fate: Fate) -> None:
        """One more request; instants as in the log."""
        self.fates[fate] += 1
        row = self.calls.get(call) or self.calls.setdefault(call, OfCall())
        row.due += 1
        row.failed += fate in ("tool error", "protocol error", "transport error")
        cell = self.cells[min(max((due - self.begun_ns) // self.cell_ns, 0), CELLS - 1)]
        cell.due += 1
        if fate == "not sent":
            if done:
                self.gave_up.add(done - due)
            return
        self._passed(sent, done, fate)
        self.late.add(sent - due)
        self.served.add(done - sent)
        self.last_sent = max(self.last_sent, (due, sent))
        if fate in ANSWERED:
            self.last_answer_ns = max(self.last_answer_ns, done)
            row.served.add(done - sent)
        if fate in ("ok", "cancelled"):
            cell.waited.add(done - due)
            cell.served.add(done - sent)
        if fate == "ok":
            for times, value in ((self.ok, done - due), (self.sent_ok, done - sent), (row.ok, done - due)):
                times.add(value)
        elif fate == "cancelled":
            cell.lower = True
            for times, value in ((self.gave_up, done - due), (self.sent_gave_up, done - sent)):
                times.add(value)
            row.gave_up.add(done - due)

    def _passed(self, sent: int, done: int, fate: Fate) -> None:
        """Counts sending and answer where they happened, which may be another cell than where it was due."""
        place = (sent - self.begun_ns) // self.cell_ns
        if 0 <= place < CELLS:
            self.cells[place].sent += 1
        place = (done - self.begun_ns) // self.cell_ns
        if fate != "cancelled" and 0 <= place < CELLS:
            self.cells[place].answered += 1
