"""Document 000: a task per message against one after another, in a process without any transport.

The document's timer held ``gc.collect``, ``tracemalloc`` and the making of an event loop; its tables are reproduced
with that timer, and the same work without it stands beside them as conditions.
"""

from __future__ import annotations

from functools import partial

from mcp_probe.workloads.bench.context import Bench
from mcp_probe.workloads.bench.shapes import Outcome
from mcp_probe.workloads.models.dispatch import Form, Order, Timer, unavailable
from mcp_probe.workloads.scenarios import dispatch_tables as tables
from mcp_probe.workloads.scenarios.dispatch_rounds import DIRECT, NAMES, ONE, TASKS, Rounds
from mcp_probe.workloads.scenarios.dispatching import Dispatcher, dispatcher
from mcp_probe.workloads.scenarios.documents import doc000 as doc
from mcp_probe.workloads.scenarios.tables import judge

EXPLAINED = 1000
TIMERS: tuple[Timer, ...] = ("document", "work")


async def run(bench: Bench) -> Outcome:
    """Every table of document 000, then what its timer and its source hid."""
    rounds = Rounds()
    why = rounds.take(await bench.quiet(partial(_as_documented, bench)))
    tables.documented(bench, rounds, why)
    rounds.take(await bench.quiet(partial(_work_alone, bench)))
    tables.conditions(bench, rounds)
    _check_time(bench, rounds, why)
    _check_memory(bench, rounds)
    return bench.outcome()


async def _as_documented(bench: Bench) -> tuple[Rounds, dict[Form, str]]:
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
        why = {form: await process.why(Order(form, "work", EXPLAINED)) for form in NAMES}
    return rounds, why


async def _work_alone(bench: Bench) -> tuple[Rounds, None]:
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
    return rounds, None


async def _one(
    process: Dispatcher, rounds: Rounds, form: Form, timer: Timer, messages: int, *, again: bool = False
) -> None:
    order = Order(form, timer, messages)
    rounds.add(order, await process.measure(order), again=again)


# --- claims ---


def _check_time(bench: Bench, rounds: Rounds, why: dict[Form, str]) -> None:
    """000-1 and 000-2."""
    work = [rounds.work_ratio(messages) for messages in doc.MESSAGES]
    timed = [rounds.ratio(messages) for messages in doc.MESSAGES]
    inside = all(doc.RATIOS[0] <= ratio <= doc.RATIOS[1] for ratio in work)
    judge(
        bench,
        "000-1",
        "one by one is faster than a task per message, for a handler that never suspends",
        min(work) > 1.5,
        good="holds" if inside else "holds in shape",
        documented="2.0-2.5×",
        measured=f"{min(work):.1f}-{max(work):.1f}× of CPU for the work alone, "
        f"{min(timed):.1f}-{max(timed):.1f}× with the document's timer",
        tolerance="more than 1.5× at every number of messages; no upper bound",
        why=f"tracemalloc and the loop's start inside the timer hide most of the difference. {why[TASKS]}",
        value=min(work),
        contended=rounds.contended,
    )
    fits = [rounds.fit(form) for form in NAMES]
    growth = [rounds.mean_ms(form, doc.LARGE) / rounds.mean_ms(form, 100) for form in NAMES]
    judge(
        bench,
        "000-2",
        "time grows in proportion to the number of messages, both ways",
        min(fits) > 0.99,
        good="holds in shape",
        documented="22.6× and 26.8× for 100×",
        measured=f"{growth[0]:.1f}× and {growth[1]:.1f}×; R² {fits[0]:.4f} and {fits[1]:.4f}",
        tolerance="R² > 0.99 of a straight line, the document's timer, CPU, 1,000 messages and more",
        why="a straight line, but not through zero: the document's timer takes milliseconds before the first message",
        value=min(fits),
        contended=rounds.contended,
    )


def _check_memory(bench: Bench, rounds: Rounds) -> None:
    """000-3 to 000-6."""
    ones = [rounds.peak(ONE, messages) / tables.KIB for messages in doc.MESSAGES]
    judge(
        bench,
        "000-3",
        "one by one needs the same memory whatever the number of messages",
        max(ones) / min(ones) < 1.5,
        documented="0.01 MB",
        measured=f"{min(ones):.1f}-{max(ones):.1f} KiB",
        tolerance="largest / smallest < 1.5",
        value=max(ones) / min(ones),
    )
    thousand, large = (rounds.peak(TASKS, messages) / messages / tables.KIB for messages in (1000, doc.LARGE))
    same = abs(large * 1.024 / doc.KB_PER_MESSAGE - 1) <= 0.1
    judge(
        bench,
        "000-4",
        "a task per message needs memory in proportion to the messages",
        abs(large / thousand - 1) <= 0.1 and 0.7 <= large <= 5,
        good="holds" if same else "holds in shape",
        documented="1.83 KB a message",
        measured=f"{thousand:.2f} KiB at 1,000, {large:.2f} KiB at 10,000",
        tolerance="within 10 % of each other; the constant between 0.7 and 5 KiB",
        why="of a source that never suspends and no limit; a suspending source, a limit or eager tasks remove it",
        value=large,
    )
    ratios = {messages: rounds.memory_ratio(messages) for messages in doc.MESSAGES}
    judge(
        bench,
        "000-5",
        "10,000 tasks need thousands of times the memory",
        ratios[doc.LARGE] > 500,
        good="holds in shape",
        documented="2061× (1833× by its own table)",
        measured=f"{ratios[doc.LARGE]:,.0f}×",
        tolerance="> 500×",
        value=ratios[doc.LARGE],
    )
    growth = ratios[doc.LARGE] / ratios[1000]
    judge(
        bench,
        "000-6",
        "the memory ratio grows with the number of messages",
        8 <= growth <= 12,
        good="holds in shape",
        documented='58 → 177 → 546 → 2061×, "exponentially"',
        measured=" → ".join(f"{ratio:,.0f}" for ratio in ratios.values()) + "×",
        tolerance="10 times the messages, 8 to 12 times the ratio",
        why="in proportion, not exponentially: the denominator is constant and the numerator linear",
        value=growth,
    )
