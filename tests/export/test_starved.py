"""stdio's reader and writer want threads of the pool that the tools have taken: victims' spans say so."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from tests.safety.conversation import Conversation, request

SERVER = Path(__file__).with_name("starving.py")
THREADS = 40
"""Of anyio's default limiter."""

HELD_MS = 3000
ABOUT: dict[str, Any] = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "raw", "version": "1"},
}


def run(folder: Path, calls: int) -> tuple[float, list[dict[str, Any]]]:
    """Seconds that a ping took beside so many calls of the slow tool, and all spans."""
    kept = folder / "spans.json"
    with Conversation([sys.executable, str(SERVER), str(kept)]) as client:
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
    return waited_s, json.loads(kept.read_text())


def starved(spans: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    """Events of the spans of that name."""
    found = [event for span in spans if span["name"] == name for event in span["events"]]
    return [event for event in found if event["name"] == "mcp_probe.starved"]


def test_a_ping_that_no_thread_reads_names_who_has_them(tmp_path: Path) -> None:
    waited_s, spans = run(tmp_path, THREADS + 5)
    assert waited_s > HELD_MS / 2e3
    (event,) = starved(spans, "ping")
    check(event, waited_s)


def test_a_ping_that_no_thread_answers_names_who_has_them_on_its_write_span(tmp_path: Path) -> None:
    waited_s, spans = run(tmp_path, THREADS)  # the last of them has taken the reader's own thread
    assert waited_s > HELD_MS / 2e3
    assert starved(spans, "ping") == []
    (write,) = [span for span in spans if span["name"] == "write" and span["attributes"]["mcp.method.name"] == "ping"]
    (event,) = [event for event in write["events"] if event["name"] == "mcp_probe.starved"]
    check(event, waited_s)
    assert event["mcp_probe.quality"] == "exact"


def check(event: dict[str, Any], waited_s: float) -> None:
    """It is what the client waited, to a tenth; or its ends hold that."""
    assert event["mcp_probe.pool"] == "anyio_default_limiter"
    assert event["mcp_probe.holder"] == "slow"
    lo_s = event["mcp_probe.duration"]
    hi_s = event.get("mcp_probe.duration_max", lo_s)
    assert lo_s <= 1.1 * waited_s
    assert 0.9 * waited_s <= hi_s <= 1.1 * HELD_MS / 1e3


def test_with_a_thread_left_nobody_is_starved(tmp_path: Path) -> None:
    _, spans = run(tmp_path, THREADS - 5)
    assert [event for span in spans for event in span["events"] if event["name"] == "mcp_probe.starved"] == []
