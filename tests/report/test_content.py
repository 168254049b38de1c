from __future__ import annotations

from dataclasses import replace

import pytest

from mcp_probe.model import (
    AwaitSummary,
    BlockedBy,
    Delivery,
    GuiltyPlace,
    OperationSummary,
    ProbeSelf,
    Quality,
    RequestCounts,
    ServerInfo,
    Summary,
    Verdict,
    Window,
)
from mcp_probe.report.console import render
from tests.report.summaries import (
    blocking,
    healthy,
    in_memory,
    killed,
    make_budget,
    make_finding,
    make_operation,
    make_summary,
)


def shown(summary: Summary, width: int = 100) -> str:
    return render(summary, width=width, color=False, ascii_only=False)


def flowing(summary: Summary) -> str:
    """The report without line breaks and frames, to look for sentences."""
    return " ".join(shown(summary).replace("│", " ").split())


def section(text: str, heading: str) -> list[str]:
    """The lines of one section, without its heading."""
    lines = text.split("\n")
    start = next(index for index, line in enumerate(lines) if line.startswith(heading))
    return lines[start + 1 : lines.index("", start)]


def test_a_finding_of_several_places_has_a_row_for_each_and_loses_nothing_of_it() -> None:
    places = (
        GuiltyPlace(
            "/srv/.venv/lib/python3.11/site-packages/mcp_server_fetch/server.py:177",
            "estimate",
            "in `extract_content_from_html` calling `readabilipy.simple_json.simple_json_from_html_string`",
            5_180.0,
            20,
        ),
        GuiltyPlace("/srv/shop/server.py:251", "exact", "", 1_800.0, 80),
        GuiltyPlace(None, "unavailable", "", 11.0, 1),
    )
    told = make_finding("cpu-bound-step", "critical", "fetch", "`fetch` computed.", "Do less.", places=places)
    verdict = Verdict("cpu-bound-step", "fetch", told.sentence)
    other = replace(told, code="memory-peak")
    text = shown(make_summary(findings=(told, other), verdict=verdict), width=80)
    flat = " ".join(text.replace("│", " ").split())
    for row in (
        "74% 5.2 s 20 times ~mcp_server_fetch/server.py:177 in `extract_content_from_html` calling "
        "`readabilipy.simple_json. simple_json_from_html_string`",
        "26% 1.8 s 80 times /srv/shop/server.py:251",
        "<1% 11 ms once line not seen",
    ):
        assert flat.count(row) == 2, text
    assert "~ estimate" in text.partition("\nNotes")[2]


def test_sections_come_in_the_order_a_reader_in_a_hurry_needs() -> None:
    text = shown(blocking())
    headings = (
        "╭─ Verdict",
        "Where the time",
        "Who waited",
        "Slow steps",
        "Thread pools",
        "Event loop",
        "Also found",
        "Notes",
    )
    places = [text.index(f"\n{heading}") for heading in headings]
    assert text.startswith("demo shop")
    assert places == sorted(places)


def test_verdict_and_its_advice_are_on_the_first_screen() -> None:
    first_screen = shown(blocking()).split("\n")[:24]
    assert any("`resize` blocks the event loop at demo_server.py:34" in line for line in first_screen)
    assert any("Make `resize` a plain `def`" in line for line in first_screen)


def test_verdict_takes_the_advice_of_the_finding_on_its_own_subject() -> None:
    findings = (
        make_finding("blocking-call", "critical", "other", "Other.", "Wrong advice."),
        make_finding("blocking-call", "critical", "resize", "It.", "Right advice."),
    )
    lines = shown(replace(blocking(), findings=findings)).split("\n")
    box = "\n".join(line for line in lines if line.startswith("│"))
    assert "Right advice." in box
    assert "Wrong advice." not in box


def test_verdict_is_not_repeated_among_the_other_findings() -> None:
    found = "\n".join(section(shown(blocking()), "Also found"))
    assert "transport-starvation" in found
    assert "blocking-call" not in found


def test_other_findings_stand_in_the_order_in_which_they_are_found() -> None:
    """That is by what they explain: see tests/aggregate/test_findings.py."""
    findings = tuple(
        make_finding(code, severity, code, f"About {code}.", "", cost_ms=cost)
        for code, severity, cost in [("c", "warn", 2.0), ("d", "warn", 1.0), ("b", "critical", 0.5), ("a", "info", 9.0)]
    )
    found = "\n".join(section(shown(replace(healthy(), findings=findings)), "Findings"))
    assert [found.index(f"About {code}.") for code in "cdba"] == sorted(
        found.index(f"About {code}.") for code in "abcd"
    )


def test_confidence_below_exact_is_said_beside_the_code() -> None:
    assert "head-of-line, explains at least 17.3 s (6%):" in shown(blocking())
    (saturated,) = (each for each in blocking().findings if each.code == "executor-saturated")
    assert "executor-saturated, explains 6.90 s (2%):" in shown(replace(blocking(), findings=(saturated,)))


def test_a_finding_that_follows_from_another_one_claims_no_time_of_its_own() -> None:
    assert "executor-saturated, follows from another finding:" in shown(blocking())
    codes = ("executor-saturated", "gc-pause", "slow-reader", "crowding", "busy-spin", "own-threads", "memory-peak")
    many = tuple(make_finding(code, "warn", "x", "", "") for code in codes)
    infos = tuple(make_finding("serial-client", "info", "x", "", "") for _ in range(2))
    summary = replace(blocking(), findings=(*blocking().findings[:1], *many, *infos))
    assert "Also found, below: executor-saturated, gc-pause, slow-reader, crowding, 3 more, 2 info." in flowing(summary)


def test_the_verdict_says_how_much_of_what_clients_waited_it_explains_and_who_waited() -> None:
    text = flowing(blocking())
    assert "Explains 23.7 s (8%) of the 286 s that clients waited; who waited for it: `lookup` 14.9 s, `fetch`" in text
    assert "Explains" not in flowing(replace(blocking(), clients_waited_ms=None))


def test_who_waited_for_a_lock_is_who_awaited_it_not_who_waited_for_the_tool() -> None:
    def calls(name: str, ms: float) -> OperationSummary:
        awaited = AwaitSummary("lock", "threading.Lock app.LOCK", "app.py:3", 9, ms, 50.0, (), (), "estimate")
        return make_operation(name, 9, 100.0, 200.0, 200.0, make_budget(executor_run=100.0), awaits=(awaited,))

    evidence = {"object": "threading.Lock app.LOCK"}
    summary = make_summary(
        operations=(calls("log", 700.0), calls("show", 1_900.0)),
        blocked_by=(BlockedBy("show", "log", 3, 276.0, 276.0, "exact"),),
        findings=(make_finding("serial-handler", "warn", "log", "", "", evidence=evidence, cost_ms=2_600.0),),
        verdict=Verdict("serial-handler", "log", "`log` waits."),
        clients_waited_ms=5_000.0,
    )
    assert "that clients waited; who waited for it: `show` 1.90 s, `log` 700 ms." in flowing(summary)


def test_what_others_waited_and_what_is_explained_differ_by_the_tools_own_steps() -> None:
    steps = make_finding(
        "blocking-call", "critical", "resize", "", "", evidence={"max_ms": 180.0}, cost_ms=6_900.0, confidence="exact"
    )
    rows = (BlockedBy("lookup", "resize", 30, 6_100.0, 6_100.0, "exact"),)
    summary = replace(blocking(), findings=(steps,), blocked_by=rows, clients_waited_ms=72_000.0)
    summary = replace(summary, verdict=Verdict("blocking-call", "resize", "`resize` blocks."))
    assert "who waited for it: `lookup` 6.10 s; the rest is time of `resize` itself." in flowing(summary)
    alone = replace(summary, findings=(replace(steps, cost_ms=6_110.0),))
    assert "the rest is time of" not in flowing(alone)
    less = replace(summary, findings=(replace(steps, cost_ms=1_000.0),))
    assert "who waited for it: `lookup` (they waited for its other steps, too, and while it had no CPU)." in flowing(
        less
    )


def test_calls_that_waited_for_others_of_their_own_tool_are_called_so() -> None:
    rows = (BlockedBy("resize", "resize", 3, 900.0, 900.0, "exact"),)
    assert "who waited for it: other calls of `resize` 900 ms." in flowing(replace(blocking(), blocked_by=rows))


def test_a_share_of_what_clients_waited_is_never_above_all_of_it() -> None:
    assert "Explains 23.0 s (100%) of the 23.0 s" in flowing(replace(blocking(), clients_waited_ms=23_000.0))


@pytest.mark.parametrize("width", [80, 100, 120])
def test_twelve_lines_say_what_is_wrong_who_suffers_where_and_the_mend(width: int) -> None:
    top = " ".join(" ".join(shown(blocking(), width).split("\n")[:12]).replace("│", " ").split())
    for needed in (
        "`resize` blocks the event loop at demo_server.py:34: 48 steps of 141 ms (longest 212 ms)",
        "23.7 s (8%) of the 286 s that clients waited; who waited for it: `lookup` 14.9 s, `fetch` 5.12 s",
        "→ Make `resize` a plain `def`: mcp 2.x then runs it in a thread. Or wrap the call in",
        "Also found, below: transport-starvation (critical), head-of-line, cpu-bound-step.",
    ):
        assert needed in top


def test_the_first_line_states_load_and_trouble_and_the_second_what_is_lost() -> None:
    head = shown(killed()).split("╭")[0]
    for fact in (
        "excel · 96 requests in 184 s, up to 9 at once · 4 errors · 7 unfinished\nclients waited ≥14 min in all",
        "3 requests lost · 1,204 measurements lost · 1 hook disabled, see below",
    ):
        assert fact in head
    assert shown(healthy()).startswith(
        "mcp-time · 2,418 requests in 61.4 s, up to 4 at once · no errors · clients waited 2.85 s in all\n\n"
    )
    assert "server         http · asyncio · fastmcp 4.1.0 · Python 3.12.1" in shown(killed())


def test_a_machine_short_of_cpu_is_said_in_one_line_before_a_verdict_about_something_else() -> None:
    pressure = make_finding("host-pressure", "warn", "demo shop", "The event loop waited 1.3 s for a CPU.", "")
    summary = replace(blocking(), findings=(*blocking().findings, pressure))
    assert "\nthe machine was short of CPU: steps are judged without that wait, see below\n" in shown(summary, 80)
    assert "short of CPU" not in shown(blocking(), 80)


def test_a_killed_server_is_said_to_miss_its_last_second() -> None:
    assert "The server was killed or crashed: up to its last second may be missing." in flowing(killed())
    assert "Incomplete" not in shown(blocking())


def test_requests_that_never_finished_are_named_even_when_their_row_is_collapsed() -> None:
    quick = make_budget(busy=5.0)
    fast = tuple(make_operation(f"tool_{index:02}", 100, 5.0, 5.0, 5.0, quick) for index in range(30))
    stuck = make_operation("stuck", 1, None, None, None, make_budget(), unfinished=1)
    summary = make_summary(requests=RequestCounts(3_001, 0, 0, 1, 0), operations=(*fast, stuck))
    assert "never finished: stuck ×1" in shown(summary)


def test_no_request_at_all_says_what_that_means_and_what_to_check() -> None:
    text = flowing(make_summary())
    assert "No request reached this server in the 2.00 s it was watched" in text
    assert "Did a client connect and call something?" in text
    assert "`mcp-probe doctor`" in text
    assert "Where the time goes" not in text


def test_no_request_since_the_probe_came_says_where_those_before_are_seen() -> None:
    text = flowing(make_summary(came_later=True))
    assert "the look above has its tasks" in text
    assert "`mcp-probe attach PID --record FILE`" in text
    assert "Did a client connect" not in text


def test_no_request_but_a_certain_fault_keeps_the_fault_as_verdict() -> None:
    summary = make_summary(verdict=Verdict("stdout-pollution", "server", "Something printed to stdout."))
    text = shown(summary)
    assert "Something printed to stdout." in text
    assert "No request reached" not in text


def test_not_enough_data_shows_its_advice_and_no_severity() -> None:
    text = shown(in_memory())
    assert "not-enough-data ─╮" in text
    assert "→ Run longer, or send more requests." in text


@pytest.mark.parametrize(
    ("cpu_ms", "hook_ms", "text"),
    [
        (None, None, "its own cost is not known"),
        (0.0, 0.0, "took at least 0 ms of each request, on threads of its own 0% of one CPU core"),
        (614.0, 39.0, "took at least 16 µs of each request, on threads of its own 1.0% of one CPU core"),
        (614.0, None, "mcp-probe 0.1.0, on threads of its own 1.0% of one CPU core"),
        (6.14, 4_836.0, "took at least 2.0 ms of each request, on threads of its own <0.1% of one CPU core"),
    ],
)
def test_the_probes_own_cost_is_stated_by_request_and_core(
    cpu_ms: float | None, hook_ms: float | None, text: str
) -> None:
    probe = ProbeSelf(0.2, 0, (), 42, cpu_ms=cpu_ms, hook_ms=hook_ms)
    assert text in flowing(replace(healthy(), probe=probe))


def test_who_waited_for_a_tool_is_told_with_times_only_if_they_are_part_of_what_its_finding_explains() -> None:
    """The matrix knows who waited for the tool, also for other lines of it."""
    summary = blocking()
    [finding] = [finding for finding in summary.findings if finding.code == summary.verdict.code]
    waited = sum(row.lo_ms for row in summary.blocked_by if row.kind is None and row.blocker == finding.subject)
    assert "who waited for it: `lookup` 14.9 s, `fetch` 5.12 s" in flowing(summary)
    less = tuple(replace(one, cost_ms=0.9 * waited) if one is finding else one for one in summary.findings)
    assert "who waited for it: `lookup`, `fetch`" in flowing(replace(summary, findings=less))


def test_marks_are_explained_only_where_they_are_used() -> None:
    notes = "\n".join(section(shown(blocking()) + "\n", "Notes"))
    assert "marks " in notes
    assert "≥ at least" in notes
    assert "[a–b] lies between" in notes
    plain = make_operation("add", 40, 1.0, 1.0, 1.0, make_budget(busy=1.0))
    requests = RequestCounts(40, 0, 0, 0, 0)
    assert "\n marks " not in shown(make_summary(requests=requests, operations=(plain,)))
    vague = replace(plain, quality={"busy": Quality("lower")})
    notes = "\n".join(section(shown(make_summary(requests=requests, operations=(vague,))) + "\n", "Notes"))
    assert "≥ at least" in notes and "≤ at most" not in notes


def test_the_report_of_one_process_of_several_says_which_it_is() -> None:
    summary = healthy()
    assert "that served MCP" not in shown(summary)
    several = replace(summary.server, pid=4711, processes=3)
    header = shown(replace(summary, server=several)).split("╭", 1)[0]
    assert "Process 4711, one of 3 that served MCP. Each has a report of its own" in " ".join(header.split())


def test_behind_a_proxy_the_header_says_where_figures_begin() -> None:
    assert "proxy" not in shown(healthy())
    header = shown(replace(healthy(), server=replace(healthy().server, behind_proxy=True))).split("╭", 1)[0]
    assert "Behind a proxy: Requests arrive with the proxy's bytes." in " ".join(header.split())


def test_disabled_hooks_and_notes_are_listed_once_each() -> None:
    probe = ProbeSelf(0.01, 0, ("poll: no select method", "gc: callbacks were cleared"), 42, ("attached late",))
    text = shown(replace(healthy(), probe=probe, notes=("attached late",)))
    assert "disabled hook  poll: no select method" in text
    assert "disabled hook  gc: callbacks were cleared" in text
    assert text.count("attached late") == 1


def test_report_says_how_to_get_json_and_a_recording() -> None:
    text = shown(healthy())
    assert "`mcp-probe run --record FILE`, then `mcp-probe report FILE`; as JSON `--json FILE`" in text


def test_a_server_without_name_transport_or_start_leaves_no_empty_separators() -> None:
    summary = replace(healthy(), server=ServerInfo("", "mcp", "2.3.0", "", "", "3.13.0"), window=Window(0.0, 61.4))
    assert shown(summary).startswith("unnamed server · 2,418 requests")
    assert " server         mcp 2.3.0 · Python 3.13.0\n" in shown(summary)


def test_telemetry_that_did_not_arrive_is_said_in_the_header_and_none_where_all_did() -> None:
    summary = healthy()
    delivered = replace(summary.probe, telemetry=(Delivery("spans", "http://there", 9, 0, None),))
    lost = replace(summary.probe, telemetry=(Delivery("spans", "http://there", 9, 1, "down"),))
    assert "telemetry" not in shown(replace(summary, probe=delivered))
    header = shown(replace(summary, probe=lost)).split("╭", 1)[0]
    assert "telemetry not all delivered, see below" in " ".join(header.split())
