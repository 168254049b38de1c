"""How many calls to have in flight: levels in turns, more of them where throughput stops growing, and bursts.

They are measured without the probe wherever it can be left out. Reasons come from a second run under it, and only where
that run was as quick.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

from mcp_probe.workloads.bench.own.calls import DRAIN_S, burst, hold
from mcp_probe.workloads.bench.own.claims import kneed
from mcp_probe.workloads.bench.own.knee import ENOUGH, OTHERS_WORK, Burst, Level, Reading, Repeated, knee_of
from mcp_probe.workloads.bench.own.operations import Operation
from mcp_probe.workloads.bench.own.sheet import Reasons, Sheet
from mcp_probe.workloads.bench.statistics import describe, little
from mcp_probe.workloads.load.peer import Peer

AROUND = (0.6, 0.75, 0.87, 1.0, 1.15, 1.35, 1.7, 2.5)
"""Of where the knee seems to be: levels that are measured beside the doublings."""

WAVES = 2.5
"""Times the width that there seems to be: calls of a burst, so that there are two full waves and a part."""

LEAST_BURST, MOST_BURST = 10, 400
REFINEMENTS = 3

MOST_REPEATS, MORE_REPEATS = 16, 2
"""Of a level: where the repeats differ too much to see a knee, each gets two more, up to so many if time allows."""

AS_QUICK = 0.75
"""Of a level's throughput: if it was lower under the probe, what the probe saw there is of another server."""

QUIETER = "Others used this machine meanwhile: run it again when it is quiet."


@dataclass
class Sweep:
    """What has been measured of one operation, level by level; and what the probe saw of the same levels."""

    sheet: Sheet
    peer: Peer
    main: Operation
    span_s: float
    levels: dict[int, list[Level]] = field(default_factory=dict)
    reasons: Reasons = field(default_factory=Reasons)
    probed: dict[int, float] = field(default_factory=dict)  # in flight -> calls a second under the probe
    rounds: int = 0  # of levels that were measured one after the other

    async def measure(self, in_flight: int, what: str, number: int | None = None) -> Level:
        self.sheet.bench.step(f"concurrency sweep, {what}: {in_flight} in flight")
        level, _, contended = await self.sheet.bench.quiet(
            lambda: hold(self.peer, self.main.order, in_flight, self.span_s)
        )
        level = replace(level, contended=contended, round=number)
        self.levels.setdefault(in_flight, []).append(level)
        return level

    async def up(self, cap: int) -> None:
        """Doubles until throughput has stopped growing twice, or falls."""
        in_flight, stayed = 1, 0
        while in_flight <= cap and stayed < 2 and not self.peer.gone():
            before = max((level.per_s for levels in self.levels.values() for level in levels), default=0.0)
            level = await self.measure(in_flight, "upwards")
            if level.failed or level.cancelled or not level.answered:
                break
            stayed = stayed + 1 if level.per_s < 1.1 * before else 0
            in_flight *= 2

    async def again(self, which: Iterable[int], times: int) -> None:
        """Repeats these levels, back and forth, so that a drift of the machine favours none."""
        ordered = sorted(set(which))
        for turn in range(times):
            self.rounds += 1
            for in_flight in ordered if turn % 2 else ordered[::-1]:
                if not self.peer.gone() and len(self.levels.get(in_flight, ())) <= times:
                    await self.measure(in_flight, f"round {turn + 1} of {times}", self.rounds)

    async def closer(self, repeats: int, cap: int, until: float) -> None:
        """Until the curve is fine: a level above all where it still grows, one between where there is a gap, or more
        repeats of each where they differ too much; of these none that would end after ``until``.
        """
        refined = 0
        while not self.peer.gone() and (curve := self._curve()) is not None and not curve.is_fine:
            grows = curve.high is None and curve.low > 0
            level = 2 * max(self.levels) if grows else round((curve.low + (curve.high or 0)) / 2)
            if 0 < level <= cap and level not in self.levels and refined < REFINEMENTS:
                refined += 1
                await self.again([level], repeats + 1)
                continue
            known = [n for n, levels in self.levels.items() if len(levels) > 1]
            ends = time.monotonic() + MORE_REPEATS * len(known) * self.span_s
            if grows or repeats >= MOST_REPEATS or ends > until:
                break
            repeats += MORE_REPEATS
            await self.again(known, repeats)

    def _curve(self) -> Reading | None:
        return next(iter(knee_of(self.repeated(), ()).readings), None)

    def repeated(self) -> list[Repeated]:
        """Those that were measured more than once; of the first, upwards, only where nothing else is there."""
        return [Repeated(n, tuple(levels[1:] or levels)) for n, levels in sorted(self.levels.items())]

    def why(self, in_flight: int) -> str:
        """What calls of this level waited for, and longer than alone; or why nobody can say."""
        if not self.reasons.has(_phase(in_flight)):
            return ""
        quicker = _phase(1) if in_flight > 1 else ""
        return self.slower(in_flight) or self.reasons.why(_phase(in_flight), quicker=quicker)

    def slower(self, in_flight: int) -> str:
        """That the probe made this level slower, so that its readings say nothing of it; empty where it did not."""
        bare = self._per_s(in_flight)
        probed = self.probed.get(in_flight, bare)
        if probed >= AS_QUICK * bare:
            return ""
        return (
            f"What limits it cannot be told: with {in_flight} in flight it answered {probed:,.0f}/s under the probe, "
            f"{bare:,.0f}/s without."
        )

    def _per_s(self, in_flight: int) -> float:
        return fmean(level.per_s for level in self.levels[in_flight])

    def guess(self) -> tuple[int, int]:
        """About where throughput stops growing: by latency, and by the levels that were tried."""
        rates = {n: self._per_s(n) for n in self.levels}
        most = max(rates.values())
        times = sorted(time for level in self.levels[1] for time in level.times_ms)
        alone_s = times[len(times) // 2] / 1e3 if times else 0.0
        return max(1, round(most * alone_s)), min(n for n, rate in rates.items() if rate >= ENOUGH * most)


async def sweep(sheet: Sheet, peer: Peer, main: Operation) -> Sweep | None:
    """004: throughput and latency by the number of calls in flight, and how many to have at most.

    ``None`` where nothing was measured.
    """
    alone_s = sheet.alone[main.label].median / 1e3
    repeats = sheet.bench.size(quick=4, full=6)
    span_s = max(sheet.bench.size(quick=0.5, full=2.0), 6 * alone_s)
    may_take_s = sheet.bench.size(quick=120.0, full=1500.0)
    if 20 * repeats * span_s > may_take_s:
        repeats = 2
    if 20 * repeats * span_s > 2 * may_take_s:
        sheet.bench.note(
            f"No sweep: {main.label} takes {alone_s:.1f} s, so it would take {20 * repeats * span_s / 60:.0f} minutes. "
            "Name a quicker tool with --call, or leave out --quick."
        )
        return None
    found = Sweep(sheet, peer, main, span_s)
    cap = sheet.bench.size(quick=128, full=512)
    await found.up(cap)
    bursts: list[Burst] = []
    if len(found.levels) > 1 and found.levels[1][0].answered:
        bursts = await _around(found, repeats, cap, time.monotonic() + may_take_s)
    if not found.levels:
        return None
    _publish(sheet, main, found, bursts)
    return found


async def under_the_probe(swept: Sweep, peer: Peer) -> None:
    """Every level once more, on a server under the probe."""
    for in_flight in sorted(swept.levels):
        swept.sheet.bench.step(f"reasons: {in_flight} in flight under the probe")
        if peer.gone():
            break
        with swept.reasons.phase(_phase(in_flight)):
            level = await hold(peer, swept.main.order, in_flight, swept.span_s)
        swept.probed[in_flight] = level.per_s


async def _around(found: Sweep, repeats: int, cap: int, until: float) -> list[Burst]:
    """Repeats the levels that matter, looks closer where the curve is coarse, and sends bursts."""
    by_latency, by_curve = found.guess()
    tried = max(found.levels)
    near = {round(factor * center) for factor in AROUND for center in (by_latency, by_curve)}
    wanted = {n for n in near | {1, 2, 3} if 1 <= n <= max(tried, min(cap, 2 * by_curve + 2))}
    await found.again(_few(wanted | {tried}, 16), repeats)
    await found.closer(repeats, cap, until)
    by_latency, by_curve = found.guess()
    count = min(MOST_BURST, max(LEAST_BURST, round(WAVES * max(by_latency, by_curve))))
    bursts, bench = [], found.sheet.bench
    for number in range(bench.size(quick=5, full=9)):
        bench.step(f"{count} calls at once, {number + 1}")
        (replies, _), _, contended = await bench.quiet(lambda: burst(found.peer, found.main.order, count))
        if any(reply.kind != "ok" for reply in replies):
            bench.note(f"Of {count} calls sent at once some failed: {replies[-1].failure or 'not all at once'}.")
            break
        began = min(reply.sent_ns for reply in replies)
        bursts.append(Burst(tuple((reply.answered_ns - began) / 1e6 for reply in replies), contended))
    return bursts


def _few(levels: set[int], most: int) -> list[int]:
    """At most so many, the lowest and the highest among them."""
    ordered = sorted(levels)
    while len(ordered) > most:  # drops the one that stands closest to its neighbours
        gaps = [ordered[place + 1] / ordered[place - 1] for place in range(1, len(ordered) - 1)]
        del ordered[1 + gaps.index(min(gaps))]
    return ordered


def _phase(in_flight: int) -> str:
    return f"sweep {in_flight}"


def _publish(sheet: Sheet, main: Operation, found: Sweep, bursts: Sequence[Burst]) -> None:
    knee = knee_of(found.repeated(), bursts)
    for each in found.repeated():
        _rows(found, each)
    for reading in knee.readings:
        sheet.row(
            "how many at once: three readings", reading.name, "in flight", reading.best, note=reading.sentence,
            contended=knee.contended,
        )  # fmt: skip
    levels = sorted(found.levels)
    enough = knee.recommended or next((round(each.best) for each in knee.readings if each.best), levels[-1])
    beyond = next((level for level in levels if level >= 1.5 * enough), levels[-1])

    def advice() -> str:
        limit = found.slower(beyond) or found.reasons.limit(_phase(1), _phase(beyond), main.order.operation)
        again = "" if knee.recommended or not knee.contended or OTHERS_WORK in knee.why else QUIETER
        return " ".join(filter(None, (knee.advice, again, limit if beyond > 1 else "")))

    sheet.bench.advise(advice)
    sheet.claim(kneed(knee))


def _rows(found: Sweep, repeated: Repeated) -> None:
    label = found.main.label
    table = f"concurrency sweep of {label}"
    times = repeated.times_ms
    cancelled = sum(level.cancelled for level in repeated.levels)
    failed = sum(level.failed for level in repeated.levels)
    excused = f"{cancelled} calls were given up after {DRAIN_S:g} s" if cancelled else ""
    rates = describe([level.per_s for level in repeated.undisturbed], first_apart=False, contended=repeated.contended)
    flow = little(1, 1 / rates.mean, sum(times) / len(times) / 1e3, repeated.in_flight, excused) if times else None
    number = repeated.in_flight
    note = f"{failed} failed" if failed else ""
    found.sheet.row(
        *(table, f"{number} in flight, throughput", "1/s", rates),
        metric="throughput",
        x=number,
        series=label,
        little=flow,
        note=note,
    )
    stats = describe(times, first_apart=False, contended=repeated.contended) if times else None
    found.sheet.row(
        *(table, f"{number} in flight, latency", "ms", stats),
        why=lambda: found.why(number),
        metric="latency",
        x=number,
        series=label,
    )
