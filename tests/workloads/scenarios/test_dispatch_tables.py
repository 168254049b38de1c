"""Document 000's rows, from rounds of known length: every printed figure has its row, and each is worked out right."""

from __future__ import annotations

from collections import Counter

import pytest

from mcp_probe.workloads.bench.context import Bench
from mcp_probe.workloads.bench.shapes import Row, Stats
from mcp_probe.workloads.models.dispatch import Measured, Order, Timer, unavailable
from mcp_probe.workloads.scenarios import dispatch_micro
from mcp_probe.workloads.scenarios import dispatch_tables as tables
from mcp_probe.workloads.scenarios.dispatch_rounds import DIRECT, ONE, TASKS, Rounds
from mcp_probe.workloads.scenarios.documents import doc000 as doc

MS = 1_000_000
TIMERS: tuple[Timer, ...] = ("document", "work")


def rounds_of(one_us: int = 10, tasks_us: int = 30, start_ms: int = 5, task_bytes: int = 2048) -> Rounds:
    """``one_us`` and ``tasks_us`` a message, ``start_ms`` before the first, and so much memory for a task."""
    rounds = Rounds(foreign=0.1, why={ONE: "why one", TASKS: "why tasks"})
    for form, each_us in ((ONE, one_us), (TASKS, tasks_us), ("asyncio tasks", 20)):
        for messages in doc.MESSAGES:
            peak = 10_000 + (0 if form == ONE else messages * task_bytes)
            ns = start_ms * MS + messages * each_us * 1000
            for extra in (4 * MS, 0, 0):  # the first round takes longer
                rounds.add(Order(form, "document", messages), Measured(ns + extra, ns, peak))
                for again in (False, True):
                    rounds.add(
                        Order(form, "work", messages), Measured(ns - start_ms * MS, ns - start_ms * MS), again=again
                    )
    for form in (ONE, TASKS):
        order = Order(form, "document", doc.LARGE)
        for _ in range(3):
            rounds.add(order, rounds.of("document", form, doc.LARGE)[-1], messages=DIRECT)
    for timer in TIMERS:
        rounds.add(Order(ONE, timer, 0), Measured(start_ms * MS, start_ms * MS, 9_000))
    for form in tables.VARIANTS:
        if unavailable(form) is None and form not in (ONE, TASKS, "asyncio tasks"):
            for timer in TIMERS:
                rounds.add(Order(form, timer, tables.VARIANT_MESSAGES), Measured(6 * MS, 6 * MS, 20 * 1024))
    return rounds


def rows_of(rounds: Rounds) -> dict[tuple[str, str], Row]:
    bench = Bench(quick=True)
    tables.documented(bench, rounds)
    tables.conditions(bench, rounds)
    rows = bench.outcome().rows
    assert max(Counter((row.table, row.label) for row in rows).values()) == 1
    return {(row.table, row.label): row for row in rows}


def test_every_row_beside_a_documented_figure_has_a_reason() -> None:
    rows = rows_of(rounds_of())
    assert [place for place, row in rows.items() if row.documented is not None and not row.why] == []


def test_every_figure_of_every_table_of_the_document_has_a_row() -> None:
    printed = Counter[tuple[str, float]]()
    for messages, ratio in doc.TIME_RATIO.items():
        places = [("sequential", messages), ("concurrent", messages)]
        printed.update(("000 timing", value) for value in (*map(doc.MEAN_MS.__getitem__, places), ratio))
        printed.update(("000 OPS", value) for value in (*map(doc.OPS.__getitem__, places), ratio))
    for ratios in doc.SCALING.values():
        printed.update(("000 scaling", value) for value in ratios.values())
    for peak_mb, mean_mb in doc.MEMORY_MB.values():
        printed.update([("000 memory", peak_mb), ("000 memory profile", peak_mb), ("000 memory profile", mean_mb)])
    for messages, ratio in doc.MEMORY_RATIO.items():
        saved = doc.SAVED_PERCENT[messages]
        printed.update([("000 memory", ratio), ("000 memory", saved), ("000 memory scaling", ratio)])
    for raw in doc.RAW.values():
        printed.update(("000 raw output", value) for value in raw)
    printed.update(("000 direct comparison", value) for value in (0.01, doc.DIRECT_TASKS_MB, doc.DIRECT_RATIO))
    printed.update(("000 memory scaling", value) for value in (doc.KB_PER_MESSAGE, 18.33, 0.01))
    rows = rows_of(rounds_of())
    found = Counter((row.table, row.documented) for row in rows.values() if row.table != "000 conditions")
    assert {key: count for key, count in found.items() if key[1] is not None} == dict(printed)


def test_figures_are_worked_out_as_the_document_did() -> None:
    rows = rows_of(rounds_of())
    one_ms = 5 + 1000 * 0.01 + 4 / 3  # means, first round included
    tasks_ms = 5 + 1000 * 0.03 + 4 / 3
    assert rows["000 timing", "1,000 messages, ratio"].figure == pytest.approx(tasks_ms / one_ms)
    assert rows["000 OPS", "1,000 messages, sequential"].figure == pytest.approx(1000 / one_ms)
    assert rows["000 conditions", "1,000 messages, sequential, of messages"].figure == pytest.approx(1e6 / one_ms)
    assert rows["000 scaling", "100 → 1,000, sequential"].figure == pytest.approx(one_ms / (5 + 1 + 4 / 3))
    measured = rows["000 timing", "1,000 messages, concurrent"].measured
    assert isinstance(measured, Stats)
    assert (measured.first, measured.median, measured.n) == (39.0, 35.0, 2)
    assert rows["000 raw output", "concurrent[1,000] max"].figure == 39.0
    assert rows["000 memory", "1,000 messages, ratio"].figure == pytest.approx((10_000 + 2048e3) / 10_000)
    assert rows["000 memory scaling", "each message, concurrent"].figure == pytest.approx(2.049)


def test_conditions_take_the_timer_s_own_time_out() -> None:
    rows = rows_of(rounds_of())
    alone = rows["000 conditions", "work alone: 3,000 messages, ratio"]
    assert alone.figure == pytest.approx(3.0)
    assert alone.floor == 1.0
    assert rows["000 conditions", "before the first message, sequential"].figure == pytest.approx(5.0)
    assert rows["000 conditions", "a further message, concurrent"].figure == pytest.approx(30.0)
    traced = rows["000 conditions", "a traced message over a bare, sequential"]
    assert traced.figure == pytest.approx(1.0)
    missing = rows["000 conditions", "eager asyncio tasks: peak"]
    assert (missing.figure is None) == (unavailable("eager tasks") is not None)


@pytest.mark.parametrize(
    ("rounds", "refuted"),
    [
        (rounds_of(), set()),
        (rounds_of(tasks_us=11), {"000-1"}),
        (rounds_of(task_bytes=200), {"000-4"}),
        (rounds_of(task_bytes=20_000), {"000-4"}),
    ],
)
def test_a_claim_is_refuted_by_the_figures_that_refute_it(rounds: Rounds, refuted: set[str]) -> None:
    bench = Bench(quick=True)
    dispatch_micro.claims(bench, rounds)
    checks = bench.outcome().checks
    assert [check.claim for check in checks] == [f"000-{number}" for number in ("1", "2", "2a", "3", "4", "5", "6")]
    assert {check.claim for check in checks if check.verdict == "does not hold"} == refuted | {"000-2a"}


def test_a_bent_line_is_no_line() -> None:
    rounds = rounds_of()
    for one in (TASKS, ONE):
        worse = [Measured(9_000 * MS, 9_000 * MS, 10_000)] * 3
        rounds.taken["document", one, 3000] = worse
    bench = Bench(quick=True)
    dispatch_micro.claims(bench, rounds)
    assert {check.claim: check.verdict for check in bench.outcome().checks}["000-2"] == "does not hold"
