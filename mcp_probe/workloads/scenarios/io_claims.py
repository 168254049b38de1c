"""Document 003's I/O-bound claims, judged on one set of runs."""

from __future__ import annotations

from collections.abc import Mapping

from mcp_probe.workloads.bench.context import Bench
from mcp_probe.workloads.bench.shapes import Verdict
from mcp_probe.workloads.scenarios.io_runs import Found
from mcp_probe.workloads.scenarios.verdicts import OTHERS, graded

Runs = Mapping[str, Found]
BUSY_PERCENT = 85.0
"""CPU of one process from which on it, and not the waiting, is what bounds a run: the others' tables reach 95-100."""
FILES_PER_LOOP = 3  # the selector and both ends of the socket that wakes it


def judge(bench: Bench, found: Runs, libraries: tuple[str, str]) -> None:
    """Adds a check for each claim."""
    _sync_is_linear(bench, found)
    _speed_up(bench, found)
    _equal_concurrency(bench, found)
    _more_threads(bench, found)
    _memory(bench, found)
    _hybrids(bench, found)
    _descriptors(bench, found)
    _cpu_per_request(bench, found, libraries)


def _contended(*runs: Found) -> bool:
    return any(one.contended for one in runs)


def _per_url_ms(one: Found) -> float:
    return 1000 * one.run.seconds / one.plan.urls


def _over_the_wait_ms(one: Found) -> float:
    return _per_url_ms(one) - one.plan.delay_ms


def _sync_is_linear(bench: Bench, found: Runs) -> None:
    few, many = found["sync 100"], found["sync"]
    if few.plan.delay_ms == many.plan.delay_ms:
        value = _per_url_ms(many) / _per_url_ms(few)
        said = f"{_per_url_ms(few):.2f} and {_per_url_ms(many):.2f} ms per URL: {value:.3f}×"
    else:
        value = (_over_the_wait_ms(many) + few.plan.delay_ms) / _per_url_ms(few)
        said = f"{_over_the_wait_ms(few):.2f} and {_over_the_wait_ms(many):.2f} ms per URL over the wait: {value:.3f}×"
    bench.check(
        "003-5",
        "one after another, time grows linearly with the number of URLs",
        documented="18.16 -> 182.84 s for ten times the URLs: 1.007×",
        measured=f"{few.plan.urls} and {many.plan.urls} URLs, {said}",
        tolerance="time per URL ± 5 %",
        verdict=graded(abs(value - 1) <= 0.05, abs(value - 1) <= 0.2, contended=_contended(few, many)),
        why=OTHERS if _contended(few, many) else "",
        value=value,
        contended=_contended(few, many),
    )


def _speed_up(bench: Bench, found: Runs) -> None:
    """At the documented sizes, sync is extrapolated: so did the document."""
    equal, most, sync = found["asyncio, limit 100"], found["asyncio"], found["sync"]
    base_ms = equal.plan.delay_ms + _over_the_wait_ms(sync)
    at_100, at_most = base_ms / _per_url_ms(equal), base_ms / _per_url_ms(most)
    bound = most.run.cpu_percent >= BUSY_PERCENT / 2
    bench.check(
        "003-6",
        "asyncio is 130 times as fast as one request after another",
        documented="18 284 s (extrapolated) / 14.08 s = 130×, with 1 000 connections",
        measured=f"{at_100:.0f}× with 100 connections, {at_most:.0f}× with {most.plan.limit}",
        tolerance="at least half of the number of connections until the client's CPU is the limit",
        verdict=graded(at_100 >= 50 and (at_most >= most.plan.limit / 2 or bound), at_100 >= 25),
        why=f"With {most.plan.limit} connections the client's CPU is {most.run.cpu_percent:.0f} % busy, "
        f"with 100 {equal.run.cpu_percent:.0f} %; {base_ms:.1f} ms a request one after another.",
        value=at_100,
        contended=_contended(equal, most, sync),
    )


def _equal_concurrency(bench: Bench, found: Runs) -> None:
    threads, equal, most = found["100 threads"], found["asyncio, limit 100"], found["asyncio"]
    ratio = threads.run.seconds / equal.run.seconds
    unequal = threads.run.seconds / most.run.seconds
    fast = threads.run.cpu_percent < BUSY_PERCENT
    bench.check(
        "003-7",
        "asyncio is 3.5 times as fast as 100 threads",
        documented="14.08 s with 1 000 connections, 50.01 s with 100 threads: 3.55×",
        measured=f"{ratio:.2f}× at 100 connections each, {unequal:.1f}× with {most.plan.limit} against 100",
        tolerance="at equal concurrency within 10 % of each other where the wait is 100 ms or more",
        verdict="does not hold" if ratio < 2 else "holds",
        why=f"With as many connections both take about the same time (within 10 %: {'yes' if ratio < 1.1 else 'no'}): "
        f"{threads.run.seconds:.2f} s with threads at {threads.run.cpu_percent:.0f} % CPU, "
        f"{equal.run.seconds:.2f} s with asyncio at {equal.run.cpu_percent:.0f} %"
        + ("." if fast else "; the threads are bound by their CPU here."),
        value=ratio,
        contended=_contended(threads, equal),
    )


def _more_threads(bench: Bench, found: Runs) -> None:
    some, many = found["100 threads"], found["1000 threads"]
    ratio = many.run.seconds / some.run.seconds
    bound = some.run.cpu_percent >= BUSY_PERCENT
    # Slower is a finding only where the threads had the machine to themselves.
    testable = not bound and not _contended(some, many)
    verdict: Verdict = "does not hold" if ratio < 1 else "holds" if testable else "cannot be tested here"
    bench.check(
        "003-8",
        "1 000 threads are slower than 100",
        documented="61.63 s, 50.01 s: 1.23×",
        measured=f"{many.run.seconds:.2f} s with {many.plan.threads}, {some.run.seconds:.2f} s with 100: {ratio:.2f}×",
        tolerance="more threads help until the process's CPU is full, whatever their number",
        verdict=verdict,
        why=f"CPU {some.run.cpu_percent:.0f} % with 100 threads, {many.run.cpu_percent:.0f} % with "
        f"{many.plan.threads}, of which at most {many.server.in_flight_peak} had a request under way at once: "
        f"{many.cpu_ms:.2f} ms of CPU a request is the limit"
        + (", already at 100." if bound else ", not the switching between threads."),
        value=ratio,
        contended=_contended(some, many),
    )


def _memory(bench: Bench, found: Runs) -> None:
    threads, tasks, workers = found["100 threads"], found["asyncio"], found["asyncio, 100 workers"]
    sizes = [one.run.rss_max_mb for one in (threads, tasks, workers)]
    if None in sizes:
        verdict: Verdict = "cannot be tested here"
        said, value = "-", None
    else:
        a, b, c = (size or 0.0 for size in sizes)
        verdict, value = graded(a < b), a / b
        said = f"{a:.0f} MB with 100 threads, {b:.0f} MB with asyncio, {c:.0f} MB with 100 asyncio workers"
    bench.check(
        "003-9",
        "100 threads need less memory than asyncio",
        documented="51.0 MB, 120.3 MB",
        measured=said,
        tolerance="threads below asyncio",
        verdict=verdict,
        why="It is the coroutine for every URL, all made up front, that takes the memory, not the connections: "
        "with a coroutine per connection it is gone."
        if value is not None
        else "This system does not tell a process's resident memory.",
        value=value,
        contended=False,
    )


def _hybrids(bench: Bench, found: Runs) -> None:
    pure = found["asyncio"]
    ten, hundred, thousand = (found[f"hybrid {count}"] for count in (10, 100, 1000))
    wall, cpu = ten.run.seconds / pure.run.seconds, ten.run.cpu_seconds / pure.run.cpu_seconds
    verdict = graded(0.8 <= wall <= 1.3 and cpu > 1.2, 0.6 <= wall <= 1.7 and cpu > 1.0)
    if verdict == "does not hold" and _contended(ten, pure):
        verdict = "cannot be tested here"
    bench.check(
        "003-10",
        "10 loops in threads are as fast as one, for more CPU",
        documented="14.96 s, 14.08 s: 1.06×; CPU 110 %, 68 %",
        measured=f"{wall:.2f}× the time, {cpu:.2f}× the CPU time",
        why="Others used the machine, and not alike in both runs." if verdict == "cannot be tested here" else "",
        tolerance="time 0.8-1.3×, CPU above 1.2×",
        verdict=verdict,
        value=wall,
        contended=_contended(ten, pure),
    )
    times = [one.run.seconds for one in (ten, hundred, thousand)]
    works = [one.cpu_ms for one in (ten, hundred, thousand)]
    rises = times[0] <= 1.05 * times[1] <= 1.05 * 1.05 * times[2]
    bench.check(
        "003-11",
        "the more loops in threads, the slower",
        documented="14.96, 27.40, 33.20 s",
        measured=", ".join(f"{seconds:.2f}" for seconds in times)
        + " s; CPU per request "
        + ", ".join(f"{ms:.2f}" for ms in works)
        + " ms",
        tolerance="each step up no faster than the one before (5 %)",
        verdict=graded(rises, works[0] < works[2], contended=_contended(ten, hundred, thousand)),
        why=OTHERS if _contended(ten, hundred, thousand) else "",
        value=times[2] / times[0],
        contended=_contended(ten, hundred, thousand),
    )


def _descriptors(bench: Bench, found: Runs) -> None:
    """The number of threads left without a loop follows from the limit alone, since all loops are made first."""
    enough = found["hybrid, files enough"]
    few = next(one for one in found.values() if one.plan.together and one.plan.descriptors)
    needed = FILES_PER_LOOP * few.plan.threads
    allowed = int(few.run.said["descriptors"])
    high = int(enough.run.said["descriptors"])
    if high < 4 * enough.plan.threads + 100:
        bench.check(
            "003-12",
            "failures explode with 1 000 loops",
            documented="5 629 of 10 000 failed (56 %)",
            measured=f"{few.failures} failed with {allowed} files",
            tolerance="failures if, and only if, the limit is below 3 files a loop and 1 a connection",
            verdict="cannot be tested here",
            why=f"This process may not open more than {high} files, so there is no run with enough of them.",
        )
        return
    causes = few.run.said["failures"]
    because = set(causes) <= {"EMFILE"}
    lost = int(few.run.said["without_loop"])
    right = (
        few.failures > 0 and because and enough.failures == 0 and lost >= few.plan.threads - allowed // FILES_PER_LOOP
    )
    bench.check(
        "003-12",
        "failures explode with 1 000 loops",
        documented="5 629 of 10 000 failed (56 %)",
        measured=f"{few.failures} of {few.run.said['urls']} failed with {allowed} files, {enough.failures} with {high}",
        tolerance="failures if, and only if, the limit is below 3 files a loop and 1 a connection",
        verdict="holds in shape" if right else "does not hold",
        why=f"{few.plan.threads} loops need {needed} files before the first connection; {lost} threads got no loop, "
        f"and every failure is {' or '.join(sorted(causes)) or 'none'}: it is the limit that the document set itself.",
        value=few.failures / few.run.said["urls"],
    )


def _cpu_per_request(bench: Bench, found: Runs, libraries: tuple[str, str]) -> None:
    threads, equal = found["100 threads"], found["asyncio, limit 100"]
    ratio = threads.cpu_ms / equal.cpu_ms
    own = libraries == ("requests", "aiohttp")
    bench.check(
        "003-13",
        "a request costs threads more CPU than asyncio",
        documented="5.6 and 0.95 ms: 5.9×",
        measured=f"{threads.cpu_ms:.2f} ms ({libraries[0]}) and {equal.cpu_ms:.2f} ms ({libraries[1]}): {ratio:.1f}×",
        tolerance="3-8×",
        verdict=graded(3 <= ratio <= 8, ratio > 1) if own else "cannot be tested here",
        why="It is the price of the libraries, requests and aiohttp, not of threads."
        if own
        else "Only with the document's own libraries, requests and aiohttp; others cost another amount.",
        value=ratio,
        contended=False,
    )
