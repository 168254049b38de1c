"""docs/telemetry.md is what is sent: what real servers emit is walked against its tables, and they against that."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import pytest

from mcp_probe.export import semantic_conventions as names
from mcp_probe.metrics import METRICS
from tests.docs.test_docs import ROOT
from tests.safety.conversation import Conversation, request

PAGE = ROOT / "docs" / "telemetry.md"
ROW = re.compile(r"^\| `([\w.*]+)` \| (.+) \|$", re.M)
CODE = re.compile(r"`([^`]+)`")
SCRIPT = ROOT / "tests" / "export" / "emitting.py"
Way = Literal["application", "ours", "replay"]
MEASURED = set(names.MEASURED.values())
MEASURE_ATTRIBUTES = {f"mcp_probe.{name}" for name in names.MEASURED}
WAYS: tuple[Way, ...] = ("application", "ours", "replay")

# Sent where something goes wrong or a socket is late, which a test cannot order.
OCCASIONAL = {names.UNACCOUNTED, names.CODE_FUNCTION_NAME, names.POOL, names.HOLDER}
OCCASIONAL_METRICS = (names.PROBE_DROPPED.name, *(metric.name for metric in names.MAXIMA.values()))
UPPER_ENDS = {names.upper_end(attribute) for attribute in names.BOUNDED}


def rows_of(heading: str) -> dict[str, list[str]]:
    """First column -> the others, of the tables between ``heading`` and the next of its level."""
    text = PAGE.read_text("utf-8")
    section = text.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    return {match[1]: [cell.strip() for cell in match[2].split(" | ")] for match in ROW.finditer(section)}


# --- the page and the code ---


def test_every_metric_of_the_code_has_its_row_as_it_is_and_no_other_has_one() -> None:
    expected = {
        metric.name: [
            metric.kind,
            metric.unit,
            list(metric.attributes),
            metric.exactness,
            metric.standing,
        ]
        for metric in names.METRICS
        if metric not in MEASURED  # one sentence is of all of them
    }
    found = {
        name: [kind, unit, CODE.findall(attributes), re.split(r"\W", exactness)[0], standing]
        for name, (kind, unit, attributes, exactness, standing) in rows_of("Metrics").items()
    }
    assert found == expected


def test_every_span_attribute_of_the_code_has_its_row_and_no_other_has_one() -> None:
    places = {
        "SERVER": (set(names.SERVER_SPAN_ATTRIBUTES) | set(content_rows())) - MEASURE_ATTRIBUTES,
        "phase": set(names.PHASE_ATTRIBUTES),
        "event": set(names.EVENT_ATTRIBUTES),
        "link": {names.LINK_KIND},
    }
    rows = rows_of("Spans")
    for place, attributes in places.items():
        assert {name for name, cells in rows.items() if place in cells[0].split(", ")} == attributes, place
    assert {name for name, cells in rows.items() if "opt-in" in cells[0]} == set(content_rows())


def test_every_number_that_can_be_bounded_names_its_upper_end() -> None:
    told = {name: set(CODE.findall(cells[2])) & UPPER_ENDS for name, cells in rows_of("Spans").items()}
    assert {name: ends for name, ends in told.items() if ends} == {
        attribute: {names.upper_end(attribute)} for attribute in names.BOUNDED
    }


@pytest.mark.parametrize(
    "found",
    [
        {
            *names.SERVER_SPAN_ATTRIBUTES,
            *names.PHASE_ATTRIBUTES,
            *names.EVENT_ATTRIBUTES,
            *names.CONTENT_ATTRIBUTES,
            *UPPER_ENDS,
            names.LINK_KIND,
            *(attribute for metric in names.METRICS for attribute in metric.attributes),
        },
        {
            *(metric.name for metric in names.METRICS),
            *(f"{metric.name}_{suffix}" for metric in names.EXPONENTIAL for suffix in names.STATISTICS),
        },
        {names.EVENT_BLOCKED_BY, names.EVENT_STARVED, names.EVENT_WAITED_FOR},
    ],
    ids=["attributes", "metrics", "events"],
)
def test_no_name_is_another_ones_namespace(found: set[str]) -> None:
    assert {(name, other) for name in found for other in found if other.startswith(f"{name}.")} == set()


def test_every_attribute_is_ours_by_its_prefix_or_one_of_the_conventions() -> None:
    spaces = {"mcp", "gen_ai", "jsonrpc", "rpc", "error", "network", "client", "code", "server", "db", "process"}
    spaces |= {"mcp_probe"}
    sent = {attribute for metric in names.METRICS for attribute in metric.attributes} | set(names.EVENT_ATTRIBUTES)
    sent |= set(names.SERVER_SPAN_ATTRIBUTES) | set(names.PHASE_ATTRIBUTES)
    assert {name for name in sent if "." not in name or name.split(".")[0] not in spaces} == set()


def content_rows() -> list[str]:
    """Content attributes as the page writes them: one is a prefix."""
    return [f"{key}.*" if key == names.GEN_AI_PROMPT_VARIABLE else key for key in names.CONTENT_ATTRIBUTES]


def test_what_is_ours_stands_under_our_name_and_nothing_else_does() -> None:
    for table, at in (("Metrics", 4), ("Spans", 3)):
        for name, cells in rows_of(table).items():
            assert (cells[at] == "ours") == name.startswith("mcp_probe."), name


def test_a_number_that_is_sent_goes_by_the_name_that_the_registry_gives_it() -> None:
    sent = {metric.name for metric in names.METRICS}
    given = {metric.otel for metric in METRICS.values() if metric.otel is not None}
    assert {name for name in given if name not in sent and f"{name}.mean" not in sent} == set()


def test_the_page_says_how_measures_are_sent() -> None:
    for metric in MEASURED:
        assert metric.name == f"mcp_probe.request.{metric.name.rsplit('.', 1)[1]}"
        assert (metric.attributes, metric.kind) == ((names.GEN_AI_TOOL_NAME,), "exponential histogram")
    assert "`mcp_probe.request.dns_wait` and `mcp_probe.dns_wait`" in PAGE.read_text("utf-8")


# --- what is emitted ---


@cache
def emitted(transport: str, **env: str) -> dict[str, Any]:
    """What a server of its own process has sent over its life."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "emitted.json"
        command = [sys.executable, str(SCRIPT), transport, str(path)]
        if transport == "stdio":
            with Conversation(command, env) as conversation:
                talk(conversation)
            assert conversation.exit_code == 0, conversation.stderr.decode()
        else:
            environment = {"PYTHONPATH": str(ROOT)}
            done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100, check=False)
            assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(path.read_text())
        return found


def talk(conversation: Conversation) -> None:
    """Everything once, and all at once where somebody must wait."""
    calls: list[tuple[str, dict[str, Any]]] = [
        ("tools/call", {"name": "block", "arguments": {"ms": 60}}),
        ("tools/call", {"name": "in_thread", "arguments": {}}),
        ("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}}),
        ("tools/call", {"name": "block", "arguments": {"ms": 60}}),
        ("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}}),
        ("tools/call", {"name": "crumbs", "arguments": {"count": 200}}),
        ("tools/call", {"name": "garbage", "arguments": {"objects": 60_000}}),
        ("tools/call", {"name": "fail", "arguments": {}}),
        ("tools/call", {"name": "guarded", "arguments": {"ms": 1500}}),  # so long that the next one finds it held
        ("tools/call", {"name": "guarded", "arguments": {"ms": 1}}),
        ("tools/call", {"name": "backends", "arguments": {}}),
        ("prompts/get", {"name": "greet", "arguments": {"name": "x"}}),
        ("resources/read", {"uri": "note://one"}),
        ("resources/read", {"uri": "note://none"}),
    ]
    messages = [
        request(number, method, modern=True, _meta={"traceparent": f"00-{number:032x}-{number:016x}-01"}, **params)
        for number, (method, params) in enumerate(calls, 1)
    ]
    conversation.send(*messages)
    conversation.wait_for(*range(1, len(messages) + 1))


def metrics_sent(way: Way) -> Iterator[dict[str, Any]]:
    of_measures = tuple(metric.name for metric in MEASURED)
    for transport in ("stdio", "http"):
        for metric in emitted(transport)["metrics"][way]:
            if not metric["name"].startswith(of_measures):
                yield metric


def spans_sent() -> Iterator[dict[str, Any]]:
    for transport in ("stdio", "http"):
        yield from emitted(transport)["spans"]


@pytest.mark.parametrize("way", WAYS)
def test_every_metric_that_is_sent_has_its_row_with_its_kind_unit_and_attributes(way: Way) -> None:
    rows = rows_of("Metrics")
    for metric in metrics_sent(way):
        name, kinds, units = metric["name"], [], []
        base, _, statistic = name.rpartition("_")
        if name not in rows and way == "application" and statistic in names.STATISTICS:
            name = base
            assert rows[name][0] == "exponential histogram"
            kinds = ["counter"] if statistic in ("count", "sum") else ["gauge"]
            units = ["{value}"] if statistic == "count" else [rows[name][1]]
        kind, unit, attributes, *_ = rows[name]
        replayed = way == "replay" and kind == "exponential histogram"
        assert metric["kind"] in (kinds or ["histogram" if replayed else kind]), metric["name"]
        assert metric["unit"] in (units or [unit]), metric["name"]
        assert set(metric["attributes"]) <= set(CODE.findall(attributes)), metric["name"]


@pytest.mark.parametrize("way", WAYS)
def test_every_metric_that_has_a_row_is_sent_with_every_attribute(way: Way) -> None:
    sent: dict[str, set[str]] = {}
    for metric in metrics_sent(way):
        sent.setdefault(metric["name"], set()).update(metric["attributes"])
    expected = {}
    for name, (kind, _, attributes, *_) in rows_of("Metrics").items():
        wanted = set(CODE.findall(attributes))
        split = way == "application" and kind == "exponential histogram"
        expected.update({f"{name}_{suffix}": wanted for suffix in names.STATISTICS} if split else {name: wanted})
    for found in (sent, expected):
        found[names.OPERATION_DURATION.name].discard(names.PARTIAL)
        for name in [name for name in found if name.startswith(OCCASIONAL_METRICS)]:
            if name != names.PROBE_DROPPED.name or way != "replay":
                found.pop(name)
    assert sent == expected


def test_operations_carry_exemplars_of_the_traces_that_their_callers_began() -> None:
    (operations,) = (
        m for m in emitted("stdio")["metrics"]["application"] if m["name"] == names.OPERATION_DURATION.name
    )
    assert operations["exemplars"] > 0


def test_every_attribute_event_and_link_of_a_span_has_its_row() -> None:
    rows = rows_of("Spans")
    for span in spans_sent():
        if span["kind"] == "CLIENT":
            continue  # the SDK's own
        place = "SERVER" if span["kind"] == "SERVER" else "phase"
        allowed = {name for name, cells in rows.items() if place in cells[0]}
        attributes = {prompt_variable_as_prefix(key) for key in span["attributes"]} - MEASURE_ATTRIBUTES
        assert attributes - UPPER_ENDS <= allowed, span["name"]
        assert place == "SERVER" or span["name"] in names.PHASE_SPANS
        assert set(span["links"]) <= {names.LINK_KIND}
        for event, keys in span["events"].items():
            assert event in (names.EVENT_BLOCKED_BY, names.EVENT_STARVED, names.EVENT_WAITED_FOR, "exception")
            told = {name for name, cells in rows.items() if "event" in cells[0]}
            assert event == "exception" or set(keys) <= told | UPPER_ENDS


def prompt_variable_as_prefix(key: str) -> str:
    return f"{names.GEN_AI_PROMPT_VARIABLE}.*" if key.startswith(f"{names.GEN_AI_PROMPT_VARIABLE}.") else key


def test_every_row_of_the_spans_table_is_sent() -> None:
    sent: set[str] = set()
    for span in spans_sent():
        sent.update(map(prompt_variable_as_prefix, span["attributes"]), span["links"])
        for keys in span["events"].values():
            sent.update(keys)
    assert set(rows_of("Spans")) - sent <= OCCASIONAL


def test_an_application_that_asks_for_a_replay_gets_real_histograms() -> None:
    sent = {
        metric["name"]: metric["kind"]
        for metric in emitted("stdio", MCP_PROBE_REPLAY_HISTOGRAMS="1")["metrics"]["application"]
    }
    always = (metric.name for metric in names.EXPONENTIAL if metric not in MEASURED)
    assert {sent[name] for name in always if not name.startswith(OCCASIONAL_METRICS)} == {"histogram"}
    assert f"{names.BUSY.name}_count" not in sent


def test_no_metric_carries_ids_uris_or_content() -> None:
    keys = {key for way in WAYS for metric in metrics_sent(way) for key in metric["attributes"]}
    private = {names.MCP_SESSION_ID, names.JSONRPC_REQUEST_ID, names.MCP_RESOURCE_URI, names.CLIENT_ADDRESS}
    assert not keys & private
    assert not [key for key in keys if key.startswith(names.CONTENT_ATTRIBUTES)]
