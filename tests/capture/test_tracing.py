from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from mcp_probe.capture.tracing import MAX_STATE, MAX_URI, Message, Parent, param_of, parent_of, text_of, uri_of

TRACE = "0af7651916cd43dd8448eb211c80319c"
SPAN = "b7ad6b7169203331"


@pytest.mark.parametrize(
    ("text", "flags"),
    [
        (f"00-{TRACE}-{SPAN}-01", 1),
        (f"00-{TRACE}-{SPAN}-00", 0),
        (f" 00-{TRACE}-{SPAN}-03 ", 3),
        (f"00-{TRACE}-{SPAN}-ff", 3),
        (f"cc-{TRACE}-{SPAN}-01-what the future brings", 1),
    ],
)
def test_a_callers_context_is_read_as_w3c_says(text: str, flags: int) -> None:
    assert parent_of({"traceparent": text}) == Parent(int(TRACE, 16), SPAN, flags, None)


@pytest.mark.parametrize(
    "meta",
    [
        None,
        {},
        {"traceparent": 7},
        {"traceparent": ""},
        {"traceparent": f"ff-{TRACE}-{SPAN}-01"},
        {"traceparent": f"00-{TRACE}-{SPAN}-01-more"},
        {"traceparent": f"00-{'0' * 32}-{SPAN}-01"},
        {"traceparent": f"00-{TRACE}-{'0' * 16}-01"},
        {"traceparent": f"00-{TRACE.upper()}-{SPAN}-01"},
        {"tracestate": "vendor=1"},
    ],
)
def test_what_is_no_callers_context_is_none(meta: Any) -> None:
    assert parent_of(meta) is None


@pytest.mark.parametrize(
    ("state", "kept"), [("vendor=1", "vendor=1"), ("", None), (5, None), ("v=" + "x" * MAX_STATE, None)]
)
def test_a_state_is_kept_whole_or_not_at_all(state: Any, kept: str | None) -> None:
    found = parent_of({"traceparent": f"00-{TRACE}-{SPAN}-01", "tracestate": state})
    assert found is not None
    assert found.state == kept


def test_strings_of_a_client_are_cut() -> None:
    assert uri_of(Message("resources/read", {"uri": "x" * 9_999}, None)) == "x" * MAX_URI
    assert uri_of(Message("resources/read", {}, None)) is None
    assert text_of("x" * 999) == "x" * 128
    assert text_of(5) is None


@pytest.mark.parametrize(
    ("uri", "kept"),
    [
        ("https://u:secret@host:1/a", "https://host:1/a"),
        ("https://secret@host", "https://host"),
        ("db://u:p@secret@host/a", "db://host/a"),
        ("https://host/a?key=secret", "https://host/a"),
        ("https://host/a#secret", "https://host/a"),
        ("https://u:secret@host/a?b=secret#secret", "https://host/a"),
        ("https://host?x=secret@y", "https://host"),
        ("note:a?secret\nsecret", "note:a"),
        ("//secret@host/a", "//host/a"),
        ("mail://host/a@b", "mail://host/a@b"),
    ],
)
def test_a_uri_has_no_user_password_query_or_fragment(uri: str, kept: str) -> None:
    assert uri_of(Message("resources/read", {"uri": uri}, None)) == kept


def test_parameters_are_found_in_mappings_and_models() -> None:
    assert param_of({"uri": 1}, "uri") == 1
    assert param_of(SimpleNamespace(uri=2), "uri") == 2
    assert param_of(None, "uri") is None
