"""What the claims about widths make of rounds and readings."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mcp_probe.aggregate.explain import Seen
from mcp_probe.model import JobTimes
from mcp_probe.workloads.bench.context import Bench
from mcp_probe.workloads.bench.shapes import Little
from mcp_probe.workloads.bench.statistics import describe
from mcp_probe.workloads.scenarios.arms import Arm
from mcp_probe.workloads.scenarios.documents import doc001 as doc
from mcp_probe.workloads.scenarios.waves import POOL, Waves, default_threads
from tests.frames import MS, make_header, make_request

DELAY = 50 * MS


def in_waves(count: int, width: int) -> Seen:
    """``count`` calls of 50 ms through a pool of ``width``, as the probe at the pool records them."""
    requests = []
    for number in range(count):
        start_ns = number // width * DELAY
        job = JobTimes("app", 0, start_ns, start_ns + DELAY, start_ns + DELAY)
        request = make_request(number + 1, executor_wait=start_ns, executor_run=DELAY)
        requests.append(replace(request, jobs=(job,)))
    return Seen.of([make_header(), *requests])


def at_server(count: int, width: int) -> Seen:
    """The same calls in the server behind that pool."""
    requests = [make_request(number + 1, arrival_ns=number // width * DELAY, awaiting=DELAY) for number in range(count)]
    return Seen.of([make_header(), *requests])


def measured(walls_ms: dict[int, float], width: int = POOL, wide_ms: float = 55.0) -> Waves:
    """``walls_ms`` of 4, 5, 10 and 20 calls through the pool of 4, which let ``width`` through."""

    waves = Waves(Bench(quick=True))
    for label, walls in (("pool 4", walls_ms), ("pool 20", dict.fromkeys(walls_ms, wide_ms))):
        for count, wall_ms in walls.items():
            law = Little(count, count)
            arm = Arm(describe([wall_ms] * 3), 1.01, [3 * wall_ms, wall_ms, wall_ms], law, "the server's sentence")
            waves.arms[label, count] = waves.arms["direct", count] = arm
            waves.at_server[label, count] = at_server(count, width if label == "pool 4" else 20)
    for count in doc.POOL_OF_4:
        waves.at_client[count] = in_waves(count, width)
    return waves


FULL = {4: 53.0, 5: 105.0, 10: 158.0, 20: 262.0}


@pytest.mark.parametrize(
    ("waves", "verdicts"),
    [
        (measured(FULL), ["holds", "holds"]),
        (measured(dict.fromkeys(FULL, 53.0)), ["does not hold", "holds"]),
        (measured(FULL, width=5), ["does not hold", "holds"]),
        (measured(FULL, wide_ms=110.0), ["holds", "does not hold"]),
    ],
)
def test_waves_are_claimed_where_times_and_readings_both_show_them(waves: Waves, verdicts: list[str]) -> None:
    waves.client_checks()
    checks = waves.bench.outcome().checks
    assert [check.claim for check in checks] == ["001-3", "001-4"]
    assert [check.verdict for check in checks] == verdicts


def test_the_waves_are_explained_by_the_pool_s_waits() -> None:
    waves = measured(FULL)
    waves.client_checks()
    why = waves.bench.outcome().checks[0].why
    assert "never had more than 4 requests" in why
    assert "50, 100, 200 ms, in steps of 50" in why


def test_both_tables_of_section_4_have_every_line() -> None:
    waves = measured(FULL)
    for count in doc.POOL_OF_4:
        waves.client_rows(count)
    rows = {(row.table, row.label): row for row in waves.bench.outcome().rows}
    assert [row.documented for (table, _), row in rows.items() if row.unit == "ms" and table.endswith("before")] == [
        *doc.POOL_OF_4.values()
    ]
    after = [row for (table, _), row in rows.items() if row.unit == "ms" and table.endswith("after")]
    assert [(row.documented, row.why) for row in after] == [
        (known, "the server's sentence") for known in doc.POOL_OF_20.values()
    ]
    assert [row.documented for row in rows.values() if row.unit == "%"] == [*doc.POOL_OF_20_PERCENT.values()]
    counted = rows["001 §4 before", "20 calls, waves"]
    assert (counted.documented, round(counted.figure or 0)) == (5, 5)
    assert rows["001 §4 before", "20 calls"].ratio == pytest.approx(262 / (521 / 2))


def test_asyncio_s_default_executor_is_as_wide_as_it_says() -> None:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor() as pool:
        assert pool._max_workers == default_threads()
