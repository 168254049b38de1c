"""What a client may write as it likes does nothing to a terminal, to a file's reader or to the labels of metrics."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_probe.aggregate.fold import Fold
from mcp_probe.export import semantic_conventions as names
from mcp_probe.export.labels import Labels
from mcp_probe.report.console import render
from tests.frames import make_request
from tests.harm.odd_input import HOSTILE, shows_raw

DRESSED = ("\x1b[31m", "\x9b2J", "[red]", "\u202e", "\u2066", "\r\n", "\x00", "\u2028", "</script>", "'; --", '"')
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
