"""stdio's reader and writer want threads of the pool that the tools have taken: victims' spans say so."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.safety.conversation import ROOT, Conversation, request

SERVER = Path(__file__).with_name("starving.py")
THREADS = 40
"""Of anyio's default limiter."""

HELD_MS = 3000
ABOUT: dict[str, Any] = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "raw", "version": "1"},
}


SDKS = pytest.mark.parametrize("sdk", ["mcp2", "mcp1"])


class Outcome(NamedTuple):
    """When the client sent its ping, what it waited for it, both in seconds, and what the server sent of it."""

    since_s: float
    waited_s: float
    spans: list[dict[str, Any]]
    sent: list[dict[str, Any]]
    """Points of ``mcp_probe.transport.thread_wait``."""
    true: list[tuple[float, float]]
    """When each job of the transport asked for its thread and got it, in seconds of the clock that the client reads;
    shortest first. Taken below the probe."""


Run = Callable[[str, int], Outcome]


@pytest.fixture
def run(tmp_path: Path, env_python: Callable[[str], Path], lent_opentelemetry: Path) -> Run:
    """Pings a server of that SDK beside so many calls of its slow tool."""

    def pinged(sdk: str, calls: int) -> Outcome:
        kept = tmp_path / "kept.json"
        python, lent = sys.executable, {}
        if sdk == "mcp1":
            python = str(env_python(sdk))
            lent = {"PYTHONPATH": os.pathsep.join((str(ROOT), str(lent_opentelemetry)))}
        with Conversation([python, str(SERVER), str(kept)], env=lent) as client:
            client.send(request(0, "initialize", **ABOUT))
            client.wait_for(0)
            client.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
            arguments: dict[str, Any] = {"name": "slow", "arguments": {"ms": HELD_MS}}
            client.send(*(request(number, "tools/call", **arguments) for number in range(1, calls + 1)))
            time.sleep(HELD_MS / 6e3)  # the server has read them by then, or will never within the test's bounds
            since = time.monotonic()
            client.send(request("ping", "ping"))
            client.wait_for("ping")
            waited_s = time.monotonic() - since
            client.wait_for(*range(1, calls + 1))
        assert client.exit_code == 0, client.stderr.decode()
        return Outcome(since, waited_s, **json.loads(kept.read_text()))

    return pinged


def starved(spans: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    """Events of the spans of that name."""
    found = [event for span in spans if span["name"] == name for event in span["events"]]
    return [event for event in found if event["name"] == "mcp_probe.starved"]


@SDKS
def test_a_ping_that_no_thread_reads_names_who_has_them(sdk: str, run: Run) -> None:
    outcome = run(sdk, THREADS + 5)
    assert outcome.waited_s > HELD_MS / 2e3
    (event,) = starved(outcome.spans, "ping")
    _, got = outcome.true[-1]
    check(event, got - outcome.since_s)
    check_waits(outcome, THREADS + 5, long=1)  # the reader's


@SDKS
def test_a_ping_that_no_thread_answers_names_who_has_them_on_its_write_span(sdk: str, run: Run) -> None:
    outcome = run(sdk, THREADS)  # the last of them has taken the reader's own thread
    assert outcome.waited_s > HELD_MS / 2e3
    assert starved(outcome.spans, "ping") == []
    writes = [span for span in outcome.spans if span["name"] == "write"]
    (write,) = [span for span in writes if span["attributes"]["mcp.method.name"] == "ping"]
    (event,) = [event for event in write["events"] if event["name"] == "mcp_probe.starved"]
    asked, got = outcome.true[-2]  # the reader asks first, and gets the first thread
    check(event, got - asked)
    assert event["mcp_probe.quality"] == "exact"
    check_waits(outcome, THREADS, long=2)  # the reader's for the next line, and the writer's


def check(event: dict[str, Any], waited_s: float) -> None:
    """Its ends are as close as a tenth to what was waited for the thread."""
    assert event["mcp_probe.pool"] == "anyio_default_limiter"
    assert event["mcp_probe.holder"] == "slow"
    lo_s = event["mcp_probe.duration"]
    hi_s = event.get("mcp_probe.duration_max", lo_s)
    assert 0.9 * waited_s <= lo_s <= hi_s <= 1.1 * waited_s


def check_waits(outcome: Outcome, calls: int, *, long: int) -> None:
    """The histogram has the ``long`` waits that the client felt, and each of the others that anyio's queues had."""
    lines, answers = calls + 3, calls + 2
    jobs = lines + 1 + 2 * answers  # the end of stdin is read, too; an answer is written and flushed
    (sent,) = outcome.sent
    assert (sent["count"], len(outcome.true)) == (jobs, jobs)
    lengths = [got - asked for asked, got in outcome.true]
    assert min(lengths[-long:]) > HELD_MS / 2e3
    assert all(0 < got - outcome.since_s <= outcome.waited_s for _, got in outcome.true[-long:])
    assert sent["max"] == pytest.approx(lengths[-1], rel=0.05)
    assert sent["sum"] == pytest.approx(sum(lengths), rel=0.05)
    assert sent["min"] <= lengths[0] + 1e-3


@SDKS
def test_with_a_thread_left_nobody_is_starved(sdk: str, run: Run) -> None:
    outcome = run(sdk, THREADS - 5)
    assert [event for span in outcome.spans for event in span["events"] if event["name"] == "mcp_probe.starved"] == []
    (sent,) = outcome.sent
    assert sent["count"] == len(outcome.true)
    assert sent["max"] < HELD_MS / 2e3
