"""Names in metrics are bounded, and a client cannot make them up."""

from __future__ import annotations

import pytest

from mcp_probe.export.labels import MAX_ERROR_TYPES, Labels
from mcp_probe.export.semantic_conventions import MAX_NAMES, MAX_UNPROVEN_NAMES, OTHER
from mcp_probe.model import CROWDING_OPERATION, LOOP_OPERATION, Outcome, RequestRecord
from tests.frames import make_request


def failed(name: str, error: str = "tool_error", outcome: Outcome = "tool_error") -> RequestRecord:
    return make_request(name=name, outcome=outcome, error=error)


def label(labels: Labels, record: RequestRecord) -> str | None:
    return dict(labels.tool(record)).get("gen_ai.tool.name")


def test_ten_thousand_tool_names_make_two_hundred_labels_and_other() -> None:
    labels = Labels()
    found = {label(labels, make_request(name=f"made-up-{n}")) for n in range(10_000)}

    assert len(found) == MAX_NAMES + 1
    assert OTHER in found


def test_a_name_keeps_its_label_once_it_has_one() -> None:
    labels = Labels()
    for n in range(10_000):
        label(labels, make_request(name=f"made-up-{n}"))

    assert label(labels, make_request(name="made-up-0")) == "made-up-0"
    assert label(labels, make_request(name="late")) == OTHER


def test_ten_thousand_failing_names_leave_room_for_those_that_work() -> None:
    labels = Labels()
    made_up = {label(labels, failed(f"made-up-{n}")) for n in range(10_000)}
    real = {label(labels, make_request(name=f"real-{n}")) for n in range(MAX_NAMES - MAX_UNPROVEN_NAMES)}

    assert len(made_up) == MAX_UNPROVEN_NAMES + 1
    assert OTHER not in real


def test_a_tool_that_has_only_failed_is_named_and_moves_out_of_the_few_once_it_works() -> None:
    labels = Labels()
    assert label(labels, failed("flaky")) == "flaky"
    label(labels, make_request(name="flaky"))
    named = {label(labels, failed(f"made-up-{n}")) for n in range(100)}

    assert len(named - {OTHER}) == MAX_UNPROVEN_NAMES


@pytest.mark.parametrize("code", ["-32601", "-32602", "-32600", "-32002"])
def test_a_name_in_a_request_that_was_refused_is_no_label(code: str) -> None:
    labels = Labels()
    refused = make_request(name="'; DROP TABLE", outcome="error", error=code, error_code=code)

    assert label(labels, refused) == OTHER
    assert label(labels, make_request(name="add")) == "add"
    assert label(labels, make_request(name="add", outcome="error", error=code, error_code=code)) == "add"


def test_a_method_that_nobody_serves_is_no_label() -> None:
    labels = Labels()
    made_up = make_request(name=None, method="evil/method", outcome="error", error="-32601", error_code="-32601")

    assert labels.method(made_up) == OTHER
    assert labels.method(make_request(name=None, method="prompts/list")) == "prompts/list"
    assert labels.method(make_request(name=None, method="acme/search")) == "acme/search"
    assert labels.known_method("acme/search") == "acme/search"
    assert labels.known_method("evil/method") == OTHER


def test_only_tools_have_a_tool_name() -> None:
    labels = Labels()
    prompt = make_request(name="summary", method="prompts/get")

    assert labels.tool(prompt) == ()
    assert labels.operation(prompt) == {
        "mcp.method.name": "prompts/get",
        "gen_ai.prompt.name": "summary",
        "network.transport": "pipe",
    }


def test_a_tool_call_has_the_attributes_of_the_conventions() -> None:
    record = make_request(name="add", transport="http", protocol_version="2025-06-18")
    assert Labels().operation(record) == {
        "mcp.method.name": "tools/call",
        "gen_ai.tool.name": "add",
        "gen_ai.operation.name": "execute_tool",
        "mcp.protocol.version": "2025-06-18",
        "network.transport": "tcp",
        "network.protocol.name": "http",
    }


def test_what_is_no_protocol_version_is_left_out() -> None:
    found = Labels().operation(make_request(protocol_version="2025-06-18<script>"))
    assert "mcp.protocol.version" not in found


def test_an_in_process_call_has_no_network() -> None:
    assert not {key for key in Labels().operation(make_request(transport="memory")) if key.startswith("network.")}


@pytest.mark.parametrize(
    ("outcome", "error", "code", "error_type"),
    [
        ("ok", None, None, None),
        ("tool_error", "tool_error", None, "tool_error"),
        ("cancelled", None, None, "cancelled"),
        ("error", "-32603", "-32603", "-32603"),
        ("error", "ValueError", "-32603", "-32603"),
        ("error", "ValueError", None, "ValueError"),
        ("error", None, None, "_OTHER"),
        ("error", "-32700", "-32700", None),
        ("error", "-32600", "-32600", None),
        ("error", "-32601", "-32601", None),
        ("error", "-32602", "-32602", None),
        ("error", "-32002", "-32002", None),
        ("error", "-32001", "-32001", "-32001"),
    ],
)
def test_what_is_the_clients_fault_is_no_error_of_the_operation(
    outcome: Outcome, error: str | None, code: str | None, error_type: str | None
) -> None:
    found = Labels().operation(make_request(outcome=outcome, error=error, error_code=code))
    assert (found.get("error.type"), found.get("rpc.response.status_code")) == (error_type, code)


def test_error_types_are_bounded() -> None:
    labels = Labels()
    found = {
        labels.operation(make_request(outcome="error", error=f"Error{n}"))["error.type"]
        for n in range(MAX_ERROR_TYPES + 100)
    }
    assert len(found) == MAX_ERROR_TYPES + 1
    assert "_OTHER" in found


def test_steps_of_an_operation_are_its_tools_once_a_call_of_it_has_been_seen() -> None:
    labels = Labels()
    labels.tool(make_request(name="add"))
    labels.operation(make_request(name="summary", method="prompts/get"))

    assert labels.tool_of("add") == (("gen_ai.tool.name", "add"),)
    assert labels.tool_of("summary") == ()
    assert labels.tool_of("tools/list") == ()
    assert labels.tool_of(LOOP_OPERATION) == ()
    assert labels.tool_of("beyond-the-cap") == (("gen_ai.tool.name", OTHER),)


def test_blockers_are_bounded_and_what_is_no_request_keeps_its_name() -> None:
    labels = Labels()
    found = {labels.blocker(f"blocker-{n}") for n in range(10_000)}

    assert len(found) == MAX_UNPROVEN_NAMES + 1
    assert labels.blocker(LOOP_OPERATION) == LOOP_OPERATION
    assert labels.blocker(CROWDING_OPERATION) == "(small_steps)"


def test_executor_names_are_bounded() -> None:
    labels = Labels()
    assert len({labels.executor(f"pool-{n}") for n in range(10_000)}) == MAX_NAMES + 1
