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

from tests.harm.odd_input import HOSTILE, Case, Pair, Transport, case, shows_raw
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
