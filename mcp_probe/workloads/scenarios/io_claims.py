"""Document 003's I/O-bound claims, of one set of runs."""

from __future__ import annotations

from collections.abc import Mapping

from mcp_probe.workloads.bench.context import Bench
from mcp_probe.workloads.bench.shapes import Measured
from mcp_probe.workloads.bench.statistics import counted, ratio_floor
from mcp_probe.workloads.scenarios.documents.doc003 import CLAIMS, IO_BOUND
from mcp_probe.workloads.scenarios.io_runs import Found

Runs = Mapping[str, Found]
BUSY_PERCENT = 85.0
"""CPU of one process from which on it, and not the waiting, is what bounds a run: the others' tables reach 95-100."""
FILES_PER_LOOP = 3  # the selector and both ends of the socket that wakes it


class Claims:
    """Of ``found``. Every run is one run: what one of them differed by when it ran again stands for all of them."""

    def __init__(self, bench: Bench, found: Runs, again: Found, libraries: tuple[str, str], whys: Mapping[str, str]):
        self.bench = bench
        self.found = found
        self.libraries = libraries
        self.whys = whys
        equal = found["asyncio, limit 100"]
        self.floor = ratio_floor([equal.run.seconds], [again.run.seconds])
        self.cpu_floor = ratio_floor([equal.cpu_ms], [again.cpu_ms])
        self.memory_floor = ratio_floor([equal.run.rss_max_mb or 1.0], [again.run.rss_max_mb or 1.0])

    def judge(self) -> None:
        """Adds a check for each claim."""
        self._linear()
        self._speed_up()
        self._equal_concurrency()
        self._more_threads()
        self._memory()
        self._hybrids()
        self._descriptors()
        self._cpu_per_request()

    def times(self, over: Found, under: Found, value: float | None = None) -> Measured:
        """Time over time, or ``value`` in its place."""
        ratio = over.run.seconds / under.run.seconds if value is None else value
        return Measured(ratio, floor=self.floor, contended=over.contended or under.contended)

    def _linear(self) -> None:
        few, many = self.found["sync 100"], self.found["sync"]
        if few.plan.delay_ms == many.plan.delay_ms:
            value, what = _per_url_ms(many) / _per_url_ms(few), "ms per URL"
            each = [_per_url_ms(few), _per_url_ms(many)]
        else:
            value, what = (_over_the_wait_ms(many) + few.plan.delay_ms) / _per_url_ms(few), "ms per URL over the wait"
            each = [_over_the_wait_ms(few), _over_the_wait_ms(many)]
        self.bench.claim(
            CLAIMS["003-5"],
            self.times(many, few, value),
            said=f"{few.plan.urls} and {many.plan.urls} URLs, {each[0]:.2f} and {each[1]:.2f} {what}: {value:.3f}×",
            why=self.whys.get("sync", ""),
        )

    def _speed_up(self) -> None:
        """At the documented sizes, sync is extrapolated: so did the document."""
        equal, most, sync = (self.found[name] for name in ("asyncio, limit 100", "asyncio", "sync"))
        base_ms = equal.plan.delay_ms + _over_the_wait_ms(sync)
        at_100, at_most = base_ms / _per_url_ms(equal), base_ms / _per_url_ms(most)
        self.bench.claim(
            CLAIMS["003-6"],
            self.times(sync, most, at_most),
            said=f"{at_most:.0f}× with {most.plan.limit} connections, {at_100:.0f}× with 100",
            why=f"With {most.plan.limit} connections the client's CPU is {most.run.cpu_percent:.0f} % busy, "
            f"with 100 {equal.run.cpu_percent:.0f} %; {base_ms:.1f} ms a request one after another",
        )

    def _equal_concurrency(self) -> None:
        threads, equal, most = (self.found[name] for name in ("100 threads", "asyncio, limit 100", "asyncio"))
        unequal = self.times(threads, most)
        said = f"{unequal.value:.1f}× with {most.plan.limit} against 100"
        self.bench.claim(CLAIMS["003-7"], unequal, said=said, why=self.whys.get("asyncio", ""))
        ratio = self.times(threads, equal)
        bound = threads.run.cpu_percent >= BUSY_PERCENT
        self.bench.claim(
            CLAIMS["003-7a"],
            ratio,
            said=f"{threads.run.seconds:.2f} s with threads at {threads.run.cpu_percent:.0f} % CPU, "
            f"{equal.run.seconds:.2f} s with asyncio at {equal.run.cpu_percent:.0f} %: {ratio.value:.2f}×",
            why="The threads are bound by their CPU here" if bound else self.whys.get("100 threads", ""),
        )

    def _more_threads(self) -> None:
        some, many = self.found["100 threads"], self.found["1000 threads"]
        ratio = self.times(many, some)
        bound = some.run.cpu_percent >= BUSY_PERCENT and ratio.value >= 1
        self.bench.claim(
            CLAIMS["003-8"],
            *([] if bound else [ratio]),
            said=f"{many.run.seconds:.2f} s with {many.plan.threads}, {some.run.seconds:.2f} s with 100: "
            f"{ratio.value:.2f}×",
            why=f"CPU {some.run.cpu_percent:.0f} % with 100 threads, {many.run.cpu_percent:.0f} % with "
            f"{many.plan.threads}, of which at most {many.server.in_flight_peak} had a request under way at once: "
            f"{many.cpu_ms:.2f} ms of CPU a request",
            untold="the CPU is the limit already at 100",
        )

    def _memory(self) -> None:
        names = ("100 threads", "asyncio", "asyncio, 100 workers")
        sizes = [self.found[name].run.rss_max_mb for name in names]
        known = [size for size in sizes if size is not None]
        if len(known) < len(sizes):
            why = "this system does not tell a process's resident memory"
            self.bench.claim(CLAIMS["003-9"], said="-", untold=why)
            return
        threads, tasks, workers = known
        urls = self.found["asyncio"].plan.urls
        self.bench.claim(
            CLAIMS["003-9"],
            *([Measured(tasks / threads, floor=self.memory_floor)] if urls >= IO_BOUND["asyncio"].urls else []),
            said=f"{threads:.0f} MB with 100 threads, {tasks:.0f} MB with asyncio, {workers:.0f} MB with 100 asyncio "
            "workers",
            why=f"asyncio had a coroutine for each of {urls:,} URLs at once",
            untold=f"{urls:,} coroutines at once are too few beside the document's to weigh",
        )

    def _hybrids(self) -> None:
        pure = self.found["asyncio"]
        ten, hundred, thousand = (self.found[f"hybrid {count}"] for count in (10, 100, 1000))
        wall, cpu = self.times(ten, pure), ten.run.cpu_seconds / pure.run.cpu_seconds
        self.bench.claim(
            CLAIMS["003-10"],
            wall,
            Measured(cpu, floor=self.cpu_floor, contended=ten.contended or pure.contended),
            said=f"{wall.value:.2f}× the time, {cpu:.2f}× the CPU time",
            why=self.whys.get("hybrid 10", ""),
        )
        runs = (ten, hundred, thousand)
        self.bench.claim(
            CLAIMS["003-11"],
            self.times(hundred, ten),
            self.times(thousand, hundred),
            said=", ".join(f"{one.run.seconds:.2f}" for one in runs)
            + " s; CPU per request "
            + ", ".join(f"{one.cpu_ms:.2f}" for one in runs)
            + " ms",
            why=f"A request costs {thousand.cpu_ms / ten.cpu_ms:.1f} times the CPU with 1000 loops",
        )

    def _descriptors(self) -> None:
        """The number of threads left without a loop follows from the limit alone, since all loops are made first."""
        enough = self.found["hybrid, files enough"]
        few = next(one for one in self.found.values() if one.plan.together and one.plan.descriptors)
        needed = FILES_PER_LOOP * few.plan.threads
        allowed, high = int(few.run.said["descriptors"]), int(enough.run.said["descriptors"])
        causes, lost = few.run.said["failures"], int(few.run.said["without_loop"])
        others = sum(count for cause, count in causes.items() if cause != "EMFILE")
        beyond = lost - (few.plan.threads - allowed // FILES_PER_LOOP)
        figures = (few.failures / few.run.said["urls"], enough.failures, others, beyond)
        told = high >= 4 * enough.plan.threads + 100
        self.bench.claim(
            CLAIMS["003-12"],
            *(map(counted, figures) if told else ()),
            said=f"{few.failures} of {few.run.said['urls']} failed with {allowed} files, {enough.failures} with {high}",
            why=f"{few.plan.threads} loops need {needed} files before the first connection; {lost} threads got no "
            f"loop, and the failures are {' or '.join(sorted(causes)) or 'none'}",
            untold=f"this process may not open more than {high} files, so there is no run with enough of them",
        )

    def _cpu_per_request(self) -> None:
        threads, equal = self.found["100 threads"], self.found["asyncio, limit 100"]
        ratio = threads.cpu_ms / equal.cpu_ms
        own = self.libraries == ("requests", "aiohttp")
        measured = Measured(ratio, floor=self.cpu_floor, contended=threads.contended or equal.contended)
        self.bench.claim(
            CLAIMS["003-13"],
            *([measured] if own else []),
            said=f"{threads.cpu_ms:.2f} ms ({self.libraries[0]}) and {equal.cpu_ms:.2f} ms ({self.libraries[1]}): "
            f"{ratio:.1f}×",
            untold="only with the document's own libraries, requests and aiohttp; others cost another amount",
        )


def _per_url_ms(one: Found) -> float:
    return 1000 * one.run.seconds / one.plan.urls


def _over_the_wait_ms(one: Found) -> float:
    return _per_url_ms(one) - one.plan.delay_ms
