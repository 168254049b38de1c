"""One concurrency model doing document 003's I/O-bound task, in a process of its own.

GETs every URL, appends the bodies to a file, and prints one line of JSON: bytes, failures by their cause, and
what it cost. Run as ``python -m mcp_probe.workloads.models.io --model threads --threads 100 --url http://…``.
With ``--record`` the same requests are made under a probe, for an explanation and never for a time.
"""

from __future__ import annotations

import argparse
import asyncio
import errno
import io
import json
import logging
import queue
import resource
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, BinaryIO, TypeVar, cast

from mcp_probe.workloads.models.clients import AsyncGet, Get, async_client, sync_client
from mcp_probe.workloads.models.cpu import Costs, gil_enabled
from mcp_probe.workloads.models.urls import paths

F = TypeVar("F", bound=Callable[..., Awaitable[Any]])


@dataclass
class Job:
    """What is to be done, and what became of it. Written to from several threads, under ``lock``."""

    base: str
    count: int
    threads: int
    limit: int
    library: str
    file: BinaryIO
    wrap: Callable[[str, AsyncGet], AsyncGet]
    lock: threading.Lock = field(default_factory=threading.Lock)
    written: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    without_loop: int = 0  # threads that could not make an event loop
    all_made: threading.Barrier | None = None  # no thread begins before each has made its loop, or failed to

    def urls(self) -> list[str]:
        """All of one generator."""
        return [self.base + path for path in paths(self.count)]

    def keep(self, body: bytes) -> None:
        """Appends to the file."""
        with self.lock:
            self.written += self.file.write(body)

    def fail(self, exc: BaseException, count: int = 1) -> None:
        """Counts a failed request by what it failed of."""
        with self.lock:
            self.failures[cause_of(exc)] += count


def cause_of(exc: BaseException) -> str:
    """Name of the innermost system error (``EMFILE``), else of the exception."""
    inner: BaseException | None = exc
    seen: set[int] = set()
    while inner is not None and id(inner) not in seen:
        seen.add(id(inner))
        if isinstance(inner, OSError) and (name := errno.errorcode.get(inner.errno or 0)):
            return name
        if "Too many open files" in str(inner):
            return "EMFILE"  # urllib3 keeps the number only as text
        inner = inner.__cause__ or inner.__context__
    return type(exc).__name__


def sync(job: Job) -> None:
    """One after another over one session."""
    with sync_client(job.library) as get:
        for url in job.urls():
            _fetch(job, get, url)


def threaded(job: Job) -> None:
    """``threads`` threads over one queue and one session."""
    waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
    for url in job.urls():
        waiting.put(url)

    def work(get: Get) -> None:
        while True:
            try:
                url = waiting.get_nowait()
            except queue.Empty:
                return
            _fetch(job, get, url)

    with sync_client(job.library) as get:
        _run_threads(job, [lambda: work(get)] * job.threads)
    while not waiting.empty():
        waiting.get_nowait()
        job.fail(RuntimeError("no thread was left to take it"))


def gathered(job: Job) -> None:
    """A coroutine per URL, all created up front; at most ``limit`` connections."""
    asyncio.run(_gather(job, job.urls(), job.limit))


def workers(job: Job) -> None:
    """``limit`` coroutines that take one URL after another: the same concurrency, no task per URL."""

    async def every() -> None:
        waiting = iter(job.urls())
        async with async_client(job.library, job.limit) as plain:
            get = job.wrap("fetch", plain)

            async def work() -> None:
                for url in waiting:
                    await _afetch(job, get, url, job.keep)

            await asyncio.gather(*(work() for _ in range(job.limit)))

    asyncio.run(every())


def hybrid(job: Job) -> None:
    """An event loop per thread, each with its share of the URLs and of the connections."""
    share, limit = job.count // job.threads, max(1, job.limit // job.threads)
    every = job.urls()
    chunks = [every[number * share : (number + 1) * share] for number in range(job.threads)]

    def work(chunk: list[str]) -> None:
        try:
            loop = asyncio.new_event_loop()
        except OSError as exc:
            with job.lock:
                job.without_loop += 1
            job.fail(exc, len(chunk))
            loop = None
        if job.all_made is not None:
            job.all_made.wait()
        if loop is None:
            return
        try:
            loop.run_until_complete(_chunk(job, chunk, limit))
        finally:
            loop.close()

    _run_threads(job, [lambda chunk=chunk: work(chunk) for chunk in chunks])  # type: ignore[misc]
    job.count = share * job.threads


async def _chunk(job: Job, chunk: list[str], limit: int) -> None:
    kept = io.BytesIO()
    await _gather(job, chunk, limit, kept.write)
    job.keep(kept.getvalue())


async def _gather(job: Job, every: list[str], limit: int, keep: Callable[[bytes], object] | None = None) -> None:
    async with async_client(job.library, limit) as plain:
        get = job.wrap("fetch", plain)
        await asyncio.gather(*(_afetch(job, get, url, keep or job.keep) for url in every))


def _fetch(job: Job, get: Get, url: str) -> None:
    try:
        body = get(url)
    except Exception as exc:  # noqa: BLE001 - whatever a library raises is a failed request
        job.fail(exc)
    else:
        job.keep(body)


async def _afetch(job: Job, get: AsyncGet, url: str, keep: Callable[[bytes], object]) -> None:
    try:
        body = await get(url)
    except Exception as exc:  # noqa: BLE001 - whatever a library raises is a failed request
        job.fail(exc)
    else:
        keep(body)


def _run_threads(job: Job, bodies: Sequence[Callable[[], None]]) -> None:
    """All at once; a thread that cannot be started is a failure of whatever it would have done."""
    started = []
    for body in bodies:
        thread = threading.Thread(target=body)
        try:
            thread.start()
        except RuntimeError as exc:
            job.fail(exc)
        else:
            started.append(thread)
    for thread in started:
        thread.join()


MODELS: dict[str, Callable[[Job], None]] = {
    "sync": sync,
    "gather": gathered,
    "workers": workers,
    "threads": threaded,
    "hybrid": hybrid,
}


def sync_on_a_loop(job: Job) -> None:
    """``sync`` inside one coroutine: what a probe of a loop can see of it."""

    async def every() -> None:
        with sync_client(job.library) as plain:

            async def get(url: str) -> bytes:
                return plain(url)

            wrapped = job.wrap("fetch", get)
            for url in job.urls():
                await _afetch(job, wrapped, url, job.keep)

    asyncio.run(every())


def threads_of_a_pool(job: Job) -> None:
    """``threads`` through an executor, which a probe can see; a coroutine waits for each URL."""

    async def every() -> None:
        loop = asyncio.get_running_loop()
        with sync_client(job.library) as plain, ThreadPoolExecutor(job.threads, thread_name_prefix="fetchers") as pool:

            async def get(url: str) -> bytes:
                return await loop.run_in_executor(pool, plain, url)

            wrapped = job.wrap("fetch", get)
            await asyncio.gather(*(_afetch(job, wrapped, url, job.keep) for url in job.urls()))

    asyncio.run(every())


PROFILED = {**MODELS, "sync": sync_on_a_loop, "threads": threads_of_a_pool}


@contextmanager
def probed(record: str | None, **options: Any) -> Iterator[Callable[[str, F], F]]:
    """Yields what puts a request under the probe, by a name; does nothing without ``record``."""
    if record is None:
        yield lambda name, request: request
        return
    from mcp_probe.session import Probe

    probe = Probe(record=record, **options)

    def wrap(name: str, request: F) -> F:
        async def fetch(*arguments: Any) -> Any:
            return await request(*arguments)

        fetch.__qualname__ = name
        return cast("F", probe.profile(fetch))

    try:
        yield wrap
    finally:
        probe.detach()


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Runs the model once."""
    models = PROFILED if options.record else MODELS
    descriptors = limit_descriptors(options.descriptors)
    with tempfile.TemporaryFile() as file, probed(options.record) as wrap:
        job = Job(options.url, options.urls, options.threads, options.limit, options.library, file, wrap)
        if options.together:
            job.all_made = threading.Barrier(options.threads)
        began = Costs()
        models[options.model](job)
        costs = began.until_now()
    return {
        **costs,
        "urls": job.count,
        "written_bytes": job.written,
        "failures": dict(job.failures),
        "without_loop": job.without_loop,
        "descriptors": descriptors,
        "gil": gil_enabled(),
    }


def limit_descriptors(wanted: int) -> int:
    """Sets how many files this process may have open, 0 = as many as the system allows; returns how many it may."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = hard if wanted == 0 or (hard != resource.RLIM_INFINITY and wanted > hard) else wanted
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs one model and says what it cost."""
    parser = argparse.ArgumentParser(description="One concurrency model on an I/O-bound task.")
    parser.add_argument("--model", choices=MODELS, required=True)
    parser.add_argument("--url", required=True, help="of the server, without a path")
    parser.add_argument("--urls", type=int, default=100)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--limit", type=int, default=1000, help="connections")
    parser.add_argument("--library", required=True)
    parser.add_argument("--descriptors", type=int, default=0)
    parser.add_argument("--together", action="store_true", help="hybrid: every loop is made before any is used")
    parser.add_argument("--record")
    options = parser.parse_args(arguments)
    # What urllib3 and asyncio say of each of a thousand failures would be most of the run.
    logging.disable(logging.CRITICAL)
    __import__(options.library)
    sys.stdout.write(json.dumps(measure(options)) + "\n")


if __name__ == "__main__":
    main()
