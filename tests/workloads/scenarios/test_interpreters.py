"""Which CPythons are compared, what they are called, and which two a claim may be about."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from mcp_probe.errors import LaunchError
from mcp_probe.workloads.bench.context import Bench
from mcp_probe.workloads.scenarios import interpreters as searched
from mcp_probe.workloads.scenarios.interpreters import Interpreter, alike, asked, interpreters, labelled, widest
from mcp_probe.workloads.servers.any_sdk import worked

PLAIN, OTHER = ("-O3",), ("-O2", "PGO")


def made(minor: int, patch: int = 0, options: tuple[str, ...] = PLAIN, place: str = "") -> Interpreter:
    path = Path(f"/opt/{minor}.{patch}{place}/bin/python")
    return Interpreter(path, (3, minor, patch), "2.3.0", "GCC 12.2.0", options, f"/opt/{minor}.{patch}{place}")


def stand_in(folder: Path, line: str) -> Path:
    """A command that prints ``line``, whatever it is asked."""
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{line}\n", "utf-8")
    path.chmod(0o755)
    return path


def test_this_interpreter_says_its_version_and_its_mcp() -> None:
    found = asked(Path(sys.executable))
    assert found.numbers == sys.version_info[:3]
    assert found.sdk
    assert found.build.startswith(found.compiler)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("exit 3", "is no CPython"),
        ("echo hello", "is no Python that starts"),
        ('echo \'{"implementation": "PyPy"}\'', "is no CPython; asked what it is, it said: PyPy"),
        ('echo \'{"implementation": "CPython", "sdk": null}\'', "has no mcp; make an environment that has: "),
    ],
)
def test_what_is_no_cpython_with_mcp_is_refused_with_what_to_do(tmp_path: Path, line: str, told: str) -> None:
    path = stand_in(tmp_path, line)
    with pytest.raises(LaunchError, match=told):
        asked(path)
    with pytest.raises(LaunchError, match="no Python that starts"):
        asked(tmp_path / "nothing")


def test_a_version_that_is_not_here_is_named_with_the_way_to_give_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searched, "ENVS", tmp_path)
    bench = Bench(quick=True)
    found = interpreters(bench)
    here = sys.version_info[:2]
    assert [one.minor for one in found] == ([here] if here in searched.MINORS else [])
    missing = bench.outcome().missing
    expected = [f"3.{minor}" for minor in (11, 12, 13, 14) if (3, minor) != here]
    assert [each.split()[1] for each in missing] == expected
    assert all("--python PATH" in each and "make pythons" in each for each in missing)


def test_an_interpreter_is_compared_once_however_often_it_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searched, "ENVS", tmp_path)
    assert len(interpreters(Bench(quick=True, pythons=[Path(sys.executable)]))) == 1


def test_of_those_that_nobody_named_only_what_has_the_same_mcp_is_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searched, "ENVS", tmp_path)
    told = '{"implementation": "CPython", "numbers": [3, 14, 8], "sdk": "1.30.0", "compiler": "GCC", "options": []'
    path = stand_in(tmp_path, f'echo \'{told}, "prefix": "/opt"}}\'')
    assert [one.sdk for one in interpreters(Bench(quick=True, pythons=[path]))] == ["1.30.0"]


def test_names_are_as_short_as_they_can_be_and_differ() -> None:
    found = [
        made(11, 2),
        made(11, 7),
        made(12, 1),
        made(13, 0),
        made(13, 0, OTHER, "b"),
        made(14, 0),
        made(14, 0, place="b"),
    ]
    assert [one.label for one in labelled(found)] == [
        "CPython 3.11.2",
        "CPython 3.11.7",
        "CPython 3.12",
        "CPython 3.13.0 (GCC 12.2.0, -O3)",
        "CPython 3.13.0 (GCC 12.2.0, -O2, PGO)",
        "CPython 3.14.0, the 1.",
        "CPython 3.14.0, the 2.",
    ]


def test_a_claim_is_about_the_widest_two_that_were_built_alike() -> None:
    old, old_other, middle, new = made(11, 7), made(11, 2, OTHER), made(13), made(14, 8, OTHER)
    assert widest([old_other, old, middle, new]) == (old_other, new)
    assert widest([old, middle, new]) == (old, middle)
    assert widest([old_other, old, middle], (3, 11), (3, 13)) == (old, middle)


def test_two_of_other_builds_are_compared_only_where_there_are_no_others_and_are_not_alike() -> None:
    pair = widest([made(11, 7), made(14, 8, OTHER)])
    assert pair is not None
    assert not alike(*pair)
    assert widest([made(11, 2), made(11, 7)]) is None
    assert widest([made(11), made(14)], (3, 12), (3, 14)) is None


def test_what_a_tool_computes_is_known_before_it_is_asked() -> None:
    assert worked(1) == 0
    assert worked(4) == _by_hand(4)
    assert worked(1000) == _by_hand(1000)


def _by_hand(turns: int) -> int:
    """The same sum, turn by turn instead of word by word."""
    return sum(len(f"word {turn**2 % 97}") * (turn % 7 if turn % 2 else -turn // 3) for turn in range(turns))
