"""Failures are counted by kind: a server that breaks every so many calls is held against what it broke."""

from __future__ import annotations

import json
import socket

import pytest

from mcp_probe.report import figures
from mcp_probe.workloads.load.page import page
from mcp_probe.workloads.load.peer import Target
from mcp_probe.workloads.load.result import LoadResult
from mcp_probe.workloads.load.running import LoadOptions, run_load
from mcp_probe.workloads.load.verdict import json_of, judged
from tests.workloads.load.raw import mix_of, raw_http, raw_target, tool

HUNDRED = {"rate": 500, "count": 100, "seconds": None, "drain": 60}


def broken(name: str, **arguments: int) -> LoadResult:
    """100 calls, one in flight after the other, of which every fifth is broken; and none is made before."""
    with raw_http() as url:
        mix = mix_of(tool(name, every=5, **arguments), **HUNDRED)
        return run_load(Target(url=url), mix, LoadOptions(allow_failures=True))


@pytest.mark.parametrize(
    ("name", "arguments", "causes"),
    [
        ("status", {"status": 503}, {"HTTP 503"}),
        ("status", {"status": 500}, {"HTTP 500"}),
        ("status", {"status": 429}, {"HTTP 429"}),
        ("reset", {}, {"connection reset"}),
        ("close", {}, {"connection closed unanswered"}),
        ("cut", {}, {"answer cut off"}),
    ],
)
def test_what_breaks_is_counted_by_its_kind(name: str, arguments: dict[str, int], causes: set[str]) -> None:
    result = broken(name, **arguments)
    phase = result.open
    assert (phase.fates["ok"], phase.failed) == (80, 20), phase.causes
    assert phase.causes == dict.fromkeys(causes, 20)
    text = " ".join(page(result, width=200, color=False).split())
    (cause,) = causes
    assert f"20 of 100 (20%) failed at {text.partition('failed at ')[2].partition(':')[0]}: 20 × {cause}." in text
    assert json.loads(json.dumps(json_of(result)))["open"]["causes"] == {cause: 20}


def test_each_failure_has_one_cause() -> None:
    with raw_http() as url:
        mix = mix_of(tool("status", every=3, status=503), tool("reset", every=4), tool("close", every=2), **HUNDRED)
        phase = run_load(Target(url=url), mix, LoadOptions(allow_failures=True)).open
    assert sum(phase.causes.values()) == phase.failed > 0
    assert set(phase.causes) == {"HTTP 503", "connection reset", "connection closed unanswered"}
    assert list(phase.causes.values()) == sorted(phase.causes.values(), reverse=True)


def test_a_server_that_leaves_in_the_middle_is_refused_connections() -> None:
    """A listener that is closed after the handshake: everything after it is refused."""
    with raw_http() as url, socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        gone = f"http://127.0.0.1:{taken.getsockname()[1]}/mcp"
        from mcp_probe.workloads.load import http

        post = http.HttpPeer._exchange

        async def elsewhere(
            self: http.HttpPeer, number: int | None, order: object, body: bytes, *rest: object
        ) -> object:
            if b"tools/call" in body:
                self._target = Target(url=gone)
            return await post(self, number, order, body, *rest)  # type: ignore[arg-type]

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(http.HttpPeer, "_exchange", elsewhere)
            result = run_load(Target(url=url), mix_of(tool("echo"), **HUNDRED), LoadOptions(allow_failures=True))
    assert result.open.causes == {"connection refused": 100}
    assert judged(result).name == "no answers"


def test_errors_of_tools_and_of_the_protocol_are_kinds_as_well() -> None:
    mix = mix_of(tool("refuse"), tool("error"), **HUNDRED)
    phase = run_load(raw_target(), mix, LoadOptions(allow_failures=True)).open
    assert phase.causes == {"isError": phase.fates["tool error"], "JSON-RPC -32603": phase.fates["protocol error"]} or (
        list(phase.causes) == ["JSON-RPC -32603", "isError"] and sum(phase.causes.values()) == 100
    )


def test_a_slow_start_is_told_and_in_no_figure() -> None:
    with raw_http() as url:
        slow = run_load(Target(url=url), mix_of(tool("first", ms=1000), **HUNDRED))
        quick = run_load(Target(url=url), mix_of(tool("echo"), **HUNDRED))
    assert slow.start is not None
    assert slow.start.first_call_ms is not None
    assert slow.start.first_call_ms >= 1000
    assert slow.open.due == slow.open.fates["ok"] == 100  # the slow one was made before
    assert quick.start is not None
    assert quick.start.first_call_ms is not None
    assert quick.start.first_call_ms < 1000
    if (slow.open.sent_to_answer.p50 or 0) <= 90:  # else this host was too busy for a start to stand out
        told = f"Slow start: the first call took {figures.duration(slow.start.first_call_ms)}"
        assert told in page(slow, width=200, color=False)


def test_a_start_like_any_other_call_is_not_called_slow() -> None:
    from dataclasses import replace

    from mcp_probe.workloads.load.result import NO_LATENCY, Start
    from tests.workloads.load.test_result import log_of, result_of

    result = result_of(log_of([(0, due, due + 30, "ok") for due in range(0, 1000, 10)]))
    for first_ms, told in ((299, False), (301, True)):
        given = replace(result, start=Start(1, NO_LATENCY, first_ms))
        assert ("Slow start" in page(given, width=200, color=False)) is told
