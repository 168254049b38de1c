"""What became of each request of a loop: the first row by row, and all beyond them in a tally.

Invariant: every request that was due in a phase is counted exactly once, with one outcome. A request that nobody
answered before the drain was over is there as cancelled, with the time it had waited by then.
"""

from __future__ import annotations

from array import array
from collections import Counter
from dataclasses import dataclass, field

from mcp_probe.workloads.load.silences import Silences
from mcp_probe.workloads.load.tally import CELLS, FATES, Fate, Tally
from mcp_probe.workloads.load.wire import Kind, Reply

_NUMBER_OF: dict[Kind | Fate, int] = {fate: number for number, fate in enumerate(FATES)}

CHUNK = 200_000
"""Rows that are kept. Those beyond are only tallied, so that a load of hours needs no more memory than one of minutes.
The rows join the tally at the end: while a load runs, folding all of them at once would hold its loop for a second."""

_MOST_FAILURES = 200
_MOST_CAUSES = 50


@dataclass(slots=True)
class Log:
    """One phase, a column per quantity; instants on :func:`mcp_probe.clock.now_ns`, 0 where it never happened."""

    begun_ns: int = 0  # what was due was due from here on
    window_ns: int | None = None  # how long requests shall be due; None: every row is kept
    call: array[int] = field(default_factory=lambda: array("i"))
    due_ns: array[int] = field(default_factory=lambda: array("q"))
    sent_ns: array[int] = field(default_factory=lambda: array("q"))
    done_ns: array[int] = field(default_factory=lambda: array("q"))
    fate: array[int] = field(default_factory=lambda: array("b"))
    failures: Counter[tuple[int, str]] = field(default_factory=Counter)  # (call, sentence) -> how often
    causes: Counter[str] = field(default_factory=Counter)  # kind of failure -> how often
    ended_ns: int = 0  # the last answer, or the end of the drain
    offered_until_ns: int = 0  # nothing was due after this
    last_done_ns: int = 0
    outstanding_peak: int = 0
    outstanding_ns: int = 0  # integral of requests in flight over the phase
    interrupted: bool = False  # ended before everything that was due had been sent
    pauses: list[tuple[int, int]] = field(default_factory=list)  # of the generator itself, see Beat
    silences: Silences = field(default_factory=Silences)  # of the server, watched while it ran
    beyond: Tally | None = None  # of what is kept in no row

    def add(self, call: int, due_ns: int, sent_ns: int, done_ns: int, fate: Fate, failure: str = "") -> None:
        """One more request has met its fate."""
        if len(self.call) < CHUNK or self.window_ns is None:
            self.call.append(call)
            self.due_ns.append(due_ns)
            self.sent_ns.append(sent_ns)
            self.done_ns.append(done_ns)
            self.fate.append(_NUMBER_OF[fate])
        else:
            if self.beyond is None:
                self.beyond = Tally(self.begun_ns, self.window_ns // CELLS + 1)
            self.beyond.add(call, due_ns, sent_ns, done_ns, fate)
        self.last_done_ns = max(self.last_done_ns, done_ns)
        if failure and ((call, failure) in self.failures or len(self.failures) < _MOST_FAILURES):
            self.failures[call, failure] += 1

    def add_reply(self, call: int, due_ns: int, reply: Reply) -> None:
        """One more request has been answered, or has failed."""
        self.add(call, due_ns, reply.sent_ns, reply.answered_ns, reply.kind, reply.failure)
        if reply.kind != "ok":
            cause = reply.cause or reply.kind
            self.causes[cause if cause in self.causes or len(self.causes) < _MOST_CAUSES else "other"] += 1

    def tally(self) -> Tally:
        """The figures of all requests. Where some are kept in no row, no row is kept after this."""
        tally = self.beyond or Tally(self.begun_ns, (self.offered_until_ns - self.begun_ns) // CELLS + 1)
        for call, due, sent, done, fate in zip(
            self.call, self.due_ns, self.sent_ns, self.done_ns, self.fate, strict=True
        ):
            tally.add(call, due, sent, done, FATES[fate])
        if self.beyond is not None:
            for column in (self.call, self.due_ns, self.sent_ns, self.done_ns, self.fate):
                del column[:]
        return tally

    def __len__(self) -> int:
        return len(self.call) + (0 if self.beyond is None else sum(self.beyond.fates.values()))
