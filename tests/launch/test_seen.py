"""The doctor's table: what is found becomes a word, and each word that is not `exact` has its reason."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest

from mcp_probe.launch import sight
from mcp_probe.launch.seen import ABSENT, Row, blocks, is_blind, rows
from mcp_probe.launch.sight import Facts, look
from mcp_probe.process import PROCESS
from mcp_probe.report.blocks import Paragraph
from mcp_probe.report.layout import lay_out
from mcp_probe.report.paint import paint
from mcp_probe.report.theme import glyphs

EXACT = {"steps": "exact", "wake_ups": "exact", "sockets": "bounded", "polls": "exact"}
WHOLE = Facts(
    python="3.12.1",
    executable="/a/python",
    system="Linux x86_64",
    packages={"mcp": "2.3.0", "uvicorn": "0.30"},
    hooks={
        "accelerator": "active",
        "awaits (locks)": "active",
        "executors (anyio)": "active",
        "http reads": "active",
        "http transport": "active",
        "memory": "active (light: native-hybrid, all)",
        "steps (asyncio)": "active",
        "stdio transport": "active",
    },
    loops={"asyncio": EXACT, "uvloop": {**EXACT, "polls": "estimate"}},
    absent={"trio": "trio is not installed"},
)


def table(facts: Facts, telemetry: str = "") -> dict[str, Row]:
    return {row.what: row for row in rows(facts, telemetry)}


def with_hook(name: str, state: str) -> Facts:
    return replace(WHOLE, hooks={**WHOLE.hooks, name: state})


def without(prefix: str) -> Facts:
    return replace(WHOLE, hooks={name: state for name, state in WHOLE.hooks.items() if not name.startswith(prefix)})


def shown(facts: Facts, width: int) -> list[str]:
    lines = lay_out(blocks(facts, ""), width, glyphs(color=False, ascii_only=False))
    return paint(lines, "none").splitlines()


def test_where_all_works_each_loop_has_its_own_column() -> None:
    found = table(WHOLE)
    assert found["requests"].tags == ("exact",)
    assert found["the loop's idle time"].tags == ("exact", "estimate")
    assert found["memory"].tags == ("bounded",)
    assert found["telemetry"].tags == ("ready",)
    assert ABSENT not in {tag for row in found.values() for tag in row.tags}
    assert not is_blind(WHOLE)


@pytest.mark.parametrize(
    ("facts", "what", "tag", "because"),
    [
        (with_hook("stdio transport", "no wrapper"), "queue, stdio", ABSENT, "no wrapper"),
        (with_hook("stdio transport", "no wrapper"), "writes", "lower", "no wrapper"),
        (with_hook("executors (anyio)", "gone"), "thread pools", ABSENT, "gone"),
        (with_hook("awaits (locks)", "gone"), "awaits", ABSENT, "gone"),
        (without("awaits"), "awaits", ABSENT, "switched off"),
        (with_hook("memory", "does not apply: switched off"), "memory", ABSENT, "switched off"),
        (with_hook("memory", "active (light: payload sizes only (x))"), "memory", ABSENT, "payload sizes only (x)"),
        (with_hook("memory", "active (detailed: native-shadow, all)"), "memory", "exact", "detailed: all"),
        (with_hook("memory", "active (detailed: tracemalloc, all)"), "memory", "estimate", "tracemalloc"),
        (with_hook("accelerator", "not built here"), "accelerator", ABSENT, "not built here"),
        (replace(WHOLE, packages={"mcp": "2.3.0"}), "queue, HTTP", ABSENT, "neither uvicorn nor hypercorn"),
        (replace(WHOLE, absent={"sockets": "only Linux"}), "queue, HTTP", "bounded", "only Linux"),
        (replace(WHOLE, absent={"run queue": "only Linux"}), "waiting for a CPU", ABSENT, "only Linux"),
        (replace(WHOLE, loops={"trio": EXACT}), "queue, HTTP", ABSENT, "only hypercorn"),
        (
            replace(with_hook("steps (asyncio)", "names are gone"), loops={"asyncio": {"steps": "unavailable"}}),
            "steps",
            ABSENT,
            "names are gone",
        ),
    ],
)  # fmt: skip
def test_what_does_not_work_is_said_with_its_reason(facts: Facts, what: str, tag: str, because: str) -> None:
    row = table(facts)[what]
    assert set(row.tags) == {tag}
    assert because in row.because


def test_telemetry_that_cannot_be_sent_says_what_to_install() -> None:
    assert table(WHOLE, "install x")["telemetry"] == Row("telemetry", (ABSENT,), "install x")


def test_where_no_request_is_seen_what_rests_on_requests_has_no_row() -> None:
    blind = replace(WHOLE, absent={"requests": "this Python has no package mcp"})
    found = table(blind)
    assert is_blind(blind)
    assert found["requests"] == Row("requests", (ABSENT,), "this Python has no package mcp")
    assert not {"queue, stdio", "writes", "thread pools", "awaits"} & found.keys()


@pytest.mark.parametrize("width", [60, 80, 120])
def test_every_line_fits_and_every_loop_is_named(width: int) -> None:
    facts = replace(WHOLE, hooks={**WHOLE.hooks, "gc": "a long reason " * 12})
    lines = shown(facts, width)
    assert max(map(len, lines)) <= width
    assert any("asyncio" in line and "uvloop" in line for line in lines)
    assert "trio is not installed." in lines
    assert any(line.startswith("gc: ") for line in lines)


def test_hooks_that_work_are_named_where_all_are_asked_for() -> None:
    faulty = with_hook("gc", "no callbacks")
    for every_hook, wanted in ((False, {"gc"}), (True, faulty.hooks.keys())):
        found = blocks(faulty, "", every_hook=every_hook)
        leads = {block.lead[0].text.rstrip(": ") for block in found if isinstance(block, Paragraph) and block.lead}
        assert leads == wanted


def test_the_facts_of_a_real_interpreter_travel_as_json_and_nothing_stays_attached() -> None:
    found = look()
    assert Facts(**json.loads(json.dumps(found.to_json()))) == found
    assert found.loops.keys() | found.absent.keys() >= {"asyncio", "uvloop", "trio"}
    assert found.loops["asyncio"] == EXACT
    assert "requests" not in found.absent
    assert PROCESS.sessions == []


def test_a_loop_that_cannot_be_run_and_a_server_that_cannot_be_attached_are_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken() -> asyncio.AbstractEventLoop:
        raise OSError("no more files")

    monkeypatch.setattr(asyncio, "new_event_loop", broken)
    monkeypatch.setattr(sight, "_attach", lambda probe, packages: "UnsupportedServerError: unknown")
    found = look()
    assert found.absent["asyncio"] == "OSError: no more files"
    assert found.absent["requests"] == "UnsupportedServerError: unknown"
