from __future__ import annotations

from dataclasses import replace

import pytest

from mcp_probe.export import semantic_conventions as names
from mcp_probe.export.span_attributes import (
    blocked_by,
    blocker_name,
    budget_attributes,
    error_attributes,
    network_attributes,
    operation_attributes,
    span_name,
    starved,
    write_attributes,
)
from mcp_probe.model import CROWDING_OPERATION, LOOP_OPERATION, MemoryUse
from mcp_probe.record.assemble import assemble
from mcp_probe.record.raw import WAKE_LOOP, WAKE_SOCKET, RawRequest, StepMark
from tests.frames import MS, make_request, make_step, make_wait


def test_a_budget_is_seconds_and_leaves_out_what_a_request_did_not_use() -> None:
    record = make_request(queue_transport=1 * MS, queue_dispatch=2 * MS, busy=3 * MS, awaiting=4 * MS, request_bytes=80)
    assert budget_attributes(record) == {
        "mcp_probe.steps": 1,
        "mcp_probe.step.max": 0.003,
        "mcp_probe.busy": 0.003,
        "mcp_probe.awaiting": 0.004,
        "mcp_probe.queue_wait.transport": 0.001,
        "mcp_probe.queue_wait.dispatch": 0.002,
        "mcp_probe.ready_wait": 0.0,
        "mcp_probe.request.bytes": 80,
    }


def test_threads_and_pauses_show_where_there_were_any() -> None:
    record = make_request(executor_wait=1 * MS, executor_run=2 * MS, executor_return=3 * MS, gc=4 * MS, unaccounted=5)
    found = budget_attributes(record)
    assert found["mcp_probe.executor.wait"] == 0.001
    assert found["mcp_probe.executor.run"] == 0.002
    assert found["mcp_probe.executor.return"] == 0.003
    assert found["mcp_probe.gc"] == 0.004
    assert found["mcp_probe.unaccounted"] == 5e-9


def test_what_could_not_be_seen_is_absent_and_called_unavailable() -> None:
    record = make_request(queue_transport=None, busy=1, quality=(("queue_transport", "unavailable", None, None),))
    found = budget_attributes(record)
    assert "mcp_probe.queue_wait.transport" not in found
    assert found["mcp_probe.quality"] == "queue_wait.transport=unavailable"


@pytest.mark.parametrize(
    ("part", "attribute"),
    [
        ("queue_transport", "queue_wait.transport"),
        ("queue_dispatch", "queue_wait.dispatch"),
        ("ready_wait", "ready_wait"),
        ("executor_wait", "executor.wait"),
        ("executor_return", "executor.return"),
        ("awaiting", "awaiting"),
        ("write_wait", "write_wait"),
        ("write_flush", "write_flush"),
    ],
)
def test_a_bounded_part_is_its_least_with_its_most_beside_it(part: str, attribute: str) -> None:
    for value in (2 * MS, 5 * MS):  # the budget has one end or the other
        record = make_request(**{part: value}, quality=((part, "bounded", 2 * MS, 5 * MS),))  # type: ignore[arg-type]
        found = budget_attributes(record, is_over=True)
        assert (found[f"mcp_probe.{attribute}"], found[f"mcp_probe.{attribute}_max"]) == (0.002, 0.005)
        assert found["mcp_probe.quality"] == f"{attribute}=bounded"
        assert f"mcp_probe.{attribute}" in names.BOUNDED


def test_a_wait_of_which_nothing_is_certain_is_0_with_its_most_beside_it() -> None:
    record = make_request(executor_wait=0, quality=(("executor_wait", "upper", None, 5 * MS),))
    found = budget_attributes(record)
    assert (found["mcp_probe.executor.wait"], found["mcp_probe.executor.wait_max"]) == (0.0, 0.005)


def test_the_quality_of_the_write_belongs_to_the_write_span() -> None:
    record = make_request(quality=(("write_flush", "unavailable", None, None), ("awaiting", "bounded", 1, 2)))
    assert budget_attributes(record)["mcp_probe.quality"] == "awaiting=bounded"
    assert write_attributes(record)["mcp_probe.quality"] == "write_flush=unavailable"
    assert budget_attributes(make_request(partial=True))["mcp_probe.quality"] == "partial"


# --- blockers -------------------------------------------------------------------------------------------


def test_each_blocking_request_is_one_row_and_the_largest_comes_first() -> None:
    record = make_request(id=1, waits=(make_wait(0, 100 * MS),), loop=0)
    steps = [
        make_step(0, 30 * MS, request=2, operation="a"),
        make_step(30 * MS, 40 * MS, request=3, operation="b"),
        make_step(50 * MS, 110 * MS, request=4, operation="a", file="a.py", line=7, function="f"),
        make_step(40 * MS, 45 * MS, request=3, operation="b"),
    ]
    rows = blocked_by(record, steps)
    assert [(row.blocker, row.step.request, row.lo_ns) for row in rows] == [
        ("a", 4, 50 * MS),
        ("a", 2, 30 * MS),
        ("b", 3, 15 * MS),
    ]
    assert rows[0].event() == {
        "mcp_probe.blocker": "a",
        "mcp_probe.duration": 0.05,
        "mcp_probe.quality": "exact",
        "code.file.path": "a.py",
        "code.line.number": 7,
        "code.function.name": "f",
    }


def test_nobody_is_blamed_for_its_own_steps_nor_for_those_of_another_loop_nor_twice() -> None:
    record = make_request(id=1, waits=(make_wait(0, 10 * MS),), loop=0)
    own = make_step(0, 2 * MS, request=1)
    inside = make_step(2 * MS, 3 * MS, request=8, within=(1,))
    elsewhere = make_step(3 * MS, 4 * MS, request=9, loop=1)
    running = make_step(4 * MS, 5 * MS, request=2, running=True)
    ended = make_step(4 * MS, 6 * MS, request=2)
    [row] = blocked_by(record, [own, inside, elsewhere, running, ended])
    assert (row.step.request, row.lo_ns) == (2, 2 * MS)


def test_a_wait_that_may_have_begun_earlier_has_both_ends() -> None:
    record = make_request(id=1, waits=(make_wait(5 * MS, 10 * MS, earliest_ns=0),))
    certain, possible = make_step(4 * MS, 8 * MS, request=2), make_step(0, 3 * MS, request=3)
    told = [row.event() for row in blocked_by(record, [certain, possible])]
    ends = [(event["mcp_probe.duration"], event["mcp_probe.duration_max"]) for event in told]
    assert ends == [(0.003, 0.004), (0.0, 0.003)]
    assert {event["mcp_probe.quality"] for event in told} == {"bounded"}


def test_many_small_steps_have_a_name_in_one_piece() -> None:
    assert blocker_name(CROWDING_OPERATION) == "(small_steps)"
    assert blocker_name(LOOP_OPERATION) == LOOP_OPERATION
    assert blocker_name("a tool of yours") == "a tool of yours"


def test_a_transport_without_a_thread_is_told_with_what_of_it_the_request_can_have_felt() -> None:
    record = make_request(
        arrival_ns=100 * MS,
        queue_transport=20 * MS,
        busy=MS,
        write_wait=30 * MS,
        quality=(("queue_transport", "bounded", 20 * MS, 80 * MS),),  # it came at 40 ms or later
        starved=(
            ("read", 0, 30 * MS, "a pool", "early"),
            ("read", 50 * MS, 110 * MS, "a pool", "slow"),
            ("write", 50 * MS, 110 * MS, "a pool", "of others"),
            ("read", 125 * MS, 145 * MS, "a pool", "of others"),
            ("write", 125 * MS, 145 * MS, "a pool", "late"),
        ),
    )
    slow, late = (row.event() for row in starved(record))
    told = {"mcp_probe.pool": "a_pool", "mcp_probe.holder": "slow", "mcp_probe.quality": "bounded"}
    assert slow == told | {"mcp_probe.duration": 0.01, "mcp_probe.duration_max": 0.06}
    told = {"mcp_probe.pool": "a_pool", "mcp_probe.holder": "late", "mcp_probe.quality": "exact"}
    assert late == told | {"mcp_probe.duration": 0.02}
    assert starved(make_request()) == []


def test_no_more_than_five_blockers_are_named() -> None:
    record = make_request(id=1, waits=(make_wait(0, 100 * MS),))
    steps = [make_step(number * MS, (number + 1) * MS, request=number + 2) for number in range(20)]
    assert len(blocked_by(record, steps)) == 5


# --- the conventions --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("outcome", "error", "code", "expected"),
    [
        ("ok", None, None, {}),
        ("tool_error", "tool_error", None, {"error.type": "tool_error"}),
        ("error", "-32603", "-32603", {"error.type": "-32603", "rpc.response.status_code": "-32603"}),
        ("error", "-32602", "-32602", {"rpc.response.status_code": "-32602"}),
        ("error", "-32002", "-32002", {"rpc.response.status_code": "-32002"}),
        ("error", "TimeoutError", None, {"error.type": "timeout"}),
        ("error", "0", "0", {"error.type": "_OTHER", "rpc.response.status_code": "0"}),
        ("error", "None", None, {"error.type": "_OTHER"}),
        ("error", "ValueError", None, {"error.type": "ValueError"}),
        ("error", None, None, {"error.type": "_OTHER"}),
        ("cancelled", None, None, {"error.type": "cancelled"}),
        ("unfinished", None, None, {}),
    ],
)
def test_only_the_servers_failures_are_errors(
    outcome: str, error: str | None, code: str | None, expected: dict[str, str]
) -> None:
    assert error_attributes(outcome, error, code) == expected


def test_tools_and_prompts_are_named_and_nothing_else_is() -> None:
    assert span_name("tools/call", "add") == "tools/call add"
    assert span_name("tools/list", None) == "tools/list"
    assert operation_attributes("prompts/get", "greet")["gen_ai.prompt.name"] == "greet"
    assert operation_attributes("resources/read", None) == {"mcp.method.name": "resources/read"}


def test_a_network_is_named_only_where_one_is_known() -> None:
    assert network_attributes("stdio") == {"network.transport": "pipe"}
    assert network_attributes("http") == {"network.transport": "tcp", "network.protocol.name": "http"}
    assert network_attributes("memory") == {}


# --- memory ---------------------------------------------------------------------------------------------

USE = MemoryUse(
    "native-hybrid",
    "all Python allocations, owners > 512 B",
    requested=90_000,
    allocations=70,
    peak=40_000,
    retained=600,
    quality=(("peak", "bounded", 40_000, 55_000), ("retained", "bounded", 600, 15_600)),
)


def test_a_server_span_has_what_is_requested_and_the_peak_with_their_exactness() -> None:
    found = budget_attributes(replace(make_request(partial=True), memory=USE))
    assert (found["mcp_probe.memory.requested"], found["mcp_probe.memory.peak"]) == (90_000, 40_000)
    assert found["mcp_probe.memory.peak_max"] == 55_000
    assert found["mcp_probe.quality"] == "partial,memory.peak=bounded"
    assert "mcp_probe.memory.retained" not in found


def test_what_is_retained_is_told_where_the_span_has_ended() -> None:
    record = make_request(write_wait=None, write_flush=None)
    assert write_attributes(replace(record, memory=USE)) == {
        "mcp_probe.memory.retained": 600,
        "mcp_probe.memory.retained_max": 15_600,
        "mcp_probe.quality": "memory.retained=bounded",
    }
    assert write_attributes(replace(record, memory=replace(USE, retained=None, quality=()))) == {}
    assert write_attributes(record) == {}


def test_what_is_not_known_of_memory_is_absent_and_called_unavailable() -> None:
    gross = replace(USE, peak=None, retained=None, quality=(("peak", "unavailable", None, None),))
    found = budget_attributes(replace(make_request(), memory=gross))
    assert "mcp_probe.memory.peak" not in found
    assert found["mcp_probe.quality"] == "memory.peak=unavailable"
    assert "mcp_probe.memory.requested" not in budget_attributes(make_request())


# --- a request that is still running ------------------------------------------------------------------------


def running(*marks: StepMark) -> RawRequest:
    raw = RawRequest(1, "request", "tools/call", "add", "stdio")
    raw.arrival_ns, raw.taken_ns, raw.first_step_ns = 100, 150, 200
    for mark in marks:
        raw.add_mark(mark)
        raw.set_unit(mark[0], mark[5])
    return raw


def test_a_request_in_its_first_step_is_busy_since_it_began() -> None:
    record = assemble(running(), 260, (1, 200, 200, 200, 200, 260, WAKE_LOOP))
    assert budget_attributes(record) == {
        "mcp_probe.steps": 1,
        "mcp_probe.step.max": 6e-8,
        "mcp_probe.busy": 6e-8,
        "mcp_probe.awaiting": 0.0,
        "mcp_probe.ready_wait": 0.0,
        "mcp_probe.queue_wait.transport": 5e-8,
        "mcp_probe.queue_wait.dispatch": 5e-8,
    }


def test_a_socket_wait_before_the_step_that_runs_keeps_its_bounds() -> None:
    raw = running((1, 200, 200, 200, 200, 300, WAKE_LOOP))
    found = budget_attributes(assemble(raw, 450, (1, 300, 310, 380, 400, 450, WAKE_SOCKET)))
    assert found["mcp_probe.quality"] == "awaiting=bounded,ready_wait=bounded"
    assert found["mcp_probe.busy"] == 1.5e-7


def test_measures_go_out_where_they_are_not_0_with_what_is_not_exact() -> None:
    rows = (
        ("dns_wait", 12 * MS, "lower"),
        ("context_switches_voluntary", 7, "exact"),
        ("context_switches_involuntary", 0, "exact"),
        ("of_tomorrow", 5, "exact"),
    )
    found = budget_attributes(make_request(busy=1, measures=rows))
    assert found["mcp_probe.dns_wait"] == 0.012
    assert found["mcp_probe.context_switches_voluntary"] == 7
    assert not {"mcp_probe.context_switches_involuntary", "mcp_probe.of_tomorrow"} & found.keys()
    assert found["mcp_probe.quality"] == "dns_wait=lower"
    unread = budget_attributes(make_request(measures=(("context_switches_voluntary", None, "unavailable"),)))
    assert unread["mcp_probe.quality"] == "context_switches_voluntary=unavailable"
