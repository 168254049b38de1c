from __future__ import annotations

from typing import Any

import pytest

from mcp_probe.capture.tracing import Message
from mcp_probe.export.span_attributes import MAX_CONTENT, Content

CALL = Message("tools/call", {"name": "add", "arguments": {"a": 1}}, None)
PROMPT = Message("prompts/get", {"name": "greet", "arguments": {"name": "you"}}, None)
READ = Message("resources/read", {"uri": "note://1"}, None)


@pytest.mark.parametrize("message", [CALL, PROMPT, READ], ids=lambda message: message.method)
def test_nothing_is_shown_where_nothing_was_named(message: Message) -> None:
    content = Content()
    assert not content
    assert content.of_request(message) == {}
    assert content.of_result(message, {"content": "x"}) == {}


@pytest.mark.parametrize(
    ("kind", "message", "result", "expected"),
    [
        ("arguments", CALL, None, {"gen_ai.tool.call.arguments": '{"a": 1}'}),
        ("result", CALL, {"content": []}, {"gen_ai.tool.call.result": '{"content": []}'}),
        ("prompt", PROMPT, None, {"gen_ai.prompt.variable.name": "you"}),
        ("resource", READ, {"contents": ["x"]}, {"mcp_probe.resource.contents": '{"contents": ["x"]}'}),
    ],
)
def test_each_kind_shows_itself_and_no_other(kind: str, message: Message, result: Any, expected: Any) -> None:
    content = Content([kind])
    shown = {}
    for one in (CALL, PROMPT, READ):
        shown.update(content.of_request(one))
        if one is message and result is not None:
            shown.update(content.of_result(one, result))
    assert shown == expected


def test_content_is_cut_and_redaction_sees_it_whole() -> None:
    long = Message("tools/call", {"arguments": {"text": "x" * 100_000}}, None)
    sizes = []

    def redact(kind: str, value: Any) -> Any:
        sizes.append(len(value["text"]))
        return value

    [shown] = Content(["arguments"], redact).of_request(long).values()
    assert sizes == [100_000]
    assert isinstance(shown, str)
    assert len(shown) == MAX_CONTENT


def test_what_redaction_returns_is_what_is_shown() -> None:
    assert Content(["arguments"], lambda kind, value: None).of_request(CALL) == {}
    assert Content(["arguments"], lambda kind, value: {"a": kind}).of_request(CALL) == {
        "gen_ai.tool.call.arguments": '{"a": "arguments"}'
    }


def test_a_redaction_that_fails_shows_nothing() -> None:
    def redact(kind: str, value: Any) -> Any:
        raise KeyError(value)

    content = Content(["arguments", "prompt"], redact)
    assert content.of_request(CALL) == {}
    assert content.of_request(PROMPT) == {}


def test_a_model_is_shown_as_it_goes_over_the_wire() -> None:
    class Result:
        def model_dump(self, *, mode: str, by_alias: bool, exclude_none: bool) -> dict[str, Any]:
            return {"mode": mode, "isError": by_alias and exclude_none}

    [shown] = Content(["result"]).of_result(CALL, Result()).values()
    assert shown == '{"mode": "json", "isError": true}'
