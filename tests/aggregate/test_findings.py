from __future__ import annotations

import json
from dataclasses import fields, replace
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_probe.aggregate.checks.evidence import clients_waited_ms
from mcp_probe.aggregate.checks.pools import executor_saturated
from mcp_probe.aggregate.findings import (
    CHECKS,
    CODES,
    FindingOptions,
    check_codes,
    findings_of,
    verdict_of,
    with_ending,
)
from mcp_probe.aggregate.phrasing import duration, listed, place_rows, probably_at
from mcp_probe.errors import OptionError
from mcp_probe.model import (
    BACKGROUND_OPERATION,
    BUDGET_PARTS,
    CROWDING_OPERATION,
    LOOP_OPERATION,
    UNKNOWN_HOLDER,
    WITHOUT_GIL,
    AwaitHolder,
    AwaitLoad,
    AwaitRoot,
    AwaitSummary,
    BudgetMeans,
    Ending,
    Finding,
    GuiltyPlace,
    JobLine,
    LoadLevel,
    Outstanding,
    PeakLine,
    Percentiles,
    ProcessGrowth,
    Quality,
    Remainder,
    RequestCounts,
    SerialAwaits,
    ServerInfo,
    Signals,
    SlowStep,
    Summary,
    WaitPercentiles,
)
from tests.aggregate.faults import ALSO_FAULTS, CROWDING_ROW, FAULTS, NEAR_MISSES, first_calls_of
from tests.aggregate.summaries import (
    make_blocked,
    make_growth,
    make_hunt,
    make_memory,
    make_operation,
    make_pool,
    make_slow,
    make_summary,
)

ONLY_RUN_LONGER = FindingOptions(disabled=frozenset({"not-enough-data"}))


def codes_of(summary: Summary, options: FindingOptions | None = None) -> set[str]:
    return {finding.code for finding in findings_of(summary, options or FindingOptions())}


def one(summary: Summary, code: str, options: FindingOptions | None = None) -> Finding:
    (found,) = [finding for finding in findings_of(summary, options or FindingOptions()) if finding.code == code]
    return found


def with_server(summary: Summary, sdk: str, version: str) -> Summary:
    return replace(summary, server=replace(summary.server, sdk=sdk, sdk_version=version))


# --- every code -------------------------------------------------------------------------------------


def test_every_code_has_a_check_a_fault_and_a_near_miss() -> None:
    assert list(CHECKS) == list(CODES) == list(FAULTS)
    assert {code for code, _ in NEAR_MISSES} == set(CODES)


def test_a_quiet_server_has_no_finding() -> None:
    assert findings_of(make_summary()) == ()


@pytest.mark.parametrize("code", FAULTS)
def test_a_fault_is_named_and_nothing_else_is_blamed(code: str) -> None:
    follows = {"head-of-line": {"blocking-call"}, "transport-starvation": {"executor-saturated"}}
    assert codes_of(FAULTS[code]) == {code} | follows.get(code, set())


@pytest.mark.parametrize(("code", "why"), ALSO_FAULTS)
def test_a_fault_of_another_form_is_named(code: str, why: str) -> None:
    assert code in codes_of(ALSO_FAULTS[code, why])


@pytest.mark.parametrize(("code", "why"), NEAR_MISSES)
def test_a_near_miss_is_not_named(code: str, why: str) -> None:
    assert code not in codes_of(NEAR_MISSES[code, why])


@pytest.mark.parametrize("code", CODES)
def test_a_disabled_code_is_not_named_and_the_others_still_are(code: str) -> None:
    everything = codes_of(FAULTS[code])
    assert codes_of(FAULTS[code], FindingOptions(disabled=frozenset({code}))) == everything - {code}


@pytest.mark.parametrize("code", CODES)
def test_a_finding_says_a_number_and_what_to_do_and_serialises(code: str) -> None:
    finding = one(FAULTS[code], code)
    assert any(character.isdigit() for character in finding.sentence)
    assert finding.sentence.endswith(".") and finding.advice.endswith(".")
    assert finding.sentence.count("`") % 2 == 0 and finding.advice.count("`") % 2 == 0
    assert finding.subject
    assert all(type(value) in (int, float, str, type(None)) for value in finding.evidence.values())
    assert json.loads(json.dumps(finding.evidence, allow_nan=False)) == finding.evidence


# What is lost to these is memory, or the time of threads for which nobody waits.
TIMELESS = {
    "stdout-pollution",
    "abandoned-work",
    "crashed",
    "not-enough-data",
    "memory-growth",
    "memory-peak",
    "unbounded-fan-out",
}


@pytest.mark.parametrize("code", sorted(set(CODES) - TIMELESS))
def test_every_finding_that_loses_time_says_how_much(code: str) -> None:
    assert one(FAULTS[code], code).cost_ms > 0


# --- the end ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("summary", "ending", "verdict"),
    [
        (FAULTS["blocking-call"], Ending(1), "blocking-call"),
        (make_summary(), Ending(1), "crashed"),
        (FAULTS["blocking-call"], Ending(1, None, "ValueError"), "crashed"),
        (replace(FAULTS["blocking-call"], complete=False), Ending(3), "crashed"),
        (replace(FAULTS["blocking-call"], requests=RequestCounts(100, 0, 0, 1, 0)), Ending(1), "crashed"),
    ],
    ids=["all was answered", "and nothing else is wrong", "an exception", "without Python's end", "one is unanswered"],
)
def test_a_bad_exit_code_hides_no_fault_of_a_server_that_had_answered_all(
    summary: Summary, ending: Ending, verdict: str
) -> None:
    found = with_ending(replace(summary, findings=findings_of(summary)), ending)
    assert found.verdict.code == verdict
    assert "crashed" in {finding.code for finding in found.findings}


# --- options ----------------------------------------------------------------------------------------


def test_unknown_codes_are_refused_by_name_with_the_nearest_known() -> None:
    with pytest.raises(OptionError, match=r"'blocking-cal'; did you mean blocking-call"):
        check_codes(["head-of-line", "blocking-cal"])


def test_every_unknown_code_is_named_with_the_list_of_known_ones() -> None:
    with pytest.raises(OptionError) as caught:
        check_codes(["xyzzy", "Slow_Reader"])
    assert "'xyzzy'." in str(caught.value)
    assert "'Slow_Reader'; did you mean slow-reader" in str(caught.value)
    assert str(caught.value).endswith(f"Known codes: {', '.join(CODES)}.")


def test_known_codes_pass_as_a_set() -> None:
    assert check_codes(["crowding", "gc-pause", "crowding"]) == {"crowding", "gc-pause"}
    assert check_codes([]) == frozenset()


def test_a_misspelt_disabled_code_is_refused() -> None:
    with pytest.raises(OptionError, match="did you mean crowding"):
        FindingOptions(disabled=frozenset({"crowdin"}))


def test_thresholds_can_be_moved() -> None:
    assert codes_of(NEAR_MISSES["blocking-call", "step below the limit"], FindingOptions(slow_step_ms=9.9)) == {
        "blocking-call"
    }
    assert codes_of(FAULTS["blocking-call"], FindingOptions(slow_step_ms=11.0)) == set()


ALL: list[Summary] = [*FAULTS.values(), *ALSO_FAULTS.values(), *NEAR_MISSES.values()]
PINNED = [field.name for field in fields(FindingOptions) if field.name not in ("disabled", "serial_example")]


def severities_of(summary: Summary, options: FindingOptions) -> set[tuple[str, str]]:
    return {(finding.code, finding.severity) for finding in findings_of(summary, options)}


@pytest.mark.parametrize("factor", [0.9, 1.1])
@pytest.mark.parametrize("name", PINNED)
def test_every_threshold_stands_between_a_fault_and_a_near_miss(name: str, factor: float) -> None:
    # Serial clients are also subject to the general minimum, which happens to be the same number.
    others: dict[str, Any] = {"min_requests": 1} if name == "serial_requests" else {}
    default = FindingOptions(**others)
    value = getattr(default, name) * factor
    moved = replace(default, **{name: round(value) if name.endswith("requests") else value})
    assert [severities_of(summary, moved) for summary in ALL] != [severities_of(summary, default) for summary in ALL]


# --- slow steps -------------------------------------------------------------------------------------


def test_a_blocking_call_names_tool_length_place_and_who_waited() -> None:
    steps = (make_slow(ms=412.0, count=12, total_ms=3_000.0, function="load", victims=57, victim_ms=3_100.0),)
    rows = (make_blocked("lookup", "resize", 2_900.0, 50), make_blocked("fetch", "resize", 200.0, 7))
    finding = one(make_summary(slow_steps=steps, blocked_by=rows), "blocking-call")
    assert finding.sentence == (
        "`resize` blocked the event loop for up to 412 ms (12 times, at server.py:41 in `load`) "
        "and made 57 other requests wait 3.1 s in all, 54 ms each on average."
    )
    assert finding.cost_ms == pytest.approx(6_100.0)
    assert (finding.severity, finding.confidence, finding.subject) == ("critical", "exact", "resize")


def test_bounded_blame_is_told_as_at_least_and_lowers_the_confidence() -> None:
    rows = (make_blocked("lookup", "resize", 800.0, 5, hi_ms=4_000.0, quality="bounded"),)
    finding = one(make_summary(slow_steps=(make_slow(),), blocked_by=rows), "blocking-call")
    assert "made 5 other requests wait at least 800 ms in all" in finding.sentence
    assert finding.confidence == "bounded"
    assert finding.evidence["victim_hi_ms"] == 4_000.0


def test_places_of_one_tool_are_one_finding_that_shows_where_most_time_went() -> None:
    steps = (
        make_slow(ms=90.0, line=7, library="ssl.create_default_context"),
        make_slow(ms=30.0, total_ms=1_000.0, count=40, file="/x/.venv/lib/python3.13/site-packages/pkg/io.py", line=9),
    )
    finding = one(make_summary(slow_steps=steps), "blocking-call")
    assert "for up to 90 ms (41 times, most of it at pkg/io.py:9)" in finding.sentence
    assert [(place.where, place.what, place.ms, place.count) for place in finding.places] == [
        ("/x/.venv/lib/python3.13/site-packages/pkg/io.py:9", "", 1_000.0, 40),
        ("/srv/app/server.py:7", "calling `ssl.create_default_context`", 90.0, 1),
    ]
    assert (finding.evidence["max_ms"], finding.evidence["line"], finding.evidence["places"]) == (90.0, 9, 2)
    assert "ssl" not in finding.advice and "client" not in finding.advice


def test_steps_whose_place_nobody_saw_do_not_hide_the_places_of_others() -> None:
    nowhere = make_slow(ms=95.0, total_ms=2_000.0, count=100, file=None, line=None, function=None)
    steps = (nowhere, make_slow(ms=30.0, line=7), make_slow(ms=80.0, line=9))
    finding = one(make_summary(slow_steps=steps), "blocking-call")
    assert "up to 95 ms (102 times, most of what was seen at server.py:9)" in finding.sentence
    assert [(place.where, place.ms) for place in finding.places] == [
        (None, 2_000.0),
        ("/srv/app/server.py:9", 80.0),
        ("/srv/app/server.py:7", 30.0),
    ]


def test_a_finding_of_one_place_has_no_rows() -> None:
    assert one(make_summary(slow_steps=(make_slow(),)), "blocking-call").places == ()


def test_who_took_a_lock_at_several_lines_has_a_row_for_each() -> None:
    holders = (
        AwaitHolder("append", "/srv/notes.py:19", 700.0, 60, "exact"),
        AwaitHolder(BACKGROUND_OPERATION, "/srv/notes.py:40", 200.0, 5, "exact"),
        AwaitHolder(UNKNOWN_HOLDER, None, 100.0, 5, "exact"),
    )
    (operation,) = FAULTS["serial-handler"].operations
    row = replace(operation.awaits[0], holders=holders)
    finding = one(replace(FAULTS["serial-handler"], operations=(replace(operation, awaits=(row,)),)), "serial-handler")
    assert [(place.where, place.what, place.ms, place.count) for place in finding.places] == [
        ("/srv/notes.py:19", "taken by `append`", 700.0, 60),
        ("/srv/notes.py:40", "taken by a background task", 200.0, 5),
    ]


def test_rows_of_places_stand_in_columns() -> None:
    places = (
        GuiltyPlace("/srv/app/server.py:9", "estimate", "in `parse`", 1_500.0, 120),
        GuiltyPlace(None, "unavailable", "", 500.0, 1),
    )
    assert place_rows(places, probably_at) == [
        ("75%   1.5 s  120 times", "probably at server.py:9 in `parse`"),
        ("25%  500 ms       once", "line not seen"),
    ]


def test_a_place_that_is_an_estimate_is_told_as_probable() -> None:
    finding = one(make_summary(slow_steps=(make_slow(quality="estimate"),)), "blocking-call")
    assert "probably at server.py:41" in finding.sentence
    assert finding.confidence == "estimate"


def test_a_place_that_is_not_known_is_left_out_and_does_not_lower_the_confidence() -> None:
    step = make_slow(file=None, line=None, function=None, quality="unavailable")
    finding = one(make_summary(slow_steps=(step,)), "blocking-call")
    assert "(once)" in finding.sentence
    assert finding.confidence == "exact"


def test_an_unknown_cause_is_said_and_is_only_an_estimate() -> None:
    finding = one(make_summary(slow_steps=(make_slow(cause="unknown"),)), "blocking-call")
    assert finding.sentence.startswith("`resize` held the event loop for 412 ms (once, why is not known,")
    assert finding.confidence == "estimate"
    assert "If it computes" in finding.advice


def test_a_step_that_still_runs_is_told_as_such() -> None:
    step = make_slow("export", 118_000.0, "unknown", running=True)
    finding = one(make_summary(slow_steps=(step,), count=3), "blocking-call")
    assert finding.sentence.endswith(", still running when the window ended) and held up no other request.")
    assert finding.confidence == "estimate"


@pytest.mark.parametrize(
    ("step", "severity"),
    [
        (make_slow(ms=50.0), "critical"),
        (make_slow(ms=49.9, count=2), "warn"),
        (make_slow(ms=49.9, victims=1, victim_ms=3.0), "warn"),
        (make_slow(ms=49.9), "info"),
        (make_slow(LOOP_OPERATION, 900.0, victims=1, victim_ms=3.0), "critical"),
        (make_slow(LOOP_OPERATION, 40.0, victims=1, victim_ms=3.0, count=20), "warn"),
    ],
)
def test_severity_follows_length_and_harm(step: Any, severity: str) -> None:
    assert one(make_summary(slow_steps=(step,)), "blocking-call").severity == severity


def test_a_tool_with_two_faults_splits_what_its_victims_waited() -> None:
    steps = (
        make_slow("mixed", 300.0, total_ms=300.0, victims=4, victim_ms=800.0),
        make_slow("mixed", 100.0, "cpu", total_ms=100.0, line=60, victims=4, victim_ms=800.0),
    )
    summary = make_summary(slow_steps=steps)
    assert one(summary, "blocking-call").cost_ms == pytest.approx(300.0 + 600.0)
    assert one(summary, "cpu-bound-step").cost_ms == pytest.approx(100.0 + 200.0)


@pytest.mark.parametrize(("cpu_ms", "code"), [(100.0, "blocking-call"), (500.0, "cpu-bound-step")])
def test_one_line_is_one_finding_with_what_it_did_most_of_the_time_first(cpu_ms: float, code: str) -> None:
    steps = (make_slow(ms=300.0), make_slow(ms=cpu_ms, cause="cpu", cpu_share=1.0))
    summary = make_summary(make_operation("resize", busy=20.0), slow_steps=steps)
    assert codes_of(summary) == {code}
    finding = one(summary, code)
    first, second = ("blocked", "computing") if code == "blocking-call" else ("computing", "blocked")
    assert f"% {first}, " in finding.sentence and f"% {second}" in finding.sentence
    assert finding.cost_ms == pytest.approx(300.0 + cpu_ms)
    told = str(finding.evidence["causes"])
    assert sum(int(share.rstrip("%")) for share in told.replace(",", "").split()[1::2]) == 100


@pytest.mark.parametrize("cause", ["blocking-call", "cpu"])
@pytest.mark.parametrize(
    ("library", "wanted"),
    [
        ("subprocess.run", "anyio.run_process"),
        ("subprocess.Popen.__init__", "anyio.run_process"),
        ("httpx._client.AsyncClient.__init__", "share it among calls"),
        ("httpx._client.__init__", "share it among calls"),
        ("ssl.create_default_context", "share it among calls"),
        ("httpx2._config.create_ssl_context", "share it among calls"),
        ("botocore.session.Session.__init__", "share it among calls"),
    ],
)
def test_a_program_and_a_client_are_not_told_to_go_into_a_pool(cause: Any, library: str, wanted: str) -> None:
    step = make_slow(cause=cause, library=library)
    (finding,) = findings_of(make_summary(slow_steps=(step,)))
    assert wanted in finding.advice
    assert "process pool" not in finding.advice and "plain `def`" not in finding.advice


def test_a_tool_that_blocks_in_a_function_it_calls_is_not_told_to_become_a_plain_def() -> None:
    finding = one(make_summary(slow_steps=(make_slow(function="load"),)), "blocking-call")
    assert finding.advice == (
        "It blocks in `load`: where `resize` calls that, wrap the call in `await anyio.to_thread.run_sync(...)`."
    )


# --- what clients waited ------------------------------------------------------------------------------


def test_no_finding_explains_more_than_clients_waited() -> None:
    operation = make_operation("resize", count=10, busy=30.0)
    summary = make_summary(operation, slow_steps=(make_slow(ms=412.0),))
    assert clients_waited_ms(summary) == 300.0
    assert one(summary, "blocking-call").cost_ms == 300.0


def test_what_clients_waited_is_not_known_without_the_time_of_a_request() -> None:
    assert clients_waited_ms(make_summary(make_operation("note", kind="notification", busy=3.0))) is None
    assert clients_waited_ms(make_summary()) is None


def test_nobody_waits_for_work_of_no_request_itself() -> None:
    step = make_slow(LOOP_OPERATION, 130.0, victims=5, victim_ms=740.0)
    summary = make_summary(make_operation(busy=10.0), slow_steps=(step,), busy_ms=1_130.0)
    assert one(summary, "blocking-call").cost_ms == pytest.approx(740.0)


def test_parallel_awaits_of_a_call_explain_no_more_than_the_call() -> None:
    summary = FAULTS["serial-handler"]
    row = replace(summary.operations[0].awaits[0], total_ms=9_000.0)
    summary = replace(summary, operations=(replace(summary.operations[0], awaits=(row,)), make_operation(busy=90.0)))
    finding = one(summary, "serial-handler")
    assert finding.evidence["waited_ms"] == 9_000.0
    assert finding.cost_ms == pytest.approx(4_900.0)


def test_findings_of_one_severity_and_the_verdict_stand_by_what_they_explain() -> None:
    steps = (make_slow("a", 60.0, line=1), make_slow("b", 400.0, line=2), make_slow("c", 200.0, "cpu", line=3))
    summary = make_summary(make_operation(awaiting=100.0), slow_steps=steps)
    findings = findings_of(summary)
    assert [finding.subject for finding in findings] == ["b", "c", "a"]
    assert verdict_of(summary, findings).subject == "b"


def test_waiting_for_the_many_short_steps_of_a_tool_is_not_blamed_on_a_single_slow_one() -> None:
    operation = make_operation("resize", count=1_000, busy=2.0)
    step = make_slow(ms=20.0, victims=71, victim_ms=500.0)
    finding = one(make_summary(operation, slow_steps=(step,)), "blocking-call")
    assert finding.severity == "info"
    assert finding.sentence.endswith(
        "; 71 other requests waited 500 ms in all for its steps, most of which are shorter."
    )
    assert finding.cost_ms == pytest.approx(20.0 + 500.0 * 20.0 / 2_000.0)


def test_work_of_no_request_is_named_where_requests_waited_for_its_slow_steps() -> None:
    step = make_slow(LOOP_OPERATION, 130.0, victims=145, victim_ms=740.0)
    summary = make_summary(make_operation(busy=1.0), slow_steps=(step,), busy_ms=300.0)
    finding = one(summary, "blocking-call")
    assert finding.severity == "critical"
    assert finding.sentence.startswith(
        "Background work (start-up, a task of the server's own, the transport) blocked the event loop for 130 ms"
    )


@pytest.mark.parametrize(
    ("sdk", "version", "threads"),
    [
        ("mcp", "2.3.0", True),
        ("mcp", "1.30.0", False),
        ("fastmcp", "4.1.0", True),
        ("fastmcp", "3.4.10", True),
        ("fastmcp", "2.14.7", False),
        ("mcp", "unknown", None),
    ],
)
def test_advice_is_true_of_the_sdk_in_use(sdk: str, version: str, threads: bool | None) -> None:
    summary = with_server(make_summary(slow_steps=(make_slow(),)), sdk, version)
    advice = one(summary, "blocking-call").advice
    assert ("plain `def` (" in advice) is (threads is True)
    assert (f"{sdk} {version} runs a plain `def` tool on the event loop" in advice) is (threads is False)
    assert "anyio.to_thread.run_sync" in advice


def test_only_what_a_user_can_decorate_is_told_to_become_a_plain_def() -> None:
    operations = (
        make_operation("tools/list", method="tools/list"),
        make_operation("profiled", method="profiled", kind="function"),
    )
    for name in ("tools/list", "profiled", LOOP_OPERATION):
        step = make_slow(name, victims=1, victim_ms=3.0)
        advice = one(make_summary(*operations, slow_steps=(step,), busy_ms=500.0), "blocking-call").advice
        assert "plain `def`" not in advice and "run_sync" in advice


@pytest.mark.parametrize(
    ("sdk", "version", "begins"),
    [
        ("mcp", "2.3.0", "In the tool, wrap the call in `await anyio.to_thread.run_sync(..., limiter=LIMITER)`"),
        ("mcp", "1.30.0", "mcp 1.30.0 runs a plain `def` tool on the event loop: make it an `async def` and wrap"),
        ("mcp", "unknown", "Make it an `async def` and wrap the call in"),
    ],
)
@pytest.mark.parametrize("code", ["executor-saturated", "transport-starvation"])
def test_a_default_limiter_that_is_full_gets_no_more_jobs(code: str, sdk: str, version: str, begins: str) -> None:
    summary = with_server(replace(FAULTS[code], slow_steps=(make_slow(),)), sdk, version)
    advice = one(summary, "blocking-call").advice
    assert advice.startswith(begins) and "`anyio.CapacityLimiter` of its own" in advice
    assert "run_sync(...)`" not in advice and "Make the tool a plain" not in advice
    (pool,) = summary.executors
    other = replace(summary, executors=(replace(pool, name="reports"),))
    assert "limiter=" not in one(other, "blocking-call").advice, "another pool is none of its business"


# --- head of line and crowding ----------------------------------------------------------------------


def test_victims_of_one_blocker_are_one_finding_on_the_one_that_lost_most() -> None:
    operations = [
        make_operation(name, p95=200.0, waited_for_others_p95_share=0.6) for name in ("fetch", "lookup", "render")
    ]
    lost = {"fetch": 100.0, "lookup": 14_900.0, "render": 50.0}
    rows = [make_blocked(name, "resize", ms) for name, ms in lost.items()]
    summary = make_summary(*operations, blocked_by=tuple(rows), slow_steps=(make_slow(),))
    finding = one(summary, "head-of-line")
    assert finding.subject == "lookup"
    assert finding.sentence == (
        "`lookup` spent 60% of its p95 of 200 ms waiting for other requests, mostly for `resize` (15 s in all); "
        "so did `fetch` and `render`."
    )
    assert "finding of `resize`" in finding.advice
    assert finding.evidence["victim_operations"] == 3


def test_a_bounded_wait_is_at_least_its_lower_end() -> None:
    victim = make_operation("lookup", p95=200.0, waited_for_others_p95_share=0.6)
    row = make_blocked("lookup", "resize", 900.0, hi_ms=1_200.0, quality="bounded")
    finding = one(make_summary(victim, blocked_by=(row,)), "head-of-line")
    assert "(at least 900 ms in all)" in finding.sentence
    assert finding.evidence["matrix"] == "lookup waited at least 900 ms for resize"


def test_waiting_behind_steps_that_are_not_slow_is_information() -> None:
    victim = make_operation("lookup", p95=200.0, waited_for_others_p95_share=0.6)
    finding = one(make_summary(victim, blocked_by=(make_blocked("lookup", "lookup", 900.0),)), "head-of-line")
    assert finding.severity == "info"
    assert "mostly for other calls of `lookup`" in finding.sentence
    assert "bursts" in finding.advice


def test_waiting_for_a_tool_that_the_host_made_slow_is_not_blamed_on_its_code() -> None:
    summary = FAULTS["head-of-line"]
    stretched = replace(summary, slow_steps=(make_slow(cause="run-queue"),))
    assert "it was not its own code" in one(stretched, "head-of-line").advice


def test_one_slow_step_among_thousands_of_short_ones_does_not_hide_crowding() -> None:
    crowded = replace(FAULTS["crowding"].operations[0], waited_for_others_p95_share=0.3)
    rows = (make_blocked("add", "add", 3_000.0), CROWDING_ROW)
    summary = make_summary(crowded, utilization=0.95, blocked_by=rows, slow_steps=(make_slow("add", 12.0, "cpu"),))
    assert {"crowding"} <= codes_of(summary)
    assert "head-of-line" not in codes_of(summary)


def test_crowding_without_its_share_of_p95_is_estimated_from_the_means() -> None:
    operation = replace(FAULTS["crowding"].operations[0], crowding_p95_share=None)
    finding = one(make_summary(operation, utilization=0.95), "crowding")
    assert finding.confidence == "estimate"
    assert finding.evidence["waited_p95_share"] == pytest.approx(2.5 / 5.0)


# --- runtime ----------------------------------------------------------------------------------------


def test_a_step_that_waited_for_a_cpu_is_not_blamed_on_its_tool() -> None:
    summary = make_summary(slow_steps=(make_slow("add", 80.0, "run-queue", cpu_share=0.1),), run_queue_ms=150.0)
    (finding,) = findings_of(summary)
    assert finding.code == "host-pressure"
    assert "stretched a step of `add`, to 80 ms" in finding.sentence
    assert finding.evidence["step_tool"] == "add"


def test_the_host_is_a_caveat_where_a_step_is_slow_without_it() -> None:
    """The host took 10 s and the step 2 x 30 ms: the step is the verdict all the same, judged without the wait."""
    stretched = make_slow(ms=130.0, count=2, own_ms=30.0, own_total_ms=60.0, own_p50_ms=30.0, run_queue_ms=200.0)
    summary = make_summary(slow_steps=(stretched,), run_queue_ms=20_000.0, busy_ms=20_000.0, loop_cpu_ms=8_000.0)
    found = findings_of(summary)
    assert [finding.code for finding in found] == ["host-pressure", "blocking-call"]
    assert found[1].severity == "warn", "30 ms, not 130"
    assert "up to 30 ms (2 times, at server.py:41, without 200 ms in which it had no CPU)" in found[1].sentence
    assert verdict_of(summary, found).code == "blocking-call"
    alone = replace(summary, slow_steps=())
    assert verdict_of(alone, findings_of(alone)).code == "host-pressure"


def test_the_host_comes_after_a_wait_without_a_name() -> None:
    summary = replace(ALSO_FAULTS["host-pressure", "costly"], operations=FAULTS["unexplained-wait"].operations)
    assert verdict_of(summary, findings_of(summary)).code == "unexplained-wait"


def test_threads_of_its_own_are_named_with_what_ran_in_them() -> None:
    finding = one(ALSO_FAULTS["own-threads", "of a pool"], "own-threads")
    assert finding.severity == "warn"
    assert "they used 0.4 of its 0.5 CPUs, mostly `render` in `anyio default limiter`" in finding.sentence


def test_gil_contention_names_the_pool_that_used_most_cpu() -> None:
    pools = (make_pool("small", cpu_ms=10.0, holders=("add",)), make_pool("large", cpu_ms=900.0, holders=("render",)))
    summary = make_summary(gil_wait_ms=400.0, other_threads_cpu_ms=1_000.0, executors=pools)
    finding = one(summary, "gil-contention")
    assert "they used 1.0 s of CPU, mostly `render` in `large`" in finding.sentence
    assert finding.confidence == "estimate"


def test_waits_for_the_gil_that_cost_little_of_the_run_accuse_nobody() -> None:
    """A server that does next to nothing while its calls wait: 300 ms as it starts are most of its busy time."""

    def found(gil_wait_ms: float, mean_ms: float) -> str:
        waiting = make_operation(awaiting=mean_ms)
        return one(make_summary(waiting, gil_wait_ms=gil_wait_ms, busy_ms=800.0), "gil-contention").severity

    assert found(300.0, mean_ms=100.0) == "info"
    assert found(300.0, mean_ms=50.0) == "warn", "6 % of what clients waited"
    assert found(600.0, mean_ms=500.0) == "warn", "6 % of the window"


def test_a_rare_pause_of_the_collector_is_information() -> None:
    rare = ALSO_FAULTS["gc-pause", "one request only"]
    assert one(rare, "gc-pause").severity == "info"
    often = replace(rare, signals=replace(rare.signals, gc_pause_ms=500.0))
    assert one(often, "gc-pause").severity == "warn"


def test_a_busy_machine_that_cost_little_of_the_run_is_information_and_the_server_healthy() -> None:
    summary = FAULTS["host-pressure"]
    found = one(summary, "host-pressure")
    assert found.severity == "info"
    assert found.advice.endswith("It cost little of this run.")
    assert verdict_of(summary, findings_of(summary)).code == "healthy"
    much = one(ALSO_FAULTS["host-pressure", "costly"], "host-pressure")
    assert much.severity == "warn"
    assert "do not judge its times by this run" in much.advice


def test_modules_imported_in_first_calls_are_told_once_and_not_as_computing() -> None:
    """An import computes and reads files: what helps against either does not help here."""
    steps = (
        make_slow("plot", 300.0, "cpu", library="import of matplotlib"),
        make_slow("table", 80.0, "blocking-call", library="import of pandas"),
        make_slow("table", 20.0, "cpu", cpu_share=0.98, line=7),
    )
    summary = make_summary(slow_steps=steps)
    [imports, computing] = sorted(findings_of(summary), key=lambda finding: -finding.cost_ms)
    assert imports.sentence == (
        "The first call of `plot` held the event loop for 300 ms: import of `matplotlib` (server.py:41); "
        "so did 1 more import."
    )
    assert [(place.what, place.ms) for place in imports.places] == [
        ("first call of `plot`: import of `matplotlib`", 300.0),
        ("first call of `table`: import of `pandas`", 80.0),
    ]
    assert (imports.code, imports.severity, imports.subject) == ("cpu-bound-step", "warn", "plot")
    assert "process pool" not in imports.advice and "when the server starts" in imports.advice
    assert (computing.code, computing.subject, computing.evidence["max_ms"]) == ("cpu-bound-step", "table", 20.0)
    short = make_summary(slow_steps=(make_slow("plot", 99.0, "cpu", library="import of sniffio"),))
    assert one(short, "cpu-bound-step").severity == "info", "below a cold start's 100 ms"


def test_short_steps_of_unknown_cause_accuse_a_tool_only_if_others_waited_for_them() -> None:
    """On a busy machine a program that is started waits for a CPU, and nobody sees it."""
    steps = (make_slow("run", 25.0, "unknown", count=8), make_slow("run", 9.0, "cpu", count=100, line=7))
    run = make_operation("run", count=60, busy=30.0)
    assert one(make_summary(run, slow_steps=steps), "blocking-call").severity == "info"
    blocked = replace(steps[0], cause="blocking-call")
    assert one(make_summary(run, slow_steps=(blocked, *steps[1:])), "blocking-call").severity == "warn"
    certain = replace(steps[0], ms=50.0)
    assert one(make_summary(run, slow_steps=(certain, *steps[1:])), "blocking-call").severity == "critical"


def test_what_waited_unseen_before_its_handler_began_is_not_denied() -> None:
    """mcp 1.x shows a request only once its handler runs."""
    seen = make_summary(slow_steps=(make_slow(),))
    assert one(seen, "blocking-call").sentence.endswith("and held up no other request.")
    unseen = make_summary(make_operation(queue_transport=None, unseen=("queue",)), slow_steps=(make_slow(),))
    assert one(unseen, "blocking-call").sentence.endswith(
        "; it cannot be seen here whether others waited for it before they were handled."
    )


def test_victims_of_a_tool_with_steps_of_several_causes_are_not_all_put_on_one_of_them() -> None:
    steps = (make_slow(ms=400.0), make_slow(ms=60.0, cause="cpu", count=3, line=7))
    summary = make_summary(slow_steps=steps, blocked_by=(make_blocked("add", "resize", 500.0, 9),))
    assert one(summary, "blocking-call").sentence.endswith(
        "; with 3 other slow steps it made 9 other requests wait 500 ms in all, 56 ms each on average."
    )


def test_a_library_below_the_servers_own_line_is_named() -> None:
    summary = make_summary(slow_steps=(make_slow(function="load", library="PIL.Image.Image.save"),))
    finding = one(summary, "blocking-call")
    assert "at server.py:41 in `load` calling `PIL.Image.Image.save`" in finding.sentence
    assert finding.evidence["library"] == "PIL.Image.Image.save"


def test_a_step_in_the_sdks_own_code_is_not_said_to_be_a_task_of_the_server() -> None:
    file = "/srv/venv/lib/python3.13/site-packages/anyio/_backends/_asyncio.py"
    step = make_slow(LOOP_OPERATION, 60.0, file=file, library="threading.Thread.start")
    rows = (make_blocked("add", LOOP_OPERATION, 50.0),)
    summary = make_summary(slow_steps=(step,), blocked_by=rows, busy_ms=100.0)
    assert one(summary, "blocking-call").advice.startswith("It stands in `anyio`, not in the server's own code")


# --- pools ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_what_is_no_request_may_be_another_route_over_http_only(transport: str) -> None:
    rows = (make_blocked("add", LOOP_OPERATION, 300.0),)
    summary = make_summary(slow_steps=(make_slow(LOOP_OPERATION, 300.0),), blocked_by=rows, busy_ms=400.0)
    advice = one(replace(summary, server=replace(summary.server, transport=transport)), "blocking-call").advice
    assert ("another route of its app" in advice) is (transport == "http")
    assert "no request of MCP" in advice and "run_sync" in advice


@pytest.mark.parametrize(
    ("pool", "how"),
    [
        ({}, "total_tokens = 53"),
        ({"tokens_needed": 12.0}, "Raise the limit to 62 (the most that came at once)"),
        ({"name": "asyncio default executor"}, "ThreadPoolExecutor(53)"),
        ({"name": "CapacityLimiter(40)", "made_at": "/srv/app/pools.py:8"}, "first used at pools.py:8"),
        ({"cpu_ms": 500.0}, "under the GIL"),
    ],
)
def test_advice_for_a_full_pool_says_how_many_and_where(pool: dict[str, Any], how: str) -> None:
    full = replace(FAULTS["executor-saturated"].executors[0], **pool)
    assert how in one(make_summary(executors=(full,)), "executor-saturated").advice


def test_a_pool_that_was_full_on_a_machine_without_cpu_is_given_cpu_first_unless_the_load_needs_more_threads() -> None:
    pool = FAULTS["executor-saturated"].executors[0]
    for needed, is_cpu in ((12.0, True), (52.1, False)):
        summary = make_summary(executors=(replace(pool, tokens_needed=needed),), run_queue_ms=600.0)
        advice = one(summary, "executor-saturated").advice
        assert advice.startswith("First give the server more CPU") is is_cpu
        assert "Raise the limit to " in advice


def test_a_full_pool_and_a_starved_transport_get_the_same_number() -> None:
    """One that the transport shares, in a run with 64 requests outstanding: whatever its longest wait was."""
    pool = replace(FAULTS["executor-saturated"].executors[0], tokens_needed=12.0, transport_jobs=900)
    outstanding = Outstanding(64, 0.0, 1)
    full = one(make_summary(executors=(pool,), outstanding=outstanding), "executor-saturated")
    assert "Raise the limit to 66 (the most that came at once, and two for the transport)" in full.advice
    starved = replace(pool, transport_wait_max_ms=51.0)
    found = one(make_summary(executors=(starved,), outstanding=outstanding), "transport-starvation")
    assert "total_tokens = 66`" in found.advice


def test_a_full_pool_shows_its_waves() -> None:
    full = make_pool(
        "CapacityLimiter(2)",
        max=2.0,
        active_peak=2,
        pending_peak=4,
        wait_ms=WaitPercentiles(100.0, 200.0),
        at_limit_share=0.5,
    )
    finding = one(make_summary(executors=(full,)), "executor-saturated")
    assert "limit of 2 for 50% of the time" in finding.sentence
    assert (
        "100 ms at the median and 200 ms at p99 for a thread, up to 4 at once, the last after 2 rounds of other jobs"
        in finding.sentence
    )


@pytest.mark.parametrize(
    ("jobs", "told"),
    [("threads make clients", "client-per-request"), ("threads compute something else", "executor-saturated")],
)
def test_a_pool_that_is_full_of_jobs_that_make_clients_follows_from_them(jobs: str, told: str) -> None:
    summary = ALSO_FAULTS["client-per-request", jobs]
    pool = replace(FAULTS["executor-saturated"].executors[0], holders=("buy",))
    both = replace(summary, executors=(pool,))
    assert verdict_of(both, findings_of(both)).code == told


def test_starvation_of_the_transport_outranks_the_full_pool_that_caused_it() -> None:
    pool = replace(FAULTS["transport-starvation"].executors[0], wait_total_ms=90_000.0)
    findings = findings_of(make_summary(executors=(pool,)))
    verdict = verdict_of(make_summary(), findings)
    assert [finding.code for finding in findings] == ["transport-starvation", "executor-saturated"]
    assert verdict.code == "transport-starvation"
    assert "`render` held its 40 threads" in verdict.sentence
    assert "the transport's reader and writer queued among them" in findings[1].sentence
    assert findings[1].advice.startswith("See transport-starvation")


def test_another_pool_that_is_full_keeps_its_own_verdict() -> None:
    other = make_pool("own", wait_ms=WaitPercentiles(90.0, 900.0), at_limit_share=0.9, wait_total_ms=90_000.0)
    summary = make_summary(executors=(*FAULTS["transport-starvation"].executors, other))
    verdict = verdict_of(summary, findings_of(summary))
    assert (verdict.code, verdict.subject) == ("executor-saturated", "own")


def test_starvation_costs_its_share_of_what_requests_spent_at_the_transport_and_at_least_its_own_wait() -> None:
    pool = replace(FAULTS["transport-starvation"].executors[0], transport_wait_ms=1_000.0, wait_total_ms=0.0)
    for write_wait, expected in ((0.0, 1_000.0), (50.0, 1_000.0), (500.0, 5_000.0)):
        operation = make_operation(count=100, write_wait=write_wait)
        summary = make_summary(operation, executors=(pool,), outstanding=Outstanding(60, 0.0, 20))
        assert one(summary, "transport-starvation").cost_ms == pytest.approx(expected)


# --- the other end ----------------------------------------------------------------------------------


def test_a_serial_client_is_told_what_several_in_flight_would_give() -> None:
    finding = one(FAULTS["serial-client"], "serial-client")
    assert "with 10 in flight it would be about 6.9 times as fast" in finding.sentence
    assert finding.severity == "info"
    assert finding.cost_ms == pytest.approx(10_000.0 * (1 - (0.05 + 0.095)))


def test_a_slow_reader_shows_size_and_share() -> None:
    finding = one(FAULTS["slow-reader"], "slow-reader")
    assert "answers of `export` needed 51 ms at p95 to be taken (largest 910 kB, 75% of its time)" in finding.sentence


@pytest.mark.parametrize(("case", "severity"), [("nine answers", "info"), ("ten answers", "warn")])
def test_a_few_answers_that_were_long_on_their_way_are_no_verdict(case: str, severity: str) -> None:
    assert one(ALSO_FAULTS["slow-reader", case], "slow-reader").severity == severity


def test_what_the_sdk_computes_to_write_a_large_result_is_that_results_fault() -> None:
    large = make_operation("export", response_bytes_max=3_000_000, busy=5.0)
    encoding = make_slow(LOOP_OPERATION, 40.0, "cpu", count=20, file="/env/lib/site-packages/sse_starlette/event.py")
    waited = (make_blocked("export", LOOP_OPERATION, 800.0),)
    for row, step, code in (
        (large, encoding, "large-payload"),
        (replace(large, response_bytes_max=3_000), encoding, "cpu-bound-step"),
        (large, replace(encoding, file="/srv/app/server.py"), "cpu-bound-step"),
    ):
        summary = make_summary(row, slow_steps=(step,), blocked_by=waited)
        assert verdict_of(summary, findings_of(summary)).code == code


def test_a_result_that_is_too_large_comes_before_the_client_that_takes_long_to_read_it() -> None:
    unread = FAULTS["slow-reader"].operations[0]
    for size, code in ((910_000, "slow-reader"), (1_910_000, "large-payload")):
        summary = make_summary(replace(unread, response_bytes_max=size))
        assert "slow-reader" in codes_of(summary)
        assert verdict_of(summary, findings_of(summary)).code == code


@pytest.mark.parametrize(("waited_ms", "severity"), [(199.0, "info"), (201.0, "warn")])
def test_a_full_pool_is_as_severe_as_its_share_of_what_clients_waited(waited_ms: float, severity: str) -> None:
    (pool,) = FAULTS["executor-saturated"].executors
    calls = make_operation("score", count=100, busy=40.0)  # 4 s in all
    summary = make_summary(calls, executors=(replace(pool, wait_total_ms=waited_ms),))
    assert one(summary, "executor-saturated").severity == severity
    starved = replace(pool, wait_total_ms=waited_ms, transport_wait_max_ms=60.0)
    assert one(make_summary(calls, executors=(starved,)), "executor-saturated").severity == "warn"


# --- order and verdict ------------------------------------------------------------------------------


def test_findings_come_by_time_lost_and_information_last() -> None:
    steps = (
        make_slow("minor", 12.0, total_ms=5_000.0, count=400),
        make_slow("worst", 300.0, count=30),
        make_slow("bad", 300.0),
        make_slow("tiny", 12.0),
    )
    found = findings_of(make_summary(slow_steps=steps))
    assert [finding.subject for finding in found] == ["worst", "minor", "bad", "tiny"]


def test_the_verdict_is_the_finding_that_explains_most_time_not_the_most_severe() -> None:
    steps = (make_slow("rare", 300.0), make_slow("often", 12.0, count=400))
    summary = make_summary(slow_steps=steps)
    findings = findings_of(summary)
    verdict = verdict_of(summary, findings)
    assert [(each.subject, each.severity) for each in findings] == [("often", "warn"), ("rare", "critical")]
    assert (verdict.code, verdict.subject) == ("blocking-call", "often")
    assert verdict.sentence in {finding.sentence for finding in findings}


def test_waiting_is_no_verdict_beside_the_finding_of_its_blocker() -> None:
    victim = make_operation("lookup", p95=200.0, waited_for_others_p95_share=0.6)
    rows = (make_blocked("lookup", "resize", 3_000.0), make_blocked("lookup", "score", 2_900.0))
    summary = make_summary(victim, blocked_by=rows, slow_steps=(make_slow(ms=20.0, count=2),))
    findings = findings_of(summary)
    assert {finding.code for finding in findings} == {"blocking-call", "head-of-line"}
    assert verdict_of(summary, findings).code == "blocking-call"
    alone = findings_of(summary, FindingOptions(disabled=frozenset({"blocking-call"})))
    assert verdict_of(summary, alone).code == "head-of-line"


def test_information_is_never_the_verdict() -> None:
    summary = FAULTS["serial-client"]
    verdict = verdict_of(summary, findings_of(summary))
    assert verdict.code == "healthy"
    assert verdict.sentence == (
        "Healthy: 100 requests in 10 s, and nothing held them up for long; the event loop was busy 10% of the time."
    )


def test_too_few_requests_are_the_verdict_unless_something_certain_was_found() -> None:
    quiet = make_summary(count=5, seconds=0.5)
    assert verdict_of(quiet, findings_of(quiet)).code == "not-enough-data"
    blocked = ALSO_FAULTS["blocking-call", "certain, in five calls"]
    assert codes_of(blocked) == {"blocking-call", "not-enough-data"}
    assert verdict_of(blocked, findings_of(blocked)).code == "blocking-call"


def test_findings_do_not_depend_on_those_already_in_the_summary() -> None:
    summary = FAULTS["head-of-line"]
    found = findings_of(summary)
    again = replace(summary, findings=found, verdict=verdict_of(summary, found))
    assert findings_of(again) == found


def test_an_executor_check_without_default_options_takes_those_given() -> None:
    options = FindingOptions(at_limit_share=0.07)
    assert list(executor_saturated(FAULTS["executor-saturated"], options)) == []


# --- any summary ------------------------------------------------------------------------------------

NAMES = st.sampled_from(["add", "resize", "", "a`b", LOOP_OPERATION, CROWDING_OPERATION, "other"])
MS = st.one_of(st.just(0.0), st.floats(0, 1e12, allow_nan=False), st.sampled_from([9.9, 10.0, 50.0, 51.0, 1e9]))
MAYBE_MS = st.none() | MS
SHARE = st.floats(0, 1, allow_nan=False)
MAYBE_SHARE = st.none() | SHARE
COUNT = st.integers(0, 10**9)
TAGS = st.sampled_from(["exact", "bounded", "lower", "upper", "estimate", "unavailable"])
FILES = st.none() | st.sampled_from(["", "/a/b.py", "C:\\x\\y.py", "<string>"])

KINDS = st.sampled_from([
    "lock", "semaphore", "queue", "connection-pool", "connect", "http", "db", "sleep", "other",
])  # fmt: skip
OBJECTS = st.sampled_from(["", "a", "https://x:1"])
LINES = st.none() | st.sampled_from(["", "x", "/a/b.py:8", ":8"])
HOLDERS = st.builds(AwaitHolder, st.sampled_from(["add", BACKGROUND_OPERATION, UNKNOWN_HOLDER]), LINES, MS, COUNT, TAGS)
AWAITS = st.builds(
    lambda kind, name, where, total, times, counts, holders, root, tag, limit, share, phase: AwaitSummary(
        kind, name, where, counts[0], total, times[0], tuple(holders), tuple(root), tag, times[1], times[2],
        phase=phase, calls=counts[1], opened=counts[2], limit=limit, pending_peak=counts[3], p95_share=share,
    ),
    KINDS, OBJECTS, LINES, MS, st.tuples(*[MAYBE_MS] * 3), st.tuples(*[COUNT] * 4), st.lists(HOLDERS, max_size=2),
    st.lists(st.builds(AwaitRoot, KINDS | st.just("blocked"), NAMES, LINES, MS), max_size=2), TAGS, st.none() | COUNT,
    MAYBE_SHARE, st.sampled_from([None, "first-byte", "body"]),
)  # fmt: skip
SERIAL = st.builds(
    lambda kind, name, where, calls, awaits, waited, share, tag: SerialAwaits(
        kind, name, where, "awaiting", calls, calls * awaits, waited, waited * share, tag
    ),
    KINDS, OBJECTS, LINES, st.integers(1, 10**6), st.integers(2, 100), MS, SHARE, TAGS,
)  # fmt: skip
LEVELS = st.lists(st.builds(LoadLevel, COUNT, COUNT, COUNT, MS), max_size=3)
LOADS = st.builds(
    lambda operation, kind, name, mean, levels: AwaitLoad(operation, kind, name, mean, tuple(levels)),
    NAMES, KINDS, OBJECTS, st.floats(0, 1e6, allow_nan=False), LEVELS,
)  # fmt: skip

OPERATIONS = st.builds(
    lambda name, method, kind, quality, totals, parts, shares, count, awaits, serial: replace(
        make_operation(name),
        method=method,
        kind=kind,
        count=count,
        quality=quality,
        total_ms=Percentiles(*totals),
        budget_ms=BudgetMeans(*parts),
        waited_for_others_p95_share=shares[0],
        crowding_p95_share=shares[1],
        waited_for_others_ms=totals[0] or 0.0,
        crowding_ms=totals[1] or 0.0,
        write_flush_p95_ms=totals[2],
        response_bytes_max=count or None,
        awaits=tuple(awaits),
        awaits_unnamed_ms=totals[3],
        awaits_unnamed_p95_share=shares[1],
        serial_awaits=tuple(serial),
    ),
    NAMES,
    st.sampled_from(["tools/call", "prompts/get", "ping"]),
    st.sampled_from(["request", "notification", "function"]),
    st.dictionaries(st.sampled_from(["write_flush", "crowding_ms"]), st.builds(Quality, TAGS)),
    st.tuples(*[MAYBE_MS] * 4),
    st.tuples(*[MAYBE_MS] * len(BUDGET_PARTS)),
    st.tuples(MAYBE_SHARE, MAYBE_SHARE),
    COUNT,
    st.lists(AWAITS, max_size=4),
    st.lists(SERIAL, max_size=2),
)
STEPS = st.builds(
    lambda *values: replace(
        make_slow(),
        **dict(
            zip(
                ("tool", "ms", "cause", "file", "line", "function", "quality", "count", "total_ms", "cpu_share",
                 "running", "victims", "victim_ms", "p50_ms"),
                values,
                strict=True,
            )
        ),
    ),
    NAMES, MS, st.sampled_from(["blocking-call", "cpu", "gil", "run-queue", "gc", "unknown"]), FILES,
    st.none() | COUNT, FILES, TAGS, COUNT, MS, MAYBE_SHARE, st.booleans(), COUNT, MS, MS,
)  # fmt: skip
ROWS = st.builds(
    lambda victim, blocker, n, lo, more, tag: make_blocked(victim, blocker, lo, n, hi_ms=lo + more, quality=tag),
    NAMES, NAMES, COUNT, MS, MS, TAGS,
)  # fmt: skip
POOLS = st.builds(
    lambda name, made_at, limit, counts, times, shares, holders: replace(
        make_pool(name),
        made_at=made_at,
        max=limit,
        borrowed_peak=counts[0],
        active_peak=counts[1],
        pending_peak=counts[2],
        jobs=counts[3],
        wait_ms=WaitPercentiles(times[0], times[1]),
        wait_max_ms=times[2],
        run_ms=times[3],
        tokens_needed=times[4],
        cpu_ms=times[5],
        wait_total_ms=times[6],
        transport_wait_max_ms=times[7] or 0.0,
        transport_wait_ms=times[8] or 0.0,
        at_limit_share=shares,
        holders=tuple(holders),
    ),
    st.sampled_from(["anyio default limiter", "asyncio default executor", "own", ""]),
    st.none() | st.sampled_from(["", "x", "/a/b.py:8", "/a/b.py:", ":8"]),
    st.none() | st.sampled_from([0.0, 0.5, 1.0, 40.0]),
    st.tuples(*[COUNT] * 4),
    st.tuples(*[MAYBE_MS] * 9),
    SHARE,
    st.lists(NAMES, max_size=5),
)
INTEGERS = ("max_in_flight", "serial_gaps")
CERTAIN = ("gc_pause_ms", "gc_worst_second_ms", "gc_max_pause_ms", "busy_ms")
SHARES = ("serial_awaiting_share", "gc_worst_request_share")
SIGNALS = st.fixed_dictionaries(
    {
        field.name: COUNT
        if field.name in INTEGERS
        else MS
        if field.name in CERTAIN
        else MAYBE_SHARE
        if field.name in SHARES
        else st.none() | COUNT
        if field.name in ("gc_max_generation", "rss_bytes_max")
        else st.sampled_from([None, "", "/srv/app/server.py:41", "odd"])
        if field.name == "stdout_foreign_at"
        else COUNT
        if field.name == "stdout_foreign_bytes"
        else st.booleans()
        if field.name == "stdout_is_wire"
        else MAYBE_MS
        for field in fields(Signals)
    }
)
SERVERS = st.builds(
    ServerInfo,
    st.just("shop"),
    st.sampled_from(["mcp", "fastmcp", "unknown"]),
    st.sampled_from(["2.3.0", "1.30.0", "", "unknown", "²", "v3"]),
    *[st.just("unknown")] * 3,
)
SUMMARIES = st.builds(
    lambda server, operations, steps, rows, pools, signals, count, seconds, utilization, peak, loads: make_summary(
        *operations,
        server=server,
        await_loads=tuple(loads),
        slow_steps=tuple(steps),
        blocked_by=tuple(rows),
        executors=tuple(pools),
        count=count,
        seconds=seconds,
        utilization=utilization,
        outstanding=Outstanding(peak, None, peak),
        **signals,
    ),
    SERVERS,
    st.lists(OPERATIONS, max_size=4),
    st.lists(STEPS, max_size=5),
    st.lists(ROWS, max_size=5),
    st.lists(POOLS, max_size=3),
    SIGNALS,
    COUNT,
    st.floats(0, 1e9, allow_nan=False),
    MAYBE_SHARE,
    COUNT,
    st.lists(LOADS, max_size=3),
)


@given(SUMMARIES)
@settings(max_examples=150, deadline=None)
def test_no_summary_is_too_odd_to_judge(summary: Summary) -> None:
    findings = findings_of(summary)
    verdict = verdict_of(summary, findings)
    assert verdict.sentence.endswith(".")
    assert verdict.code in {"healthy", *(finding.code for finding in findings)}
    order = [(finding.severity == "info", -finding.cost_ms) for finding in findings]
    assert order == sorted(order)
    for finding in findings:
        assert finding.code in CODES
        assert finding.cost_ms >= 0
        assert (whole := clients_waited_ms(summary)) is None or finding.cost_ms <= whole
        assert "None" not in (text := finding.sentence + finding.advice), text
        assert json.loads(json.dumps(finding.evidence, allow_nan=False)) == finding.evidence
    assert findings_of(summary, FindingOptions(disabled=frozenset(CODES))) == ()


# --- memory -----------------------------------------------------------------------------------------


def test_a_leak_is_told_with_its_rate_line_and_type_and_is_the_verdict_of_its_hunt() -> None:
    summary = replace(FAULTS["memory-growth"], slow_steps=(make_slow(ms=412.0, count=9),))
    finding = one(summary, "memory-growth")
    assert finding.sentence == (
        "`remember` grows: each call keeps 5 kB, 5 MB in a thousand calls, allocated at server.py:41 in `remember`; "
        "of type `app.Entry` there are 1,000."
    )
    assert (finding.severity, finding.confidence) == ("warn", "exact")
    assert verdict_of(summary, findings_of(summary)).code == "memory-growth"


def test_a_leak_whose_rate_is_a_lower_bound_says_at_least() -> None:
    finding = one(ALSO_FAULTS["memory-growth", "a lower bound, of nobody knows which line"], "memory-growth")
    assert "each call keeps at least 500 B, 500 kB in a thousand calls." in finding.sentence
    assert finding.evidence["how"] == "tracemalloc"
    assert finding.confidence == "lower"


def test_of_several_leaks_the_one_that_keeps_most_a_call_is_the_verdict() -> None:
    hunt = make_hunt(make_growth("small", bytes_per_call=600.0), make_growth("large", bytes_per_call=90_000.0))
    summary = make_summary(leaks=hunt)
    assert verdict_of(summary, findings_of(summary)).subject == "large"


def test_growth_without_a_hunt_is_a_note_that_says_how_to_hunt() -> None:
    summary = ALSO_FAULTS["memory-growth", "no hunt, and the process grows with the calls"]
    finding = one(summary, "memory-growth")
    assert (finding.severity, finding.confidence) == ("info", "estimate")
    assert "--memory leaks" in finding.advice
    assert verdict_of(summary, findings_of(summary)).code == "healthy"


def test_a_peak_that_lies_between_bounds_is_told_by_its_lower_one() -> None:
    finding = one(ALSO_FAULTS["memory-peak", "certainly, though not exactly"], "memory-peak")
    assert "held at least 65 MB at its peak" in finding.sentence
    assert (finding.evidence["peak_bytes"], finding.confidence) == (65_000_000, "bounded")


def test_a_peak_is_told_with_the_line_of_the_look_at_most_of_it() -> None:
    lines = (
        PeakLine("load", "/srv/app/server.py", 7, "load", 9_000_000, 10_000_000),
        PeakLine("load", "/srv/app/server.py", 9, "load", 50_000_000, 60_000_000),
        PeakLine("other", "/srv/app/server.py", 11, "other", 90_000_000, 99_000_000),
    )
    hunted = replace(FAULTS["memory-peak"], leaks=replace(make_hunt(), peaks=lines))
    finding = one(hunted, "memory-peak")
    assert finding.sentence.endswith(
        "Looked at while it held 60 MB, at least 50 MB of that had been allocated at server.py:9 in `load`."
    )
    assert (finding.evidence["file"], finding.evidence["line"]) == ("/srv/app/server.py", 9)
    assert verdict_of(hunted, findings_of(hunted)).code == "memory-peak"


def test_a_peak_whose_line_is_not_known_says_so_and_how_to_get_it() -> None:
    finding = one(FAULTS["memory-peak"], "memory-peak")
    assert finding.sentence.endswith("The line is not known in this tier.")
    assert finding.advice.endswith("`--memory leaks` looks for the line that allocates it.")
    unseen = one(replace(FAULTS["memory-peak"], leaks=make_hunt()), "memory-peak")
    assert unseen.sentence.endswith("The line is not known: the hunt did not look while a call held so much.")
    assert "--memory leaks" not in unseen.advice
    assert (finding.evidence["line"], unseen.evidence["line"]) == (None, None)
    untraced = replace(FAULTS["memory-peak"], leaks=replace(make_hunt(), are_lines_known=False))
    assert one(untraced, "memory-peak").sentence.endswith("The line is not known: nothing was traced.")


def test_a_leak_whose_line_was_not_traced_says_where_it_is_said_why() -> None:
    hunt = make_hunt(make_growth(lines=()))
    traced, untraced = (
        one(make_summary(leaks=replace(hunt, are_lines_known=known)), "memory-growth") for known in (True, False)
    )
    assert untraced.advice == traced.advice + " Its line was not traced: the report's section on leaks says why."


def test_a_hunt_that_finds_no_leak_says_from_where_on_it_would_have_whatever_it_did_to_the_times() -> None:
    slow = replace(
        FAULTS["blocking-call"],
        leaks=make_hunt(
            make_growth("add", verdict="steady", calls=900, floor_bytes=32.0),
            make_growth("get", verdict="steady", calls=100, floor_bytes=256.0),
            make_growth("tools/list", verdict="unknown", calls=1, bytes_per_call=None),
        ),
    )
    found = findings_of(slow)
    verdict = verdict_of(slow, found)
    assert "blocking-call" in {finding.code for finding in found}
    assert (verdict.code, verdict.sentence) == (
        "healthy",
        "No tool leaks in 1,000 calls: none of 2 operations grew by 256 B a call or more; of 1 operation there were "
        "too few calls to say. Whether the process grows beside them is not known.",
    )


RemainderVerdict = Literal["grows", "steady", "unknown"]


def process_growth(nobody: RemainderVerdict, native: RemainderVerdict) -> ProcessGrowth:
    def part(kind: Literal["nobody", "native"], verdict: RemainderVerdict) -> Remainder:
        return Remainder(kind, verdict, 30_000_000, 100_000.0, Quality("estimate"))

    return ProcessGrowth(300, 60_000_000, 1_000, (part("nobody", nobody), part("native", native)))


@pytest.mark.parametrize(
    ("nobody", "native", "code", "subject"),
    [
        ("grows", "steady", "memory-growth", "nobody"),
        ("steady", "grows", "memory-growth", "native"),
        ("steady", "steady", "healthy", "test-server"),
        ("steady", "unknown", "healthy", "test-server"),
    ],
)
def test_no_hunt_says_no_leak_while_the_rest_of_the_process_grows_or_is_not_known(
    nobody: RemainderVerdict, native: RemainderVerdict, code: str, subject: str
) -> None:
    hunt = replace(make_hunt(make_growth("add", verdict="steady")), process=process_growth(nobody, native))
    summary = make_summary(leaks=hunt)
    verdict = verdict_of(summary, findings_of(summary))
    assert verdict.code == code
    if code == "memory-growth":
        assert verdict.subject == subject
        assert "100 kB a call, 30 MB in 300 calls" in verdict.sentence
    else:
        assert ("No leak" in verdict.sentence) == (native == "steady")


def test_a_process_that_still_grows_and_whose_calls_keep_nothing_is_not_called_healthy() -> None:
    finding = one(make_summary(rss_growth_bytes=30_000_000, rss_still_grows=True), "memory-growth")
    assert (finding.subject, finding.severity) == ("process", "warn")
    assert "`" not in finding.sentence and "30 MB" in finding.sentence
    over = make_summary(rss_growth_bytes=30_000_000, rss_still_grows=False)
    assert "memory-growth" not in {each.code for each in findings_of(over)}


def test_a_hunt_of_too_few_calls_says_how_many_it_takes() -> None:
    summary = make_summary(leaks=make_hunt(make_growth(verdict="unknown", calls=12, bytes_per_call=None)))
    verdict = verdict_of(summary, findings_of(summary))
    assert verdict.code == "not-enough-data"
    assert "50 calls" in verdict.sentence


@pytest.mark.parametrize(("why", "severity"), [("a tenth of the limit", "warn"), ("half of the limit", "critical")])
def test_a_peak_is_as_severe_as_its_share_of_the_limit(why: str, severity: str) -> None:
    finding = one(ALSO_FAULTS["memory-peak", why], "memory-peak")
    assert finding.severity == severity
    assert "of the 100 MB it may use" in finding.sentence


def test_large_arguments_and_costly_coding_are_told_in_their_own_words() -> None:
    assert one(FAULTS["large-payload"], "large-payload").sentence.startswith("A result of `export` took 1 MB; encoding")
    arguments = one(ALSO_FAULTS["large-payload", "arguments"], "large-payload")
    assert arguments.sentence == "Arguments of `load` took 1 MB."
    coding = one(ALSO_FAULTS["large-payload", "coding takes a fifth of its time"], "large-payload")
    assert coding.sentence.startswith("Encoding and decoding messages of `export` takes 5.1 ms a call")


def test_a_held_lock_is_told_with_its_holder_and_what_that_one_waited_for() -> None:
    finding = one(FAULTS["serial-handler"], "serial-handler")
    assert finding.sentence == (
        "`list` spent 20% of its time, 1.0 s in all, waiting for the lock `asyncio.Lock notes.GATE` that `append` held "
        "(taken at notes.py:19)."
    )
    assert finding.advice.startswith("Hold the lock")
    assert finding.advice.endswith(" Most of that time its holder slept at notes.py:20.")
    nobody = one(ALSO_FAULTS["serial-handler", "a background task holds it"], "serial-handler")
    assert "that a background task held." in nobody.sentence and nobody.advice.startswith("Raise its limit")


def test_narrowing_a_lock_saves_what_its_holders_awaited_themselves() -> None:
    finding = one(FAULTS["serial-handler"], "serial-handler")
    assert finding.evidence["narrow_ms"] == pytest.approx(900.0)
    assert "not inside. That would save up to 90% of these waits." in finding.advice


def test_a_semaphore_is_told_with_its_limit_and_the_one_that_such_load_needs() -> None:
    finding = one(ALSO_FAULTS["serial-handler", "a semaphore whose limit and load are known"], "serial-handler")
    assert "the semaphore `asyncio.Semaphore notes.TWO` (limit of 2) that `append` held" in finding.sentence
    assert "raise its limit of 2 to 8: on average 6 waited while any did." in finding.advice
    assert "save" not in finding.advice, "it is there to be held around what it protects"
    assert (finding.evidence["limit"], finding.evidence["needed"]) == (2, 8)


def test_a_lock_taken_at_two_lines_is_one_finding_with_both_waits() -> None:
    finding = one(ALSO_FAULTS["serial-handler", "at two lines, each less than a fifth of its time"], "serial-handler")
    assert finding.cost_ms == pytest.approx(1_200.0)


# --- backends, pools and what nothing explains ------------------------------------------------------


def test_a_pool_is_told_with_its_limit_its_holder_and_the_size_it_needs() -> None:
    finding = one(FAULTS["pool-exhausted"], "pool-exhausted")
    assert finding.sentence == (
        "`ask` waited 10 ms at p95, 1.0 s in all, for a connection of the pool `db pool` (limit of 2, up to 7 waited "
        "at once) that other calls of `ask` held (taken at tools.py:30)."
    )
    assert finding.advice.startswith(
        "Raise its maximum of connections from 2 to 5 (on average 3 waited while any did; with 9 none would have)"
    )
    assert "serial-handler" not in codes_of(FAULTS["pool-exhausted"])


def test_a_pool_of_unknown_size_is_told_without_numbers_that_nobody_knows() -> None:
    summary = ALSO_FAULTS["pool-exhausted", "nobody knows its limit, its load, or who holds it"]
    finding = one(summary, "pool-exhausted")
    assert finding.sentence.endswith("of the pool `db pool`.")
    assert finding.advice.startswith("Raise its maximum of connections, or bound")
    assert (finding.evidence["needed"], finding.evidence["holder"]) == (None, None)


def test_a_client_per_request_is_told_with_connections_and_what_one_takes() -> None:
    finding = one(FAULTS["client-per-request"], "client-per-request")
    assert finding.sentence == (
        "`buy` opened 9 connections for 10 requests to `https://shop.example:443` at tools.py:31: 0.7 ms a connection, "
        "6% of the time of its calls."
    )
    assert finding.advice.startswith("Make one client when the server starts")
    cheap = one(ALSO_FAULTS["client-per-request", "connecting is less than that"], "client-per-request")
    assert (finding.severity, cheap.severity) == ("warn", "info")
    made = one(ALSO_FAULTS["client-per-request", "threads make clients"], "client-per-request")
    assert made.sentence.endswith(
        "0.1 ms a connection and about 0.3 ms of a thread's CPU a call for making clients at client.py:196 "
        "(`boto3.session.Session.__init__`), 31% of the time of its calls."
    )
    assert (made.severity, made.confidence, made.evidence["making_cpu_ms"], made.cost_ms) == (
        "warn",
        "estimate",
        30.0,
        31.0,
    )
    busy = one(ALSO_FAULTS["client-per-request", "threads make clients on a busy machine"], "client-per-request")
    assert busy.sentence.endswith(
        "a call for making clients at client.py:196 (`boto3.session.Session.__init__`), 0.8 ms in all, 38% of the "
        "time of its calls."
    )  # 3 parts of 4 of 100 ms, of 200
    assert (busy.severity, busy.evidence["making_cpu_ms"], busy.evidence["making_ms"]) == ("warn", 3.0, 75.0)
    other = one(ALSO_FAULTS["client-per-request", "threads compute something else"], "client-per-request")
    assert (other.severity, other.evidence["making_cpu_ms"]) == ("info", 0)
    on_loop = ALSO_FAULTS["client-per-request", "clients are made on the loop"]
    held = one(on_loop, "client-per-request")
    assert held.sentence.endswith(
        "0.1 ms a connection, and making clients at server.py:41 (`httpx._client.AsyncClient.__init__`) held the event "
        "loop for 20 ms each time, 200 ms in all, 50% of the time of its calls."
    )
    # 600 ms that others waited for a tool whose slow steps are 300 ms, 200 of them for clients.
    assert held.severity == "warn"
    assert held.cost_ms == pytest.approx(1.0 + 200.0 + 400.0)
    computed = one(on_loop, "cpu-bound-step")
    assert (computed.evidence["line"], computed.evidence["total_ms"], computed.places) == (60, 100.0, ())
    alone = one(on_loop, "cpu-bound-step", FindingOptions(disabled=frozenset({"client-per-request"})))
    assert (alone.evidence["line"], alone.evidence["places"]) == (41, 2)
    database = one(ALSO_FAULTS["client-per-request", "a database"], "client-per-request")
    assert "100 statements" in database.sentence and "one pool or engine" in database.advice


def test_serial_awaits_say_what_a_task_group_would_give() -> None:
    finding = one(FAULTS["serial-awaits"], "serial-awaits")
    assert finding.sentence == (
        "`buy` makes 5 requests to `https://shop.example:443` one after the other in a call, at tools.py:31: 50 ms a "
        "call, with nothing beside them; at once they would take as long as the longest, 20 ms."
    )
    assert finding.cost_ms == pytest.approx(3_000.0)
    assert "one statement" in one(ALSO_FAULTS["serial-awaits", "statements"], "serial-awaits").advice
    polling = one(ALSO_FAULTS["serial-awaits", "polling"], "serial-awaits")
    assert polling.severity == "info" and polling.advice.startswith("If it polls, await the event itself.")


def test_a_slow_backend_is_information_and_healthy_names_it() -> None:
    summary = FAULTS["slow-backend"]
    finding = one(summary, "slow-backend")
    assert finding.sentence == (
        "`buy` spent 51% of its p95 of 400 ms waiting for `https://shop.example:443` at tools.py:31: its first byte "
        "came after 180 ms at the median, 201 ms at p95, 230 ms at p99."
    )
    verdict = verdict_of(summary, findings_of(summary))
    assert verdict.code == "healthy"
    assert "67% of their time they awaited http `https://shop.example:443`" in verdict.sentence


def test_a_backend_that_is_slower_under_load_is_a_warning_that_costs_what_the_load_costs() -> None:
    summary = ALSO_FAULTS["slow-backend", "slower under load"]
    finding = one(summary, "slow-backend")
    assert (finding.severity, finding.confidence) == ("warn", "estimate")
    assert "; 151 ms with about 8 calls at once, 100 ms with 1." in finding.sentence
    assert finding.cost_ms == pytest.approx(40 * 51)
    assert verdict_of(summary, findings_of(summary)).code == "slow-backend"


def test_what_nothing_named_is_the_verdict_only_where_nothing_certain_was_lost() -> None:
    summary = FAULTS["unexplained-wait"]
    finding = one(summary, "unexplained-wait")
    assert finding.sentence == (
        "`read` spent 21% of its p95 of 50 ms awaiting something that nothing named; what was named of its waits is at "
        "tools.py:31."
    )
    assert verdict_of(summary, findings_of(summary)).code == "unexplained-wait"
    blocked = replace(summary, slow_steps=(make_slow(ms=60.0),))
    assert verdict_of(blocked, findings_of(blocked)).code == "blocking-call"


def test_a_wait_of_which_too_few_looks_were_made_is_information_and_still_not_healthy() -> None:
    summary = ALSO_FAULTS["unexplained-wait", "a few looks"]
    finding = one(summary, "unexplained-wait")
    assert finding.severity == "info"
    assert finding.sentence.endswith("looked at only 9 times, which is too seldom to say more.")
    assert verdict_of(summary, findings_of(summary)).code == "unexplained-wait"


def test_what_narrowing_saves_counts_sleeps_that_no_look_saw() -> None:
    summary = FAULTS["serial-handler"]
    slept = AwaitSummary(
        "sleep", "sleep", "/srv/notes.py:20", 9, 300.0, None, (), (), "estimate", estimated_ms=100.0, looks=12
    )
    root = AwaitRoot("sleep", "sleep", "/srv/notes.py:20", 400.0)
    waiter = replace(summary.operations[0], awaits=(replace(summary.operations[0].awaits[0], root=(root,)),))
    whole = replace(summary, operations=(waiter, make_operation("append", awaits=(slept,))))
    assert one(whole, "serial-handler").evidence["narrow_ms"] == pytest.approx(600.0)


def test_a_long_wait_inside_the_server_is_the_verdict_instead_of_healthy() -> None:
    summary = FAULTS["long-wait"]
    verdict = verdict_of(summary, findings_of(summary))
    assert (verdict.code, verdict.subject) == ("long-wait", "submit")
    assert verdict.sentence == (
        "`submit` spent 21% of its p95 of 50 ms waiting for the queue `asyncio.Queue jobs.TODO` at tools.py:31."
    )
    explained = NEAR_MISSES["long-wait", "the client's own answer"]
    assert verdict_of(explained, findings_of(explained)).code == "healthy"


@pytest.mark.parametrize(("busy", "severity"), [(4.81, "info"), (4.8, "warn")])
def test_a_few_steps_a_little_too_long_among_many_short_ones_accuse_nobody(busy: float, severity: str) -> None:
    """Two of 12 ms, as a busy machine makes them, are a twentieth of 4.8 ms a call."""
    operation = make_operation("score", busy=busy)
    summary = make_summary(operation, slow_steps=(make_slow("score", 12.0, "cpu", count=2),))
    assert one(summary, "cpu-bound-step").severity == severity


@pytest.mark.parametrize(("own_ms", "severity"), [(8.0, "info"), (12.0, "warn")])
def test_a_blocker_whose_steps_the_host_stretched_is_slow_only_by_its_own_part(own_ms: float, severity: str) -> None:
    whole = FAULTS["head-of-line"]
    step = make_slow(
        "resize", 40.0, "run-queue", count=100, own_ms=own_ms, own_total_ms=100 * own_ms, own_p50_ms=own_ms
    )
    blocker = make_operation("resize", busy=40.0)
    summary = replace(whole, slow_steps=(step,), operations=(*whole.operations, blocker))
    assert one(summary, "head-of-line").severity == severity


@pytest.mark.parametrize(
    ("step", "of_tool", "severity"),
    [
        (make_slow("search", 65.0, "cpu"), {}, "info"),
        (make_slow("search", 65.0), {}, "info"),
        (make_slow("search", 100.0, "cpu"), {}, "critical"),
        (make_slow("search", 65.0, "cpu", count=2), {}, "critical"),
        (make_slow("search", 17.0, "cpu", count=2), {"calls": (18.0, 17.0), "most": 8.0}, "info"),
        (make_slow("search", 17.0, "cpu", count=3), {"calls": (18.0, 17.0), "most": 8.0}, "warn"),
        (make_slow("search", 65.0, "cpu"), {"most": 33.0}, "critical"),
        (make_slow("search", 65.0, "cpu"), {"warm": 9}, "critical"),
        (make_slow("other", 65.0, "cpu"), {}, "critical"),
    ],
    ids=[
        "computes",
        "blocks",
        "as cold as a cold start",
        "twice",
        "two at once",
        "three of two",
        "a later call is half as dear",
        "9 later",
        "other",
    ],
)
def test_a_step_that_only_the_first_call_makes_is_no_verdict(
    step: SlowStep, of_tool: dict[str, Any], severity: str
) -> None:
    """As the first call of a mounted server does, which makes what all later ones use."""
    given = {"calls": (100.0,), "most": 32.0, **of_tool}
    operation = first_calls_of(*given.pop("calls"), **given)
    summary = make_summary(operation, make_operation("other"), slow_steps=(step,))
    [found] = [one for one in findings_of(summary) if one.code in ("cpu-bound-step", "blocking-call")]
    assert found.severity == severity


def test_calls_that_wait_for_several_things_are_not_healthy() -> None:
    summary = ALSO_FAULTS["long-wait", "of several things, just long enough"]
    verdict = verdict_of(summary, findings_of(summary))
    assert (verdict.code, verdict.subject) == ("long-wait", "quote")
    assert verdict.sentence == (
        "`quote` spent 80% of its time waiting, 20 ms a call: 32% to be read and taken up, 32% for its answer to be "
        "written and 16% for the semaphore `asyncio.Semaphore quotes.TWO`."
    )
    beside = replace(summary, signals=replace(summary.signals, run_queue_ms=600.0))
    assert one(beside, "long-wait").sentence.endswith("meanwhile the event loop waited 600 ms for a CPU of the host.")
    assert one(beside, "long-wait").advice.startswith("First give the server more CPU")


def test_waits_of_tasks_side_by_side_are_no_more_than_the_call_awaited() -> None:
    operation = ALSO_FAULTS["long-wait", "of several things, just long enough"].operations[0]
    semaphore = replace(operation.awaits[0], total_ms=100 * operation.awaits[0].total_ms)
    summary = make_summary(replace(operation, awaits=(semaphore, *operation.awaits[1:])))
    assert one(summary, "long-wait").evidence["share"] == pytest.approx(20.5 / 25.5)


def test_the_collector_follows_from_a_thousand_tasks_at_once() -> None:
    fan_out = make_operation("crawl", tasks_max=1_001, memory=make_memory())
    summary = make_summary(fan_out, gc_worst_second_ms=500.0, gc_pause_ms=900.0, gc_max_pause_ms=90.0)
    findings = findings_of(summary)
    assert {finding.code for finding in findings if finding.severity == "warn"} >= {"gc-pause", "unbounded-fan-out"}
    assert verdict_of(summary, findings).code == "unbounded-fan-out"


def test_computing_without_the_gil_belongs_in_a_thread() -> None:
    step = make_slow(cause="cpu", library="cursor.execute" + WITHOUT_GIL)
    finding = one(make_summary(make_operation("resize"), slow_steps=(step,)), "cpu-bound-step")
    assert " calling `cursor.execute`" in finding.sentence and "without the GIL" not in finding.sentence
    assert finding.advice.startswith("It gives up the GIL while it computes, so a thread helps. Make the tool a")


def test_a_full_pool_explains_no_more_than_it_was_full_for_reader_and_writer() -> None:
    """1,000 jobs of the transport that each wait 0.6 ms for a free thread are no starvation."""
    pool = make_pool(
        transport_wait_max_ms=80.0, transport_wait_ms=1_000.0, at_limit_share=0.02, borrowed_peak=40, max=40.0
    )
    finding = one(make_summary(make_operation("shop"), executors=(pool,)), "transport-starvation")
    assert (finding.evidence["starved_ms"], finding.evidence["transport_wait_ms"]) == (400.0, 1_000.0)
    assert "(at most 400 ms in all)" in finding.sentence


def test_a_lock_that_jobs_wait_for_is_told_without_a_holder() -> None:
    finding = one(ALSO_FAULTS["serial-handler", "a lock of threads, of which nobody saw the holder"], "serial-handler")
    assert finding.sentence == (
        "`status` spent 26% of its time, 1.0 s in all, waiting for the lock `threading.Lock repos.GATE` at tools.py:31."
    )
    assert finding.evidence["holder"] is None
    assert finding.advice == (
        "Hold the lock only around what it protects: do what takes long before or after it, not inside."
    )


def test_beside_a_lock_of_threads_stands_what_its_jobs_compute() -> None:
    summary = ALSO_FAULTS["serial-handler", "a lock of threads, of which nobody saw the holder"]
    lines = (JobLine("/srv/app/repos.py:44", "zlib.crc32", 800.0, 0.8, 0.7, 0.9, 20),)
    reads = make_operation("log", busy=1.0, executor_run=50.0, job_lines=lines, jobs_cpu_ms=1_000.0)
    finding = one(replace(summary, operations=(*summary.operations, reads)), "serial-handler")
    assert finding.advice.endswith(
        "Who held it is not seen; what computed most in threads is `log` (1.0 s): about 80% of it at repos.py:44 in "
        "`zlib.crc32`."
    )


def test_short_waits_of_jobs_count_with_those_on_the_loop() -> None:
    """A lock of threads and an event on the loop, none of them long."""
    gate, event = (
        AwaitSummary(kind, name, "/srv/app.py:9", 900, 900.0, 9.0, (), (), "exact", stage=stage, p95_share=0.1)  # type: ignore[arg-type]
        for kind, name, stage in (
            ("lock", "threading.Lock repos.GATE", "executor_run"),
            ("event", "asyncio.Event repos.READY", "awaiting"),
        )
    )
    operation = make_operation(
        "status", p95=60.0, busy=2.0, executor_run=18.0, awaiting=9.0, queue_transport=10.0, awaits=(gate, event)
    )
    finding = one(make_summary(operation), "long-wait")
    assert finding.evidence["lost_ms"] == pytest.approx(2_800.0)
    assert "for the lock `threading.Lock repos.GATE`" in finding.sentence


def test_what_nothing_named_is_no_part_of_healthy_either() -> None:
    operation = make_operation("quote", p95=90.0, awaiting=30.0, busy=5.0, write_wait=5.0, awaits_unnamed_ms=2_800.0)
    finding = one(make_summary(operation), "long-wait")
    assert "70% for something that nothing named" in finding.sentence and "profile" in finding.advice


def test_healthy_says_nothing_of_waits_that_nobody_looked_at() -> None:
    summary = make_summary(make_operation("fetch", awaiting=95.0, busy=5.0))
    assert verdict_of(summary, findings_of(summary)).sentence.startswith(
        "Healthy: 100 requests in 10 s, and nothing held them up for long;"
    )


def test_a_holder_that_was_blocked_itself_is_explained_by_what_blocked_it() -> None:
    operation = FAULTS["serial-handler"].operations[0]
    (found,) = operation.awaits
    blocked = replace(found, root=(AwaitRoot("blocked", "resize", None, 900.0),))
    rows = (replace(operation, awaits=(blocked,)),)
    summary = replace(make_summary(slow_steps=(make_slow("resize", 300.0),)), operations=rows)
    findings = findings_of(summary)
    assert {"serial-handler", "blocking-call"} <= {finding.code for finding in findings}
    assert verdict_of(summary, findings).code == "blocking-call"


@pytest.mark.parametrize(
    ("gc_ms", "cold_ms", "severity"), [(264.0, 64.0, "info"), (401.0, 64.0, "warn"), (264.0, 110.0, "warn")]
)
def test_waiting_for_a_first_call_and_the_collector_is_no_worse_than_these(
    gc_ms: float, cold_ms: float, severity: str
) -> None:
    """A mounted server of fastmcp: the first call makes what later ones use, and the collector looks at the imports."""
    row = first_calls_of(cold_ms + 6.0, 3.0, 3.0, warm=116, p50=32.0, most=5.0, known=116)
    row = replace(row, name="resize", waited_for_others_p95_share=0.41)
    steps = (make_slow("resize", 117.0, "gc"), make_slow("resize", cold_ms, "cpu"))
    summary = make_summary(
        replace(row, total_ms=Percentiles(32.0, 105.0, 152.0, 153.0)),
        blocked_by=(make_blocked("resize", "resize", 867.0, victims=116),),
        slow_steps=steps,
        gc_pause_ms=gc_ms,
    )
    assert one(summary, "head-of-line").severity == severity


def test_a_look_up_is_told_with_its_share() -> None:
    sentence = one(FAULTS["schema-lookup"], "schema-lookup").sentence
    assert sentence.startswith("Before each call of `find` the SDK lists all tools")
    assert sentence.endswith("5.1 ms a call, 25% of its time.")
    crowded = one(ALSO_FAULTS["schema-lookup", "much of what a busy loop does"], "schema-lookup").sentence
    assert crowded.endswith(
        "3.2 ms a call, 5% of its time, and look-ups are 25% of all that the event loop does. "
        "It is busy 72% of the time, so each call waits for those of the others, too."
    )


def test_what_was_printed_is_told_with_its_first_line_and_is_critical_where_clients_read_it() -> None:
    apart = one(FAULTS["stdout-pollution"], "stdout-pollution")
    assert (apart.severity, apart.confidence) == ("warn", "lower")
    assert apart.sentence.startswith("At least 1 B was written to stdout beside the transport, first at server.py:41")
    between = one(ALSO_FAULTS["stdout-pollution", "between the messages"], "stdout-pollution")
    assert (between.severity, between.evidence["where"]) == ("critical", None)
    assert (
        between.sentence
        == "At least 1.2 kB was written to stdout beside the transport, where the client reads messages."
    )


def test_a_traceback_that_is_logged_slowly_is_told_with_its_mean_and_its_library() -> None:
    first = one(FAULTS["slow-error-logging"], "slow-error-logging")
    assert first.sentence == "Logging a traceback of `parse` kept the event loop for 21 ms (mean of 3; 63 ms in all)."
    assert first.evidence["errors"] == 3
    assert first.cost_ms == pytest.approx(63.0)
    seen = ALSO_FAULTS["slow-error-logging", "and the line was seen"]
    assert "probably most at rich/segment.py:204" in one(seen, "slow-error-logging").sentence
    of_fastmcp = replace(seen, server=replace(seen.server, sdk="fastmcp"))
    assert "FASTMCP_ENABLE_RICH_LOGGING" in one(of_fastmcp, "slow-error-logging").advice


def test_notifications_are_told_with_their_number_their_share_and_their_line() -> None:
    first = one(FAULTS["chatty-notifications"], "chatty-notifications")
    assert first.sentence == (
        "`index` sent 21 notifications a call: writing them was 67% of all that the transport wrote, by time "
        "(2.0 ms a call)."
    )
    assert first.severity == "warn"
    assert first.cost_ms == pytest.approx(200.0)
    seen = one(ALSO_FAULTS["chatty-notifications", "and the line was seen"], "chatty-notifications")
    assert seen.sentence.endswith("(2.0 ms a call; a look found it sending at tools.py:31).")
    mild = one(ALSO_FAULTS["chatty-notifications", "a tenth of its time"], "chatty-notifications")
    assert mild.severity == "info"


def test_what_renders_tracebacks_computes_like_anything_else_where_they_are_few() -> None:
    seen = ALSO_FAULTS["slow-error-logging", "and the line was seen"]
    rare = replace(seen, operations=(replace(seen.operations[0], measures={}),))
    assert [finding.code for finding in findings_of(rare)] == ["cpu-bound-step"]


def test_a_fan_out_is_told_with_the_bytes_of_a_task_where_they_are_known() -> None:
    assert (
        "had 1,001 tasks alive at once, 99.9 B each." in one(FAULTS["unbounded-fan-out"], "unbounded-fan-out").sentence
    )
    unmeasured = one(ALSO_FAULTS["unbounded-fan-out", "memory is not measured"], "unbounded-fan-out")
    assert unmeasured.sentence == "A call of `crawl` had 5,000 tasks alive at once."


def test_pauses_that_are_little_of_what_clients_waited_are_information() -> None:
    """Many clients at once wait for longer than the window is: what they came for is not 3 % of that."""
    pauses = make_summary(gc_worst_second_ms=400.0, gc_pause_ms=900.0, gc_max_pause_ms=60.0, gc_max_generation=2)
    [pause] = [finding for finding in findings_of(pauses) if finding.code == "gc-pause"]
    waits = make_operation("slow", count=100, busy=0.0, awaiting=0.21 * pause.cost_ms)
    calm = replace(pauses, operations=(waits,))
    assert pause.severity == "warn"
    assert [finding.severity for finding in findings_of(calm) if finding.code == "gc-pause"] == ["info"]


def test_jobs_of_no_request_have_words() -> None:
    assert listed(["(no request)", "render"]) == "background jobs of no request and `render`"


def test_a_reader_that_several_requests_wait_for_says_how_long_they_waited() -> None:
    summary = FAULTS["transport-starvation"]
    alone = one(summary, "transport-starvation")
    wait_ms = summary.executors[0].transport_wait_ms
    slow = replace(summary.operations[0].budget_ms, write_wait=50.0 * wait_ms)
    queued = replace(summary, operations=(replace(summary.operations[0], budget_ms=slow), *summary.operations[1:]))
    several = one(queued, "transport-starvation")
    assert "several at once" not in alone.sentence
    assert f", several at once: about {duration(several.cost_ms)} of their time." in several.sentence
