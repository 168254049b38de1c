"""Every table of document 000, line by line; then what its timer, its source and its first round hid."""

from __future__ import annotations

from statistics import fmean, median, stdev
from typing import Any

from mcp_probe.workloads.bench.context import Bench
from mcp_probe.workloads.bench.statistics import floor_of, halves_floor, percentile
from mcp_probe.workloads.models.dispatch import LIMIT, Form, unavailable
from mcp_probe.workloads.scenarios.dispatch_rounds import DIRECT, NAMES, ONE, TASKS, Rounds
from mcp_probe.workloads.scenarios.documents import doc000 as doc
from mcp_probe.workloads.scenarios.tables import Table

KIB, MIB = 1024.0, 1024.0**2
VARIANT_MESSAGES = 3000
VARIANTS: dict[Form, str] = {
    ONE: "one by one",
    TASKS: "an anyio task each",
    "asyncio tasks": "asyncio.TaskGroup",
    "eager tasks": "eager asyncio tasks",
    "suspending source": "anyio, suspending source",
    "limit": f"anyio, at most {LIMIT} at once",
    "yielding": "anyio, handler yields once",
}


def documented(bench: Bench, rounds: Rounds) -> None:
    """The document's tables, in its order."""
    timing(bench, rounds)
    scaling(bench, rounds)
    throughput(bench, rounds)
    memory(bench, rounds)
    raw(bench, rounds)


def alive(rounds: Rounds, form: Form, messages: int) -> str:
    """Where a form's memory goes: what it has at once, and what each of that takes, of the same rounds."""
    peak = rounds.peak(form, messages) / KIB
    messages = doc.LARGE if messages == DIRECT else messages
    if form == ONE:
        return f"One message is there at a time: {peak:.1f} KiB at {messages:,} messages."
    return f"All {messages:,} tasks are there before the first has run: {peak / messages:.2f} KiB each."


def timing(bench: Bench, rounds: Rounds) -> None:
    """The timing table."""
    table = Table(bench, "000 timing", note="gc.collect, tracemalloc and the loop's start are inside this timer")
    for messages in doc.MESSAGES:
        for form, name in NAMES.items():
            stats, label = rounds.stats(rounds.wall_ms("document", form, messages)), f"{messages:,} messages, {name}"
            place: dict[str, Any] = {"series": name, "x": messages, "why": rounds.why[form], "arm": form}
            table.put(label, "ms", stats, doc.MEAN_MS[name, messages], **place)
        note = "of the means, first rounds included, as there"
        ratio = table.sub(metric="ratio", series="ratio", x=messages, why=rounds.why[TASKS], note=note)
        ratio.put(f"{messages:,} messages, ratio", "×", rounds.ratio(messages), doc.TIME_RATIO[messages])


def scaling(bench: Bench, rounds: Rounds) -> None:
    """The text below it."""
    table = Table(bench, "000 scaling", metric="ratio")
    for form, name in NAMES.items():
        own = table.sub(series=name, why=f"As a straight line: {line_of(rounds, form)}.")
        for messages, documented in doc.SCALING[name].items():
            own.put(f"100 → {messages:,}, {name}", "×", rounds.growth(form, messages), documented, x=messages)


def line_of(rounds: Rounds, form: Form) -> str:
    """Both parts of a round's time, as a straight line has them; one that comes out below nothing is not told."""
    start_ms, slope_ms, _ = rounds.line(form)
    before = f"{start_ms:.1f} ms before the first message and " if start_ms >= 0 else ""
    return f"{NAMES[form]}: {before}{1e3 * slope_ms:.1f} µs for each message"


def throughput(bench: Bench, rounds: Rounds) -> None:
    """Operations per second, which are rounds; and messages per second, which are operations."""
    rule, contended = "rounds per second, of the mean, as there", rounds.contended
    counted = Table(bench, "000 OPS", metric="throughput", note=rule, contended=contended)
    honest = Table(bench, "000 conditions", metric="messages", note="its OPS × its messages", contended=contended)
    for messages in doc.MESSAGES:
        for form, name in NAMES.items():
            label, documented = f"{messages:,} messages, {name}", doc.OPS[name, messages]
            rate, floor = 1e3 / rounds.mean_ms(form, messages), rounds.time_floor(("document", form, messages))
            place: dict[str, Any] = {"series": name, "x": messages, "floor": floor, "arm": form}
            counted.put(label, "1/s", rate, documented, **place)
            honest.put(f"{label}, of messages", "1/s", messages * rate, messages * documented, **place)
        label, advantage = f"{messages:,} messages, advantage", rounds.ratio(messages)
        counted.put(label, "×", advantage, doc.TIME_RATIO[messages], series="advantage", x=messages, arm=TASKS)


def memory(bench: Bench, rounds: Rounds) -> None:
    """Peak memory, its scaling, its profile, and the direct comparison."""
    table, conditions = Table(bench, "000 memory"), Table(bench, "000 conditions")
    rule = f"its peak over the {doc.ONE_MB} MB that its 2061 = 17.33 MB / {doc.ONE_MB} MB rests on"
    for messages in doc.MESSAGES:
        for form, name in NAMES.items():
            label, peak = f"{messages:,} messages, {name}", rounds.peak(form, messages) / MIB
            own = table.sub(metric="memory", series=name, x=messages, why=alive(rounds, form, messages))
            own.put(label, "MB", peak, doc.MEMORY_MB[name, messages][0])
        ratio, why = rounds.memory_ratio(messages), alive(rounds, TASKS, messages)
        place: dict[str, Any] = {"metric": "memory ratio", "series": "ratio", "x": messages, "why": why}
        note = "the document divides by its rounded 0.01 MB here"
        if messages == doc.LARGE:
            note = "2061 belongs to 17.33 MB; 18.33 / 0.01 is 1833"
        table.put(f"{messages:,} messages, ratio", "×", ratio, doc.MEMORY_RATIO[messages], note=note, **place)
        label, saved = f"{messages:,} messages, saved", 100 * (1 - 1 / ratio.value)
        table.put(label, "%", saved, doc.SAVED_PERCENT[messages], metric="saved", floor=ratio.floor, why=why)
        label, known = f"{messages:,} messages, memory ratio, one denominator", doc.MEMORY_MB["concurrent", messages][0]
        conditions.put(label, "×", ratio, known / doc.ONE_MB, note=rule, **place)
    _memory_scaling(bench, rounds)
    _memory_profile(bench, rounds)


def _memory_scaling(bench: Bench, rounds: Rounds) -> None:
    table = Table(bench, "000 memory scaling", why=alive(rounds, TASKS, doc.LARGE))
    large = rounds.peak(TASKS, doc.LARGE)
    note = "KB of 1000 bytes: 18.33 MB / 10,000"
    table.put("each message, concurrent", "KB", large / doc.LARGE / 1000, doc.KB_PER_MESSAGE, note=note)
    table.put(f"{doc.LARGE:,} messages, concurrent", "MB", large / MIB, doc.MEMORY_MB["concurrent", doc.LARGE][0])
    most = max(rounds.peak(ONE, messages) for messages in doc.MESSAGES)
    table.put("any number, sequential", "MB", most / MIB, 0.01, why=alive(rounds, ONE, doc.LARGE))
    for messages, documented in doc.MEMORY_RATIO.items():
        table.put(f"{messages:,} messages, growth of the ratio", "×", rounds.memory_ratio(messages), documented)


def _memory_profile(bench: Bench, rounds: Rounds) -> None:
    table = Table(bench, "000 memory profile", metric="memory", note="the first round counts, as there")
    for messages in doc.MESSAGES:
        for form, name in NAMES.items():
            peaks, (peak_mb, mean_mb) = rounds.peaks(form, messages), doc.MEMORY_MB[name, messages]
            both = table.sub(x=messages, why=alive(rounds, form, messages))
            both.put(f"{messages:,} messages, {name}, peak", "MB", max(peaks) / MIB, peak_mb, series=f"{name}, peak")
            both.put(f"{messages:,} messages, {name}, mean", "MB", fmean(peaks) / MIB, mean_mb, series=f"{name}, mean")
    direct = Table(bench, "000 direct comparison", why=alive(rounds, TASKS, DIRECT))
    one, tasks = rounds.peak(ONE, DIRECT), rounds.peak(TASKS, DIRECT)
    direct.put(f"{doc.LARGE:,} messages, sequential", "MB", one / MIB, 0.01, why=alive(rounds, ONE, DIRECT))
    direct.put(f"{doc.LARGE:,} messages, concurrent", "MB", tasks / MIB, doc.DIRECT_TASKS_MB)
    ratio = rounds.memory_ratio(DIRECT)
    floor = floor_of(ratio.floor, rounds.memory_ratio(doc.LARGE).floor)
    direct.put(f"{doc.LARGE:,} messages, ratio", "×", ratio, doc.DIRECT_RATIO, floor=floor)


def raw(bench: Bench, rounds: Rounds) -> None:
    """The pytest-benchmark output, figure by figure; as there, the first round counts."""
    for (name, messages), known in doc.RAW.items():
        arm = ONE if name == "sequential" else TASKS
        table = Table(bench, "000 raw output", contended=rounds.contended, arm=arm)
        if name == "large load":
            both = zip(*(rounds.wall_ms("document", form, DIRECT) for form in NAMES), strict=True)
            values, label = [sum(pair) for pair in both], "both, 10,000"
        else:
            values = rounds.wall_ms("document", arm, messages)
            label = f"{name}[{messages:,}]"
        measured = _raw_figures(values)
        for figure, value, documented in zip(doc.RAW_FIGURES, measured, known[:-1], strict=True):
            note = "" if value is not None else "one round in a quick run"
            place = messages if figure == "median" else None  # one chart of the seven figures
            table.put(f"{label} {figure}", "ms", value, documented, metric=figure, series=name, x=place, note=note)
        ops = 1e3 / fmean(values)
        table.put(f"{label} OPS", "1/s", ops, known[-1], metric="OPS", series=name)


def _raw_figures(values: list[float]) -> tuple[float | None, ...]:
    """In the order of ``doc.RAW_FIGURES``."""
    ordered, several = sorted(values), len(values) > 1
    sd = stdev(values) if several else None
    range_ms = percentile(ordered, 0.75) - percentile(ordered, 0.25) if several else None
    return ordered[0], ordered[-1], fmean(values), sd, median(values), range_ms


# --- what the document hid ---


def conditions(bench: Bench, rounds: Rounds) -> None:
    """The timer around nothing, the work alone, the first round, tracing, the straight line, and the variants."""
    table = Table(bench, "000 conditions", contended=rounds.contended)
    empty = rounds.stats(rounds.wall_ms("document", ONE, 0))
    table.put("the timer around no message", "ms", empty, note="gc.collect, tracemalloc, a loop's start and end")
    empty = rounds.stats(rounds.wall_ms("work", ONE, 0))
    table.put("the same without tracemalloc", "ms", empty)
    _work_alone(table.sub(why=rounds.why[TASKS]), rounds)
    _first_round(table, rounds)
    for form, name in NAMES.items():
        traced = (rounds.cpu_ms(form, 3000, "document") - rounds.cpu_ms(ONE, 0, "document")) / 3
        bare = rounds.cpu_ms(form, 3000) / 3
        note = f"{bare:.1f} µs of CPU a message bare, {traced:.1f} µs traced"
        floor = rounds.time_floor(("document", form, 3000), ("work", form, 3000))
        table.put(f"a traced message over a bare, {name}", "×", traced / bare, note=note, floor=floor)
    for form, name in NAMES.items():
        (start_ms, slope_ms, fit), known = rounds.line(form), doc.FITS[name]
        note = f"least squares, medians of 1,000 messages and more; R² = {fit:.4f}"
        line = table.sub(note=note, why=f"As a straight line: {line_of(rounds, form)}.")
        line.put(f"a further message, {name}", "µs", 1e3 * slope_ms, known[1])
        line.put(f"before the first message, {name}", "ms", start_ms, known[0])
    _variants(table, rounds)


def _work_alone(table: Table, rounds: Rounds) -> None:
    """Nothing traced, on a loop that runs already."""
    for messages, documented in doc.TIME_RATIO.items():
        for form, name in NAMES.items():
            stats = rounds.stats(rounds.wall_ms("work", form, messages))
            table.put(f"work alone: {messages:,} messages, {name}", "ms", stats, series=name, x=messages)
        ratio = table.sub(metric="ratio", x=messages, note="CPU time, quickest rounds")
        label, found = f"work alone: {messages:,} messages, ratio", rounds.work_ratio(messages)
        ratio.put(label, "×", found, documented, series="work alone")
        if unavailable("asyncio tasks") is None:
            value = rounds.cpu_ms("asyncio tasks", messages) / rounds.cpu_ms(ONE, messages)
            label, series = f"work alone: {messages:,}, ratio, asyncio tasks", "work alone, asyncio.TaskGroup"
            floor = rounds.time_floor(("work", "asyncio tasks", messages), ("work", ONE, messages))
            ratio.put(label, "×", value, series=series, floor=floor)


def _first_round(table: Table, rounds: Rounds) -> None:
    """What made 38 ms and 0.58 MB of the first line of the document's concurrent column."""
    peaks, walls = rounds.peaks(TASKS, 100), rounds.wall_ms("document", TASKS, 100)
    first = table.sub(note="the process's first use of its loop; documented: the largest of five", contended=False)
    took = f"It took {walls[0]:.1f} ms and {peaks[0] / KIB:.0f} KiB"
    later = f"the rounds after it {median(walls[1:]):.1f} ms and {max(peaks[1:]) / KIB:.0f} KiB at most"
    grew = first.sub(why=f"{took}, {later}.")
    grew.put("first round, 100 messages, concurrent", "ms", walls[0], doc.RAW["concurrent", 100][1])
    grew.put("first round, 100 messages, its peak", "MB", peaks[0] / MIB, doc.MEMORY_MB["concurrent", 100][0])
    rule = "documented: (5 × its mean - its peak) / 4"
    others = max(peaks[1:]) / MIB
    each = alive(rounds, TASKS, 100)
    first.put("other rounds, 100 messages, their peak", "MB", others, doc.OTHER_ROUNDS_MB, note=rule, why=each)
    ratio = median(walls[1:]) / median(rounds.wall_ms("document", ONE, 100)[1:])
    floor = floor_of(*(halves_floor(rounds.wall_ms("document", form, 100)[1:]) for form in NAMES))
    label = "100 messages, ratio without first rounds"
    table.put(label, "×", ratio, doc.MEDIAN_RATIO_100, note="medians", floor=floor, why=rounds.why[TASKS])


def _variants(table: Table, rounds: Rounds) -> None:
    """The same messages; only the source, the limit or the kind of task differ."""
    for form, about in VARIANTS.items():
        missing, cpu_us, peak_kib = unavailable(form), None, None
        if missing is None:
            cpu_us = 1e3 * rounds.cpu_ms(form, VARIANT_MESSAGES) / VARIANT_MESSAGES
            peak_kib = rounds.peaks(form, VARIANT_MESSAGES)[-1] / KIB
        note = missing or f"{VARIANT_MESSAGES:,} messages"
        table.put(f"{about}: CPU a message", "µs", cpu_us, metric="variant time", x=about, note=note)
        table.put(f"{about}: peak", "KiB", peak_kib, metric="variant memory", x=about, note=note, contended=False)
