"""What limits a server, on literal readings: named with its line, and not named where nothing took most of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from mcp_probe.aggregate.seen import Seen
from mcp_probe.model import Await, Frame, JobTimes, RequestRecord
from mcp_probe.workloads.bench.own.limits import limit_of
from tests.frames import MS, make_header, make_loop_sample, make_pool, make_request, make_step


def seen(requests: Iterable[RequestRecord], *others: Frame) -> Seen:
    return Seen.of([make_header(), *others, *requests])


def calls(count: int = 8, **given: Any) -> list[RequestRecord]:
    return [make_request(number + 1, "work", **given) for number in range(count)]


def awaits(kind: Any, name: str, where: str, ms: int, limit: int | None = None) -> tuple[Await, ...]:
    return (Await(kind, name, where, 0, ms * MS, ms * MS, "exact", limit=limit),)


QUICK = seen(calls(awaiting=50 * MS, awaits=awaits("sleep", "sleep", "server.py:9", 50)))


def test_a_semaphore_is_named_with_its_places_and_the_line_that_awaits_it() -> None:
    both = (
        *awaits("sleep", "sleep", "server.py:9", 50),
        *awaits("semaphore", "asyncio.Semaphore made at server.py:3", "/home/me/server.py:8", 100, limit=8),
    )
    slow = seen(calls(awaiting=150 * MS, awaits=both))
    assert limit_of(QUICK, slow, "work") == (
        "Semaphore `asyncio.Semaphore made at server.py:3`, which lets in 8 at a time, awaited at server.py:8, limits "
        "the server: a call waited 100 ms longer for it than alone."
    )


def test_a_pool_is_named_with_its_threads() -> None:
    job = JobTimes("anyio default", 0, 200 * MS, 250 * MS, 250 * MS)
    slow = seen(calls(executor_wait=200 * MS, executor_run=50 * MS, jobs=(job,)), make_pool(made_at="server.py:4"))
    assert limit_of(seen(calls(executor_run=50 * MS)), slow, "work") == (
        "Pool `anyio default` of 40 threads, made at server.py:4, limits the server: a call waited 200 ms longer for "
        "it than alone."
    )


@pytest.mark.parametrize(("peak", "named"), [(40, True), (39, False)])
def test_a_pool_that_keeps_the_transport_from_its_threads_is_named_for_the_transports_waits(
    peak: int, named: bool
) -> None:
    """Over stdio calls beyond its threads lie unread or unwritten, and never come to wait in the pool."""
    pool = make_pool(borrowed_peak=peak, transport_jobs=80, transport_wait_ns=900 * MS, transport_wait_max_ns=60 * MS)
    slow = seen(calls(queue_transport=40 * MS, executor_run=50 * MS, write_wait=60 * MS), pool)
    said = limit_of(seen(calls(executor_run=50 * MS)), slow, "work")
    assert (
        said
        == (
            "Pool `anyio default` of 40 threads limits the server: a call waited 100 ms longer for it than alone. The "
            "transport reads and writes on its threads, too."
        )
    ) == named


def test_a_wait_that_got_its_name_in_one_arm_only_hides_no_limit() -> None:
    """Looks tell what a job waits for; few of them see a quick arm, or the other way round."""
    slept = awaits("sleep", "sleep", "server.py:9", 400)
    quick = seen(calls(awaiting=400 * MS, awaits=slept))
    slow = seen(calls(queue_dispatch=150 * MS, awaiting=400 * MS))
    assert "The event loop limits the server" in limit_of(quick, slow, "work")


def test_the_loop_is_named_with_the_step_that_holds_it() -> None:
    step = make_step(0, 50 * MS, operation="work", cause="io", file="/home/me/server.py", line=12)
    slow = seen(calls(queue_dispatch=150 * MS, busy=50 * MS), step)
    assert limit_of(seen(calls(busy=50 * MS)), slow, "work") == (
        "The event loop limits the server: a call waited 150 ms longer for it than alone; `work` holds the loop for up "
        "to 50 ms at a time at server.py:12."
    )


def test_a_machine_without_a_free_cpu_is_not_blamed_on_the_loop() -> None:
    sample = make_loop_sample((10 * MS,), cpu_ns=100 * MS, run_queue_ns=400 * MS)
    slow = seen(calls(queue_dispatch=150 * MS, busy=50 * MS), sample)
    assert limit_of(seen(calls(busy=50 * MS)), slow, "work") == (
        "The machine is the limit, not the server: the event loop's thread ran 100 ms and waited 400 ms for a CPU."
    )


def test_a_backend_is_named_if_it_takes_longer_with_more_calls() -> None:
    quick = seen(calls(awaiting=20 * MS, awaits=awaits("http", "http://shop:80", "server.py:7", 20)))
    slow = seen(calls(awaiting=320 * MS, awaits=awaits("http", "http://shop:80", "server.py:7", 320)))
    assert limit_of(quick, slow, "work") == (
        "Backend http `http://shop:80`, awaited at server.py:7, limits the server: a call waited 300 ms longer for it "
        "than alone."
    )


def test_requests_that_lie_unread_are_the_way_in() -> None:
    slow = seen([make_request(n + 1, "work", busy=MS, arrival_ns=90 * MS, sent_ns=10 * MS) for n in range(4)])
    assert "The way in limits the server: a request lay unread for 80 ms longer than alone" in limit_of(
        seen(calls(busy=MS)), slow, "work"
    )


@pytest.mark.parametrize("slow", [seen(calls(awaiting=50 * MS)), seen([]), seen(calls(unaccounted=500 * MS))])
def test_what_nothing_explains_is_not_named(slow: Seen) -> None:
    assert limit_of(QUICK, slow, "work") == ""
