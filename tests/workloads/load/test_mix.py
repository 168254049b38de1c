"""Mixes: what a file may say, what is refused, and that equal mixes make equal loads."""

from __future__ import annotations

import sys
from collections import Counter
from importlib.util import find_spec
from itertools import pairwise
from math import sqrt
from pathlib import Path
from typing import Any

import pytest

from mcp_probe.errors import OptionError
from mcp_probe.workloads.load.mix import Call, Mix, changed, named, read_mix, tool_call

pytestmark = pytest.mark.skipif(sys.version_info < (3, 11) and find_spec("tomli") is None, reason="no TOML reader")

SHOP = """
server = "python shop.py"
rate = 50
arrivals = "poisson"
count = 400

[[call]]
tool = "price"
weight = 3
arguments = [{ item = "tea" }, { item = "cake" }]

[[call]]
resource = "file:///menu"

[[call]]
method = "tools/list"
"""


def mix_from(tmp_path: Path, text: str) -> Any:
    path = tmp_path / "mix.toml"
    path.write_text(text, encoding="utf-8")
    return read_mix(path)


def test_a_file_says_what_is_sent(tmp_path: Path) -> None:
    found = mix_from(tmp_path, SHOP)
    price, menu, listing = found.mix.calls
    assert (found.server, found.mix.rate, found.mix.arrivals) == ("python shop.py", 50, "poisson")
    assert (found.mix.count, found.mix.seconds) == (400, None)
    assert [price.order(turn).params["arguments"]["item"] for turn in range(3)] == ["tea", "cake", "tea"]
    assert (menu.method, menu.operation) == ("resources/read", "file:///menu")
    assert (listing.method, listing.operation, listing.order(0).params) == ("tools/list", "tools/list", {})
    assert named(found.mix.calls, "tool") == ["price"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("rate = ", "is no TOML"),
        ("rate = 5", "no [[call]]"),
        ("speed = 5\n[[call]]\ntool = 'a'", "it says speed"),
        ("rate = 0\n[[call]]\ntool = 'a'", "rate is 0"),
        ("rate = 'fast'\n[[call]]\ntool = 'a'", "expected a number"),
        ("rate = nan\n[[call]]\ntool = 'a'", "rate is nan"),
        ("arrivals = 'bursty'\n[[call]]\ntool = 'a'", "one of constant, poisson"),
        ("count = 1\nseconds = 1\n[[call]]\ntool = 'a'", "exactly one"),
        ("count = 1.5\n[[call]]\ntool = 'a'", "whole number"),
        ("[[call]]\ntool = 'a'\nprompt = 'b'", "tool and prompt"),
        ("[[call]]\nweight = 2", "names nothing"),
        ("[[call]]\ntool = 'a'\nweight = 0", "above 0"),
        ("[[call]]\ntool = 'a'\narguments = [1]", "list of tables"),
        ("[[call]]\ntool = 'a'\nargs = {}", "says args"),
        ("rate = 90000\nseconds = 80000\n[[call]]\ntool = 'a'", "more than 1,000,000,000"),
    ],
)
def test_a_malformed_file_is_refused_in_a_sentence(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(OptionError, match=r"mix\.toml") as caught:
        mix_from(tmp_path, text)
    assert said in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"gone\.toml"):
        read_mix(tmp_path / "gone.toml")


@pytest.mark.parametrize("arguments", ["[1]", "{", '"tea"'])
def test_arguments_must_be_an_object(arguments: str) -> None:
    with pytest.raises(OptionError, match="--arguments"):
        tool_call("price", arguments)


def test_constant_arrivals_are_equally_far_apart() -> None:
    mix = Mix((Call("ping", ({},)),), rate=8, seconds=2)
    assert [due for due, _ in mix.schedule()] == [number * 125_000_000 for number in range(16)]


def test_a_count_ends_a_load_whatever_the_rate() -> None:
    mix = Mix((Call("ping", ({},)),), rate=1000, seconds=None, count=37, arrivals="poisson")
    assert len(list(mix.schedule())) == 37


def test_poisson_arrivals_have_the_rate_and_the_spread_of_a_poisson_process() -> None:
    mix = Mix((Call("ping", ({},)),), rate=100, seconds=100, arrivals="poisson", seed=7)
    due = [at for at, _ in mix.schedule()]
    gaps = [b - a for a, b in pairwise(due)]
    mean = sum(gaps) / len(gaps)
    spread = sqrt(sum((gap - mean) ** 2 for gap in gaps) / len(gaps))
    assert due == sorted(due)
    assert abs(len(due) - 10_000) < 5 * 100  # five standard deviations
    assert 0.9 < spread / mean < 1.1  # an exponential's is 1


def test_equal_mixes_make_equal_loads_and_another_seed_another_one() -> None:
    calls = (Call("a", ({},), 3.0), Call("b", ({},), 1.0))
    one = Mix(calls, rate=50, seconds=20, arrivals="poisson")
    assert list(one.schedule()) == list(Mix(calls, rate=50, seconds=20, arrivals="poisson").schedule())
    assert list(one.schedule()) != list(changed(one, seed=2).schedule())


def test_weights_are_proportions() -> None:
    mix = Mix((Call("a", ({},), 3.0), Call("b", ({},), 1.0)), rate=1000, seconds=10)
    sent = Counter(call for _, call in mix.schedule())
    assert abs(sent[0] - 7500) < 5 * sqrt(10_000 * 0.75 * 0.25)


def test_options_win_over_the_file() -> None:
    mix = Mix((Call("a", ({},)),), rate=5, seconds=10)
    assert changed(mix, rate=None, count=3).seconds is None
    assert changed(changed(mix, count=3), seconds=4.0).count is None
    assert changed(mix, rate=9.0, count=None).rate == 9.0
