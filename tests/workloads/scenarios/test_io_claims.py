"""Verdicts on document 003's I/O claims, from literal runs: each says no where it must."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from mcp_probe.workloads.bench.context import Bench
from mcp_probe.workloads.bench.shapes import Check
from mcp_probe.workloads.models.model_process import ModelRun
from mcp_probe.workloads.scenarios.io_claims import Claims
from mcp_probe.workloads.scenarios.io_runs import Found, Plan, plans
from mcp_probe.workloads.servers.delay_http import Seen

OWN = ("requests", "aiohttp")


def made(plan: Plan, seconds: float, cpu_ms: float, rss_mb: float = 50.0, **said: Any) -> Found:
    """A run of so many seconds that took ``cpu_ms`` of CPU a request."""
    cpu_seconds = plan.urls * cpu_ms / 1000
    run = ModelRun(
        said={"failures": {}, "without_loop": 0, "descriptors": 20_000, "urls": plan.urls, **said},
        seconds=seconds,
        cpu_seconds=cpu_seconds,
        cpu_percent=100 * cpu_seconds / seconds,
        cpu_percent_max=None,
        system_percent=None,
        system_percent_max=None,
        rss_mb=rss_mb,
        rss_max_mb=rss_mb,
        switches=0,
    )
    seen = Seen(plan.urls, plan.concurrency, plan.concurrency, min(plan.concurrency, plan.urls), 0, 0, 0.0, seconds)
    return Found(plan, run, seen, contended=False)


def usual() -> dict[str, Found]:
    """As a quiet machine measures a full run, in round numbers."""
    seconds = {
        "sync 100": (18.3, 1.0, 33.0),
        "sync": (21.3, 1.0, 33.0),
        "asyncio": (2.7, 0.14, 110.0),
        "asyncio 100000": (27.0, 0.14, 600.0),
        "100 threads": (18.4, 0.67, 37.0),
        "1000 threads": (7.8, 0.7, 55.0),
        "hybrid 10": (2.8, 0.24, 120.0),
        "hybrid 100": (3.5, 0.3, 130.0),
        "hybrid 1000": (5.9, 0.6, 150.0),
        "asyncio, limit 100": (18.6, 0.13, 102.0),
        "asyncio, 100 workers": (18.5, 0.12, 39.0),
        "10 threads": (18.3, 0.7, 34.0),
        "hybrid, files enough": (2.0, 0.6, 70.0),
    }
    found = {plan.x: made(plan, *seconds[plan.x]) for plan in plans(quick=False) if plan.x in seconds}
    (few,) = (plan for plan in plans(quick=False) if plan.descriptors)
    found[few.x] = made(few, 2.0, 0.6, failures={"EMFILE": 1100}, without_loop=330, descriptors=few.descriptors)
    return found


def judged(found: dict[str, Found], libraries: tuple[str, str] = OWN) -> dict[str, Check]:
    bench = Bench(quick=False)
    equal = found["asyncio, limit 100"]
    again = replace(equal, run=replace(equal.run, seconds=equal.run.seconds * 1.01))
    Claims(bench, found, again, libraries, {}).judge()
    return {check.claim: check for check in bench.outcome().checks}


def test_a_quiet_machine_s_figures_give_the_verdicts_of_the_reproduction() -> None:
    assert {claim: check.verdict for claim, check in judged(usual()).items()} == {
        "003-5": "holds",
        "003-6": "in shape",
        "003-7": "in shape",
        "003-7a": "does not hold",
        "003-8": "does not hold",
        "003-9": "holds",
        "003-10": "holds",
        "003-11": "holds",
        "003-12": "holds",
        "003-13": "holds",
    }


def longer(x: str, factor: float) -> Callable[[dict[str, Found]], None]:
    def change(found: dict[str, Found]) -> None:
        one = found[x]
        percent = one.run.cpu_percent / factor
        found[x] = replace(one, run=replace(one.run, seconds=one.run.seconds * factor, cpu_percent=percent))

    return change


def fatter(x: str, factor: float) -> Callable[[dict[str, Found]], None]:
    def change(found: dict[str, Found]) -> None:
        one = found[x]
        run = replace(
            one.run, cpu_seconds=one.run.cpu_seconds * factor, cpu_percent=min(105.0, one.run.cpu_percent * factor)
        )
        found[x] = replace(one, run=run)

    return change


def told(x: str, **said: Any) -> Callable[[dict[str, Found]], None]:
    def change(found: dict[str, Found]) -> None:
        one = found[x]
        found[x] = replace(one, run=replace(one.run, said={**one.run.said, **said}))

    return change


def files(**said: Any) -> Callable[[dict[str, Found]], None]:
    """Of the run with too few of them."""

    def change(found: dict[str, Found]) -> None:
        told(next(x for x, one in found.items() if one.plan.descriptors), **said)(found)

    return change


@pytest.mark.parametrize(
    ("claim", "change", "verdict"),
    [
        ("003-5", longer("sync 100", 1.5), "does not hold"),
        ("003-6", longer("asyncio", 5), "holds"),
        ("003-6", longer("asyncio", 500), "does not hold"),
        ("003-7", longer("asyncio", 2), "holds"),
        ("003-7a", longer("100 threads", 3.0), "holds"),
        ("003-8", longer("1000 threads", 6.0), "in shape"),
        ("003-8", longer("1000 threads", 3.0), "holds"),
        ("003-9", longer("100 threads", 1.0), "holds"),
        ("003-10", longer("hybrid 10", 3.0), "does not hold"),
        ("003-10", fatter("hybrid 10", 0.4), "does not hold"),
        ("003-11", longer("hybrid 10", 4.0), "does not hold"),
        ("003-12", files(failures={}, without_loop=0), "does not hold"),
        ("003-12", files(failures={"EMFILE": 10, "TimeoutError": 1}), "does not hold"),
        ("003-12", files(without_loop=3), "does not hold"),
        ("003-12", told("hybrid, files enough", failures={"EMFILE": 1}), "does not hold"),
        ("003-12", told("hybrid, files enough", descriptors=1024), "cannot be told here"),
        ("003-13", fatter("100 threads", 0.1), "does not hold"),
        ("003-13", fatter("100 threads", 2.0), "in shape"),
    ],
)
def test_one_other_figure_is_another_verdict(
    claim: str, change: Callable[[dict[str, Found]], None], verdict: str
) -> None:
    found = usual()
    change(found)
    assert judged(found)[claim].verdict == verdict


def test_threads_that_are_bound_by_their_cpu_at_a_hundred_say_nothing_of_a_thousand() -> None:
    found = usual()
    fatter("100 threads", 4.0)(found)
    longer("1000 threads", 4.0)(found)
    assert judged(found)["003-8"].verdict == "cannot be told here"


def test_slower_beside_others_is_no_finding() -> None:
    found = usual()
    longer("1000 threads", 4.0)(found)
    longer("hybrid 10", 3.0)(found)
    contended = {x: replace(one, contended=True) for x, one in found.items()}
    checks = judged(contended)
    assert checks["003-8"].verdict == checks["003-10"].verdict == "cannot be told here"
    assert judged({x: replace(one, contended=True) for x, one in usual().items()})["003-8"].verdict == "does not hold"


def test_more_memory_for_threads_is_not_the_claim() -> None:
    found = usual()
    one = found["100 threads"]
    found["100 threads"] = replace(one, run=replace(one.run, rss_max_mb=500.0))
    assert judged(found)["003-9"].verdict == "does not hold"
    found["100 threads"] = replace(one, run=replace(one.run, rss_max_mb=None))
    assert judged(found)["003-9"].verdict == "cannot be told here"


def test_cpu_per_request_needs_the_document_s_own_libraries() -> None:
    assert judged(usual(), ("httpx2", "httpx2"))["003-13"].verdict == "cannot be told here"


def test_a_quick_run_has_every_run_that_the_claims_need() -> None:
    names = {plan.x for plan in plans(quick=True)}
    assert set(usual()) - {"asyncio 100000", "10 threads"} - names == {
        plan.x for plan in plans(quick=False) if plan.descriptors
    }
    (few,) = (plan for plan in plans(quick=True) if plan.descriptors)
    assert few.descriptors < 3 * few.threads  # whatever else is open, there are too few
