"""The verdict of the soak on literal readings, its load, and a short run of it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from benchmarks.soak import Sample, drift_mb, is_flat, message_of, missing

ROOT = Path(__file__).resolve().parent.parent.parent


def samples(*rss_mb: float) -> list[Sample]:
    return [Sample(50_000 * place, float(place), rss) for place, rss in enumerate(rss_mb, 1)]


def test_memory_within_five_megabytes_of_the_first_reading_is_flat() -> None:
    assert is_flat(samples(70.0, 74.9, 66.0, 72.0))
    assert drift_mb(samples(70.0, 74.5, 66.0, 72.0)) == 4.5


def test_memory_that_left_the_allowance_once_is_not_flat_even_if_it_came_back() -> None:
    assert not is_flat(samples(70.0, 75.5, 70.0))
    assert not is_flat(samples(70.0, 64.5, 70.0))


def test_one_reading_cannot_show_that_memory_is_flat() -> None:
    assert drift_mb(samples(70.0)) is None
    assert not is_flat(samples(70.0))


def test_the_load_is_mostly_one_tool_with_each_rare_way_once_in_a_hundred() -> None:
    messages = [message_of(number, distinct_names=False) for number in range(100)]
    load = Counter((message.params or {}).get("name", message.method) for message in messages)
    rare = ("failing", "raising", "threaded", "sleepy", "tools/list", "no/such")
    assert load == {"add": 94, **dict.fromkeys(rare, 1)}


def test_distinct_names_are_one_call_in_ten_and_never_repeat() -> None:
    names = [(message_of(number, True).params or {}).get("name", "") for number in range(1000)]
    fresh = [name for name in names if name.startswith("tool-")]
    assert len(fresh) == len(set(fresh)) == 100


@pytest.mark.parametrize(("requests", "dropped", "lost"), [(101, 0, 0), (90, 11, 0), (95, 0, 6)])
def test_requests_neither_counted_nor_dropped_are_missing(requests: int, dropped: int, lost: int) -> None:
    assert missing({"requests": 100, "seen": {"requests": requests, "dropped": dropped}}) == lost
    assert missing({"requests": 100, "seen": None}) == 0


@pytest.mark.slow
def test_a_short_soak_accounts_for_every_request(tmp_path: Path) -> None:
    output = tmp_path / "soak.json"
    command = [sys.executable, "benchmarks/soak.py", "--requests", "3000", "--every", "1000", "--output", str(output)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=110)
    document = json.loads(output.read_text())
    assert missing(document) == 0, done.stdout
    assert document["seen"]["disabled_hooks"] == []
    assert [sample["requests"] for sample in document["samples"]] == [1000, 2000, 3000]
    assert done.returncode == (0 if document["flat"] else 1), done.stderr
