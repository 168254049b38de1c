"""Document 000: a task per message against one after another, in a process without any transport.

The document's timer held ``gc.collect``, ``tracemalloc`` and the making of an event loop; its tables are reproduced
with that timer, and the same work without it stands beside them as conditions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import fmean, median, stdev
from typing import Any

from mcp_probe.workloads.bench.context import Bench
from mcp_probe.workloads.bench.shapes import Outcome, Stats, Verdict
from mcp_probe.workloads.bench.statistics import describe, line_fit, percentile, ratio_floor
from mcp_probe.workloads.models.dispatch import LIMIT, Form, Measured, Order, Timer, unavailable
from mcp_probe.workloads.scenarios.dispatching import Dispatcher, dispatcher
from mcp_probe.workloads.scenarios.documents import doc000 as doc

ONE: Form = "one by one"
TASKS: Form = "anyio tasks"
KIB, MIB = 1024.0, 1024.0**2
VARIANT_MESSAGES = 3000
VARIANTS: tuple[Form, ...] = (
    ONE,
    TASKS,
    "asyncio tasks",
    "eager tasks",
    "suspending source",
    "limit",
    "yielding",
)
ABOUT: dict[Form, str] = {
    ONE: "one by one",
    TASKS: "an anyio task each",
    "asyncio tasks": "an asyncio.TaskGroup task each",
    "eager tasks": "an eager asyncio task each",
    "suspending source": "an anyio task each, from a source that suspends",
    "limit": f"an anyio task each, at most {LIMIT} at once",
    "yielding": "an anyio task each, a handler that yields once",
}


@dataclass
class Rounds:
    """All rounds of one measurement, by timer, form and number of messages, in the order they were run."""

    taken: dict[tuple[Timer, str, int], list[Measured]] = field(default_factory=dict)
    foreign: float | None = None
    contended: bool = False

    def add(self, order: Order, measured: Measured, again: str = "") -> None:
        """Keep one round; ``again`` tells the twin of an A/A apart."""
        self.taken.setdefault((order.timer, order.form + again, order.messages), []).append(measured)

    def of(self, timer: Timer, form: str, messages: int) -> list[Measured]:
        """Its rounds, oldest first."""
        return self.taken[timer, form, messages]

    def wall_ms(self, timer: Timer, form: str, messages: int) -> list[float]:
        """Wall time of its rounds."""
        return [one.wall_ns / 1e6 for one in self.of(timer, form, messages)]

    def cpu_ms(self, form: str, messages: int, timer: Timer = "work") -> float:
        """CPU time of its quickest round: what the work needs, whoever else used the machine."""
        return min(one.cpu_ns for one in self.of(timer, form, messages)) / 1e6

    def peak(self, form: str, messages: int) -> float:
        """Bytes: the highest peak of its rounds, the first of several left out."""
        peaks = self.peaks(form, messages)
        return max(peaks[1:] or peaks)

    def peaks(self, form: str, messages: int) -> list[float]:
        """Bytes, round by round."""
        return [float(one.peak_bytes or 0) for one in self.of("document", form, messages)]

    def stats(self, values: Sequence[float]) -> Stats:
        """Statistics of values taken meanwhile."""
        return describe(values, foreign_cores=self.foreign, contended=self.contended)


async def run(bench: Bench) -> Outcome:
    """Every table of document 000, then what its timer and its source hid."""
    async with dispatcher() as process:
        rounds, foreign, contended = await bench.quiet(partial(_measure, bench, process))
        rounds.foreign, rounds.contended = foreign, contended
        why = {form: await process.why(Order(form, "work", 1000)) for form in (ONE, TASKS)}
    _timing(bench, rounds, why)
    _scaling(bench, rounds)
    _throughput(bench, rounds)
    _memory(bench, rounds)
    _raw(bench, rounds)
    _conditions(bench, rounds)
    _checks(bench, rounds)
    return bench.outcome()


def _repeats(bench: Bench, messages: int) -> int:
    """Rounds of the document's timer. A quick run keeps the largest size to what its memory claims need."""
    return bench.size(quick=3 if messages <= 3000 else 2, full=doc.ROUNDS)


async def _measure(bench: Bench, process: Dispatcher) -> Rounds:
    rounds = Rounds()

    async def one(order: Order, again: str = "") -> None:
        rounds.add(order, await process.measure(order), again)

    bench.step("the document's timer, its order")
    for form in (TASKS, ONE):  # tasks stood first in the document's file
        for messages in doc.MESSAGES:
            for _ in range(_repeats(bench, messages)):
                await one(Order(form, "document", messages))
    for _ in range(doc.DIRECT_ROUNDS if not bench.quick else 1):
        for form in (ONE, TASKS):
            rounds.add(Order(form, "document", -1), await process.measure(Order(form, "document", doc.LARGE)))
    for timer in ("document", "work"):
        for _ in range(3):
            await one(Order(ONE, timer, 0))
    bench.step("the work alone")
    for messages in doc.MESSAGES:
        for _ in range(bench.size(quick=4 if messages <= 3000 else 2, full=10)):
            for form, again in ((ONE, ""), (TASKS, ""), (ONE, " again"), (TASKS, " again"), ("asyncio tasks", "")):
                if unavailable(form) is None:
                    await one(Order(form, "work", messages), again)
    bench.step("variants")
    for form in VARIANTS:
        if unavailable(form) is None:
            for _ in range(bench.size(quick=2, full=5)):
                await one(Order(form, "work", VARIANT_MESSAGES))
            await one(Order(form, "document", VARIANT_MESSAGES))
    return rounds


def _ratio(rounds: Rounds, messages: int) -> float:
    """Tasks over one-by-one with the document's timer: means, as it computed them."""
    return fmean(rounds.wall_ms("document", TASKS, messages)) / fmean(rounds.wall_ms("document", ONE, messages))


def _work_ratio(rounds: Rounds, messages: int) -> float:
    return rounds.cpu_ms(TASKS, messages) / rounds.cpu_ms(ONE, messages)


def _floor(rounds: Rounds, messages: int) -> float:
    """A/A of the work alone: the worse of the two forms against its own twin."""
    return max(
        ratio_floor([rounds.cpu_ms(form, messages)], [rounds.cpu_ms(form + " again", messages)])
        for form in (ONE, TASKS)
    )


def _timing(bench: Bench, rounds: Rounds, why: dict[Form, str]) -> None:
    table = "000 timing"
    for messages in doc.MESSAGES:
        known = doc.TIMING[messages]
        for form, name, documented in ((ONE, "sequential", known.one_ms), (TASKS, "concurrent", known.tasks_ms)):
            stats = rounds.stats(rounds.wall_ms("document", form, messages))
            label = f"{messages:,} messages, {name}"
            bench.row(
                table,
                label,
                "ms",
                stats,
                documented=documented,
                series=name,
                x=messages,
                why=why[form],
                note="the document's timer: gc.collect, tracemalloc and the loop's start are inside",
            )
        bench.row(
            table,
            f"{messages:,} messages, ratio of the means",
            "×",
            _ratio(rounds, messages),
            documented=known.ratio,
            metric="ratio",
            series="with the document's timer",
            x=messages,
            floor=_floor(rounds, messages),
            contended=rounds.contended,
            why=why[TASKS],
        )


def _scaling(bench: Bench, rounds: Rounds) -> None:
    for form, name in ((ONE, "sequential"), (TASKS, "concurrent")):
        first = fmean(rounds.wall_ms("document", form, 100))
        for messages, documented in doc.SCALING[name].items():
            value = fmean(rounds.wall_ms("document", form, messages)) / first
            bench.row(
                "000 scaling",
                f"100 → {messages:,} messages, {name}",
                "×",
                value,
                documented=documented,
                metric="ratio",
                series=name,
                x=messages,
                contended=rounds.contended,
            )


def _throughput(bench: Bench, rounds: Rounds) -> None:
    for messages in doc.MESSAGES:
        known = doc.TIMING[messages]
        rates = {}
        for form, name, documented in ((ONE, "sequential", known.one_ops), (TASKS, "concurrent", known.tasks_ops)):
            rates[form] = 1e3 / fmean(rounds.wall_ms("document", form, messages))
            bench.row(
                "000 operations per second",
                f"{messages:,} messages, {name}",
                "1/s",
                rates[form],
                documented=documented,
                metric="throughput",
                series=name,
                x=messages,
                contended=rounds.contended,
                note="rounds per second, as the document counted: 1 / mean",
            )
            bench.row(
                "000 conditions",
                f"messages per second, {messages:,} messages, {name}",
                "1/s",
                messages * rates[form],
                documented=messages * documented,
                metric="throughput",
                series=name,
                x=messages,
                contended=rounds.contended,
                note="the operations that were done; the document's figure is its own times its messages",
            )
        bench.row(
            "000 operations per second",
            f"{messages:,} messages, advantage",
            "×",
            rates[ONE] / rates[TASKS],
            documented=known.ratio,
            metric="ratio",
            series="advantage",
            x=messages,
            contended=rounds.contended,
        )


def _memory(bench: Bench, rounds: Rounds) -> None:
    for messages in doc.MESSAGES:
        known = doc.MEMORY[messages]
        one, tasks = rounds.peak(ONE, messages), rounds.peak(TASKS, messages)
        for name, peak, documented in (("sequential", one, known.one_mb), ("concurrent", tasks, known.tasks_mb)):
            bench.row(
                "000 memory",
                f"{messages:,} messages, {name}, peak",
                "MB",
                peak / MIB,
                documented=documented,
                metric="memory",
                series=name,
                x=messages,
            )
        bench.row(
            "000 memory",
            f"{messages:,} messages, ratio",
            "×",
            tasks / one,
            documented=known.ratio,
            metric="memory ratio",
            series="ratio",
            x=messages,
            note=known.note,
        )
        bench.row(
            "000 memory",
            f"{messages:,} messages, saved",
            "%",
            100 * (1 - one / tasks),
            documented=known.saved_percent,
            metric="saved",
            series="saved",
            x=messages,
        )
        bench.row(
            "000 conditions",
            f"memory ratio, {messages:,} messages, one denominator",
            "×",
            tasks / one,
            documented=known.tasks_mb / doc.ONE_MB,
            metric="memory ratio",
            series="ratio",
            x=messages,
            note=f"documented: the peak over {doc.ONE_MB} MB, which its 2061 = 17.33 MB / {doc.ONE_MB} MB rests on",
        )
    per_message = rounds.peak(TASKS, doc.LARGE) / doc.LARGE / KIB
    bench.row(
        "000 memory scaling",
        "KB per message, concurrent",
        "KB",
        per_message * 1.024,
        documented=doc.KB_PER_MESSAGE,
        metric="memory",
        note="KB = 1000 bytes, as 18.33 MB / 10,000 = 1.83 KB makes it",
    )
    bench.row(
        "000 memory scaling",
        f"{doc.LARGE:,} messages, concurrent",
        "MB",
        rounds.peak(TASKS, doc.LARGE) / MIB,
        documented=doc.MEMORY[doc.LARGE].tasks_mb,
        metric="memory",
    )
    bench.row(
        "000 memory scaling",
        "sequential, whatever the count",
        "MB",
        max(rounds.peak(ONE, messages) for messages in doc.MESSAGES) / MIB,
        documented=0.01,
        metric="memory",
    )
    _memory_profile(bench, rounds)


def _memory_profile(bench: Bench, rounds: Rounds) -> None:
    for messages in doc.MESSAGES:
        known = doc.MEMORY[messages]
        for form, name, mean_mb in ((ONE, "sequential", known.one_mb), (TASKS, "concurrent", known.tasks_mean_mb)):
            peaks = rounds.peaks(form, messages)
            peak_mb = known.one_mb if form == ONE else known.tasks_mb
            label = f"{messages:,} messages, {name}"
            table = "000 memory profile"
            bench.row(
                table,
                f"{label}, peak",
                "MB",
                max(peaks) / MIB,
                documented=peak_mb,
                metric="memory",
                series=f"{name}, peak",
                x=messages,
                note="the first round counts, as in the document",
            )
            bench.row(
                table,
                f"{label}, mean",
                "MB",
                fmean(peaks) / MIB,
                documented=mean_mb,
                metric="memory",
                series=f"{name}, mean",
                x=messages,
            )
    one, tasks = rounds.peak(ONE, -1), rounds.peak(TASKS, -1)
    for label, unit, value, documented in (
        ("sequential", "MB", one / MIB, 0.01),
        ("concurrent", "MB", tasks / MIB, doc.DIRECT_TASKS_MB),
        ("ratio", "×", tasks / one, doc.DIRECT_RATIO),
    ):
        bench.row(
            "000 direct comparison",
            f"{doc.LARGE:,} messages, {label}",
            unit,
            value,
            documented=documented,
            metric="memory" if unit == "MB" else "memory ratio",
            series=label,
        )


def _raw(bench: Bench, rounds: Rounds) -> None:
    """The pytest-benchmark output, figure by figure; as there, the first round counts."""
    for (name, messages), known in doc.RAW.items():
        if name == "large load":
            pairs = zip(rounds.wall_ms("document", ONE, -1), rounds.wall_ms("document", TASKS, -1), strict=True)
            values = [one + tasks for one, tasks in pairs]
        else:
            values = rounds.wall_ms("document", ONE if name == "sequential" else TASKS, messages)
        ordered = sorted(values)
        measured: tuple[float | None, ...] = (
            ordered[0],
            ordered[-1],
            fmean(values),
            stdev(values) if len(values) > 1 else None,
            median(values),
            percentile(ordered, 0.75) - percentile(ordered, 0.25) if len(values) > 1 else None,
        )
        label = f"{name}[{messages:,}]" if name != "large load" else "both, 10,000 messages"
        for figure, value, documented in zip(doc.RAW_FIGURES, measured, known[:-1], strict=True):
            bench.row(
                "000 raw output",
                f"{label} {figure}",
                "ms",
                value,
                documented=documented,
                metric=figure,
                series=name,
                x=messages,
                contended=rounds.contended,
                note="" if value is not None else "one round in a quick run",
            )
        bench.row(
            "000 raw output",
            f"{label} OPS",
            "1/s",
            1e3 / fmean(values),
            documented=known[-1],
            metric="OPS",
            series=name,
            x=messages,
            contended=rounds.contended,
        )


def _conditions(bench: Bench, rounds: Rounds) -> None:
    table = "000 conditions"
    for timer, label in (("document", "the timer around no message"), ("work", "the same without tracemalloc")):
        empty = rounds.stats(rounds.wall_ms(timer, ONE, 0))
        bench.row(table, label, "ms", empty, note="gc.collect and an event loop's start and end")
    for messages in doc.MESSAGES:
        forms: list[tuple[Form, str]] = [(ONE, "sequential"), (TASKS, "concurrent")]
        for form, name in forms:
            stats = rounds.stats(rounds.wall_ms("work", form, messages))
            bench.row(table, f"the work alone, {messages:,} messages, {name}", "ms", stats, series=name, x=messages)
        bench.row(
            table,
            f"the work alone, {messages:,} messages, ratio of CPU",
            "×",
            _work_ratio(rounds, messages),
            documented=doc.TIMING[messages].ratio,
            metric="ratio",
            series="work alone",
            x=messages,
            floor=_floor(rounds, messages),
            contended=rounds.contended,
            note="nothing traced, loop running already; an anyio task each",
        )
        if unavailable("asyncio tasks") is None:
            value = rounds.cpu_ms("asyncio tasks", messages) / rounds.cpu_ms(ONE, messages)
            bench.row(
                table,
                f"the same with asyncio.TaskGroup, {messages:,} messages",
                "×",
                value,
                metric="ratio",
                series="work alone, asyncio.TaskGroup",
                x=messages,
                contended=rounds.contended,
            )
    _first_round(bench, rounds)
    _traced_cost(bench, rounds)
    _fits(bench, rounds)
    _variants(bench, rounds)


def _first_round(bench: Bench, rounds: Rounds) -> None:
    """What made 38 ms and 0.58 MB of the first row of the document's concurrent column."""
    peaks, walls = rounds.peaks(TASKS, 100), rounds.wall_ms("document", TASKS, 100)
    note = "first use of the event loop imports it; documented: the largest of its five rounds"
    bench.row(
        "000 conditions",
        "first round of the process, 100 messages, concurrent",
        "ms",
        walls[0],
        documented=doc.RAW["concurrent", 100][1],
        note=note,
    )
    bench.row(
        "000 conditions",
        "first round of the process, its peak",
        "MB",
        peaks[0] / MIB,
        documented=doc.MEMORY[100].tasks_mb,
        metric="memory",
        note=note,
    )
    bench.row(
        "000 conditions",
        "the other rounds, their peak",
        "MB",
        max(peaks[1:]) / MIB,
        documented=doc.OTHER_ROUNDS_MB,
        metric="memory",
        note="documented: five times its mean less its peak, by four",
    )
    rest = median(walls[1:]) / median(rounds.wall_ms("document", ONE, 100)[1:])
    bench.row(
        "000 conditions",
        "100 messages without the first rounds, ratio of the medians",
        "×",
        rest,
        documented=doc.MEDIAN_RATIO_100,
        metric="ratio",
        contended=rounds.contended,
    )


def _traced_cost(bench: Bench, rounds: Rounds) -> None:
    for form, name in ((ONE, "sequential"), (TASKS, "concurrent")):
        traced = (rounds.cpu_ms(form, 3000, "document") - rounds.cpu_ms(ONE, 0, "document")) / 3
        bare = rounds.cpu_ms(form, 3000) / 3
        bench.row(
            "000 conditions",
            f"tracemalloc makes a message slower, {name}",
            "×",
            traced / bare,
            metric="ratio",
            contended=rounds.contended,
            note=f"{bare:.1f} µs of CPU a message bare, {traced:.1f} µs traced",
        )


def _fits(bench: Bench, rounds: Rounds) -> None:
    for form, name in ((ONE, "sequential"), (TASKS, "concurrent")):
        intercept, slope, fit = _line(rounds, form)
        known = doc.FITS[name]
        note = f"least squares through the medians at 1,000 messages and more, R² = {fit:.4f}"
        bench.row(
            "000 conditions",
            f"time of a further message, {name}",
            "µs",
            1e3 * slope,
            documented=known[1],
            note=note,
            contended=rounds.contended,
        )
        bench.row(
            "000 conditions",
            f"time before the first message, {name}",
            "ms",
            intercept,
            documented=known[0],
            note=note,
            contended=rounds.contended,
        )


def _line(rounds: Rounds, form: Form) -> tuple[float, float, float]:
    return line_fit(
        [
            (messages, median(rounds.wall_ms("document", form, messages)))
            for messages in doc.MESSAGES
            if messages >= 1000
        ]
    )


def _variants(bench: Bench, rounds: Rounds) -> None:
    for form in VARIANTS:
        missing = unavailable(form)
        label, note = f"{VARIANT_MESSAGES:,} messages, {ABOUT[form]}", missing or ""
        cpu = None if missing else 1e3 * rounds.cpu_ms(form, VARIANT_MESSAGES) / VARIANT_MESSAGES
        peak = None if missing else rounds.of("document", form, VARIANT_MESSAGES)[-1].peak_bytes or 0
        bench.row(
            "000 conditions",
            f"{label}: CPU of a message",
            "µs",
            cpu,
            metric="variant time",
            series="µs",
            x=form,
            note=note,
            contended=rounds.contended,
        )
        bench.row(
            "000 conditions",
            f"{label}: peak",
            "KiB",
            None if peak is None else peak / KIB,
            metric="variant memory",
            series="KiB",
            x=form,
            note=note,
        )


# --- claims ---


def _checks(bench: Bench, rounds: Rounds) -> None:
    _check_faster(bench, rounds)
    fits = {name: _line(rounds, form)[2] for form, name in ((ONE, "sequential"), (TASKS, "concurrent"))}
    growth = [
        fmean(rounds.wall_ms("document", f, doc.LARGE)) / fmean(rounds.wall_ms("document", f, 100))
        for f in (ONE, TASKS)
    ]
    _judge(
        bench,
        "000-2",
        "time grows in proportion to the number of messages, both ways",
        min(fits.values()) > 0.99,
        good="holds in shape",
        documented="22.6× and 26.8× for 100×",
        measured=f"{growth[0]:.1f}× and {growth[1]:.1f}×; R² {fits['sequential']:.4f} and {fits['concurrent']:.4f}",
        tolerance="R² > 0.99 of a straight line through the medians, 1,000 messages and more",
        why="a straight line, but not through zero: the timer itself takes its time before the first message",
        value=min(fits.values()),
        contended=rounds.contended,
    )
    _check_memory(bench, rounds)


def _check_faster(bench: Bench, rounds: Rounds) -> None:
    work = [_work_ratio(rounds, messages) for messages in doc.MESSAGES]
    inside = all(doc.RATIOS[0] <= ratio <= doc.RATIOS[1] for ratio in work)
    _judge(
        bench,
        "000-1",
        "one by one is faster than a task per message, for a handler that never suspends",
        min(work) > 1.5,
        good="holds" if inside else "holds in shape",
        documented="2.0-2.5×",
        measured=f"{min(work):.1f}-{max(work):.1f}× without the document's timer, "
        f"{min(_ratio(rounds, n) for n in doc.MESSAGES):.1f}-{max(_ratio(rounds, n) for n in doc.MESSAGES):.1f}× with it",
        tolerance="more than 1.5× at every number of messages; no upper bound",
        why="tracemalloc inside the timer slows the cheap way more than the dear one, so the document's ratio is too small",
        value=min(work),
        contended=rounds.contended,
    )


def _check_memory(bench: Bench, rounds: Rounds) -> None:
    ones = [rounds.peak(ONE, messages) / KIB for messages in doc.MESSAGES]
    _judge(
        bench,
        "000-3",
        "one by one needs the same memory whatever the number of messages",
        max(ones) / min(ones) < 1.5,
        documented="0.01 MB",
        measured=f"{min(ones):.1f}-{max(ones):.1f} KiB",
        tolerance="largest / smallest < 1.5",
        value=max(ones) / min(ones),
    )
    thousand, large = (rounds.peak(TASKS, n) / n / KIB for n in (1000, doc.LARGE))
    proportional = abs(large / thousand - 1) <= 0.1 and 0.7 <= large <= 5
    _judge(
        bench,
        "000-4",
        "a task per message needs memory in proportion to the messages",
        proportional,
        good="holds" if abs(large / 1.79 - 1) <= 0.1 else "holds in shape",
        documented="1.83 KB a message",
        measured=f"{thousand:.2f} KiB at 1,000, {large:.2f} KiB at 10,000",
        tolerance="within 10 % of each other; the constant between 0.7 and 5 KiB",
        why="true of a source that never suspends and starts everything at once; see the variants",
        value=large,
    )
    ratio = rounds.peak(TASKS, doc.LARGE) / rounds.peak(ONE, doc.LARGE)
    _judge(
        bench,
        "000-5",
        "10,000 tasks need thousands of times the memory",
        ratio > 500,
        good="holds in shape",
        documented="2061× (1833× by its own table)",
        measured=f"{ratio:,.0f}×",
        tolerance="> 500×",
        value=ratio,
    )
    before = rounds.peak(TASKS, 1000) / rounds.peak(ONE, 1000)
    _judge(
        bench,
        "000-6",
        "the memory ratio grows with the number of messages",
        8 <= ratio / before <= 12,
        good="holds in shape",
        documented='58 → 177 → 546 → 2061×, "exponentially"',
        measured=" → ".join(f"{rounds.peak(TASKS, n) / rounds.peak(ONE, n):,.0f}" for n in doc.MESSAGES) + "×",
        tolerance="10 times the messages, 8 to 12 times the ratio",
        value=ratio / before,
        why="in proportion, not exponentially: the denominator is constant and the numerator linear",
    )


def _judge(bench: Bench, claim: str, sentence: str, fine: bool, *, good: Verdict = "holds", **more: Any) -> None:
    bench.check(claim, sentence, verdict=good if fine else "does not hold", **more)
