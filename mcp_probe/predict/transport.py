"""What a message's way in and out costs by itself: what is left of its queue and its write once every wait for the
loop, the reader, the writer and a thread is taken away."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from mcp_probe.model import RequestRecord
from mcp_probe.predict.recorded import Recorded
from mcp_probe.predict.workload import Way

_CLEAR = 0.3
"""A way that the loop's known work crossed for less than this share of its time says what a way costs by itself."""

_ENOUGH_CLEAR = 0.1
_STEP_NS = 10_000


def ways_of(
    recorded: Recorded, order: Sequence[RequestRecord], is_serial: bool, turns_ns: int = 0
) -> tuple[list[Way], list[tuple[int, int]]]:
    """The way of each of ``order``, and those steps of no request that are no message's: (at_ns, run_ns).

    ``turns_ns`` is what of the loop's time is known to be for other things, though it is in no step.
    """
    return _Ways(recorded, order, is_serial, turns_ns).found()


class _Ways:
    def __init__(self, recorded: Recorded, order: Sequence[RequestRecord], is_serial: bool, turns_ns: int) -> None:
        self._recorded = recorded
        self._order = order
        self._is_serial = is_serial
        self._turns_ns = turns_ns
        self._busy = recorded.busy_or_full if is_serial else recorded.busy
        self._in_runs: dict[int, int] = defaultdict(int)
        self._out_runs: dict[int, int] = defaultdict(int)

    def found(self) -> tuple[list[Way], list[tuple[int, int]]]:
        background = self._divide()
        unseen = max(0, self._recorded.unseen_run_ns - self._turns_ns)
        if not self._is_serial:
            return self._side_by_side(unseen), background
        ins, outs = self._ins(), self._outs()
        least_in, least_out = _least(ins), _least(outs)
        each = unseen // max(1, 2 * len(self._order))
        ways = []
        for record, came, went in zip(self._order, ins, outs, strict=True):
            in_ns, out_ns = came.at_least(least_in), went.at_least(least_out)
            in_run = min(in_ns, max(each, record.decode_ns or 0)) + self._in_runs[record.id]
            out_run = min(out_ns, max(each, record.encode_ns or 0)) + self._out_runs[record.id]
            ways.append(Way(max(0, in_ns - in_run), in_run, out_run, max(0, out_ns - out_run)))
        return ways, background

    def _side_by_side(self, unseen: int) -> list[Way]:
        """No thread has a part in these ways. What the loop did that is not in the file was mostly for them: an
        instant of no known work is divided among those who were on their way. What the loop did beyond that, it did
        before a message had arrived, or after its answer was out: it reads what was sent, and ends the response."""
        ins, outs = self._divided()
        on_the_way = sum(ins.values()) + sum(outs.values())
        share = min(1.0, unseen / max(1, on_the_way))
        rest = max(0, unseen - on_the_way) // max(1, len(self._order))
        ways = []
        for record in self._order:
            came, went = ins[record.id], outs[record.id]
            in_run, out_run = int(came * share), int(went * share)
            least = _STEP_NS if record.transport == "http" else 0  # at least a step each way, however short
            runs = in_run + self._in_runs[record.id], out_run + self._out_runs[record.id]
            connects = self._recorded.timelines[record.id].new_connection
            ways.append(Way(came - in_run, max(runs[0], least), max(runs[1], least), went - out_run, rest, connects))
        return ways

    def _divided(self) -> tuple[Counter[int], Counter[int]]:
        """Of each message's way in, and out, its part of the time in which no known work was done."""
        ins: Counter[int] = Counter()
        outs: Counter[int] = Counter()
        edges: list[tuple[int, int, Counter[int], int]] = []
        for record in self._order:
            for parts, since_ns, until_ns in (
                (ins, record.arrival_ns, record.first_step_ns),
                (outs, record.result_ns, record.end_ns),
            ):
                if since_ns is not None and until_ns is not None and since_ns < until_ns:
                    edges += [(since_ns, 1, parts, record.id), (until_ns, -1, parts, record.id)]
        edges.sort(key=lambda edge: edge[:2])
        total = last = 0  # what one that is on its way all the time would have had
        count = 0
        since: dict[tuple[int, int], int] = {}
        for at, change, parts, id in edges:
            if count:
                total += (at - last - self._busy.within(last, at)) // count
            last, count = at, count + change
            key = id, parts is ins
            if change > 0:
                since[key] = total
            else:
                parts[id] = total - since[key]
        return ins, outs

    # --- steps of no request ---

    def _divide(self) -> list[tuple[int, int]]:
        """Gives those that belong to a message's way to that message; returns the others."""
        timelines = self._recorded.timelines
        inward = sorted((r.arrival_ns, r.first_step_ns or r.end_ns, r.id) for r in self._order)
        outward = sorted((r.result_ns, r.end_ns, r.id) for r in self._order if r.result_ns is not None)
        others = []
        for step in self._recorded.background:
            run = step.end_ns - step.start_ns
            for ways, runs, is_in in ((inward, self._in_runs, True), (outward, self._out_runs, False)):
                id = self._of(step.start_ns, step.end_ns, ways)
                if id is None:
                    continue
                record, timeline = self._recorded.records[id], timelines[id]
                at = timeline.taken_ns if is_in else timeline.write_taken_ns
                if at is not None and step.start_ns <= at <= step.end_ns:  # parsing or serialising is told apart
                    run -= min(run, (record.decode_ns if is_in else record.encode_ns) or 0)
                runs[id] += run
                break
            else:
                others.append((step.start_ns, run))
        return others

    def _of(self, start: int, end: int, ways: list[tuple[int, int, int]]) -> int | None:
        """Whose way the step is a part of: of the ways that it lies in, the one that began last."""
        index = bisect_right(ways, (start, 1 << 62, 0)) - 1
        for since, until, id in reversed(ways[max(0, index - 8) : index + 1]):
            if since <= start and end <= until:
                return id
        return None

    # --- one by one: in ---

    def _ins(self) -> list[_Cost]:
        found = []
        last = 0
        for record in self._order:
            since, first = record.arrival_ns, record.first_step_ns
            if first is None:
                found.append(_Cost(0, 0))
                continue
            since, last = max(since, min(last, first)), max(last, first)
            found.append(_Cost(first - since, self._busy.within(since, first)))
        return found

    # --- one by one: out ---

    def _outs(self) -> list[_Cost]:
        since = {record.id: record.result_ns for record in self._order if record.result_ns is not None}
        timelines, last = self._recorded.timelines, 0
        for record in sorted(self._order, key=lambda one: timelines[one.id].write_taken_ns or one.end_ns):
            if record.id in since:
                since[record.id], last = max(since[record.id], min(last, record.end_ns)), max(last, record.end_ns)
        found = []
        for record in self._order:
            whole = record.end_ns - since.get(record.id, record.end_ns)
            found.append(_Cost(whole, self._busy.within(record.end_ns - whole, record.end_ns)))
        return found


@dataclass(frozen=True, slots=True)
class _Cost:
    """How long a message was on its way, and for how much of that the loop was at other work that is known."""

    whole_ns: int
    waits_ns: int

    @property
    def own_ns(self) -> int:
        return max(0, self.whole_ns - self.waits_ns)

    @property
    def is_clear(self) -> bool:
        return self.waits_ns <= _CLEAR * self.whole_ns

    def at_least(self, least_ns: int) -> int:
        """Threads go on while the loop is at other work, so what is left may be too little; never more than it took."""
        return self.own_ns if self.is_clear else min(max(self.own_ns, least_ns), max(0, self.whole_ns))


def _least(costs: Sequence[_Cost]) -> int:
    """What a message's way costs at least: the usual cost of a clear way, or the low end where few are clear."""
    clear = sorted(cost.own_ns for cost in costs if cost.is_clear and cost.whole_ns)
    if clear and len(clear) >= _ENOUGH_CLEAR * len(costs):
        return clear[len(clear) // 2]
    return sorted(cost.own_ns for cost in costs)[len(costs) // 10]
