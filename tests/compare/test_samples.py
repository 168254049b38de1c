"""Recordings of any size take bounded memory to compare, and say the same."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from mcp_probe.compare import bootstrap, samples
from mcp_probe.compare.samples import recorded
from mcp_probe.compare.shapes import PROCESS
from mcp_probe.histogram import bucket_of
from mcp_probe.model import Frame
from tests.frames import MS, SECOND, make_end, make_group, make_header, make_process, make_request

CALLS = 6_000


def frames() -> Iterator[Frame]:
    """Two tools, of one of which most calls are counted in groups; 20 ms of CPU a second."""
    chance = random.Random(5)
    yield make_header()
    for number in range(1, CALLS + 1):
        at = number * 10 * MS
        name = "search" if number % 3 else "lookup"
        outcome = "error" if number % 20 == 0 else "ok"
        busy = int(MS * chance.gauss(2 if number % 3 else 5, 0.2))
        yield make_request(number, name, arrival_ns=at, busy=busy, awaiting=8 * MS, outcome=outcome)
        if number % 50 == 0:
            total = 10 * MS
            yield make_group([(bucket_of(total), 40, 40 * total)], "search", first_ns=at, last_ns=at + MS)
        if number % 100 == 0:
            yield make_process(at_ns=at + MS, span_ns=SECOND, cpu_ns=20 * MS, probe_cpu_ns=0)
    yield make_end()


@pytest.fixture(scope="module")
def both() -> Iterator[tuple[samples.Recorded, samples.Recorded, int]]:
    """(as it is, within little memory, most items at once)."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bootstrap, "RESAMPLES", 100)
        whole = recorded(frames())
        patch.setattr(samples, "MOST_ITEMS", 1_500)
        seen: list[int] = []
        thin = samples._Calls.thin

        def thinning(columns: samples._Calls) -> None:
            before = len(columns)
            thin(columns)
            seen.append(before)
            assert 0.4 * before < len(columns) < 0.6 * before

        patch.setattr(samples._Calls, "thin", thinning)
        yield whole, recorded(frames()), max(seen)


def test_never_more_items_are_kept_than_memory_allows(
    both: tuple[samples.Recorded, samples.Recorded, int],
) -> None:
    assert 500 < both[2] <= 1_501


def test_counts_stay_exact(both: tuple[samples.Recorded, samples.Recorded, int]) -> None:
    whole, thinned, _ = both
    calls = {"search": CALLS * 2 // 3 + CALLS // 50 * 40, "lookup": CALLS // 3}
    for name, count in calls.items():
        assert whole.figures[name, "p50", ""].calls == thinned.figures[name, "p50", ""].calls == count
    assert whole.summary == thinned.summary


def test_figures_agree_within_their_errors(both: tuple[samples.Recorded, samples.Recorded, int]) -> None:
    whole, thinned, _ = both
    for operation, name in (("search", "p50"), ("search", "p95"), ("lookup", "p50"), ("lookup", "mean")):
        true, found = (each.figures[operation, name, ""] for each in (whole, thinned))
        assert found.value == pytest.approx(true.value, rel=0.05)
        assert found.error is not None
    for name in ("busy", "awaiting"):
        true, found = (each.figures["search", name, ""] for each in (whole, thinned))
        assert found.value == pytest.approx(true.value, rel=0.05)


def test_cpu_a_request_is_of_all_requests(both: tuple[samples.Recorded, samples.Recorded, int]) -> None:
    whole, thinned, _ = both
    requests = CALLS + CALLS // 50 * 40
    true = CALLS / 100 * 20 / requests
    for each in (whole, thinned):
        assert each.figures[PROCESS, "cpu", ""].value == pytest.approx(true, rel=0.02)
