"""What a client or a server may write as it likes does nothing to a terminal, to a page, to a script, to a file's
reader or to the labels of metrics."""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from html.parser import HTMLParser
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_probe.aggregate.fold import Fold
from mcp_probe.export import semantic_conventions as names
from mcp_probe.export.labels import Labels
from mcp_probe.report.console import render
from mcp_probe.report.page.markup import plain
from mcp_probe.workloads.bench.html import _page
from mcp_probe.workloads.bench.shapes import Results
from mcp_probe.workloads.load.export import Tool, script_of
from mcp_probe.workloads.load.mix import Call, Mix
from mcp_probe.workloads.load.peer import Target
from tests.frames import make_request
from tests.harm.odd_input import HOSTILE, shows_raw
from tests.workloads.bench.made import check, result, results, row, stats

DRESSED = ("\x1b[31m", "\x9b2J", "[red]", "\u202e", "\u2066", "\r\n", "\x00", "\u2028", "</script>", "'; --", '"')
MARKUP = (
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    '"><svg onload=alert(1)>',
    "' onmouseover='alert(1)",
    "</style></title>",
    "<!--",
    "]]>",
    "&lt;b&gt;",
    "@@HEADERS@@",
    "$\\frac{$",
)
texts = st.one_of(
    st.sampled_from(HOSTILE),
    st.text(max_size=140),
    st.lists(st.sampled_from(DRESSED), min_size=1, max_size=5).map("".join),
)


@settings(max_examples=20)
@given(st.lists(texts, min_size=1, max_size=4, unique=True), texts, texts)
def test_console_and_json_show_them_harmless(tools: list[str], method: str, error: str) -> None:
    fold = Fold()
    for tool in tools:
        fold.add(make_request(name=tool, method="tools/call"))
    fold.add(make_request(name=None, method=method, outcome="error", error=error))
    summary = fold.summary()
    for color in (False, True):
        assert shows_raw({"console": render(summary, color=color)}) == []
    shown = json.dumps(summary.to_json(), ensure_ascii=True)
    assert shown.isprintable()
    assert {row["name"] for row in json.loads(shown)["operations"]} >= set(filter(None, tools))


@settings(max_examples=20)
@given(st.lists(texts, max_size=30), st.sampled_from(sorted(names.NOT_AN_ERROR_CODES)))
def test_names_of_refused_requests_are_no_labels(made_up: list[str], code: str) -> None:
    labels = Labels()
    known = make_request(name="add", method="tools/call")
    assert labels.name(known) == "add"
    for name in made_up:
        refused = make_request(name=name, method="tools/call", outcome="error", error_code=code)
        assert labels.name(refused) in (names.OTHER, "add")
        unknown = make_request(name=None, method=name, outcome="error", error_code=code)
        assert labels.method(unknown) in {names.OTHER, *names.KNOWN_METHODS}
        assert labels.version(name) == {}
    assert labels.name(known) == "add"


@settings(max_examples=20)
@given(st.lists(texts, max_size=40))
def test_series_are_bounded_however_many_names_fail(made_up: list[str]) -> None:
    labels = Labels()
    failing = [*made_up, *(f"made up {number}" for number in range(300))]
    found = {labels.name(make_request(name=name, method="tools/call", outcome="error", error="X")) for name in failing}
    assert len(found) <= names.MAX_UNPROVEN_NAMES + 1


class Structure(HTMLParser):
    """The tags and attributes of a page, how often each, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: Counter[tuple[str, str]] = Counter()
        self.text: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = " ".join(name for name, _ in attrs)
        self.tags[tag, names] += 1

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    def handle_comment(self, data: str) -> None:
        self.tags["a comment", ""] += 1

    def handle_decl(self, decl: str) -> None:
        self.tags["declared", decl] += 1

    def unknown_decl(self, data: str) -> None:
        self.tags["declared", data] += 1


WORDS = 18
words = st.lists(
    st.one_of(st.lists(st.sampled_from(MARKUP), min_size=1, max_size=3).map("".join), texts).filter(str.strip),
    min_size=WORDS,
    max_size=WORDS,
    unique_by=str.strip,
)


def page_of(named: list[str]) -> Results:
    """Results of which every text is somebody else's; without places along an axis, so nothing is drawn."""
    left = iter(named)
    rows = [
        row(next(left), stats(2.0), table=f"000 {next(left)}", x=None, protocol=next(left), why=next(left)),
        row(next(left), None, table="000 own", x=None, note=next(left), unit="ms"),
    ]
    claim = check(
        f"000-{next(left)}", sentence=next(left), documented=next(left), measured=next(left), tolerance=next(left),
        why=next(left),
    )  # fmt: skip
    own = result(
        *rows, checks=(claim,), name=next(left), notes=(next(left),), missing=(next(left),), documents=("000",),
        error=next(left),
    )  # fmt: skip
    machine: dict[str, Any] = {"cpu": next(left), "system": next(left)}
    assert not list(left)
    return results(own, **machine)


@settings(max_examples=40)
@given(words)
def test_a_page_has_the_same_tags_whatever_its_texts_are(named: list[str]) -> None:
    shown = Structure(_page(page_of(named)))
    assert shown.tags == Structure(_page(page_of([f"word {number}" for number in range(WORDS)]))).tags
    text = " ".join("".join(shown.text).split())
    assert " ".join(plain(named[0]).split()) in text
    assert "\x1b" not in text and "\u202e" not in text


@settings(max_examples=40)
@given(st.sampled_from(["locust", "k6"]), words)
def test_a_script_for_another_tool_holds_them_as_values(tool: Tool, named: list[str]) -> None:
    calls = [Call("tools/call", ({"name": name, "arguments": {name: name}},), 1.0) for name in named]
    target = Target(url=f"http://host/{named[0]}", headers={"x": named[1]})
    text = script_of(tool, Mix(tuple(calls)), target)
    if tool == "locust":
        values = {
            node.targets[0].id: ast.literal_eval(node.value)
            for node in ast.parse(text).body
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id in
            ("URL", "HEADERS", "CALLS")
        }  # fmt: skip
    else:
        values = {name: json.loads(value) for name, value in re.findall(r"const (URL|HEADERS|CALLS) = (.*);", text)}
    assert (values["URL"], values["HEADERS"]["x"]) == (target.url, named[1])
    assert [call["orders"][0]["params"]["name"] for call in values["CALLS"]] == named
