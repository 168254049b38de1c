"""Ids without OpenTelemetry: what is decided, and that nothing of it is imported."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from mcp_probe.capture.hub import Hub
from mcp_probe.capture.tracing import Message
from mcp_probe.export.generated_ids import GeneratedIds
from mcp_probe.record.raw import RawRequest

ROOT = Path(__file__).resolve().parent.parent.parent
TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"

ALONE = """
import json, sys
sys.path.insert(0, sys.argv[1])
from mcp_probe.capture.hub import Hub
from mcp_probe.capture.tracing import Message
from mcp_probe.export.generated_ids import GeneratedIds
from mcp_probe.record.raw import RawRequest

raw = RawRequest(1, "request", "resources/read", None, "http")
message = Message("resources/read", {"uri": "note://" + "x" * 999}, {"traceparent": sys.argv[2]}, "session")
minted = GeneratedIds()
scope = minted.begin(Hub(), raw, message)
print(json.dumps([scope, raw.trace_id, raw.parent_span_id, raw.trace_flags, raw.server_span, raw.session_id,
                  len(raw.resource_uri), bool(raw.span_id), minted.carry(), minted.listens(),
                  [name for name in sys.modules if name.startswith("opentelemetry")]]))
"""


def test_a_foreign_interpreter_gets_ids_and_no_opentelemetry() -> None:
    command = [sys.executable, "-I", "-S", "-c", ALONE, str(ROOT), TRACEPARENT]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    trace_id = 0x0AF7651916CD43DD8448EB211C80319C
    expected: list[object] = [None, trace_id, "b7ad6b7169203331", 0, None, "session", 256, True, None, True, []]
    assert json.loads(done.stdout) == expected


def test_a_request_without_a_caller_begins_a_trace_of_its_own() -> None:
    minted = GeneratedIds()
    found = set()
    for number in range(1, 50):
        raw = RawRequest(number, "request", "ping", None, "stdio")
        scope = minted.begin(Hub(), raw, Message("ping", None, None))
        if scope is not None:  # something in this process has loaded the API
            minted.end(scope, None, None)
        assert raw.trace_flags == 1
        assert raw.trace_id
        assert raw.span_id
        found.add((raw.trace_id, raw.span_id))
    assert len(found) == 49


def test_a_request_that_has_ids_keeps_them() -> None:
    raw = RawRequest(1, "request", "ping", None, "stdio")
    raw.span_id = 5
    assert GeneratedIds().begin(Hub(), raw, Message("ping", None, None)) is None
    assert raw.span_id == 5
