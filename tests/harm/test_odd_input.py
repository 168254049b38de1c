"""Whatever comes from a client, a probed server answers as a bare one, and keeps nothing of it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.harm.odd_input import (
    HOSTILE,
    MORE_BYTES,
    MORE_OBJECTS,
    Case,
    Pair,
    Transport,
    case,
    grew,
    growth,
    shows_raw,
    soak_case,
)
from tests.harm.running import ONE_CORE, How

EXAMPLES = {"stdio": 30, "http": 15, "sse": 15}


def line(id: object, tool: str, **arguments: object) -> bytes:
    params = {"name": tool, "arguments": arguments}
    return json.dumps({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}).encode() + b"\n"


@pytest.fixture(scope="module", params=["mcp 2.x", "mcp 1.x"])
def python(request: pytest.FixtureRequest, env_python: Callable[[str], Path]) -> Path:
    return Path(sys.executable) if request.param == "mcp 2.x" else env_python("mcp1")


@pytest.fixture
def over_stdio(python: Path) -> Iterator[Pair]:
    pair = Pair(python, "native", "stdio")
    yield pair
    pair.close()


@pytest.mark.slow
@ONE_CORE
@pytest.mark.parametrize("transport", ["stdio", "http", "sse"])
def test_odd_input_is_answered_as_without_the_probe(python: Path, transport: Transport, core: How) -> None:
    pair = Pair(python, core, transport)

    @settings(max_examples=EXAMPLES[transport])
    @given(st.integers(0, 2**32))
    def each(seed: int) -> None:
        assert (difference := pair.difference(case(Random(seed), transport))) is None, difference

    try:
        each()
    finally:
        report = pair.close()
    assert shows_raw(report) == []
    if transport == "stdio":
        assert report["ok"] == pair.results


def test_ids_that_are_used_twice_are_requests_of_their_own(over_stdio: Pair) -> None:
    """One that is answered is never told as cancelled, and nothing of either stays."""
    twice: Case = [[line(1, "echo", text="a") + line(1, "echo", text="b") + line(1, "echo", text="c")]]
    for _ in range(3):
        assert over_stdio.difference(twice) is None
    results = over_stdio.results
    assert over_stdio.close()["ok"] == results >= 3 * (3 + 2)


def test_a_thousand_requests_in_flight_with_one_id(over_stdio: Pair) -> None:
    calls = b"".join(line(1, "echo", text="x") for _ in range(1_000))
    assert over_stdio.difference([[calls]]) is None
    results = over_stdio.results
    assert over_stdio.close()["ok"] == results


@pytest.mark.parametrize("hostile", HOSTILE, ids=ascii)
def test_names_a_client_makes_up_do_nothing_to_a_terminal(over_stdio: Pair, hostile: str) -> None:
    method = json.dumps({"jsonrpc": "2.0", "id": 2, "method": hostile}).encode() + b"\n"
    assert over_stdio.difference([[line(1, hostile) + method]]) is None
    report = over_stdio.close()
    assert shows_raw(report) == []
    assert report["json"].isascii() and report["json"].isprintable()


MB = 1_000_000


def test_growth_is_what_comes_on_top_of_bare_after_the_warm_up() -> None:
    warm = [(50 * MB, 60 * MB, 1000 * round) for round in range(10)]
    level = [(70 * MB, 80 * MB, 10_000)] * 10
    assert growth([*warm, *level, *level]) == (0, 0)
    assert growth([*warm, *level, *[(71 * MB, 84 * MB, 10_100)] * 10]) == (3 * MB, 100)
    assert growth([*warm, *level, *[(60 * MB, 81 * MB, 10_000)] * 10]) == (1 * MB, 0)
    assert grew([*warm, *level, *[(70 * MB, 80 * MB + MORE_BYTES, 10_000 + MORE_OBJECTS)] * 10]) is None
    assert grew([*warm, *level, *[(70 * MB, 80 * MB + MORE_BYTES + 1, 10_000)] * 10]) is not None
    assert grew([*warm, *level, *[(70 * MB, 80 * MB, 10_001 + MORE_OBJECTS)] * 10]) is not None


@pytest.mark.endurance
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="resident memory is read from /proc")
@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_odd_input_with_ever_new_names_leaves_nothing_behind(python: Path, transport: Transport) -> None:
    pair = Pair(python, "native", transport, soak=True)
    try:
        for seed in range(30):
            sent = soak_case(Random(seed), transport, first=not pair.sizes)
            assert (difference := pair.difference(sent)) is None, difference
    finally:
        pair.close()
    assert grew(pair.sizes) is None
