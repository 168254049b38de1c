"""What a layer costs: rounds against the direct client, its own twin as the floor, and the document's arithmetic."""

from __future__ import annotations

import pytest

from mcp_probe.workloads.bench.context import Bench
from mcp_probe.workloads.bench.shapes import Row
from mcp_probe.workloads.bench.statistics import describe
from mcp_probe.workloads.client import Call
from mcp_probe.workloads.scenarios import overhead
from mcp_probe.workloads.scenarios import overhead_rows as rows_of
from mcp_probe.workloads.scenarios.documents import doc001 as doc
from mcp_probe.workloads.scenarios.overhead_rows import Case, Found
from mcp_probe.workloads.scenarios.tables import Burst, One


def found(direct: float, again: float, facade: float, probe: float, *, one_by_one: bool = False) -> Found:
    """Rounds, or calls, of these lengths in milliseconds."""

    async def nobody(call: Call) -> float:
        raise AssertionError

    levels = {"direct": direct, "direct again": again, "facade": facade, "probe": probe}
    bursts = {}
    for label, level in levels.items():
        bursts[label] = burst = Burst([(nobody, Call("wait", {"delay_ms": 0}))], one_by_one=one_by_one)
        burst.latency_ms, burst.wall_ms = [level] * 4 + [99.0], [level] * 4
    return Found({label: describe([level] * 4) for label, level in levels.items()}, bursts, "why", one_by_one)


def case(key: str, count: int, delay_ms: float, *, one_by_one: bool = False) -> Case:
    return Case(key, key, ((Call("wait", {"delay_ms": delay_ms}),) * count,), 4, one_by_one=one_by_one)


def test_a_cost_is_read_in_percent_and_shared_among_the_calls_of_a_round() -> None:
    one = found(100, 101, 110, 102)
    assert one.percent("facade") == pytest.approx(10)
    assert one.us_per_call("facade", case("S2 N=20", 20, 100)) == pytest.approx(500)
    assert one.floor == pytest.approx(1.01)


def test_calls_one_by_one_are_compared_call_by_call() -> None:
    one = found(1.0, 1.0, 0.5, 1.02, one_by_one=True)
    assert one.percent("probe") == pytest.approx(2)
    assert one.us_per_call("facade", case("S1 0", 30, 0, one_by_one=True)) == pytest.approx(-500)


async def test_a_case_sends_each_provider_its_own_calls() -> None:
    sent: list[tuple[str, float]] = []

    def way(name: str) -> One:
        async def one(call: Call) -> float:
            sent.append((name, call.arguments["delay_ms"]))
            return 1.0

        return one

    calls = tuple((Call("wait", {"delay_ms": delay_ms}),) * count for count, delay_ms in ((2, 1.0), (1, 5.0)))
    await Case("S5", "S5", calls, 1).round_of([way("a"), way("b"), way("c")])()
    assert sent == [("a", 1.0), ("a", 1.0), ("b", 5.0)]


def quick_rows(table: str) -> list[Row]:
    bench = Bench(quick=True)
    cases = overhead._cases(bench)
    for one in cases:
        rows_of.case_rows(bench, one, found(60, 60, 61, 60.5, one_by_one=one.one_by_one))
    rows_of.rows_not_run(bench, cases)
    return [row for row in bench.outcome().rows if row.table == table]


def test_every_line_of_section_2_2_has_its_rows_whether_it_ran_or_not() -> None:
    rows = quick_rows("001 §2.2")
    printed = [value for known in doc.OVERHEAD.values() for value in (known.direct_ms, known.hangar_ms, known.percent)]
    assert sorted(row.documented or 0.0 for row in rows) == sorted(printed)
    missing = [row for row in rows if row.measured is None]
    assert [row.x for row in missing] == ["S1 200"] * 3
    assert all(row.note == "full runs only" for row in missing)
    assert all(row.noise_floor == 1.0 for row in rows if row.measured is not None)


def test_s1_has_a_line_for_each_delay() -> None:
    rows = {row.x: row for row in quick_rows("001 S1")}
    assert sorted(float(str(x)) for x in rows) == sorted(doc.S1_DELAYS_MS)
    assert {x: row.documented for x, row in rows.items() if row.documented is not None} == {50: 5.03, 200: 5.12}


def test_a_full_run_leaves_no_line_out() -> None:
    full = [one.key for one in overhead._cases(Bench(quick=False))]
    assert set(doc.OVERHEAD) <= set(full)
    assert {f"S1 {delay_ms}" for delay_ms in doc.S1_DELAYS_MS} <= set(full)


def test_what_is_left_of_a_call_after_its_sleep() -> None:
    one = found(52.5, 52.5, 52.5, 52.5, one_by_one=True)
    assert rows_of.over_the_sleep(case("S1 50", 3, 50, one_by_one=True), one) == pytest.approx(2.5)


def test_arithmetic_on_the_document_s_own_print_is_a_note_and_no_claim() -> None:
    mean, apart = doc.NOTES
    assert "-0.36 %, not -0.5 %" in mean
    assert "-3.6 ms (S2 N=20) and +2.4 ms (S2 N=10)" in apart


@pytest.mark.parametrize(("at_zero", "verdict"), [(1.0, "holds"), (0.6, "does not hold")])
def test_no_overhead_is_claimed_only_where_calls_that_do_not_sleep_show_none(at_zero: float, verdict: str) -> None:
    bench = Bench(quick=True)
    rows = {key: found(100, 100.5, 100.2, 100.1) for key in doc.OVERHEAD}
    rows["S1 0"] = found(1.0, 1.005, at_zero, 1.01, one_by_one=True)
    rows_of.check_overhead(bench, rows)
    checks = {check.claim: check.verdict for check in bench.outcome().checks}
    assert checks == {"001-5": "holds", "001-5z": verdict, "001-5c": "holds"}
    assert bench.outcome().notes == doc.NOTES


@pytest.mark.parametrize(
    ("again", "probe", "verdict"),
    [(1.219, 0.68, "cannot be told here"), (1.01, 1.3, "does not hold"), (1.044, 1.043, "cannot be told here")],
)
def test_the_probe_s_own_overhead_is_judged_as_strictly(again: float, probe: float, verdict: str) -> None:
    bench = Bench(quick=True)
    rows = {key: found(100, 100.5, 100.2, 100.1) for key in doc.OVERHEAD}
    rows["S1 0"] = found(1.0, again, 1.0, probe, one_by_one=True)
    rows_of.check_overhead(bench, rows)
    assert {check.claim: check.verdict for check in bench.outcome().checks}["001-5c"] == verdict


@pytest.mark.parametrize(("at_50", "verdict"), [(51.1, "holds"), (52.7, "does not hold")])
def test_a_cost_of_a_call_would_not_depend_on_its_sleep(at_50: float, verdict: str) -> None:
    bench = Bench(quick=True)
    rows = {key: found(level, level, level, level, one_by_one=True) for key, level in (("S1 0", 1.0), ("S1 50", at_50))}
    cases = [case("S1 50", 2, 50, one_by_one=True), case("S1 0", 30, 0, one_by_one=True)]
    rows_of.check_per_call(bench, cases, rows)
    (check,) = bench.outcome().checks
    assert (check.claim, check.verdict) == ("001-10", verdict)
    assert check.measured.startswith("1.00 ms at 0 ms, ")
