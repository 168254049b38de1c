"""One concurrency model doing document 003's CPU-bound task, in a process of its own.

Prints one line of JSON: what it counted and what that cost. A fresh process per model, since its memory
never shrinks and an imported module stays; nothing is imported before the base line is read that a plain
script would not import. Run as ``python -m mcp_probe.workloads.models.cpu --model sync --urls 20000``.
"""

from __future__ import annotations

import argparse
import json
import queue
import resource
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from mcp_probe.workloads.models.urls import encoded_bytes, urls
from mcp_probe.workloads.servers.resident import kernel_bytes, resident_bytes


def sync(count: int, threads: int) -> int:
    """A loop."""
    return sum(map(encoded_bytes, urls(count)))


def awaited(count: int, threads: int) -> int:
    """The document's "asyncio": a coroutine per URL, awaited one after another; nothing ever suspends."""
    import asyncio

    async def one(url: str) -> int:
        return encoded_bytes(url)

    async def every() -> int:
        total = 0
        for url in urls(count):
            total += await one(url)
        return total

    return asyncio.run(every())


def gathered(count: int, threads: int) -> int:
    """A task per URL, all of them at once."""
    import asyncio

    async def one(url: str) -> int:
        return encoded_bytes(url)

    async def every() -> int:
        return sum(await asyncio.gather(*(one(url) for url in urls(count))))

    return asyncio.run(every())


def threaded(count: int, threads: int) -> int:
    """Each thread has its own share and hands over its sum."""
    sums: queue.SimpleQueue[int] = queue.SimpleQueue()
    workers = [threading.Thread(target=lambda: sums.put(sync(count // threads, 1))) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return sum(sums.get() for _ in workers)


MODELS: dict[str, Callable[[int, int], int]] = {
    "sync": sync,
    "await": awaited,
    "gather": gathered,
    "threads": threaded,
}


def profiled(model: str, count: int, threads: int, record: str) -> dict[str, Any]:
    """The same work under a probe, for an explanation and never for a time.

    A probe follows coroutines and executors: the loop is one coroutine, and the threads are an executor's.
    """
    import asyncio
    from concurrent.futures import ThreadPoolExecutor

    from mcp_probe.session import Probe

    probe = Probe(record=record)

    async def encode(share: int) -> int:
        return sync(share, 1)

    encode.__qualname__ = "encode"
    followed = probe.profile(encode)

    async def in_thread(share: int, pool: ThreadPoolExecutor) -> int:
        return await asyncio.get_running_loop().run_in_executor(pool, sync, share, 1)

    in_thread.__qualname__ = "encode"
    followed_in_thread = probe.profile(in_thread)

    async def every() -> int:
        if model == "threads":
            with ThreadPoolExecutor(threads, thread_name_prefix="encoders") as pool:
                return sum(await asyncio.gather(*(followed_in_thread(count // threads, pool) for _ in range(threads))))
        calls = threads if model == "gather" else 1
        return sum(await asyncio.gather(*(followed(count // calls) for _ in range(calls))))

    try:
        return {"bytes": asyncio.run(every())}
    finally:
        probe.detach()


def measure(model: str, count: int, threads: int) -> dict[str, Any]:
    """Runs the model once."""
    began = Costs()
    counted = MODELS[model](count, threads)
    return {"bytes": counted, **began.until_now(), "gil": gil_enabled()}


class Costs:
    """What this process used since this was made."""

    def __init__(self) -> None:
        self._usage = resource.getrusage(resource.RUSAGE_SELF)
        self._cpu_ns, self._wall_ns = time.process_time_ns(), time.perf_counter_ns()

    def until_now(self) -> dict[str, Any]:
        """Seconds, CPU seconds, context switches; memory now, and at most (ever)."""
        wall_ns, cpu_ns = time.perf_counter_ns() - self._wall_ns, time.process_time_ns() - self._cpu_ns
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return {
            "began_ns": self._wall_ns,
            "ended_ns": self._wall_ns + wall_ns,
            "seconds": wall_ns / 1e9,
            "cpu_seconds": cpu_ns / 1e9,
            "switches_voluntary": usage.ru_nvcsw - self._usage.ru_nvcsw,
            "switches_involuntary": usage.ru_nivcsw - self._usage.ru_nivcsw,
            "rss_bytes": resident_bytes(),
            "rss_peak_bytes": kernel_bytes("VmHWM"),  # not ``ru_maxrss``, which a child begins with its parent's of
        }


def gil_enabled() -> bool:
    """Whether Python code of two threads takes turns in this interpreter."""
    asked: Callable[[], bool] | None = getattr(sys, "_is_gil_enabled", None)
    return asked is None or asked()


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs one model and says what it cost."""
    parser = argparse.ArgumentParser(description="One concurrency model on a CPU-bound task.")
    parser.add_argument("--model", choices=[*MODELS, "import"], required=True)
    parser.add_argument("--urls", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--record")
    options = parser.parse_args(arguments)
    if options.model == "import":
        found = import_costs()
    elif options.record:
        found = profiled(options.model, options.urls, options.threads, options.record)
    else:
        found = measure(options.model, options.urls, options.threads)
    sys.stdout.write(json.dumps(found) + "\n")


def import_costs() -> dict[str, Any]:
    """Resident memory before and after ``import asyncio``, and with its loop running."""
    before = resident_bytes()
    import asyncio

    imported = resident_bytes()

    async def inside() -> int | None:
        return resident_bytes()

    return {"before_bytes": before, "imported_bytes": imported, "running_bytes": asyncio.run(inside())}


if __name__ == "__main__":
    main()
