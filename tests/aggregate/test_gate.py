"""What --fail-on asks for, what a baseline excuses, and that not knowing is never passing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mcp_probe.aggregate.codes import CODES
from mcp_probe.aggregate.fail_on import FIGURES, UNITS, codes_of, figure_of, parse_fail_on
from mcp_probe.aggregate.findings import findings_of
from mcp_probe.aggregate.gate import Judgement, identity_of, judge
from mcp_probe.errors import OptionError
from mcp_probe.model import Ending, Finding, MeasureStats, Severity, Summary
from tests.aggregate.faults import ALSO_FAULTS, FAULTS
from tests.aggregate.summaries import make_memory, make_operation, make_summary

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "ci.md").read_text("utf-8")


def make_finding(
    code: str = "blocking-call", severity: Severity = "warn", subject: str = "resize", **evidence: Any
) -> Finding:
    known: dict[str, Any] = {"max_ms": 80.0, "file": "/srv/app/server.py", "line": 41, "function": "resize"}
    return Finding(code, severity, "exact", subject, "It blocked.", "Do not.", {**known, **evidence})


def make_run(*findings: Finding, count: int = 100, awaits: str | None = "on", **changed: Any) -> Summary:
    row = make_operation(memory=make_memory(peak=1, retained=0))
    summary = make_summary(row, count=count)
    probe = replace(summary.probe, awaits=awaits, **changed)
    return replace(summary, findings=findings, probe=probe)


def judged(text: str, *findings: Finding, before: tuple[Finding, ...] = (), **changed: Any) -> Judgement:
    return judge([make_run(*findings, **changed)], parse_fail_on(text), before)


# --- what is asked for ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "severity", "fails"),
    [
        ("critical", "warn", False),
        ("critical", "critical", True),
        ("warn", "info", False),
        ("warn", "warn", True),
        ("warn", "critical", True),
        ("info", "info", True),
        ("blocking-call", "info", True),
        ("gc-pause", "critical", False),
        ("gc-pause, critical", "critical", True),
    ],
)
def test_a_severity_asks_for_itself_and_all_above_and_a_code_for_all_of_its_findings(
    text: str, severity: Severity, fails: bool
) -> None:
    assert judged(text, make_finding(severity=severity)).passes != fails


@pytest.mark.parametrize(
    ("text", "fails"),
    [
        ("blocking-call>79", True),
        ("blocking-call>79.9ms", True),
        ("blocking-call > 80ms", False),
        ("blocking-call>0.08s", False),
        ("blocking-call>0.0799s", True),
        ("blocking-call>100ms,blocking-call>50ms", True),
        ("blocking-call>100ms,critical", False),
    ],
)
def test_a_threshold_is_exceeded_by_more_not_by_as_much(text: str, fails: bool) -> None:
    assert judged(text, make_finding()).passes != fails


@pytest.mark.parametrize(
    ("text", "evidence"),
    [
        ("memory-peak>63.9", {"peak_bytes": 64_000_000}),
        ("memory-peak>63MB", {"peak_bytes": 64_000_000}),
        ("memory-growth>300B", {"bytes_per_call": 301.0}),
        ("memory-growth>1kB", {"bytes_per_call": 1001.0}),
        ("large-payload>1.9MB", {"response_bytes_max": 10, "request_bytes_max": 2_000_000}),
        ("head-of-line>20%", {"waited_p95_share": 0.21}),
        ("head-of-line>20", {"waited_p95_share": 0.21}),
        ("unbounded-fan-out>1500", {"tasks_max": 1501}),
    ],
)
def test_units_are_those_of_the_code(text: str, evidence: dict[str, Any]) -> None:
    code = text.split(">")[0]
    found = Finding(code, "info", "exact", "s", "", "", evidence)
    assert not judged(text, found).passes
    smaller = replace(found, evidence={name: value * 0.9 for name, value in evidence.items()})
    assert judged(text, smaller).passes


def test_many_short_calls_are_no_long_one() -> None:
    short = Finding("blocking-call", "warn", "exact", "s", "", "", {"total_ms": 3_000.0, "count": 1_000})
    assert judged("blocking-call>100ms", short).passes
    assert not judged("blocking-call>2ms", short).passes
    assert not judged("blocking-call>2ms", replace(short, evidence={"total_ms": 3_000.0, "count": 0})).passes


def test_a_figure_that_is_not_known_is_beyond_any_threshold() -> None:
    assert not judged("blocking-call>1000s", make_finding(max_ms=None)).passes


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "empty item"),
        (" ", "empty item"),
        ("warn,", "empty item"),
        (",blocking-call", "empty item"),
        ("blocking", "did you mean blocking-call"),
        ("errors", "No finding has the code"),
        ("critical>5", "takes no threshold"),
        ("not-enough-data>5", "no figure"),
        ("serial-client>2", "Expected the code alone: write serial-client"),
        ("blocking-call>", "not understood"),
        ("blocking-call>=5", "not understood"),
        ("blocking-call<5", "not understood"),
        ("blocking-call>-5", "not understood"),
        ("blocking-call>nan", "not understood"),
        ("blocking-call>1e3", "not understood"),
        ("blocking-call>5 6", "not understood"),
        ("blocking-call 5", "not understood"),
        ("blocking-call>5MB", "expected a number in ms or s"),
        ("memory-peak>5ms", "expected a number in MB or B or kB or GB"),
        ("unbounded-fan-out>5ms", "without a unit"),
        ("blocking-call>٥", "not understood"),
    ],
)
def test_bad_syntax_is_refused_with_what_was_found_and_what_to_write(text: str, words: str) -> None:
    with pytest.raises(OptionError, match=words):
        parse_fail_on(text)


def test_a_severity_looks_at_every_code_and_codes_only_at_themselves() -> None:
    assert codes_of(parse_fail_on("gc-pause,warn")) == tuple(CODES)
    assert codes_of(parse_fail_on("gc-pause,blocking-call>5")) == ("blocking-call", "gc-pause")


@pytest.mark.parametrize("code", FIGURES)
def test_each_figure_is_a_number_that_the_finding_has(code: str) -> None:
    summaries = [FAULTS[code], *(summary for (of, _), summary in ALSO_FAULTS.items() if of == code)]
    figures = [figure_of(found) for summary in summaries for found in findings_of(summary) if found.code == code]
    assert any(figure is not None for figure in figures)
    assert code in CODES


def test_the_page_lists_each_figure_with_its_unit_and_meaning() -> None:
    rows = {f"| `{code}` | {figure.meaning} | {_units(figure.dimension)} |" for code, figure in FIGURES.items()}
    listed = {line for line in PAGE.splitlines() if line.startswith("| `") and line.split("`")[1] in CODES}
    assert listed == rows


def _units(dimension: Any) -> str:
    return ", ".join(unit or "a number" for unit in UNITS[dimension])


# --- baseline ---------------------------------------------------------------------------------------


def test_what_the_baseline_has_is_known_and_does_not_fail() -> None:
    found = judged("blocking-call", make_finding(), before=(make_finding(),))
    assert found.passes
    assert [each.code for each in found.known] == ["blocking-call"]


@pytest.mark.parametrize(
    "other",
    [
        make_finding(subject="crop"),
        make_finding("cpu-bound-step"),
        make_finding(function="crop"),
        make_finding(file="/srv/app/images.py"),
        make_finding(function=None),
    ],
    ids=["subject", "code", "function", "file", "place not known"],
)
def test_another_code_subject_or_place_is_new(other: Finding) -> None:
    assert not judged("warn", make_finding(), before=(other,)).passes


def test_a_moved_line_or_another_checkout_is_the_same_place() -> None:
    moved = make_finding(line=57, file="/builds/7/app/server.py")
    assert identity_of(moved) == identity_of(make_finding())
    assert judged("warn", moved, before=(make_finding(),)).passes


def test_another_lock_or_pool_is_new() -> None:
    lock = Finding("serial-handler", "warn", "exact", "note", "", "", {"object": "app.GATE", "holder_where": "a.py:3"})
    assert judged("warn", lock, before=(lock,)).passes
    other = replace(lock, evidence={**lock.evidence, "object": "app.OTHER"})
    assert not judged("warn", other, before=(lock,)).passes


@pytest.mark.parametrize(
    ("text", "before_ms", "now_ms", "passes"),
    [
        ("blocking-call", 80.0, 8_000.0, True),
        ("blocking-call>100ms", 80.0, 150.0, False),
        ("blocking-call>100ms", 120.0, 8_000.0, True),
        ("blocking-call>100ms", 80.0, 90.0, True),
        ("blocking-call,blocking-call>100ms", 80.0, 150.0, False),
    ],
)
def test_a_finding_that_got_worse_is_new_only_across_a_threshold(
    text: str, before_ms: float, now_ms: float, passes: bool
) -> None:
    assert judged(text, make_finding(max_ms=now_ms), before=(make_finding(max_ms=before_ms),)).passes == passes


def test_a_finding_that_became_critical_is_new_where_critical_is_asked_for() -> None:
    now = make_finding(severity="critical")
    assert not judged("critical", now, before=(make_finding(),)).passes
    assert judged("warn", now, before=(make_finding(),)).passes


# --- never open -------------------------------------------------------------------------------------


def test_no_summary_and_no_request_fail() -> None:
    assert not judge([], parse_fail_on("warn")).passes
    assert not judged("warn", count=0).passes
    assert judged("warn").passes


def test_a_process_without_requests_beside_one_with_is_no_failure() -> None:
    assert judge([make_run(), make_run(count=0)], parse_fail_on("warn")).passes


def test_a_probe_that_failed_fails() -> None:
    assert not judge([make_run()], parse_fail_on("warn"), (), ["The probe could not start."]).passes
    broken = judged("warn", disabled_hooks=("steps (asyncio): disabled after KeyError (steps.py:3)",))
    assert not broken.passes
    assert "steps (asyncio)" in broken.problems[0]
    assert judged("warn", disabled_hooks=("trio: not installed",)).passes


def test_a_code_that_is_named_and_was_not_checked_fails_and_one_that_is_not_named_is_remarked() -> None:
    assert not judged("serial-handler", awaits="off").passes
    assert not judged("serial-handler,warn", awaits=None).passes
    found = judged("warn", awaits="off")
    assert found.passes
    assert any(remark.startswith("serial-handler was not checked") for remark in found.remarks)


def test_notifications_need_a_transport_that_shows_how_long_it_writes_them() -> None:
    def failed_with(write_ms: float | None) -> tuple[str, ...]:
        measures = {
            "notifications": MeasureStats(30.0, 30.0, 30.0),
            "notification_write_ms": MeasureStats(write_ms, write_ms, write_ms),
        }
        summary = replace(make_run(), operations=(make_operation(measures=measures),))
        return judge([summary], parse_fail_on("chatty-notifications")).problems

    assert failed_with(1.0) == ()
    assert failed_with(None) == (
        "chatty-notifications could not be checked: how long notifications were written is only seen on stdio.",
    )
    assert "no notifications were counted" in judged("chatty-notifications").problems[0]


def test_memory_codes_need_a_memory_that_was_measured() -> None:
    bare = replace(make_run(), operations=(make_operation(),))
    for code in ("memory-peak", "memory-growth"):
        assert not judge([bare], parse_fail_on(code)).passes
        assert judge([make_run()], parse_fail_on(code)).passes


def test_how_it_ended_is_known_of_a_run_only() -> None:
    assert not judged("crashed").passes
    ended = replace(make_run(), ending=Ending(0, None, None, None, False))
    assert judge([ended], parse_fail_on("crashed")).passes
    assert judged("critical").passes


def test_steps_that_could_not_be_seen_are_no_proof_that_nothing_blocked() -> None:
    unseen = replace(make_run(), operations=(make_operation(unseen=("steps",)),))
    assert not judge([unseen], parse_fail_on("blocking-call")).passes


def test_too_few_requests_are_remarked_and_fail_where_asked() -> None:
    few = Finding("not-enough-data", "info", "exact", "s", "Too few.", "", {})
    assert judged("warn", few).passes
    assert "not-enough-data" in judged("warn", few).remarks[-1]
    assert not judged("warn,not-enough-data", few).passes
