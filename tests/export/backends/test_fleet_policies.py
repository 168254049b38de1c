"""Each policy of the fleet's Collector alone, on what real servers send of requests that waited.

``test_fleet`` has all policies together; a request that starves is then kept for its wait in the transport, too.
"""

from __future__ import annotations

import http.client
import json
import re
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from tests.export.backends.collector import FLEET, Collector, collector_to_files, fleet_collector
from tests.export.backends.loopback import ROOT, eventually, running
from tests.export.backends.received import Span
from tests.safety.conversation import INITIALIZED, META, Conversation, call, initialize, request

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SERVER = Path(__file__).with_name("waiting_server.py")
THREADS = 40
HELD_MS = 1_500
QUICK = range(1, 21)
"""Requests for which nothing but a busy machine can have anybody wait."""

VICTIM = 99


def only_policy(name: str, folder: Path) -> Path:
    """The fleet's configuration with one policy, and without ClickHouse, which is not asked here."""
    text = FLEET.read_text("utf-8")
    head, policies, rest = re.split(r"(?<=\n    policies:\n)|(?=\nexporters:\n)", text)
    kept = [
        policy for policy in re.split(r"(?=^      - name: )", policies, flags=re.M) if f"- name: {name}\n" in policy
    ]
    assert len(kept) == 1
    path = folder / f"only-{name}.yaml"
    path.write_text(f"{head}{kept[0]}{rest}".replace(", clickhouse]", "]"), "utf-8")
    return path


@pytest.fixture
def kept_by(tmp_path: Path) -> Iterator[Any]:
    """Starts a Collector with one policy; gives its address, and whose files have what it keeps."""
    with ExitStack() as stack:

        def start(policy: str) -> tuple[Collector, Collector]:
            behind = stack.enter_context(collector_to_files(tmp_path))
            one = fleet_collector(
                tmp_path,
                traces=f"127.0.0.1:{behind.grpc_port}",
                metrics=behind.http,
                clickhouse="tcp://127.0.0.1:1",  # nobody asks it
                configuration=only_policy(policy, tmp_path),
            )
            return stack.enter_context(one), behind

        yield start


def sent_to(collector: Collector, service: str) -> dict[str, str]:
    return {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.http, "OTEL_SERVICE_NAME": service, "PYTHONPATH": str(ROOT)}


def traced(number: int) -> dict[str, str]:
    """Metadata of a request with a trace of its own."""
    return {"traceparent": f"00-{number:032x}-{1:016x}-01"}


def kept(behind: Collector, victim: int) -> dict[int, list[Span]]:
    """Spans that were kept, by the number of their trace, once the victim's are there."""

    def found() -> dict[int, list[Span]]:
        traces: dict[int, list[Span]] = {}
        for span in behind.spans():
            traces.setdefault(int(span.trace_id, 16), []).append(span)
        return traces

    assert eventually(lambda: victim in found()), found().keys()
    return found()


def test_a_real_starved_request_is_kept_for_that_alone(kept_by: Any) -> None:
    collector, behind = kept_by("starved")
    with Conversation([sys.executable, str(SERVER)], env=sent_to(collector, "starved")) as client:
        client.send(initialize(0))
        client.wait_for(0)
        client.send(INITIALIZED)
        for number in QUICK:
            client.send(call(number, "add", meta=traced(number), a=1, b=2))
            client.wait_for(number)
        # The 40th takes the last thread but the reader's, the next the reader's own, and nobody reads the ping.
        numbers = range(100, 105 + THREADS)
        client.send(*(call(number, "occupy", ms=HELD_MS) for number in numbers))
        client.send(request("ping", "ping", _meta=traced(VICTIM)))
        client.wait_for("ping", *numbers)
    assert client.exit_code == 0, client.stderr.decode()
    found = kept(behind, VICTIM)
    events = [event.attributes for span in found[VICTIM] for event in span.events if event.name == "mcp_probe.starved"]
    assert {event["mcp_probe.holder"] for event in events} == {"occupy"}
    assert not found.keys() >= set(QUICK)


def test_a_real_request_whose_arrival_is_bounded_is_kept_for_its_upper_end_alone(kept_by: Any, tmp_path: Path) -> None:
    """On a UNIX socket nobody knows when bytes came: only that the connection was empty some time before."""
    collector, behind = kept_by("held-up")
    path = tmp_path / "s"
    with (
        running(
            [sys.executable, str(SERVER), str(path)],
            log=tmp_path / "server.log",
            is_ready=path.exists,
            environment=sent_to(collector, "bounded"),
            ends_with=signal.SIGINT,
        ),
        closing(OnSocket(path)) as victim,
        closing(OnSocket(path)) as blocker,
    ):
        for number in QUICK:
            victim.send_call("add", number, a=1, b=2)
            victim.answer()
        blocker.send_call("hold", VICTIM + 1, ms=HELD_MS, sign=str(tmp_path / "held"))
        assert eventually((tmp_path / "held").exists)
        victim.send_call("add", VICTIM, a=1, b=2)
        victim.answer()
        blocker.answer()
    found = kept(behind, VICTIM)
    (span,) = [span for span in found[VICTIM] if span.kind == "SERVER"]
    assert float(span.attributes["mcp_probe.queue_wait.transport"]) < 0.1
    assert float(span.attributes["mcp_probe.queue_wait.transport_max"]) > 0.1
    assert not found.keys() >= set(QUICK)


class OnSocket(http.client.HTTPConnection):
    """One connection to a server on a UNIX socket, kept open."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", 80, timeout=120)
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(120)
        self.sock.connect(str(path))

    def send_call(self, tool: str, number: int, **arguments: Any) -> None:
        """Begins a call; :meth:`answer` ends it."""
        message = call(number, tool, modern=True, meta=traced(number), **arguments)
        headers: dict[str, str] = {
            "host": "localhost:80",  # http.client leaves the port 80 out, which the SDK does not take for its own
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
            "mcp-protocol-version": str(META["io.modelcontextprotocol/protocolVersion"]),
            "mcp-method": "tools/call",
            "mcp-name": tool,
        }
        self.request("POST", "/mcp", json.dumps(message), headers)

    def answer(self) -> None:
        with self.getresponse() as response:
            assert response.status == 200, response.read()
            response.read()
