"""Servers are drawn from seeds: the same always, with drawn names, and with their causes where they are said to be."""

from __future__ import annotations

import ast
import random
import re
from collections import Counter
from pathlib import Path

import pytest

from tools.counterfactual import kind as kinds_of
from tools.counterfactual.draw import alone, compose, draw
from tools.counterfactual.kind import Kind, all_innocents, all_kinds

DEFINITIONS = (ast.AsyncFunctionDef, ast.FunctionDef, ast.ClassDef)


def test_there_are_enough_kinds_and_each_cites_its_report() -> None:
    kinds = all_kinds()
    assert len(kinds) >= 30
    assert all(re.search(r"[\w.-]+/[\w.-]+#\d+|documentation: \w+", kind.cites) for kind in kinds.values())
    assert {kind.state for kind in kinds.values()} == set(kinds_of.STATES)


def test_a_seed_always_gives_the_same_server() -> None:
    for seed in (2, 3, 101):
        assert draw(seed) == draw(seed)
        assert draw(seed).digest != draw(seed + 2).digest


def test_every_form_of_a_drawn_server_compiles_and_says_nothing_of_its_fault() -> None:
    for server in map(draw, range(2, 122)):
        assert len(server.sources) == len(server.causes) + 1
        for source in server.sources.values():
            assert "#!" not in source and "#?" not in source and "#:" not in source
            defined = [node.name for node in ast.parse(source).body if isinstance(node, DEFINITIONS)]
            assert len(defined) == len(set(defined))
            called = {caller.operation for caller in server.callers if not caller.operation.startswith("GET ")}
            assert called <= set(defined)


def test_one_server_in_eight_is_healthy_among_odd_and_even_seeds_alike() -> None:
    for parity in (0, 1):
        counts = Counter(len(draw(seed).causes) for seed in range(parity, 160, 2))
        assert counts[0] == 10
        assert min(counts[number] for number in (1, 2, 3)) > 0


def test_each_kind_comes_first_equally_often() -> None:
    amount = len(all_kinds())
    sick = [draw(seed) for seed in range(0, 16 * amount, 2)]
    counts = Counter(server.causes[0].kind for server in sick if server.causes)
    assert max(counts.values()) - min(counts.values()) <= 1


def test_a_cause_stands_where_its_source_has_it() -> None:
    server = alone(_kind(), "mcp2", "stdio")
    (cause,) = server.causes
    (line,) = cause.lines
    assert "time.sleep" in server.sources[None].split("\n")[line - 1]
    assert "    time.sleep(" not in server.sources[0]


def test_names_numbers_and_things_are_drawn_together() -> None:
    server = alone(_kind(), "mcp2", "stdio")
    (cause,) = server.causes
    (thing,) = cause.things
    assert thing != "LOCK" and f"{thing} = object()" in server.sources[None]
    assert "HOLD_MS" not in server.sources[None]
    other = alone(_kind(), "mcp2", "stdio", 1)
    assert other.sources[None] != server.sources[None]


def test_innocents_stand_beside_the_fault() -> None:
    innocent = next(one for one in all_innocents().values() if "mcp2" in one.sdks and "stdio" in one.transports)
    server = compose("7", "mcp2", "stdio", [_kind()], [innocent], random.Random(1))
    assert len(server.causes) == 1
    assert len({caller.operation for caller in server.callers}) >= 2


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("state: blocked", "state: tired"), "state: found tired"),
        (("mend: to-thread", "mend: hope"), "mend: found hope"),
        (("#!", ""), "no line of the sick form"),
        (("load: TOOL callers 2 calls 3", "load: TOOL often"), "load: found 'TOOL often'"),
        (("load: TOOL", "load: OTHER"), "load: found OTHER"),
        (("cites: a/b#1\n", ""), "no ['cites']"),
        (("thing: LOCK", "think: LOCK"), "'think: LOCK'"),
        (("thing: LOCK", "thing: TOOL"), "thing: found ['TOOL']"),
    ],
)
def test_a_file_that_breaks_the_format_is_refused(change: tuple[str, str], said: str) -> None:
    with pytest.raises(ValueError) as caught:
        kinds_of._parse("name", PIECE.replace(*change), is_fault=True)
    assert said in str(caught.value)


def _kind() -> Kind:
    return kinds_of._parse("blocked_loop", PIECE, is_fault=True)


PIECE = Path(__file__).with_name("piece.txt").read_text("utf-8")
