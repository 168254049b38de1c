"""Whole loads against a server that stalls for a known time: what a waiting client leaves out must show."""

from __future__ import annotations

import asyncio
import time

import pytest

from mcp_probe.errors import LaunchError, OptionError
from mcp_probe.workloads.load import generator, running
from mcp_probe.workloads.load.log import Log
from mcp_probe.workloads.load.page import page
from mcp_probe.workloads.load.result import FORMAT, LoadResult
from mcp_probe.workloads.load.running import LoadOptions, run_load
from mcp_probe.workloads.load.verdict import json_of, judged
from tests.workloads.load.raw import mix_of, raw_target, tool

STALL_MS = 1500
EVERY = 60


def stalling() -> LoadResult:
    """100 requests a second for 1.5 s, open and closed, to a server whose every 60th call takes 1.5 s."""
    return run_load(raw_target(), mix_of(tool("stall", every=EVERY, ms=STALL_MS), rate=100, seconds=1.5, in_flight=1))


@pytest.mark.workloads
def test_requests_behind_a_stall_wait_and_only_the_open_loop_says_so() -> None:
    result = stalling()
    assert result.closed is not None
    opened, closed = result.open, result.closed
    # One call was made before the load, so the open loop's 59th stalls, and 91 were due within the stall or after it,
    # those of the first two thirds of a second after the 59th more than 0.8 s before its end.
    assert opened.due == opened.fates["ok"] == 150
    assert (opened.due_to_answer.p90 or 0) >= 700
    assert (opened.due_to_answer.max or 0) >= STALL_MS
    # The waiting client stalls once as well, but had nothing else in flight: one slow call, however slow it was.
    assert closed.fates["not sent"] >= 50
    assert (closed.sent_to_answer.max or 0) >= STALL_MS
    assert (closed.sent_to_answer.p90 or 0) < (opened.due_to_answer.p90 or 0) / 2
    assert "coordinated omission" in page(result, width=100, color=False)


@pytest.mark.parametrize("held_ms", [4, 0])
@pytest.mark.workloads
def test_a_generator_slowed_on_purpose_is_to_blame_and_its_twin_is_not(
    monkeypatch: pytest.MonkeyPatch, held_ms: int
) -> None:
    """500 a second are due for 2.5 s; the generator's own loop is held before each, so that it can send 250 at most."""
    until = generator._until

    async def slow(due_ns: int, stop: asyncio.Event) -> None:
        await until(due_ns, stop)
        time.sleep(held_ms / 1000)

    monkeypatch.setattr(generator, "_until", slow)
    result = run_load(raw_target(), mix_of(tool("echo"), rate=500, seconds=2.5))
    verdict = judged(result)
    assert result.open.fates["ok"] == 1250
    if held_ms:
        assert verdict.name == "cannot be told"
        assert verdict.told_up_to_per_s is not None
        assert 50 < verdict.told_up_to_per_s <= 250
    else:
        assert (verdict.name, verdict.told_up_to_per_s) == ("keeps up", None)


@pytest.mark.workloads
def test_a_server_slowed_on_purpose_is_to_blame_and_the_generator_is_not() -> None:
    """Each call holds the server for 4 ms, so that it answers 250 a second at most; 500 are due."""
    result = run_load(raw_target(), mix_of(tool("stall", every=1, ms=4), rate=500, seconds=2.5))
    verdict = judged(result)
    assert (verdict.name, verdict.told_up_to_per_s) == ("does not keep up", None)
    assert result.open.answered_per_s <= 250 < 475 <= result.open.sent_per_s


@pytest.mark.workloads
def test_requests_in_flight_are_counted_twice_over_and_agree() -> None:
    little = stalling().open.little
    assert little is not None
    assert little.agree
    assert little.computed > 5  # the stall: up to 91 of 150 were in flight


def test_the_result_is_plain_json() -> None:
    import json

    result = run_load(raw_target(), mix_of(tool("echo"), tool("count"), rate=200, count=20, seconds=None))
    read = json.loads(json.dumps(json_of(result)))
    assert read["format"] == FORMAT
    assert read["open"]["fates"]["ok"] == 20
    assert sum(row["due"] for row in read["operations"]) == 20
    assert read["mix"]["count"] == 20
    assert read["machine"]["cores"] >= 1


def test_the_server_gets_each_request_once_and_the_one_before_the_load() -> None:
    result = run_load(
        raw_target(), mix_of(tool("echo", 1.0), tool("count", 1e-9), rate=500, count=100, seconds=None, in_flight=2)
    )
    assert result.open.fates["ok"] == 100
    assert result.closed is not None
    assert result.closed.due == 100


def test_what_is_unanswered_after_the_drain_is_counted_as_cancelled() -> None:
    mix = mix_of(tool("echo", 3.0), tool("never", 1.0), rate=200, count=80, seconds=None, drain=0.2)
    result = run_load(raw_target(), mix, LoadOptions(allow_failures=True))
    phase = result.open
    never = next(row for row in result.operations if row.name == "never")
    assert phase.fates["cancelled"] >= never.due > 0
    assert phase.fates["ok"] + phase.fates["cancelled"] == 80
    assert phase.due_to_answer.is_lower(1.0)
    assert "≥" in page(result, width=100, color=False)


def test_a_server_that_crashes_under_load_leaves_a_result() -> None:
    mix = mix_of(tool("exit", at=30), rate=200, count=100, seconds=None)
    result = run_load(raw_target(), mix)
    assert result.open.fates["ok"] == 28  # the 30th call, of which one came before the load, ends it
    assert result.open.interrupted or result.open.fates["transport error"] > 0
    assert any("exit code 3" in note for note in result.notes)
    assert "exit code 3" in page(result, width=100, color=False)


@pytest.mark.parametrize(
    ("name", "error", "said"),
    [
        ("tea", OptionError, "no tool tea; it has echo"),
        ("refuse", LaunchError, "no such item"),
        ("error", LaunchError, "broken"),
    ],
)
def test_a_call_that_cannot_succeed_is_refused_before_the_load(name: str, error: type[Exception], said: str) -> None:
    with pytest.raises(error) as caught:
        run_load(raw_target(), mix_of(tool(name)))
    assert said in str(caught.value)


def test_failures_may_be_allowed() -> None:
    mix = mix_of(tool("refuse"), tool("echo"), rate=200, count=40, seconds=None)
    result = run_load(raw_target(), mix, LoadOptions(allow_failures=True))
    assert result.open.failed == result.open.fates["tool error"] > 0
    assert [failure.sentence for failure in result.failures] == ["no such item"]
    assert "no such item" in page(result, width=100, color=False)


def test_a_url_cannot_be_profiled_from_here() -> None:
    from mcp_probe.workloads.load.peer import Target

    with pytest.raises(OptionError, match="mcp-probe run"):
        run_load(Target(url="http://127.0.0.1:1/mcp"), mix_of(tool("echo")), LoadOptions(profile=True))


def test_requests_that_waited_for_a_connection_are_told() -> None:
    """As many requests in flight as connections: nobody waited; one more: one did."""
    for peak, told in ((8, 0), (9, 1)):
        notes: list[str] = []
        running._say_who_waited(8, Log(outstanding_peak=peak), notes)
        assert len(notes) == told
    assert "At most 8 connections were open and up to 9 requests in flight" in notes[0]
    running._say_who_waited(0, Log(outstanding_peak=9), notes)  # stdio has none
    assert len(notes) == 1
