"""The judge: verdicts against savings that the tests make up."""

from __future__ import annotations

from typing import Any

import pytest

from tools.counterfactual.bare import Truth
from tools.counterfactual.draw import Cause, Server
from tools.counterfactual.judge import Judgement, Verdict, judge, lines_in, read_verdict
from tools.counterfactual.kind import all_kinds
from tools.counterfactual.mends import MENDS, has_mend
from tools.counterfactual.tables import Row, interval

LOCK = Cause(
    "lock_over_backend",
    "hold-less",
    frozenset({20, 21}),
    frozenset({"read_tides"}),
    ("WELLS",),
    ("read_tides",),
    frozenset({21}),
)
BLOCK = Cause(
    "subprocess_run_in_async_tool", "to-thread", frozenset({40}), frozenset({"map_orders"}), (), (), frozenset()
)
SERVER = Server("1", "mcp2", "stdio", (), 20.0, False, (LOCK, BLOCK), {None: "", 0: "", 1: ""})


def truth(lock: float, block: float) -> Truth:
    """Of ten seconds; the shares are what the removals save."""
    return Truth("x", (10.0,), ((10 - 10 * lock,), (10 - 10 * block,)), (1.0,), ((1.0,), (1.0,)), (False, False))


def verdict(sentence: str, advice: str = "", severity: str = "warn", code: str = "serial-handler") -> Verdict:
    return Verdict(code, severity, sentence, advice, 0.5)


def test_the_line_of_the_best_removal_is_right() -> None:
    said = verdict("held by `read_tides` at server.py:21", "Hold the lock only around what it protects.")
    assert judge(SERVER, truth(0.6, 0.2), said) == Judgement("right", ("lock_over_backend",), 0.6, 0.5, True, True)


def test_the_thing_is_enough_and_the_mend_may_be_of_another_kind() -> None:
    judged = judge(SERVER, truth(0.6, 0.2), verdict("waits for the lock `wells`", "Buy a quicker computer."))
    assert (judged.outcome, judged.mend, judged.holder) == ("right", False, False)


def test_a_thing_that_only_the_advice_speaks_of_is_not_named() -> None:
    assert judge(SERVER, truth(0.6, 0.2), verdict("It waits.", "Look at wells.")).outcome == "false"


def test_a_part_of_a_word_is_not_the_thing() -> None:
    assert judge(SERVER, truth(0.6, 0.2), verdict("waits for farewells")).outcome == "false"


def test_seven_tenths_of_the_best_are_right_and_less_is_lesser() -> None:
    said = verdict("blocked at server.py:40")
    assert judge(SERVER, truth(0.5, 0.36), said).outcome == "right"
    assert judge(SERVER, truth(0.5, 0.3), said).outcome == "lesser"
    assert judge(SERVER, truth(0.5, 0.05), said).outcome == "false"


@pytest.mark.parametrize("sentence", ["The machine was busy.", "blocked at server.py:33", "blocked at other.py:40"])
def test_what_is_no_cause_is_a_false_accusation(sentence: str) -> None:
    assert judge(SERVER, truth(0.5, 0.3), verdict(sentence)).outcome == "false"


def test_the_tool_alone_is_vague_if_the_mend_is_right_and_no_other_place_is_named() -> None:
    known, mend = truth(0.5, 0.3), "Wrap the call in `anyio.to_thread.run_sync`."
    assert judge(SERVER, known, verdict("`map_orders` is slow.", mend)).outcome == "vague"
    assert judge(SERVER, known, verdict("`map_orders` is slow.", "Buy a quicker computer.")).outcome == "false"
    assert judge(SERVER, known, verdict("`map_orders` is slow at adapter.py:95.", mend)).outcome == "false"
    assert judge(SERVER, truth(0.5, 0.05), verdict("`map_orders` is slow.", mend)).outcome == "false"


def test_a_verdict_that_accuses_nobody_absolves_a_sick_server() -> None:
    assert judge(SERVER, truth(0.5, 0.3), verdict("Healthy.", severity="info")).outcome == "absolved"


def test_a_run_without_a_report_is_broken() -> None:
    assert judge(SERVER, truth(0.5, 0.3), verdict("it ended", severity="info", code="")).outcome == "broken"


def test_a_server_whose_best_removal_saves_little_is_healthy() -> None:
    assert judge(SERVER, truth(0.09, 0.02), verdict("Healthy.", severity="info")).outcome == "right"
    assert judge(SERVER, truth(0.09, 0.02), verdict("blocked at server.py:40")).outcome == "false"


def test_spins_are_measured_by_the_cpu_of_the_server() -> None:
    known = Truth("x", (1.0, 1.0), ((1.0, 1.0), (0.9, 0.9)), (4.0, 4.0), ((1.0, 1.0), (4.0, 4.0)), (True, False))
    assert known.savings == pytest.approx((0.75, 0.1))


def test_a_broken_truth_is_a_broken_seed() -> None:
    assert judge(SERVER, Truth("x", broken="it ended"), verdict("blocked at server.py:40")).outcome == "broken"


def test_lines_are_read_singly_and_in_lists() -> None:
    assert lines_in("at /srv/server.py:12 and :15, or server.py:20, not server.pyc or app.py:3") == {12, 15, 20}


def test_the_verdict_is_read_with_its_finding() -> None:
    report: dict[str, Any] = {
        "verdict": {"code": "serial-handler", "subject": "a", "sentence": "S."},
        "findings": [
            {"code": "serial-handler", "subject": "b", "severity": "info", "advice": "B", "cost_ms": 1.0},
            {"code": "serial-handler", "subject": "a", "severity": "warn", "advice": "A", "cost_ms": 250.0},
        ],
        "clients_waited_ms": 1000.0,
    }
    assert read_verdict(report) == Verdict("serial-handler", "warn", "S.", "A", 0.25)
    healthy = {"verdict": {"code": "healthy", "sentence": "Healthy."}, "findings": [], "clients_waited_ms": 1.0}
    assert not read_verdict(healthy).accuses


ADVICE = {
    "to-thread": "Wrap the call in `await anyio.to_thread.run_sync(...)`.",
    "hold-less": "Hold the lock only around what it protects: await backends before or after it, not inside.",
    "widen": "Raise the limit of the pool to at least 12 connections.",
    "share-client": "Make one client in the lifespan and reuse it.",
    "gather": "Ask the backend for all of them at the same time, in a task group.",
    "load-at-start": "Load it once in the server's lifespan.",
    "event": "Await an event that the timer sets instead of polling.",
    "devnull": "Start programs with stdin=subprocess.DEVNULL.",
}


@pytest.mark.parametrize(("kind", "advice"), ADVICE.items())
def test_an_advice_is_known_by_its_kind(kind: str, advice: str) -> None:
    assert has_mend(kind, advice)
    assert not has_mend(kind, "Nothing is to be mended here.")
    assert has_mend(f"log-less or {kind}", advice)


def test_every_kind_names_mends_that_are_known() -> None:
    assert {part for kind in all_kinds().values() for part in kind.mend.split(" or ")} <= MENDS.keys()


def test_shares_carry_their_interval() -> None:
    low, high = interval(5, 10)
    assert low == pytest.approx(0.2366, abs=1e-4)
    assert high == pytest.approx(0.7634, abs=1e-4)
    assert interval(0, 0) == (0.0, 1.0)


def test_the_row_counts_sick_and_healthy_seeds_apart() -> None:
    right = Judgement("right", ("lock_over_backend",), 0.6, 0.55, True, False)
    judged = ((right, True), (Judgement("right"), False), (Judgement("false"), False), (Judgement("absolved"), True))
    cells = Row("2026-11-28", "abc", judged).cells()
    assert cells[2] == 4
    assert str(cells[3]).startswith("2 of 4")
    assert str(cells[9]).startswith("1 of 2")
    assert str(cells[10]).startswith("1 of 1") and str(cells[11]).startswith("0 of 1")
    assert cells[13] == "median 5 % apart, 1 of 1 within 15 %"
