"""Document 000: a task per message against one after another, in a process without any transport.

The document's timer held ``gc.collect``, ``tracemalloc`` and the making of an event loop; its tables are reproduced
with that timer, and the same work without it stands beside them as conditions.
"""

from __future__ import annotations

from functools import partial

from mcp_probe.workloads.bench.context import Bench
from mcp_probe.workloads.bench.shapes import Measured, Outcome
from mcp_probe.workloads.bench.statistics import counted, scaled
from mcp_probe.workloads.models.dispatch import Form, Order, Timer, unavailable
from mcp_probe.workloads.scenarios import dispatch_tables as tables
from mcp_probe.workloads.scenarios.dispatch_rounds import DIRECT, NAMES, ONE, TASKS, Dispatcher, Rounds, dispatcher
from mcp_probe.workloads.scenarios.documents import doc000 as doc

EXPLAINED = 1000
TIMERS: tuple[Timer, ...] = ("document", "work")


async def run(bench: Bench) -> Outcome:
    """Every table of document 000, then what its timer and its source hid."""
    rounds = Rounds()
    rounds.take(await bench.quiet(partial(_as_documented, bench)))
    tables.documented(bench, rounds)
    rounds.take(await bench.quiet(partial(_work_alone, bench)))
    tables.conditions(bench, rounds)
    claims(bench, rounds)
    return bench.outcome()


async def _as_documented(bench: Bench) -> Rounds:
    """Its timer, and its order in a fresh process: tasks stood first in its file. A quick run has fewer rounds."""
    rounds = Rounds()
    bench.step("the document's timer, its order")
    async with dispatcher() as process:
        for form in (TASKS, ONE):
            for messages in doc.MESSAGES:
                for _ in range(bench.size(quick=3 if messages <= 3000 else 2, full=doc.ROUNDS)):
                    await _one(process, rounds, form, "document", messages)
        for _ in range(bench.size(quick=1, full=doc.DIRECT_ROUNDS)):
            for form in (ONE, TASKS):
                order = Order(form, "document", doc.LARGE)
                rounds.add(order, await process.measure(order), messages=DIRECT)
        for timer in TIMERS:
            for _ in range(3):
                await _one(process, rounds, ONE, timer, 0)
        rounds.why = {form: await process.why(Order(form, "work", EXPLAINED)) for form in NAMES}
    return rounds


async def _work_alone(bench: Bench) -> Rounds:
    """Nothing traced; by turns, each form of the comparison twice. Then the variants, and their memory."""
    rounds = Rounds()
    bench.step("the work alone")
    turns: tuple[tuple[Form, bool], ...] = ((ONE, False), (TASKS, False), (ONE, True), (TASKS, True))
    if unavailable("asyncio tasks") is None:
        turns = (*turns, ("asyncio tasks", False))
    async with dispatcher() as process:
        for messages in doc.MESSAGES:
            for _ in range(bench.size(quick=4 if messages <= 3000 else 2, full=10)):
                for form, again in turns:
                    await _one(process, rounds, form, "work", messages, again=again)
        bench.step("variants")
        for form in tables.VARIANTS:
            if unavailable(form) is None:
                for _ in range(bench.size(quick=2, full=5)):
                    await _one(process, rounds, form, "work", tables.VARIANT_MESSAGES)
                await _one(process, rounds, form, "document", tables.VARIANT_MESSAGES)
    return rounds


async def _one(
    process: Dispatcher, rounds: Rounds, form: Form, timer: Timer, messages: int, *, again: bool = False
) -> None:
    order = Order(form, timer, messages)
    rounds.add(order, await process.measure(order), again=again)


# --- claims ---


def claims(bench: Bench, rounds: Rounds) -> None:
    """000-1 to 000-6."""
    work = [rounds.work_ratio(messages) for messages in doc.MESSAGES]
    ratios = [each.value for each in work]
    timed = [rounds.ratio(messages).value for messages in doc.MESSAGES]
    bench.claim(
        doc.CLAIMS["000-1"],
        work,
        said=f"{min(ratios):.1f}-{max(ratios):.1f}× of CPU for the work alone, "
        f"{min(timed):.1f}-{max(timed):.1f}× with the document's timer",
        why=rounds.why[TASKS],
    )
    fits = [rounds.fit(form) for form in NAMES]
    growth = [rounds.growth(form) for form in NAMES]
    said = " and ".join(f"{each.value:.1f}×" for each in growth)
    line = "; ".join(tables.line_of(rounds, form) for form in NAMES)
    bench.claim(
        doc.CLAIMS["000-2"], counted(min(fits)), growth, said=f"{said}; R² {fits[0]:.4f} and {fits[1]:.4f}", why=line
    )
    share = doc.MESSAGES[0] / doc.LARGE
    bench.claim(
        doc.CLAIMS["000-2a"],
        [scaled(each, share) for each in growth],
        said=f"{said} for {1 / share:.0f}× the messages",
        why=line,
    )
    _memory_claims(bench, rounds)


def _memory_claims(bench: Bench, rounds: Rounds) -> None:
    """000-3 to 000-6."""
    ones = [rounds.peak(ONE, messages) / tables.KIB for messages in doc.MESSAGES]
    found = {messages: rounds.memory_ratio(messages) for messages in doc.MESSAGES}
    floor = max(each.floor or 1.0 for each in found.values())
    bench.claim(
        doc.CLAIMS["000-3"],
        Measured(max(ones) / min(ones), floor=floor),
        said=f"{min(ones):.1f}-{max(ones):.1f} KiB",
    )
    thousand, large = (rounds.peak(TASKS, messages) / messages / tables.KIB for messages in (1000, doc.LARGE))
    bench.claim(
        doc.CLAIMS["000-4"],
        Measured(large / thousand, floor=floor),
        Measured(large * tables.KIB / 1000, floor=floor),
        said=f"{thousand:.2f} KiB at 1,000, {large:.2f} KiB at 10,000",
    )
    ratios = {messages: each.value for messages, each in found.items()}
    said = f"{ratios[doc.LARGE]:,.0f}×"
    bench.claim(doc.CLAIMS["000-5"], Measured(ratios[doc.LARGE], floor=floor), said=said)
    said = " → ".join(f"{ratio:,.0f}" for ratio in ratios.values()) + "×"
    bench.claim(doc.CLAIMS["000-6"], Measured(ratios[doc.LARGE] / ratios[1000], floor=floor), said=said)
