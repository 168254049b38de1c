from __future__ import annotations

from dataclasses import replace

from mcp_probe.model import ExecutorSummary, WaitPercentiles
from mcp_probe.report.console import render
from tests.report.summaries import healthy, make_executor


def rows(*pools: ExecutorSummary) -> list[str]:
    lines = render(replace(healthy(), executors=pools), width=120, color=False, ascii_only=False, whole=True).split(
        "\n"
    )
    start = next((index for index, line in enumerate(lines) if line.startswith("Thread pools")), None)
    return [] if start is None else [" ".join(line.split()) for line in lines[start + 2 : lines.index("", start)]]


FULL = make_executor(
    "anyio default",
    borrowed_peak=40,
    active_peak=38,
    pending_peak=22,
    wait_ms=WaitPercentiles(402.0, 1_310.0),
    at_limit_share=0.61,
    tokens_needed=52.3,
    holders=("render", "export"),
    transport_jobs=1_290,
    transport_wait_max_ms=1_380.0,
    abandoned=2,
)


def test_a_pool_shows_its_peaks_waits_time_at_limit_and_mean_use() -> None:
    row = rows(FULL)[0]
    assert row == "anyio default ██████████ 40/40 38 22 402 ms 1.31 s 61% 52.3"


def test_holders_and_the_transports_own_wait_are_said_below_the_row() -> None:
    details = " ".join(rows(FULL)[1:])
    assert details.startswith(
        "the transport itself waited up to 1.38 s for a thread · its threads were held by render, export"
    )
    assert "2 jobs abandoned" in details
    assert "1,290 more jobs read requests and wrote answers" in details


def test_the_transports_moment_for_a_thread_of_a_pool_that_was_never_full_is_not_told() -> None:
    """Nobody can mend it, and it would point at the pool's size."""
    never_full = replace(FULL, at_limit_share=0.0, transport_wait_max_ms=9.7)
    assert "the transport itself" not in " ".join(rows(never_full))
    assert "the transport itself waited up to 9.7 ms" in " ".join(rows(replace(never_full, at_limit_share=0.1)))


def test_the_fullest_pool_comes_first() -> None:
    names = [row for row in rows(make_executor("idle"), FULL) if row.startswith(("idle", "anyio"))]
    assert names[0].startswith("anyio default")


def test_a_pool_without_limit_has_no_bar_and_says_so() -> None:
    row = rows(make_executor("threads", max=None))[0]
    assert row.startswith("threads 3/no max")


def test_a_pool_without_jobs_shows_blanks_instead_of_waits() -> None:
    unused = make_executor("spare", jobs=0, wait_ms=WaitPercentiles(None, None), tokens_needed=None, run_ms=None)
    assert rows(unused)[0].endswith("3/40 1 0 0%")


def test_waits_nobody_saw_are_unknown_and_explained() -> None:
    blind = make_executor("blind", wait_ms=WaitPercentiles(None, None), tokens_needed=None)
    assert rows(blind)[0].endswith("– – 0% –")
    text = " ".join(render(replace(healthy(), executors=(blind,)), color=False, ascii_only=False, whole=True).split())
    assert "waits of blind (none of its jobs was seen getting a thread)" in text
    assert "mean use of blind (none of its jobs was seen ending)" in text


def test_the_place_a_pool_was_made_at_is_shortened() -> None:
    pool = make_executor("thumbs", made_at="/x/.venv/lib/python3.12/site-packages/shop/pools.py:8")
    assert "made at shop/pools.py:8" in " ".join(rows(pool)[1:])


def test_no_executor_leaves_no_section() -> None:
    assert rows() == []
