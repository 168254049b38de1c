"""Spans made from literal frames, with the SDK's own exporter."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, ParentBased
from opentelemetry.trace import SpanKind, StatusCode

from mcp_probe.export.phase_spans import HOLD_NS, MAX_HELD, SlowLimit, SpanExport, detailed
from mcp_probe.histogram import bucket_of
from mcp_probe.model import Frame, JobTimes, RequestRecord
from mcp_probe.record.running_p99 import MIN_COUNT
from tests.frames import MS, SECOND, make_group, make_loop_sample, make_request, make_step, make_wait
from tests.tracing import Spans, attributes_of

START_UNIX = 1_700_000_000
TRACE = "0af7651916cd43dd8448eb211c80319c"
CALLER = "b7ad6b7169203331"


def spanned(number: int = 1, name: str = "slow", **given: Any) -> RequestRecord:
    """A sampled request whose SERVER span the application has opened."""
    ids = {"trace_id": f"{number:032x}", "span_id": f"{number:016x}", "trace_flags": 1, "server_span": "app"}
    return make_request(id=number, name=name, **{**ids, **given})


def export_of(spans: Spans, **options: Any) -> SpanExport:
    """As in the parent of ``mcp-probe run``, which gives its spans their ids."""
    given = {"give_ids": spans.ids.give, "anchor": lambda: (float(START_UNIX), 0), **options}
    return SpanExport(spans.provider, **given)


def exported(*frames: Frame, **options: Any) -> Spans:
    spans = Spans()
    export = export_of(spans, **options)
    export.take(frames)
    export.close(1.0)
    return spans


def instants(span: ReadableSpan) -> tuple[int, int]:
    """Start and end on the frames' clock."""
    assert span.start_time is not None
    assert span.end_time is not None
    return span.start_time - START_UNIX * SECOND, span.end_time - START_UNIX * SECOND


def a_slow_one(**given: Any) -> RequestRecord:
    return spanned(
        queue_transport=10 * MS,
        queue_dispatch=20 * MS,
        busy=1_000 * MS,
        executor_run=500 * MS,
        write_wait=30 * MS,
        write_flush=40 * MS,
        response_bytes=77,
        jobs=(JobTimes("pool", 1_100 * MS, 1_150 * MS, 1_400 * MS, 1_500 * MS),),
        **given,
    )


def test_a_slow_requests_phases_have_their_true_times() -> None:
    step = make_step(100 * MS, 160 * MS, request=1, operation="slow", file="s.py", line=3, cause="blocking-call")
    short = make_step(200 * MS, 205 * MS, request=1, operation="slow")
    spans = exported(step, short, a_slow_one())
    assert {span.name: instants(span) for span in spans.all()} == {
        "queue": (0, 30 * MS),
        "executor": (1_100 * MS, 1_500 * MS),
        "step": (100 * MS, 160 * MS),
        "write": (1_530 * MS, 1_600 * MS),
    }
    for span in spans.all():
        assert span.kind is SpanKind.INTERNAL
        assert span.parent is not None
        assert (span.context.trace_id, span.parent.span_id) == (1, 1)
        assert attributes_of(span)["mcp_probe.operation"] == "slow"


def test_each_phase_carries_what_belongs_to_it() -> None:
    step = make_step(100 * MS, 160 * MS, request=1, file="s.py", line=3, function="f", cause="cpu", cpu_ns=50 * MS)
    victim = spanned(2, "victim", waits=(make_wait(120 * MS, 160 * MS),), busy=MS, arrival_ns=120 * MS)
    found = {span.name: attributes_of(span) for span in exported(step, victim, a_slow_one()).all()}
    common = {"mcp.method.name": "tools/call", "mcp_probe.operation": "slow"}
    assert found["queue"] == common | {"mcp_probe.queue_wait.transport": 0.01, "mcp_probe.queue_wait.dispatch": 0.02}
    assert found["executor"] == common | {
        "mcp_probe.executor.name": "pool",
        "mcp_probe.executor.wait": 0.05,
        "mcp_probe.executor.run": 0.25,
        "mcp_probe.executor.return": 0.1,
    }
    assert found["step"] == common | {
        "code.file.path": "s.py",
        "code.line.number": 3,
        "code.function.name": "f",
        "mcp_probe.step.cause": "cpu",
        "mcp_probe.cpu": 0.05,
        "mcp_probe.blocked_others": 0.04,
    }
    assert found["write"] == common | {
        "mcp_probe.write_wait": 0.03,
        "mcp_probe.write_flush": 0.04,
        "mcp_probe.response.bytes": 77,
        "mcp_probe.blocked_others": 0.04,
    }


def test_what_comes_after_the_server_span_is_linked_to_it_and_to_the_blockers() -> None:
    blocking = make_step(50 * MS, 90 * MS, request=7, trace_id=TRACE, span_id="00000000000000aa")
    [write] = exported(blocking, a_slow_one(waits=(make_wait(40 * MS, 100 * MS),))).all("write")
    assert [(link.context.span_id, attributes_of(link)["mcp_probe.link"]) for link in write.links] == [
        (1, "request"),
        (0xAA, "blocked_by"),
    ]


def test_a_fast_request_gets_no_phases_unless_it_is_in_the_sample() -> None:
    fast = spanned(queue_dispatch=MS, busy=MS, write_wait=MS)
    assert exported(fast).all() == []
    assert {span.name for span in exported(fast, detail=1.0).all()} == {"queue", "write"}
    assert {span.name for span in exported(fast, slow_request_ms=1.0).all()} == {"queue", "write"}


@pytest.mark.parametrize("given", [{"trace_flags": 0}, {"span_id": None}, {"trace_id": None}, {"kind": "function"}])
def test_nothing_is_made_of_a_request_whose_trace_nobody_keeps(given: dict[str, Any]) -> None:
    assert exported(replace(a_slow_one(), **given)).all() == []


def test_a_transport_whose_write_cannot_be_seen_has_no_write_span() -> None:
    record = spanned(busy=2 * SECOND, write_wait=None, write_flush=None, first_step_ns=0)
    assert exported(record).all() == []


def test_unfinished_jobs_last_until_the_requests_end() -> None:
    jobs = (JobTimes("a", 10, None, None, None), JobTimes("b", 20, 30, None, None), JobTimes("c", 5, None, None, 9))
    spans = exported(spanned(busy=2 * SECOND, jobs=jobs))
    assert [instants(span) for span in spans.all("executor")] == [(10, 2 * SECOND), (20, 2 * SECOND), (5, 5)]


# --- SERVER spans that nobody else makes --------------------------------------------------------------------


def foreign(**given: Any) -> RequestRecord:
    ids = {"trace_id": TRACE, "span_id": "00000000000000cc", "parent_span_id": CALLER, "server_span": None}
    facts = {"request_id": "5", "protocol_version": "2026-07-28", "session_id": "s", "trace_state": "vendor=1"}
    return spanned(name="add", busy=2 * MS, write_wait=MS, **{**ids, **facts, **given})


def test_a_server_span_of_ours_has_the_given_ids_and_the_requests_true_times() -> None:
    span = exported(foreign()).only("tools/call add")
    assert f"{span.context.trace_id:032x}" == TRACE
    assert span.context.span_id == 0xCC
    assert span.parent is not None
    assert (f"{span.parent.span_id:016x}", span.parent.is_remote) == (CALLER, True)
    assert span.context.trace_state.get("vendor") == "1"
    assert instants(span) == (0, 3 * MS)
    found = attributes_of(span)
    assert found["jsonrpc.request.id"] == "5"
    assert found["mcp.protocol.version"] == "2026-07-28"
    assert found["mcp.session.id"] == "s"
    assert found["network.transport"] == "pipe"
    assert found["mcp_probe.busy"] == 0.002
    assert span.status.status_code is StatusCode.UNSET


def test_a_request_without_a_caller_is_the_root_of_its_trace() -> None:
    span = exported(foreign(parent_span_id=None, trace_state=None)).only("tools/call add")
    assert span.parent is None
    assert (f"{span.context.trace_id:032x}", span.context.span_id) == (TRACE, 0xCC)


def test_its_phases_are_its_children_and_have_ids_of_their_own() -> None:
    spans = exported(foreign(), detail=1.0)
    [write] = spans.all("write")
    server = spans.only("tools/call add")
    assert write.parent is not None
    assert write.parent.span_id == server.context.span_id
    assert write.context.span_id != server.context.span_id


def test_its_blockers_are_events_and_links() -> None:
    blocking = make_step(0, 40 * MS, request=7, operation="block", trace_id=TRACE, span_id="00000000000000aa")
    span = exported(blocking, foreign(waits=(make_wait(0, 40 * MS, "queue"),))).only("tools/call add")
    [event], [link] = span.events, span.links
    assert attributes_of(event)["mcp_probe.blocker"] == "block"
    assert event.timestamp == START_UNIX * SECOND + 40 * MS
    assert link.context.span_id == 0xAA
    assert attributes_of(span)["mcp_probe.blocked_by"] == "block"


@pytest.mark.parametrize(("code", "status"), [("-32603", StatusCode.ERROR), ("-32602", StatusCode.UNSET)])
def test_its_status_follows_the_conventions(code: str, status: StatusCode) -> None:
    span = exported(foreign(outcome="error", error=code, error_code=code)).only("tools/call add")
    assert span.status.status_code is status
    assert attributes_of(span)["rpc.response.status_code"] == code


def test_they_are_left_to_others_where_no_ids_can_be_given() -> None:
    assert exported(foreign(), give_ids=None).all() == []


def test_the_samplers_word_holds_for_them_too() -> None:
    spans = Spans(sampler=ParentBased(ALWAYS_ON))
    export = export_of(spans)
    export.take([foreign(trace_flags=0)])
    export.close(1.0)
    assert spans.all() == []


# --- when -------------------------------------------------------------------------------------------------------


def test_a_request_waits_for_its_blockers_steps_and_no_longer() -> None:
    spans = Spans()
    export = export_of(spans)
    export.take([foreign(waits=(make_wait(0, 2 * MS),)), foreign(span_id="00000000000000dd")])
    assert [span.context.span_id for span in spans.server()] == [0xDD]
    export.take([make_step(0, 2 * MS, request=7, operation="late")])
    export.take([make_loop_sample(at_ns=3 * MS + HOLD_NS)])
    held = spans.server()[-1]
    assert attributes_of(held)["mcp_probe.blocked_by"] == "late"


def test_what_is_held_stays_bounded() -> None:
    spans = Spans()
    export = export_of(spans, detail=1.0)
    export.take([spanned(number + 1, queue_dispatch=MS, busy=MS) for number in range(MAX_HELD + 10)])
    assert len(spans.all("queue")) == 10


# --- which are slow --------------------------------------------------------------------------------------------


def test_by_default_a_second_is_slow() -> None:
    limit = SlowLimit(None)
    assert not limit.passed_by(make_request(end_ns=SECOND - 1))
    assert limit.passed_by(make_request(end_ns=SECOND))


def test_a_tool_that_always_takes_seconds_is_slow_above_its_own_p99_only() -> None:
    limit = SlowLimit(None)
    for _ in range(MIN_COUNT):
        limit.passed_by(make_request(end_ns=4 * SECOND))
    assert not limit.passed_by(make_request(end_ns=3 * SECOND))
    assert limit.passed_by(make_request(end_ns=5 * SECOND))
    assert limit.passed_by(make_request(name="other", end_ns=3 * SECOND))


def test_requests_without_a_record_count_for_their_operations_p99() -> None:
    spans = Spans()
    export = export_of(spans)
    export.take([make_group([(bucket_of(4 * SECOND), MIN_COUNT, 4 * SECOND * MIN_COUNT)], name="slow")])
    export.take([spanned(1, queue_dispatch=MS, busy=3 * SECOND), spanned(2, "other", queue_dispatch=MS, busy=SECOND)])
    export.close(1.0)
    assert [attributes_of(span)["mcp_probe.operation"] for span in spans.all("queue")] == ["other"]


def test_older_requests_count_less_and_less() -> None:
    limit = SlowLimit(None)
    limit.merge("add", [(bucket_of(9 * SECOND), 6_000)])
    for _ in range(3):
        limit.merge("add", [(bucket_of(2 * SECOND), 400_000)])
    assert limit.passed_by(make_request(end_ns=4 * SECOND))


def test_a_limit_that_was_given_holds_for_every_tool() -> None:
    limit = SlowLimit(20.0)
    assert limit.passed_by(make_request(end_ns=20 * MS))
    assert not limit.passed_by(make_request(end_ns=20 * MS - 1))


def test_made_up_tool_names_do_not_grow_it() -> None:
    limit = SlowLimit(None)
    for number in range(10_000):
        limit.passed_by(make_request(name=f"tool {number}", end_ns=MS))
    assert len(limit._p99._durations) <= 201


@pytest.mark.parametrize(("share", "chosen"), [(0.0, False), (0.5, True), (1.0, True)])
def test_the_sample_goes_by_trace_id(share: float, chosen: bool) -> None:
    assert detailed(make_request(trace_id="f" * 16 + "7" + "f" * 15), share) is chosen


def test_a_request_without_a_trace_is_in_no_sample() -> None:
    assert not detailed(make_request(), 1.0)
    assert not detailed(make_request(trace_id="0" * 16 + "f" * 16), 0.999)
