"""Document 003: three CPU-bound tables and nine I/O-bound ones, as printed; 1 KB is 1 000 bytes there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mcp_probe.workloads.bench.shapes import Asked, Claim

CORES = 4
CPU_URLS = 100_000

# Metric: its figure of each run.
_CPU = {
    "time": (9.77, 9.78, 12.35),
    "bytes": (51_258_766, 51_258_766, 51_145_360),
    "CPU": (95.01, 95.89, 109.59),
    "CPU max": (104.2, 102.6, 172.1),
    "system CPU": (24.67, 24.47, 27.03),
    "system CPU max": (28.5, 26.8, 27.9),
    "memory": (15.79, 22.72, 16.01),
}
CPU_BOUND: Mapping[str, Mapping[str, float]] = {
    model: {metric: figures[place] for metric, figures in _CPU.items()}
    for place, model in enumerate(("sync", "asyncio", "10 threads"))
}

PLOTS = {
    "003 CPU-bound": ("time", "CPU usage", "memory"),
    "003 I/O-bound": ("time", "download speed", "CPU usage", "memory", "failures"),
}
"""The eight plots of the document, by table and metric."""

_TOGETHER: Mapping[str, tuple[str, str]] = {
    "CPU": ("CPU usage", "process"),
    "system CPU": ("CPU usage", "system"),
    "CPU max": ("CPU usage, maximum", "process"),
    "system CPU max": ("CPU usage, maximum", "system"),
}
"""Metrics that the document plots together: their common name, and the name of each."""


def charted(metric: str, what: str) -> dict[str, str]:
    """Where a row of this metric, ``what`` in words, stands in the plots."""
    chart, series = _TOGETHER.get(metric, (metric, what))
    return {"metric": chart, "series": series}


@dataclass(frozen=True, slots=True)
class IoTable:
    """One table. ``concurrency``: the requests it could have in flight; ``x``: its place in the plots."""

    label: str
    x: str
    urls: int
    concurrency: int
    figures: Mapping[str, float]


_RUNS = {
    "sync 100": ("sync, 100 URLs", "sync 100", 100, 1),
    "sync": ("sync", "sync", 1_000, 1),
    "asyncio": ("asyncio", "asyncio", 10_000, 1_000),
    "asyncio 100000": ("asyncio, 100 000 URLs", "asyncio 100k", 100_000, 1_000),
    "100 threads": ("100 threads", "100 threads", 10_000, 100),
    "1000 threads": ("1 000 threads", "1k threads", 10_000, 1_000),
    "hybrid 10": ("hybrid, 10 threads", "hybrid 10", 10_000, 1_000),
    "hybrid 100": ("hybrid, 100 threads", "hybrid 100", 10_000, 1_000),
    "hybrid 1000": ("hybrid, 1 000 threads", "hybrid 1k", 10_000, 1_000),
}
# Metric: unit, what it is called, and its figure of each run.
_IO: Mapping[str, tuple[str, str, tuple[float | None, ...]]] = {
    "time": ("s", "execution time", (18.16, 182.84, 14.08, 117.47, 50.01, 61.63, 14.96, 27.40, 33.20)),
    "downloaded": (
        "bytes",
        "downloaded",
        (537_368, 5_146_743, 20_201_259, 193_544_856, 21_417_924, 25_163_978, 21_448_856, 18_695_887, 11_686_419),
    ),
    "download speed": (
        "KB/s",
        "download speed",
        (29.58, 28.15, 1_435.17, 1_647.62, 428.25, 408.28, 1_434.11, 682.34, 352.03),
    ),
    "uploaded": (
        "bytes",
        "uploaded",
        (146_011, 1_502_356, 11_514_625, 105_035_999, 12_169_682, 17_453_941, 12_167_664, 12_749_017, 7_690_232),
    ),
    "upload speed": ("KB/s", "upload speed", (8.04, 8.22, 818.04, 894.16, 243.33, 283.19, 813.55, 465.30, 231.65)),
    "written": (
        "bytes",
        "written to file",
        (143_002, 1_445_934, 14_187_346, 141_734_263, 14_490_182, 13_788_400, 14_164_960, 13_195_640, 6_197_840),
    ),
    "failures": ("requests", "failed requests", (0, 0, 6, 197, 0, 465, 14, 721, 5_629)),
    "CPU": ("%", "CPU, process, mean", (2.91, 2.94, 67.53, 83.56, 111.19, 121.20, 109.50, 131.71, 150.87)),
    "CPU max": ("%", "CPU, process, maximum", (6.0, 7.9, 102.5, 104.6, 123.0, 196.3, 148.0, 194.8, 169.2)),
    "system CPU": ("%", "CPU, system, mean", (7.70, 6.38, 29.96, 32.03, 35.90, 44.15, 38.54, 56.44, 67.54)),
    "system CPU max": ("%", "CPU, system, maximum", (34.7, 61.0, 86.6, 92.1, 75.9, 81.6, 70.1, 95.8, 85.8)),
    "memory": ("MB", "memory, mean", (30.36, 30.45, 120.26, 763.79, 51.02, 118.37, 131.87, 152.60, 170.54)),
    "memory max": ("MB", "memory, maximum", (None, None, 130.68, 837.23, 52.90, 147.84, 155.31, 164.66, 176.06)),
}
IO_METRICS = {metric: (unit, what) for metric, (unit, what, _) in _IO.items()}
IO_BOUND: Mapping[str, IoTable] = {
    run: IoTable(*about, {name: told for name, (_, _, each) in _IO.items() if (told := each[at]) is not None})
    for at, (run, about) in enumerate(_RUNS.items())
}

CPU_OF_A_REQUEST = 5.6 / 0.95
"""Milliseconds with 100 threads over milliseconds with asyncio: CPU time over requests."""

CLAIMS = Claim.by_id(
    Claim(
        "003-1",
        "asyncio is no faster than sync on CPU work",
        "9.78 / 9.77 s = 1.00×",
        (Asked("same"),),
        why_holds="nothing is ever scheduled: the coroutines are awaited one after another and none suspends",
    ),
    Claim(
        "003-2",
        "10 threads are slower than a loop on CPU work",
        "12.35 / 9.77 s = 1.26×",
        (Asked("times", (round(CPU_BOUND["10 threads"]["time"] / CPU_BOUND["sync"]["time"], 2),)),),
    ),
    Claim(
        "003-3",
        "CPU-bound Python uses about one core, threads or not",
        "95 / 96 / 110 %",
        (Asked("same", (100.0,), "down"),),
        "CPU over time, every model",
        why_holds="one interpreter lock lets one thread compute at a time",
    ),
    Claim(
        "003-4",
        "asyncio needs more memory",
        "+44 % (+6.9 MB)",
        (Asked("figure", (CPU_BOUND["asyncio"]["memory"] - CPU_BOUND["sync"]["memory"],), "not", "MB more"),),
    ),
    Claim(
        "003-4a",
        "... for its event loop",
        '"event loop overhead"',
        (Asked("at least", (0.5,), "not", "share of the running loop"),),
        why_not="it is the import: a running loop adds next to nothing to what importing asyncio took",
    ),
    Claim(
        "003-bytes",
        "every model encodes the same characters",
        "51,258,766 and, with 10 threads, 51,145,360 bytes",
        (Asked("exact", (0,), "not", "wrong sums"),),
        "to the byte",
        why_holds="both totals follow from a host name of 12 characters; each of the threads restarts at number 0",
    ),
    Claim(
        "003-tools",
        "threads are no help to MCP tools that compute",
        "12.35 s in 10 threads, 9.77 s without",
        (Asked("same"),),
        "8 calls at once, in threads over on the loop, medians",
        why_holds="one interpreter computes for one request at a time, wherever the tool runs",
    ),
    Claim(
        "003-tools-quick",
        "... but a quick call waits behind an async tool only",
        "not measured there",
        (Asked("more", load="blurs"),),
        "behind the async tool over behind the thread, medians",
    ),
    Claim(
        "003-5",
        "one after another, time grows linearly with the number of URLs",
        "18.16 -> 182.84 s for ten times the URLs: 1.007×",
        (Asked("same", (1.007,)),),
        "time per URL",
        why_holds="each request waits for the one before: a URL costs the server's delay and nothing is shared",
    ),
    Claim(
        "003-6",
        "asyncio is 130 times as fast as one request after another",
        "18 284 s (extrapolated) / 14.08 s = 130×, with 1 000 connections",
        (Asked("times", (130.0,), "down"),),
        "with the run's most connections",
    ),
    Claim(
        "003-7",
        "asyncio with 1 000 connections is 3.5 times as fast as 100 threads",
        "14.08 s with 1 000 connections, 50.01 s with 100 threads: 3.55×",
        (Asked("times", (3.55,), "down"),),
        why_holds="ten times the connections",
    ),
    Claim(
        "003-7a",
        "so asyncio is faster than threads",
        '"asyncio wins"',
        (Asked("times", (3.55,)),),
        "at equal concurrency, 100 connections each",
        why_not="with as many connections both take about the same time",
    ),
    Claim("003-8", "1 000 threads are slower than 100", "61.63 s, 50.01 s: 1.23×", (Asked("times", (1.23,), "up"),)),
    Claim(
        "003-9",
        "100 threads need less memory than asyncio",
        "51.0 MB, 120.3 MB: 2.36×",
        (Asked("times", (2.36,), "not"),),
        why_holds="it is the coroutine for every URL, all made up front, that takes the memory, not the connections: "
        "with a coroutine per connection it is gone",
    ),
    Claim(
        "003-10",
        "10 loops in threads are as fast as one, for more CPU",
        "14.96 s, 14.08 s: 1.06×; CPU 110 %, 68 %: 1.72×",
        (Asked("same", (1.06,), what="time"), Asked("times", (1.72,), what="CPU time")),
        why_holds="the same connections wait for the same server; ten loops poll for them instead of one",
    ),
    Claim(
        "003-11",
        "the more loops in threads, the slower",
        "14.96, 27.40, 33.20 s",
        (Asked("times", (1.83,), what="100 over 10"), Asked("times", (1.21,), what="1000 over 100")),
    ),
    Claim(
        "003-12",
        "failures explode with 1 000 loops",
        "5 629 of 10 000 failed (56 %)",
        (
            Asked("figure", (0.5629,), "not", "share of failures"),
            Asked("exact", (0,), "not", "failures with files enough"),
            Asked("exact", (0,), "not", "other causes than EMFILE"),
            Asked("at least", (0.0,), "not", "threads without a loop beyond those the limit explains"),
        ),
        why_holds="it is the limit of open files that the document set itself",
    ),
    Claim(
        "003-13",
        "a request costs threads more CPU than asyncio",
        "5.6 and 0.95 ms: 5.9×",
        (Asked("times", (5.9,)),),
        why_holds="it is the price of the libraries, requests and aiohttp, not of threads",
    ),
    Claim(
        "003-io-bytes",
        "every model fetches and writes the same answers",
        "143,002 bytes for 100 URLs, 14.2 to 14.5 MB for 10,000",
        (Asked("exact", (0,), "not", "wrong sums"),),
        "to the byte, and as many requests at the server as URLs",
        why_holds="the sums follow from the URLs and from the server's answers, which depend on nothing else",
    ),
)
