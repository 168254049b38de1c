"""Which tools of a server are called, with what, and what a page says of the others."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from mcp_probe.errors import OptionError
from mcp_probe.workloads.bench.own.operations import MOST_READ, OwnServer, Tool, tools_of
from mcp_probe.workloads.load.peer import Target

TARGET = Target(command=("server",))
AGAIN = "mcp-probe bench --server 'python server.py'"


def offered(name: str, schema: Any = None, **annotations: bool) -> dict[str, Any]:
    return {"name": name, "inputSchema": schema or {}, "annotations": annotations}


NEEDS = {"type": "object", "properties": {"item": {"enum": ["tea", "cake"]}}, "required": ["item"]}
NEEDS_URL = {"type": "object", "properties": {"url": {"type": "string", "format": "uri"}}, "required": ["url"]}


def tool_of(tool: dict[str, Any], **more: Any) -> Tool:
    (found,) = tools_of([tool], OwnServer(TARGET, again=AGAIN, **more))
    return found


def test_a_read_only_tool_is_called_at_once_with_what_its_schema_proposes() -> None:
    found = tool_of(offered("price", NEEDS, readOnlyHint=True))
    assert (found.is_called, found.arguments) == (True, {"item": "tea"})
    assert found.reason == 'Called, the server declares it read-only: {"item": "tea"} (item: choice)'


@pytest.mark.parametrize(
    ("annotations", "why"),
    [
        ({}, "the server does not declare it read-only"),
        ({"readOnlyHint": False}, "the server does not declare it read-only"),
        ({"readOnlyHint": True, "openWorldHint": True}, "it reads from systems of others, as the server says"),
    ],
)
def test_what_may_change_or_burden_something_waits_for_a_word(annotations: dict[str, bool], why: str) -> None:
    found = tool_of(offered("order", NEEDS, **annotations))
    assert not found.is_called
    assert found.reason == f'Not called: {why}. Proposed: {{"item": "tea"}} (item: choice)'
    assert shlex.split(found.command)[-2:] == ["--call", 'order={"item": "tea"}']
    assert found.command.startswith(AGAIN)
    assert tool_of(offered("order", NEEDS, **annotations), yes=True).is_called
    named = tool_of(offered("order", NEEDS, **annotations), calls={"order": {"item": "pie"}})
    assert (named.is_called, named.is_named, named.arguments) == (True, True, {"item": "pie"})


def test_a_tool_without_known_arguments_is_not_called_even_with_yes() -> None:
    found = tool_of(offered("fetch", NEEDS_URL, readOnlyHint=True), yes=True)
    assert not found.is_called
    assert found.reason.startswith("Not called: argument url is a URL, and nothing says whose server may be asked")
    assert shlex.split(found.command)[-1] == 'fetch={"url": "…"}'


def test_the_named_tool_is_called_and_no_other() -> None:
    both = [offered("price", NEEDS, readOnlyHint=True), offered("order", NEEDS)]
    price, order = tools_of(both, OwnServer(TARGET, tool="order", arguments={"item": "tea"}))
    assert (price.is_called, order.is_called) == (False, True)
    assert "only order was asked for" in price.reason


def test_of_many_tools_the_first_are_called_and_each_of_the_others_says_so() -> None:
    many = [offered(f"look{number}", readOnlyHint=True) for number in range(MOST_READ + 2)]
    *first, ninth, _ = tools_of(many, OwnServer(TARGET))
    assert all(tool.is_called for tool in first)
    assert (ninth.is_called, ninth.reason) == (
        False,
        "Not called: of 10 read-only tools only the first 8 are, without --yes",
    )
    *_, last = tools_of(many, OwnServer(TARGET, calls={"look9": {}}))
    assert last.is_called
    assert all(tool.is_called for tool in tools_of(many, OwnServer(TARGET, yes=True)))


def test_a_tool_that_is_not_there_is_refused_by_name() -> None:
    with pytest.raises(OptionError, match=r"no tool tea; it has price"):
        tools_of([offered("price")], OwnServer(TARGET, calls={"tea": {}}))
