"""What counts as a difference between a bare and a probed run."""

from __future__ import annotations

import pytest

from tests.suites import upstream
from tests.suites.upstream import SUITES, Bare, Run, compare, unwatched


def run_of(outcomes: dict[str, str], **proof: object) -> Run:
    return Run(
        outcomes,
        dict.fromkeys(outcomes, "because"),
        [{"hooks": {}, "stuck": [], "tests": len(outcomes), **proof}],
        1.0,
        "",
    )


BARE = Bare(2, {"c": "skipped"}, {"flaky": "bare it was failed, then passed"})
SAME = {"a": "passed", "b": "passed", "c": "skipped", "flaky": "failed"}


def test_the_same_outcomes_are_no_difference() -> None:
    assert compare(BARE, run_of(SAME), {}) == []


def test_a_test_that_fails_only_with_the_probe_is_named_with_its_reason() -> None:
    assert compare(BARE, run_of({**SAME, "b": "failed"}), {}) == ["b: bare passed, with the probe failed: because"]


def test_a_test_that_is_skipped_only_bare_is_named() -> None:
    assert compare(BARE, run_of({**SAME, "c": "passed"}), {}) == ["c: bare skipped, with the probe passed: because"]


def test_tests_that_were_not_run_are_told() -> None:
    missing = {test: outcome for test, outcome in SAME.items() if test not in ("b", "c")}
    assert compare(BARE, run_of(missing), {}) == [
        "c: bare skipped, not run with the probe",
        "2 tests passed bare, 1 of them were run with the probe",
    ]


def test_known_differences_are_excepted() -> None:
    assert compare(BARE, run_of({**SAME, "b": "failed"}), {"b": "a reason"}) == []


def test_two_bare_runs_that_disagree_make_a_test_unstable() -> None:
    bare = Bare.from_runs(run_of({"a": "passed", "b": "failed"}), run_of({"a": "passed", "b": "passed"}))
    assert bare == Bare(1, {}, {"b": "bare it was failed, then passed"})


def test_a_run_in_which_nothing_was_watched_does_not_count() -> None:
    assert unwatched(SUITES["mcp2"], run_of(SAME)) == ["no messages seen", "no servers seen", "no steps seen"]


def test_a_hook_that_was_disabled_on_the_way_is_told() -> None:
    seen = run_of(SAME, servers=1, messages=2, steps=3)
    seen.proofs[0]["hooks"]["gc"] = "disabled after TypeError"
    assert unwatched(SUITES["mcp2"], seen) == ["hook gc: disabled after TypeError"]


def test_a_worker_without_proof_is_told() -> None:
    seen = run_of(SAME, servers=1, messages=2, steps=3)
    seen.proofs[0]["tests"] = 2
    assert unwatched(SUITES["mcp2"], seen) == ["2 of 4 tests ran where the probe has proof"]


def test_what_differs_once_only_is_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    def again(suite: object, core: object, python: object, only: list[str]) -> Run:
        asked.append(only)
        return run_of({"x.py::b": "passed", "x.py::d": "failed"})

    monkeypatch.setattr(upstream, "run", again)
    probed = run_of({"x.py::a": "passed", "x.py::b": "failed", "x.py::d": "failed"})
    run, calm = upstream.settled(SUITES["mcp2"], "native", Bare(3, {}, {}), probed)
    assert (asked, calm) == ([["x.py"]], ["x.py::b"])
    assert run.outcomes == {"x.py::a": "passed", "x.py::b": "passed", "x.py::d": "failed"}
